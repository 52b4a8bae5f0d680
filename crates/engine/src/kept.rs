//! The items of checkpoints and snapshots: the layout of each, and how it is restored. Leases are not kept, only
//! the failed attempts before them.
//!
//! An item of a partition is its head (settings and offsets), some of its producers, or a slice: the whole state of
//! a range of offsets.

use std::{ops::Range, sync::Arc};

use bytes::Buf;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sennit_model::{
    Class, CursorName, Durability, GroupId, GroupName, Incarnation, Offset, OffsetRange,
    PartitionId, ProducerId, Timestamp, TopicConfig, TopicId, TopicName,
};

use crate::{
    catalogue::{CatalogueGroup, Topic},
    codec::{Reader, Writer},
    command::{DeadLetters, GroupSetting},
    group::{Damaged, Dying, Group, range},
    latest::Clean,
    log::{Entry, Place},
    partition::Partition,
    producer::{AppendedBatch, Producer},
    record::{TopicCreated, TopicSettings},
    record_error::RecordError,
    runs::Runs,
    seen_values::SeenValue,
    stream_codec::KeptStream,
    streams::Stream,
    terms::{NamedTerms, Terms},
    tries::{Tries, Waiting},
};

const TOPIC: u8 = 1;
const HEAD: u8 = 2;
const PRODUCERS: u8 = 3;
const SLICE: u8 = 4;
const LOST: u8 = 5;
const LOST_TOPICS: u8 = 6;
const CURSORS: u8 = 7;
const RESERVED: u8 = 8;
const STREAM: u8 = 16;
const CLEAN: u8 = 9;
const HIGHEST_PLACE: u8 = 10;
const CLASSES: u8 = 11;
const SEEN_VALUES: u8 = 52;

/// Of the byte of flags of a topic: it has a dead-letter topic, whose number follows.
const HAS_DEAD_LETTER: u8 = 1;
/// Of the same byte: it was made to be a stream.
const IS_STREAM: u8 = 1 << 1;

/// One item of the state.
#[derive(Debug)]
pub(crate) enum Item {
    Topic(Topic),
    Head(Head),
    Producers(SomeProducers),
    Slice(Slice),
    Classes(PartitionId, Vec<BatchClasses>),
    Lost(PartitionId, Vec<OffsetRange>),
    LostTopics(Vec<(u32, u32)>),
    HighestPlace(u64),
    Cursors(PartitionId, Vec<(CursorName, u64)>),
    Reserved(PartitionId, u64),
    Stream(KeptStream),
    Clean(PartitionId, Clean),
    SeenValues(PartitionId, Vec<SeenValue>),
}

/// A partition: its settings, and which offsets it has.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) id: PartitionId,
    pub(crate) config: TopicConfig,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) groups: Vec<GroupSetting>,
}

/// The classes of a batch's messages: its first offset, and each class with the number of messages in a row that
/// have it.
pub(crate) type BatchClasses = (u64, Vec<(u32, Class)>);

/// Some of a partition's producers.
#[derive(Debug)]
pub(crate) struct SomeProducers {
    pub(crate) id: PartitionId,
    /// With the last of them: whoever was silent before this offset is forgotten.
    pub(crate) silent_before: Option<u64>,
    pub(crate) producers: Vec<(ProducerId, Producer)>,
}

/// All that is so in `range` of a partition.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) id: PartitionId,
    pub(crate) range: OffsetRange,
    /// Where the log starts now.
    pub(crate) start: u64,
    pub(crate) entries: Vec<Entry>,
    pub(crate) delays: Vec<(OffsetRange, Timestamp)>,
    pub(crate) expiries: Vec<(OffsetRange, Timestamp)>,
    pub(crate) groups: Vec<GroupSlice>,
}

/// The part of a slice that is one group's. What is in none of the lists is ready and untried.
#[derive(Debug)]
pub(crate) struct GroupSlice {
    pub(crate) id: GroupId,
    pub(crate) settled: Vec<OffsetRange>,
    pub(crate) tried: Vec<(OffsetRange, Tries)>,
    pub(crate) waiting: Vec<(OffsetRange, Waiting)>,
    pub(crate) dying: Vec<(OffsetRange, Dying)>,
}

/// How much goes into one slice: so many batches or messages, whichever is reached first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceLimit {
    pub(crate) batches: usize,
    pub(crate) messages: u64,
}

