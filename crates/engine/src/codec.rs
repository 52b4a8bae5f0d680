//! The layout of the fields of records and snapshots: little-endian numbers, text, and lists that begin with their
//! count. Both directions stand here, so that they agree.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{
    Backoff, Batch, CursorName, Dedup, DedupHeader, DedupMode, Durability, GroupConfig, GroupId,
    GroupName, KeyRules, LiveSettings, Offset, OffsetRange, Order, PartitionId, PartitionIndex,
    ProducerId, ProducerStamp, Retention, RetryDelays, RetryPolicy, StartAt, Timestamp,
    TopicConfig, TopicId, TopicLimit, TopicName, WhenBehind, WhenFull,
};

use crate::{
    command::{DeadLetters, GroupSetting},
    latest::Tombstones,
    log::Place,
    record::{CompactedBatch, KeptPart, KeptRun, SupersededBatch},
    record_error::RecordError,
};

/// Of the byte of flags in a topic's settings: kept until settled.
const UNTIL_SETTLED: u8 = 1;
/// Of the same byte: above this bit the durability's number, less one, so that a durable topic reads as
/// it did before there was another.
const DURABILITY_SHIFT: u32 = 1;
/// Set where a number of messages to keep follows.
const COUNT: u8 = 1 << 3;
/// Set where the latest message of each key is kept; how long tombstones are follows.
const LATEST_PER_KEY: u8 = 1 << 4;

/// Set where fields of messages follow.
const FIELDS: u8 = 1 << 5;
/// Set where no messages are given.
const PAUSED: u8 = 1 << 6;
/// Set where a second byte of flags follows, behind the fields.
const MORE: u8 = 1 << 7;
/// Of the second byte: a limit follows: messages, bytes, and what becomes of a publish beyond them.
const LIMIT: u8 = 1;
/// Of the second byte: the deduplication follows: header, window, mode.
const DEDUP: u8 = 1 << 1;

/// Of the second byte: settings for live connections follow: presence, and the rule for those that are behind.
const LIVE: u8 = 1 << 2;

/// Set in the byte that says where a group starts, if its retry policy follows. Without one a group reads as it
/// did before there were any.
const RETRY_POLICY: u8 = 1 << 7;
/// Set in the same byte, if pause, throttle and rules for keys follow.
const SCHEDULING: u8 = 1 << 6;

/// A list that is not longer is made in one piece, just as long as it is.
const SHORT_LIST: usize = 16;

/// Appends fields.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u8>);

