//! The state as one value, so that replay is short: everything a replay of all records would come
//! to. Leases are not in it, only the attempts made before them.

use bytes::{Buf, Bytes};
use sennit_model::{
    Generation, GroupName, Incarnation, Offset, PartitionId, ProducerId, Timestamp, TopicConfig,
    TopicId, TopicName,
};

use crate::{
    catalogue::{CatalogueGroup, Topic},
    codec::{Reader, Writer},
    engine::{Engine, stir},
    group::{Dying, Group, Waiting, range},
    log::{Entry, Log, Place},
    partition::Partition,
    producer::{AppendedBatch, Producer},
    record::TopicCreated,
    record_error::RecordError,
    runs::Runs,
    timer::Timer,
    wheel::Wheel,
};

/// The kind that errors of a snapshot name.
const SNAPSHOT: u8 = 127;
const VERSION: u32 = 1;

impl Engine {
    /// Appends the state to `out`. Everything in it counts as committed, so it is to be written
    /// after all records that led to it, into the same journal.
    pub fn encode_snapshot(&self, out: &mut Vec<u8>) {
        let mut w = Writer(out);
        let (next_topic, next_group) = self.catalogue.next_ids();
        w.u32(VERSION).u32(next_topic).u32(next_group).count(self.catalogue.topics().len());
        for topic in self.catalogue.topics() {
            encode_topic(&mut w, topic);
        }
        let mut partitions: Vec<_> = self.partitions.values().collect();
        partitions.sort_unstable_by_key(|partition| partition.id);
        w.count(partitions.len());
        for partition in partitions {
            encode_partition(&mut w, partition);
        }
    }

    /// The state out of a snapshot, in the `generation`th life of the shard.
    ///
    /// # Errors
    /// A [`RecordError`] that says what cannot be.
    pub fn from_snapshot(
        snapshot: Bytes,
        generation: Generation,
        now: Timestamp,
    ) -> Result<Self, RecordError> {
        let mut engine = Self::new(generation, now);
        let mut r = Reader { kind: SNAPSHOT, rest: snapshot };
        let version = r.u32()?;
        if version != VERSION {
            return Err(r.field("version", version));
        }
        let next_ids = (r.u32()?, r.u32()?);
        let topics = r.list(decode_topic)?;
        engine.catalogue.restore(topics, next_ids);
        for mut partition in r.list(|r| decode_partition(r, &mut engine.wheel))? {
            stir(&mut engine.stirred, &mut partition);
            engine.partitions.insert(partition.id, partition);
        }
        if r.rest.has_remaining() {
            return Err(RecordError::Length { kind: SNAPSHOT });
        }
        Ok(engine)
    }
}

fn encode_topic(w: &mut Writer<'_>, topic: &Topic) {
    let created = &topic.created;
    w.u32(created.topic.0).text(created.name.as_str()).u64(created.incarnation.0);
    w.topic_config(&created.config).u32(created.home.0);
    w.u8(u8::from(topic.dead_letter.is_some())).u32(topic.dead_letter.map_or(0, |id| id.0));
    w.count(topic.groups.len());
    for group in &topic.groups {
        w.text(group.name.as_str()).group_setting(&group.setting);
    }
}

fn decode_topic(r: &mut Reader) -> Result<Topic, RecordError> {
    let topic = TopicId(r.u32()?);
    let name: TopicName = r.topic_name()?;
    let incarnation = Incarnation(r.u64()?);
    let config: TopicConfig = r.topic_config()?;
    let home = TopicId(r.u32()?);
    let has_dead_letter = r.flag("has dead-letter topic")?;
    let dead_letter = Some(TopicId(r.u32()?)).filter(|_| has_dead_letter);
    let groups = r.list(|r| {
        let name: GroupName = r.group_name()?;
        Ok(CatalogueGroup { name, setting: r.group_setting()? })
    })?;
    let created = TopicCreated { topic, name, incarnation, config, home };
    Ok(Topic { created, dead_letter, groups })
}

fn encode_partition(w: &mut Writer<'_>, partition: &Partition) {
    w.partition(partition.id).topic_config(&partition.config).dead_letters(partition.dead_letters);
    w.u64(partition.log.end()).count(partition.log.entries().count());
    for entry in partition.log.entries() {
        w.u64(entry.first).u32(entry.count).u64(entry.place.position).u32(entry.place.bytes);
        w.u64(entry.appended_at.0);
    }
    let producers = partition.producers.sorted();
    w.count(producers.len());
    for (id, producer) in producers {
        w.u64(id.0).u32(producer.epoch).u64(producer.next_sequence).u64(producer.last_end);
        w.count(producer.recent.len());
        for batch in &producer.recent {
            w.u64(batch.first_sequence).u32(batch.count).u64(batch.first.0);
        }
    }
    encode_times(w, &partition.delays);
    encode_times(w, &partition.expiries);
    w.count(partition.groups.len());
    for group in &partition.groups {
        encode_group(w, group);
    }
}