pub(crate) fn encode_topic(out: &mut Vec<u8>, topic: &Topic) {
    let mut w = Writer(out);
    let created = &topic.created;
    w.u8(TOPIC).u32(created.topic.0).text(created.name.as_str()).u64(created.incarnation.0);
    w.topic_config(created.config()).u32(created.home.0);
    let flags = if topic.dead_letter.is_some() { HAS_DEAD_LETTER } else { 0 };
    let flags = flags | if created.is_stream() { IS_STREAM } else { 0 };
    w.u8(flags).u32(topic.dead_letter.map_or(0, |id| id.0));
    w.count(topic.groups.len());
    for group in &topic.groups {
        w.text(group.name().as_str()).group_setting(&group.setting());
    }
}

/// The first offset of which something is said: of what is in memory alone, nothing is.
pub(crate) fn kept_from(partition: &Partition) -> u64 {
    match partition.config.durability {
        Durability::Memory => partition.log.end(),
        _ => partition.log.start(),
    }
}

pub(crate) fn encode_head(out: &mut Vec<u8>, partition: &Partition) {
    let mut w = Writer(out);
    w.u8(HEAD).partition(partition.id).topic_config(&partition.config);
    w.dead_letters(partition.dead_letters).u64(kept_from(partition)).u64(partition.log.end());
    w.count(partition.groups.len());
    for group in &partition.groups {
        w.group_setting(&group.setting());
    }
}

/// Numbers of topics that may be lost.
pub(crate) fn encode_lost_topics(out: &mut Vec<u8>, ranges: &[(u32, u32)]) {
    let mut w = Writer(out);
    w.u8(LOST_TOPICS).count(ranges.len());
    for &(start, end) in ranges {
        w.u32(start).u32(end);
    }
}

/// The highest place that anything was ever moved to.
pub(crate) fn encode_highest_place(out: &mut Vec<u8>, position: u64) {
    Writer(out).u8(HIGHEST_PLACE).u64(position);
}

/// The lost ranges of a partition.
pub(crate) fn encode_lost(out: &mut Vec<u8>, partition: PartitionId, ranges: &[Range<u64>]) {
    let mut w = Writer(out);
    w.u8(LOST).partition(partition).count(ranges.len());
    for lost in ranges {
        w.range(range(lost.start, lost.end));
    }
}

/// Up to where offsets of a partition are reserved.
pub(crate) fn encode_reserved(out: &mut Vec<u8>, partition: PartitionId, end: u64) {
    Writer(out).u8(RESERVED).partition(partition).u64(end);
}

/// How much of a partition is clean that keeps the latest message of each key.
pub(crate) fn encode_clean(out: &mut Vec<u8>, partition: PartitionId, clean: Clean) {
    let mut w = Writer(out);
    w.u8(CLEAN).partition(partition).u64(clean.to).tombstones(clean.tombstones);
    w.u8(u8::from(clean.all_read));
}

/// The named cursors of a partition.
pub(crate) fn encode_cursors<'a>(
    out: &mut Vec<u8>,
    partition: PartitionId,
    count: usize,
    cursors: impl Iterator<Item = (&'a CursorName, u64)>,
) {
    let mut w = Writer(out);
    w.u8(CURSORS).partition(partition).count(count);
    for (name, offset) in cursors {
        w.text(name.as_str()).u64(offset);
    }
}

/// A stream beside its log.
pub(crate) fn encode_stream(out: &mut Vec<u8>, partition: &Partition, stream: &Stream) {
    let is_lost = partition.config.durability == Durability::Memory;
    Writer(out).u8(STREAM).kept_stream(partition.id, stream, is_lost);
}

/// Those of `some` that are still known; `ends` says that no others follow.
pub(crate) fn encode_producers(
    out: &mut Vec<u8>,
    partition: &Partition,
    some: &[ProducerId],
    ends: bool,
) {
    let mut w = Writer(out);
    let silent_before = partition.producers.silent_before();
    w.u8(PRODUCERS).partition(partition.id).u8(u8::from(ends)).u64(silent_before);
    let known: Vec<_> =
        some.iter().filter_map(|&id| Some((id, partition.producers.get(id)?))).collect();
    w.count(known.len());
    for (id, producer) in known {
        w.u64(id.0).u32(producer.epoch).u64(producer.next_sequence).u64(producer.last_end);
        w.count(producer.recent.len());
        for batch in &producer.recent {
            w.u64(batch.first_sequence).u32(batch.count).u64(batch.first.0);
        }
    }
}