impl Writer<'_> {
    pub(crate) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.put_u8(value);
        self
    }

    pub(crate) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.put_u32_le(value);
        self
    }

    pub(crate) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.put_u64_le(value);
        self
    }

    /// A list's length; its elements follow.
    pub(crate) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("lists are limited far below 2^32"))
    }

    /// A list: its length, and its elements.
    pub(crate) fn list<T>(
        &mut self,
        list: &[T],
        element: impl for<'w> Fn(&'w mut Self, &T) -> &'w mut Self,
    ) -> &mut Self {
        self.count(list.len());
        for one in list {
            element(self, one);
        }
        self
    }

    /// Bytes whose number the reader knows.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.put_slice(bytes);
        self
    }

    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.count(text.len()).bytes(text.as_bytes())
    }

    pub(crate) fn partition(&mut self, id: PartitionId) -> &mut Self {
        self.u32(id.topic.0).u32(id.index.0)
    }

    pub(crate) fn range(&mut self, range: OffsetRange) -> &mut Self {
        self.u64(range.start.0).u64(range.end.0)
    }

    fn duration(&mut self, duration: Duration) -> &mut Self {
        self.u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    /// 0 stands for none: no setting that is optional may be 0.
    fn optional_duration(&mut self, duration: Option<Duration>) -> &mut Self {
        self.duration(duration.unwrap_or_default())
    }

    pub(crate) fn topic_config(&mut self, config: &TopicConfig) -> &mut Self {
        let Retention { until_settled, age, bytes, count, latest_per_key } = config.retention;
        let mut flags = u8::from(until_settled);
        flags |= (config.durability.number() - 1) << DURABILITY_SHIFT;
        flags |= if count.is_some() { COUNT } else { 0 };
        flags |= if latest_per_key.is_some() { LATEST_PER_KEY } else { 0 };
        flags |= if config.fields.is_some() { FIELDS } else { 0 };
        flags |= if config.is_paused { PAUSED } else { 0 };
        let mut more = if config.limit.is_set() { LIMIT } else { 0 };
        more |= if config.dedup.is_some() { DEDUP } else { 0 };
        more |= if config.live != LiveSettings::default() { LIVE } else { 0 };
        flags |= if more != 0 { MORE } else { 0 };
        self.u32(config.partitions).u8(flags).optional_duration(age);
        self.u64(bytes.unwrap_or(0)).optional_duration(config.time_to_live);
        if let Some(count) = count {
            self.u64(count);
        }
        if let Some(tombstone_age) = latest_per_key {
            self.duration(tombstone_age);
        }
        if let Some(fields) = &config.fields {
            self.message_fields(fields);
        }
        if more != 0 {
            self.u8(more);
        }
        if config.limit.is_set() {
            self.topic_limit(&config.limit);
        }
        if let Some(Dedup { header, window, mode }) = config.dedup {
            self.text(header.as_str()).duration(window).u8(match mode {
                DedupMode::Refuse => 1,
                DedupMode::Replace => 2,
            });
        }
        if more & LIVE != 0 {
            let LiveSettings { presence, when_behind } = config.live;
            self.u8(presence.into()).u8(when_behind.number());
        }
        self
    }

    /// 0 stands for no limit, which none is.
    fn topic_limit(&mut self, limit: &TopicLimit) -> &mut Self {
        let TopicLimit { messages, bytes, when_full } = limit;
        self.u64(messages.unwrap_or(0)).u64(bytes.unwrap_or(0)).u8(match when_full {
            WhenFull::Refuse => 1,
            WhenFull::DropOldest => 2,
        })
    }

    /// Two zeros stand for none: no tombstone is below the first offset.
    pub(crate) fn tombstones(&mut self, tombstones: Option<Tombstones>) -> &mut Self {
        let none = Tombstones { below: Offset(0), at: Timestamp(0) };
        let Tombstones { below, at } = tombstones.unwrap_or(none);
        self.u64(below.0).u64(at.0)
    }

    pub(crate) fn compacted(&mut self, batch: &CompactedBatch) -> &mut Self {
        self.u64(batch.first.0).u32(batch.count).list(&batch.parts, |w, part| {
            let KeptPart { first, count, place } = part;
            w.u64(first.0).u32(*count).u64(place.position).u32(place.bytes)
        })
    }

    /// Offsets of runs count from the batch's first.
    pub(crate) fn superseded(&mut self, batch: &SupersededBatch) -> &mut Self {
        let SupersededBatch { first, count, bytes, kept } = batch;
        self.u64(first.0).u32(*count).u32(*bytes).list(kept, |w, run| {
            let index = u32::try_from(run.first.0 - first.0).expect("a run is of its batch");
            w.u32(index).u32(run.count).u32(run.begin).u32(run.bytes)
        })
    }

    pub(crate) fn group_setting(&mut self, setting: &GroupSetting) -> &mut Self {
        let (tag, offset) = match setting.start {
            StartAt::Earliest => (1, 0),
            StartAt::Latest => (2, 0),
            StartAt::Offset(offset) => (3, offset.0),
        };
        let GroupConfig { lease, attempts_max, retry, is_paused, throttle, key_rules, order } =
            &setting.config;
        let has_policy = *retry != RetryPolicy::default();
        let how = u8::from(*is_paused) | order.number() << 1;
        let has_scheduling = how != 0 || throttle.is_some() || !key_rules.is_empty();
        let flags = if has_policy { RETRY_POLICY } else { 0 };
        let flags = flags | if has_scheduling { SCHEDULING } else { 0 };
        self.u32(setting.id.0).duration(*lease).u32(*attempts_max).u8(tag | flags).u64(offset);
        if has_policy {
            self.retry_policy(retry);
        }
        if has_scheduling {
            self.u8(how).optional_rate(*throttle).key_rules(key_rules);
        }
        self
    }

    fn retry_policy(&mut self, policy: &RetryPolicy) -> &mut Self {
        self.u8(policy.jitter_percent).optional_duration(policy.age_max);
        match policy.backoff {
            Backoff::None => self.u8(0),
            Backoff::Exponential { first, max } => self.u8(1).duration(first).duration(max),
            Backoff::List(delays) => {
                self.u8(2).count(delays.iter().count());
                delays.iter().for_each(|delay| {
                    self.duration(delay);
                });
                self
            }
        }
    }

    pub(crate) fn optional_text(&mut self, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.u8(1).text(text),
            None => self.u8(0),
        }
    }

    pub(crate) fn dead_letters(&mut self, dead_letters: DeadLetters) -> &mut Self {
        match dead_letters {
            DeadLetters::NotYet => self.u8(0).u32(0),
            DeadLetters::To(topic) => self.u8(1).u32(topic.0),
            DeadLetters::Stay => self.u8(2).u32(0),
        }
    }
}