fn decode_partition(r: &mut Reader, wheel: &mut Wheel<Timer>) -> Result<Partition, RecordError> {
    let id = r.partition()?;
    let mut partition = Partition::new(id, r.topic_config()?);
    partition.dead_letters = r.dead_letters()?;
    let end = r.u64()?;
    partition.log = Log::empty(end, end);
    let mut next = 0;
    for entry in r.list(|r| {
        let (first, count) = (r.u64()?, r.u32()?);
        let place = Place { position: r.u64()?, bytes: r.u32()? };
        Ok(Entry { first, count, place, appended_at: Timestamp(r.u64()?) })
    })? {
        if entry.first < next || entry.count == 0 {
            return Err(r.field("offset of a batch", entry.first));
        }
        next = entry
            .first
            .checked_add(u64::from(entry.count))
            .filter(|next| *next <= end)
            .ok_or_else(|| r.field("count of a batch", entry.count))?;
        partition.log.put_back(entry);
    }
    partition.log.start_with_oldest();
    partition.visible = end;
    for (id, producer) in r.list(decode_producer)? {
        partition.producers.restore(id, producer);
    }
    partition.delays = decode_times(r)?;
    partition.expiries = decode_times(r)?;
    for (start, end, &due) in partition.delays.iter() {
        wheel.set(due, Timer::Due { partition: id, range: range(start, end) });
    }
    for (start, end, &due) in partition.expiries.iter() {
        wheel.set(due, Timer::Expiry { partition: id, range: range(start, end) });
    }
    let (retention, oldest) = (partition.config.retention, partition.log.oldest());
    if let (Some(age), Some(oldest)) = (retention.age, oldest) {
        wheel.set(oldest.appended_at.plus(age), Timer::Age { partition: id });
    }
    let delays = &partition.delays;
    let visible = partition.visible;
    partition.groups = r.list(|r| decode_group(r, id, (visible, delays), wheel))?;
    Ok(partition)
}

fn decode_producer(r: &mut Reader) -> Result<(ProducerId, Producer), RecordError> {
    let id = ProducerId(r.u64()?);
    let (epoch, next_sequence, last_end) = (r.u32()?, r.u64()?, r.u64()?);
    let recent = r.list(|r| {
        let (first_sequence, count) = (r.u64()?, r.u32()?);
        Ok(AppendedBatch { first_sequence, count, first: Offset(r.u64()?) })
    })?;
    Ok((id, Producer { epoch, next_sequence, last_end, recent: recent.into() }))
}

fn encode_times(w: &mut Writer<'_>, times: &Runs<Timestamp>) {
    w.count(times.iter().count());
    for (start, end, due) in times.iter() {
        w.range(range(start, end)).u64(due.0);
    }
}

fn decode_times(r: &mut Reader) -> Result<Runs<Timestamp>, RecordError> {
    let mut times = Runs::default();
    for (range, due) in r.list(|r| Ok((r.range()?, Timestamp(r.u64()?))))? {
        times.insert(range.start.0, range.end.0, due);
    }
    Ok(times)
}

fn encode_group(w: &mut Writer<'_>, group: &Group) {
    w.group_setting(&group.setting).u64(group.settled.floor());
    w.count(group.settled.above().count());
    for (start, end) in group.settled.above() {
        w.range(range(start, end));
    }
    let ready = group.ready.iter().map(|(start, end, &attempts)| (start, end, attempts));
    let leased = group.leases.iter().map(|(&start, held)| (start, held.end, held.attempt - 1));
    let mut tried = Runs::default();
    for (start, end, attempts) in ready.chain(leased).filter(|(_, _, attempts)| *attempts > 0) {
        tried.insert(start, end, attempts);
    }
    w.count(tried.iter().count());
    for (start, end, &attempts) in tried.iter() {
        w.range(range(start, end)).u32(attempts);
    }
    w.count(group.waiting.iter().count());
    for (start, end, held) in group.waiting.iter() {
        w.range(range(start, end)).u32(held.attempts).u64(held.due.0);
    }
    w.count(group.dying.iter().count());
    for (start, end, held) in group.dying.iter() {
        w.range(range(start, end)).u32(held.attempts).u64(held.failed_at.0).text(&held.reason);
    }
}

/// A list of what is held of a group's messages: ranges in order, not beyond the partition's end.
fn within<T>(
    r: &mut Reader,
    visible: u64,
    item: impl FnMut(&mut Reader) -> Result<T, RecordError>,
    range: impl Fn(&T) -> sennit_model::OffsetRange,
) -> Result<Vec<T>, RecordError> {
    let items = r.list(item)?;
    let mut least = 0;
    for item in &items {
        let range = range(item);
        if range.start.0 < least || range.end.0 > visible {
            return Err(r.field("range of a group", range.end.0));
        }
        least = range.end.0;
    }
    Ok(items)
}

fn decode_group(
    r: &mut Reader,
    partition: PartitionId,
    (visible, delays): (u64, &Runs<Timestamp>),
    wheel: &mut Wheel<Timer>,
) -> Result<Group, RecordError> {
    let setting = r.group_setting()?;
    let mut group = Group::new(partition, setting, r.u64()?);
    if group.settled.floor() > visible {
        return Err(r.field("settled floor", group.settled.floor()));
    }
    for settled in within(r, visible, Reader::range, |range| *range)? {
        group.settled.insert(settled.start.0, settled.end.0);
    }
    let floor = group.settled.floor();
    group.appear(floor, visible, delays);
    for (tried, attempts) in within(r, visible, |r| Ok((r.range()?, r.u32()?)), |held| held.0)? {
        group.ready.insert(tried.start.0, tried.end.0, attempts);
    }
    let waiting = |r: &mut Reader| Ok((r.range()?, r.u32()?, Timestamp(r.u64()?)));
    for (held, attempts, due) in within(r, visible, waiting, |held| held.0)? {
        group.ready.remove(held.start.0, held.end.0);
        group.wait((held.start.0, held.end.0), Waiting { attempts, due }, wheel);
    }
    let dying = |r: &mut Reader| {
        let held = r.range()?;
        let (attempts, failed_at) = (r.u32()?, Timestamp(r.u64()?));
        Ok((held, Dying { attempts, failed_at, reason: r.text()?.into() }))
    };
    for (held, dying) in within(r, visible, dying, |held| held.0)? {
        group.ready.remove(held.start.0, held.end.0);
        group.dying.insert(held.start.0, held.end.0, dying);
    }
    Ok(group)
}