/// Values for deduplication, of messages from `from` on and before `end`, up to `count_max` of them. Returns
/// the offset from which on the rest lies.
pub(crate) fn encode_seen_values(
    out: &mut Vec<u8>,
    partition: &Partition,
    Range { start, end }: Range<u64>,
    count_max: usize,
) -> u64 {
    let inside = partition.seen.from(start).take_while(|held| held.offset < end);
    let some: Vec<SeenValue> = inside.take(count_max).collect();
    let mut w = Writer(out);
    w.u8(SEEN_VALUES)
        .partition(partition.id)
        .list(&some, |w, held| w.bytes(&held.hash.to_le_bytes()).u64(held.offset).u64(held.at.0));
    let is_last = some.len() < count_max;
    some.last().filter(|_| !is_last).map_or(end, |last| last.offset + 1)
}

/// Appends the front of `rest`, which begins between two batches, up to the limit. Returns where the slice ends,
/// between two batches too.
pub(crate) fn encode_slice(
    out: &mut Vec<u8>,
    partition: &Partition,
    rest: Range<u64>,
    limit: SliceLimit,
) -> u64 {
    let (mut entries, mut messages) = (Vec::new(), 0);
    let mut slice = rest;
    let end = slice.end;
    for entry in partition.log.entries_from(slice.start).take_while(|entry| entry.end() <= end) {
        if entries.len() >= limit.batches || messages >= limit.messages {
            slice.end = entry.first;
            break;
        }
        messages += u64::from(entry.count);
        entries.push(*entry);
    }
    let mut w = Writer(out);
    w.u8(SLICE)
        .partition(partition.id)
        .range(range(slice.start, slice.end))
        .u64(partition.log.start());
    w.count(entries.len());
    for entry in entries {
        w.u64(entry.first).u32(entry.count).u64(entry.place.position).u32(entry.place.bytes);
        w.u64(entry.appended_at.0);
    }
    let delays = partition.delays.runs(slice.start, slice.end);
    encode_times(&mut w, delays.map(|run| (run.start, run.end, run.due)).collect());
    encode_times(&mut w, partition.expiries.runs().within(slice.start, slice.end));
    w.count(partition.groups.len());
    for group in &partition.groups {
        encode_group(&mut w, group, &slice);
    }
    encode_classes(out, partition, &slice);
    slice.end
}

/// The classes of a slice's messages, if they have any. Each class is written once, before the batches.
fn encode_classes(out: &mut Vec<u8>, partition: &Partition, slice: &Range<u64>) {
    let batches = partition.classes.within(slice.clone());
    if batches.is_empty() {
        return;
    }
    let mut classes: Vec<&Class> = Vec::new();
    let mut numbers = HashMap::<&Class, u32, FixedState>::default();
    for (_, runs) in &batches {
        for &(_, class) in runs {
            numbers.entry(class).or_insert_with(|| {
                classes.push(class);
                classes.len() as u32 - 1
            });
        }
    }
    let mut w = Writer(out);
    w.u8(CLASSES).partition(partition.id);
    w.list(&classes, |w, class| w.class(class));
    w.list(&batches, |w, (first, runs)| {
        w.u64(*first).list(runs, |w, (count, class)| w.u32(*count).u32(numbers[*class]))
    });
}

fn encode_times(w: &mut Writer<'_>, times: Vec<(u64, u64, Timestamp)>) {
    w.count(times.len());
    for (start, end, due) in times {
        w.range(range(start, end)).u64(due.0);
    }
}

fn encode_group(w: &mut Writer<'_>, group: &Group, slice: &Range<u64>) {
    let (from, to) = (slice.start, slice.end);
    let settled = group.settled.within(from, to);
    w.u32(group.id().0).count(settled.len());
    for settled in settled {
        w.range(range(settled.start, settled.end));
    }
    let mut tried = Runs::default();
    let ready = group.ready.within(from, to).into_iter();
    let leased = group.leased_within(from, to).into_iter();
    let leased = leased.map(|(start, end, lease)| (start, end, lease.tries));
    for (start, end, tries) in ready.chain(leased).filter(|(.., tries)| tries.failed > 0) {
        tried.insert(start, end, tries.failed);
    }
    let damaged = group.activity().damaged.within(from, to);
    let mut dying = group.activity().dying.within(from, to);
    for (start, end, damaged) in damaged {
        match damaged {
            Damaged::Ready(Tries { failed: 0, .. }) => {}
            Damaged::Ready(tries) => tried.insert(start, end, tries.failed),
            Damaged::Dying(held) => dying.push((start, end, held)),
        }
    }
    dying.sort_unstable_by_key(|(start, _, _)| *start);
    w.count(tried.iter().count());
    for (start, end, &attempts) in tried.iter() {
        w.range(range(start, end)).u32(attempts);
    }
    let waiting = group.activity().waiting.within(from, to);
    w.count(waiting.len());
    for (start, end, held) in waiting {
        w.range(range(start, end)).u32(held.tries.failed).u64(held.due.0);
    }
    w.count(dying.len());
    for (start, end, held) in dying {
        w.range(range(start, end)).u32(held.tries.failed).u64(held.failed_at.0).text(&held.reason);
    }
}