/// Takes fields off the front; every field may be missing or wrong.
pub(crate) struct Reader {
    pub(crate) kind: u8,
    pub(crate) rest: Bytes,
}

impl Reader {
    pub(crate) fn field(&self, field: &'static str, value: impl Into<u64>) -> RecordError {
        RecordError::Field { kind: self.kind, field, value: value.into() }
    }

    /// Refuses a field that means nothing here, unless it is 0, as it is written: a fact has one form.
    pub(crate) fn require_zero(
        &self,
        field: &'static str,
        value: impl Into<u64>,
    ) -> Result<(), RecordError> {
        match value.into() {
            0 => Ok(()),
            value => Err(self.field(field, value)),
        }
    }

    fn length(&self) -> RecordError {
        RecordError::Length { kind: self.kind }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, RecordError> {
        self.rest.try_get_u8().map_err(|_| self.length())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, RecordError> {
        self.rest.try_get_u32_le().map_err(|_| self.length())
    }

    pub(crate) fn u64(&mut self) -> Result<u64, RecordError> {
        self.rest.try_get_u64_le().map_err(|_| self.length())
    }

    pub(crate) fn flag(&mut self, field: &'static str) -> Result<bool, RecordError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(self.field(field, value)),
        }
    }

    /// A list; memory is taken as its elements arrive, not by its stated length.
    pub(crate) fn list<T>(
        &mut self,
        mut element: impl FnMut(&mut Self) -> Result<T, RecordError>,
    ) -> Result<Vec<T>, RecordError> {
        let count = self.u32()?;
        // Short ones, most of which stay for long, take no more than they need.
        let mut list = Vec::with_capacity((count as usize).min(SHORT_LIST));
        for _ in 0..count {
            if !self.rest.has_remaining() {
                return Err(self.length());
            }
            list.push(element(self)?);
        }
        Ok(list)
    }

    pub(crate) fn text(&mut self) -> Result<String, RecordError> {
        let length = self.u32()? as usize;
        if length > self.rest.len() {
            return Err(self.length());
        }
        let text = self.rest.split_to(length);
        String::from_utf8(text.to_vec()).map_err(|_| RecordError::Text { kind: self.kind })
    }

    pub(crate) fn topic_name(&mut self) -> Result<TopicName, RecordError> {
        let kind = self.kind;
        self.text()?.parse().map_err(|error| RecordError::Name { kind, error })
    }

    pub(crate) fn cursor_name(&mut self) -> Result<CursorName, RecordError> {
        let kind = self.kind;
        self.text()?.parse().map_err(|error| RecordError::Name { kind, error })
    }

    pub(crate) fn group_name(&mut self) -> Result<GroupName, RecordError> {
        let (kind, text, default) = (self.kind, self.text()?, GroupName::default_group());
        if text == default.as_str() {
            return Ok(default);
        }
        text.parse().map_err(|error| RecordError::Name { kind, error })
    }

    pub(crate) fn partition(&mut self) -> Result<PartitionId, RecordError> {
        Ok(PartitionId { topic: TopicId(self.u32()?), index: PartitionIndex(self.u32()?) })
    }

    pub(crate) fn range(&mut self) -> Result<OffsetRange, RecordError> {
        let (start, end) = (self.u64()?, self.u64()?);
        if start >= end {
            return Err(self.field("end of a range", end));
        }
        Ok(OffsetRange { start: Offset(start), end: Offset(end) })
    }

    pub(crate) fn producer(&mut self) -> Result<ProducerStamp, RecordError> {
        let (id, first_sequence) = (ProducerId(self.u64()?), self.u64()?);
        let (epoch, padding) = (self.u32()?, self.u32()?);
        self.require_zero("padding after a producer", padding)?;
        Ok(ProducerStamp { id, epoch, first_sequence })
    }

    fn duration(&mut self) -> Result<Duration, RecordError> {
        self.u64().map(Duration::from_millis)
    }

    fn optional_duration(&mut self) -> Result<Option<Duration>, RecordError> {
        self.duration().map(|duration| (!duration.is_zero()).then_some(duration))
    }

    pub(crate) fn topic_config(&mut self) -> Result<TopicConfig, RecordError> {
        let partitions = self.u32()?;
        let flags = self.u8()?;
        let until_settled = flags & UNTIL_SETTLED != 0;
        let known = UNTIL_SETTLED | COUNT | LATEST_PER_KEY | FIELDS | PAUSED | MORE;
        let durability = (flags & !known) >> DURABILITY_SHIFT;
        let durability = Durability::of_number(durability + 1)
            .ok_or_else(|| self.field("flags of a topic", flags))?;
        let age = self.optional_duration()?;
        let bytes = Some(self.u64()?).filter(|&bytes| bytes != 0);
        let time_to_live = self.optional_duration()?;
        let count = if flags & COUNT != 0 { Some(self.u64()?) } else { None };
        let is_latest = flags & LATEST_PER_KEY != 0;
        let latest_per_key = if is_latest { Some(self.duration()?) } else { None };
        let retention = Retention { until_settled, age, bytes, count, latest_per_key };
        let fields = if flags & FIELDS != 0 { Some(self.message_fields()?) } else { None };
        let is_paused = flags & PAUSED != 0;
        let more = if flags & MORE != 0 { self.u8()? } else { 0 };
        if more & !(LIMIT | DEDUP | LIVE) != 0 || (flags & MORE != 0 && more == 0) {
            return Err(self.field("more flags of a topic", more));
        }
        let limit = if more & LIMIT != 0 { self.topic_limit()? } else { TopicLimit::default() };
        let dedup = if more & DEDUP != 0 { Some(self.dedup()?) } else { None };
        let live = if more & LIVE != 0 { self.live()? } else { LiveSettings::default() };
        let config = TopicConfig {
            partitions,
            retention,
            time_to_live,
            durability,
            fields,
            is_paused,
            limit,
            dedup,
            live,
        };
        config.check().map_err(|error| RecordError::Config { kind: self.kind, error })?;
        Ok(config)
    }

    fn dedup(&mut self) -> Result<Dedup, RecordError> {
        let header = self.text()?.parse::<DedupHeader>();
        let header = header.map_err(|error| RecordError::Config { kind: self.kind, error })?;
        let window = self.duration()?;
        let mode = match self.u8()? {
            1 => DedupMode::Refuse,
            2 => DedupMode::Replace,
            tag => return Err(self.field("mode of a deduplication", tag)),
        };
        Ok(Dedup { header, window, mode })
    }

    fn live(&mut self) -> Result<LiveSettings, RecordError> {
        let presence = match self.u8()? {
            0 => false,
            1 => true,
            other => return Err(self.field("presence of a topic", other)),
        };
        let number = self.u8()?;
        let when_behind = WhenBehind::of_number(number)
            .ok_or_else(|| self.field("rule for those behind", number))?;
        let live = LiveSettings { presence, when_behind };
        if live == LiveSettings::default() {
            return Err(self.field("live settings of none", number));
        }
        Ok(live)
    }

    fn topic_limit(&mut self) -> Result<TopicLimit, RecordError> {
        let [messages, bytes] = [self.u64()?, self.u64()?].map(|n| Some(n).filter(|&n| n != 0));
        let when_full = match self.u8()? {
            1 => WhenFull::Refuse,
            2 => WhenFull::DropOldest,
            tag => return Err(self.field("rule of a full topic", tag)),
        };
        let limit = TopicLimit { messages, bytes, when_full };
        if !limit.is_set() {
            return Err(self.field("limit of none", 0_u8));
        }
        Ok(limit)
    }

    pub(crate) fn tombstones(&mut self) -> Result<Option<Tombstones>, RecordError> {
        let (below, at) = (Offset(self.u64()?), Timestamp(self.u64()?));
        if below.0 == 0 {
            self.require_zero("time of no tombstones", at.0)?;
            return Ok(None);
        }
        Ok(Some(Tombstones { below, at }))
    }

    pub(crate) fn compacted(&mut self) -> Result<CompactedBatch, RecordError> {
        let (first, count) = (self.u64()?, self.u32()?);
        let end = first.checked_add(u64::from(count));
        let end = end.ok_or_else(|| self.field("offset of a batch", first))?;
        let mut least = first;
        let parts = self.list(|r| {
            let (first, count) = (r.u64()?, r.u32()?);
            let place = Place { position: r.u64()?, bytes: r.u32()? };
            let ends = first.checked_add(u64::from(count)).filter(|ends| *ends <= end && count > 0);
            least = ends
                .filter(|_| first >= least)
                .ok_or_else(|| r.field("offset of a part", first))?;
            Ok(KeptPart { first: Offset(first), count, place })
        })?;
        Ok(CompactedBatch { first: Offset(first), count, parts })
    }

    pub(crate) fn superseded(&mut self) -> Result<SupersededBatch, RecordError> {
        let (first, count, bytes) = (self.u64()?, self.u32()?, self.u32()?);
        if first.checked_add(u64::from(count)).is_none() {
            return Err(self.field("offset of a batch", first));
        }
        let (mut least, mut least_byte) = (0, 0);
        let kept = self.list(|r| {
            let (index, run_count, begin, run_bytes) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
            let end = index.checked_add(run_count).filter(|end| *end <= count && run_count > 0);
            let end =
                end.filter(|_| index >= least).ok_or_else(|| r.field("run of a batch", index))?;
            let end_byte =
                begin.checked_add(run_bytes).filter(|end| *end <= bytes && run_bytes > 0);
            let end_byte = end_byte
                .filter(|_| begin >= least_byte)
                .ok_or_else(|| r.field("bytes of a run", begin))?;
            (least, least_byte) = (end, end_byte);
            let first = Offset(first + u64::from(index));
            Ok(KeptRun { first, count: run_count, begin, bytes: run_bytes })
        })?;
        Ok(SupersededBatch { first: Offset(first), count, bytes, kept })
    }

    pub(crate) fn group_setting(&mut self) -> Result<GroupSetting, RecordError> {
        let id = GroupId(self.u32()?);
        let (lease, attempts_max) = (self.duration()?, self.u32()?);
        let (tag, offset) = (self.u8()?, self.u64()?);
        let (has_policy, has_scheduling) = (tag & RETRY_POLICY != 0, tag & SCHEDULING != 0);
        let tag = tag & !(RETRY_POLICY | SCHEDULING);
        if tag != 3 {
            self.require_zero("offset of a start that is none", offset)?;
        }
        let start = match tag {
            1 => StartAt::Earliest,
            2 => StartAt::Latest,
            3 => StartAt::Offset(Offset(offset)),
            tag => return Err(self.field("start", tag)),
        };
        let retry = if has_policy { self.retry_policy()? } else { RetryPolicy::default() };
        let (how, throttle, key_rules) = if has_scheduling {
            (self.u8()?, self.optional_rate()?, self.key_rules()?)
        } else {
            (0, None, KeyRules::default())
        };
        let is_paused = how & 1 != 0;
        let order = Order::of_number(how >> 1).ok_or_else(|| self.field("order", how))?;
        if has_scheduling && how == 0 && throttle.is_none() && key_rules.is_empty() {
            return Err(self.field("scheduling of none", 0_u8));
        }
        let config =
            GroupConfig { lease, attempts_max, retry, is_paused, throttle, key_rules, order };
        config.check().map_err(|error| RecordError::Config { kind: self.kind, error })?;
        Ok(GroupSetting { id, config, start })
    }

    fn retry_policy(&mut self) -> Result<RetryPolicy, RecordError> {
        let (jitter_percent, age_max) = (self.u8()?, self.optional_duration()?);
        let backoff = match self.u8()? {
            0 => Backoff::None,
            1 => Backoff::Exponential { first: self.duration()?, max: self.duration()? },
            2 => {
                let delays = self.list(Self::duration)?;
                let kind = self.kind;
                let delays = RetryDelays::new(&delays);
                Backoff::List(delays.map_err(|error| RecordError::Config { kind, error })?)
            }
            tag => return Err(self.field("back-off", tag)),
        };
        let policy = RetryPolicy { backoff, jitter_percent, age_max };
        if policy == RetryPolicy::default() {
            return Err(self.field("retry policy of none", 0_u8));
        }
        Ok(policy)
    }

    pub(crate) fn dead_letters(&mut self) -> Result<DeadLetters, RecordError> {
        let (tag, topic) = (self.u8()?, TopicId(self.u32()?));
        if tag != 1 {
            self.require_zero("dead-letter topic of none", topic.0)?;
        }
        match tag {
            0 => Ok(DeadLetters::NotYet),
            1 => Ok(DeadLetters::To(topic)),
            2 => Ok(DeadLetters::Stay),
            tag => Err(self.field("dead letters", tag)),
        }
    }

    /// The batch that is the rest of the body.
    pub(crate) fn batch(&mut self) -> Result<Batch, RecordError> {
        let bytes = std::mem::take(&mut self.rest);
        Batch::from_journal(bytes).map_err(|error| RecordError::Batch { kind: self.kind, error })
    }
}