impl Item {
    /// Takes the next item off the front; `None` at the end.
    pub(crate) fn decode(r: &mut Reader) -> Result<Option<Self>, RecordError> {
        if !r.rest.has_remaining() {
            return Ok(None);
        }
        Ok(Some(match r.u8()? {
            TOPIC => Self::Topic(decode_topic(r)?),
            HEAD => Self::Head(decode_head(r)?),
            PRODUCERS => Self::Producers(decode_producers(r)?),
            SLICE => Self::Slice(decode_slice(r)?),
            CLASSES => decode_classes(r)?,
            LOST => Self::Lost(r.partition()?, r.list(Reader::range)?),
            LOST_TOPICS => Self::LostTopics(r.list(|r| Ok((r.u32()?, r.u32()?)))?),
            HIGHEST_PLACE => Self::HighestPlace(r.u64()?),
            CURSORS => Self::Cursors(r.partition()?, r.list(|r| Ok((r.cursor_name()?, r.u64()?)))?),
            RESERVED => Self::Reserved(r.partition()?, r.u64()?),
            STREAM => Self::Stream(r.kept_stream()?),
            CLEAN => {
                let (id, to, tombstones) = (r.partition()?, r.u64()?, r.tombstones()?);
                Self::Clean(id, Clean { to, tombstones, all_read: r.flag("all read")? })
            }
            SEEN_VALUES => {
                let value = |r: &mut Reader| {
                    let (low, high) = (r.u64()?, r.u64()?);
                    let hash = u128::from(high) << 64 | u128::from(low);
                    Ok(SeenValue { hash, offset: r.u64()?, at: Timestamp(r.u64()?) })
                };
                Self::SeenValues(r.partition()?, r.list(value)?)
            }
            tag => return Err(r.field("item of a checkpoint", tag)),
        }))
    }
}

fn decode_topic(r: &mut Reader) -> Result<Topic, RecordError> {
    let topic = TopicId(r.u32()?);
    let name: TopicName = r.topic_name()?;
    let incarnation = Incarnation(r.u64()?);
    let config = r.topic_config()?;
    let home = TopicId(r.u32()?);
    let flags = r.u8()?;
    if flags & !(HAS_DEAD_LETTER | IS_STREAM) != 0 {
        return Err(r.field("flags of a topic", flags));
    }
    let (has_dead_letter, is_stream) = (flags & HAS_DEAD_LETTER != 0, flags & IS_STREAM != 0);
    let dead_letter = r.u32()?;
    if !has_dead_letter {
        r.require_zero("dead-letter topic of none", dead_letter)?;
    }
    let dead_letter = has_dead_letter.then_some(TopicId(dead_letter));
    let groups = r.list(|r| {
        let name: GroupName = r.group_name()?;
        let GroupSetting { id, config, start } = r.group_setting()?;
        let terms = Arc::new(Terms { config, start });
        Ok(CatalogueGroup { id, named: Arc::new(NamedTerms { name, terms }) })
    })?;
    let settings = Arc::new(TopicSettings { config, is_stream });
    let created = TopicCreated { topic, name, incarnation, settings, home };
    Ok(Topic { created, dead_letter, groups: groups.into() })
}

fn decode_head(r: &mut Reader) -> Result<Head, RecordError> {
    let (id, config, dead_letters) = (r.partition()?, r.topic_config()?, r.dead_letters()?);
    let (start, end) = (r.u64()?, r.u64()?);
    if start > end {
        return Err(r.field("start of a log", start));
    }
    let groups = r.list(Reader::group_setting)?;
    if !groups.is_sorted_by(|a, b| a.id < b.id) {
        return Err(r.field("groups of a partition", groups.len() as u64));
    }
    Ok(Head { id, config, dead_letters, start, end, groups })
}

fn decode_producers(r: &mut Reader) -> Result<SomeProducers, RecordError> {
    let id = r.partition()?;
    let ends = r.flag("last of the producers")?;
    let silent_before = Some(r.u64()?).filter(|_| ends);
    let producers = r.list(|r| {
        let id = ProducerId(r.u64()?);
        let (epoch, next_sequence, last_end) = (r.u32()?, r.u64()?, r.u64()?);
        let recent = r.list(|r| {
            let (first_sequence, count) = (r.u64()?, r.u32()?);
            Ok(AppendedBatch { first_sequence, count, first: Offset(r.u64()?) })
        })?;
        Ok((id, Producer { epoch, next_sequence, last_end, recent: recent.into() }))
    })?;
    Ok(SomeProducers { id, silent_before, producers })
}

fn decode_classes(r: &mut Reader) -> Result<Item, RecordError> {
    let (id, classes) = (r.partition()?, r.list(Reader::class)?);
    let batches = r.list(|r| {
        let first = r.u64()?;
        let runs = r.list(|r| {
            let (count, number) = (r.u32()?, r.u32()?);
            let class = classes.get(number as usize).filter(|_| count > 0);
            Ok((count, class.ok_or_else(|| r.field("number of a class", number))?.clone()))
        })?;
        Ok((first, runs))
    })?;
    Ok(Item::Classes(id, batches))
}

fn decode_slice(r: &mut Reader) -> Result<Slice, RecordError> {
    let (id, whole, start) = (r.partition()?, r.range()?, r.u64()?);
    let entries = r.list(|r| {
        let (first, count) = (r.u64()?, r.u32()?);
        let place = Place { position: r.u64()?, bytes: r.u32()? };
        Ok(Entry { first, count, place, appended_at: Timestamp(r.u64()?) })
    })?;
    let mut least = whole.start.0;
    for entry in &entries {
        let end = entry.first.checked_add(u64::from(entry.count));
        let end = end.filter(|end| *end <= whole.end.0 && entry.count > 0);
        least = end
            .filter(|_| entry.first >= least)
            .ok_or_else(|| r.field("offset of a batch", entry.first))?;
    }
    let time = |r: &mut Reader| Ok((r.range()?, Timestamp(r.u64()?)));
    let delays = inside(r, whole, time, |held| held.0)?;
    let expiries = inside(r, whole, time, |held| held.0)?;
    let groups = r.list(|r| decode_group(r, whole))?;
    Ok(Slice { id, range: whole, start, entries, delays, expiries, groups })
}

fn decode_group(r: &mut Reader, whole: OffsetRange) -> Result<GroupSlice, RecordError> {
    let id = GroupId(r.u32()?);
    let settled = inside(r, whole, Reader::range, |range| *range)?;
    let tries = |r: &mut Reader| Ok(Tries::of_failed(r.u32()?));
    let tried = inside(r, whole, |r| Ok((r.range()?, tries(r)?)), |held| held.0)?;
    let waiting =
        |r: &mut Reader| Ok((r.range()?, Waiting { tries: tries(r)?, due: Timestamp(r.u64()?) }));
    let waiting = inside(r, whole, waiting, |held| held.0)?;
    let dying = |r: &mut Reader| {
        let held = r.range()?;
        let (tries, failed_at) = (tries(r)?, Timestamp(r.u64()?));
        Ok((held, Dying { tries, failed_at, reason: r.text()?.into() }))
    };
    let dying = inside(r, whole, dying, |held| held.0)?;
    Ok(GroupSlice { id, settled, tried, waiting, dying })
}

/// A list of what is so in ranges of a slice: in order, and not beyond it.
fn inside<T>(
    r: &mut Reader,
    whole: OffsetRange,
    item: impl FnMut(&mut Reader) -> Result<T, RecordError>,
    range: impl Fn(&T) -> OffsetRange,
) -> Result<Vec<T>, RecordError> {
    let items = r.list(item)?;
    let mut least = whole.start.0;
    for item in &items {
        let range = range(item);
        if range.start.0 < least || range.end.0 > whole.end.0 {
            return Err(r.field("range in a slice", range.end.0));
        }
        least = range.end.0;
    }
    Ok(items)
}
