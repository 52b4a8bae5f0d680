//! Values drawn from a number: those at the edges often. Every seed draws the same values again.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_model::{
    Backoff, Batch, BatchBuilder, Dedup, DedupMode, Durability, Filter, Generation, GroupConfig,
    GroupId, KeyRule, KeyRules, LiveSettings, Message, MessageFields, Offset, OffsetRange,
    PartitionId, PartitionIndex, ProducerId, ProducerStamp, ReadFrom, Retention, RetryPolicy,
    StartAt, ThrottleRate, Timestamp, TopicConfig, TopicId, TopicKind, TopicLimit, WhenBehind,
    WhenFull,
};

use crate::{
    command::{Credit, CursorClaim, DeliveryRun, GroupSetting, Origin, SessionId},
    content::Content,
    stream::{ForkOf, StreamNote, StreamProducer, StreamSettings},
};

pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn u64(&mut self) -> u64 {
        match self.below(4) {
            0 => 0,
            1 => u64::MAX,
            2 => self.below(1000),
            _ => self.next(),
        }
    }

    pub(super) fn u32(&mut self) -> u32 {
        self.u64() as u32
    }

    pub(super) fn number(&mut self) -> usize {
        self.u64() as usize
    }

    pub(super) fn bool(&mut self) -> bool {
        self.below(2) == 0
    }

    pub(super) fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    pub(super) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| one(self)).collect()
    }

    pub(super) fn optional<T>(&mut self, one: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.bool() { Some(one(self)) } else { None }
    }

    pub(super) fn text(&mut self) -> String {
        self.one_of(&["", "a", "Grüße, 世界", "with \0 and \n in it", "x.y-z"]).repeat(3)
    }

    pub(super) fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(&mut self) -> T {
        self.one_of(&["default", "a", "orders.eu", "x-1_2"]).parse().unwrap()
    }

    pub(super) fn bytes(&mut self) -> Bytes {
        let length = self.below(40);
        (0..length).map(|_| self.next() as u8).collect()
    }

    pub(super) fn span(&mut self) -> Duration {
        Duration::new(self.u64(), self.below(1_000_000_000) as u32)
    }

    pub(super) fn time(&mut self) -> Timestamp {
        Timestamp(self.u64())
    }

    pub(super) fn offset(&mut self) -> Offset {
        Offset(self.u64())
    }

    pub(super) fn range(&mut self) -> OffsetRange {
        OffsetRange::new(Offset(self.next() >> 1), self.below(1000))
    }

    pub(super) fn topic(&mut self) -> TopicId {
        TopicId(self.u32())
    }

    pub(super) fn group(&mut self) -> GroupId {
        GroupId(self.u32())
    }

    pub(super) fn partition(&mut self) -> PartitionId {
        PartitionId { topic: self.topic(), index: PartitionIndex(self.u32()) }
    }

    pub(super) fn session(&mut self) -> SessionId {
        SessionId(self.u64())
    }

    pub(super) fn origin(&mut self) -> Origin {
        Origin { session: self.session(), request: self.u64() }
    }

    pub(super) fn credit(&mut self) -> Credit {
        Credit { messages: self.u32(), bytes: self.u64() }
    }

    pub(super) fn producer(&mut self) -> ProducerStamp {
        let (id, epoch) = (ProducerId(self.u64()), self.u32());
        ProducerStamp { id, epoch, first_sequence: self.u64() }
    }

    pub(super) fn durability(&mut self) -> Durability {
        self.one_of(&Durability::ALL)
    }

    pub(super) fn runs(&mut self) -> Vec<DeliveryRun> {
        self.list(|r| DeliveryRun {
            first: r.offset(),
            count: r.u32(),
            attempt: r.u32(),
            generation: Generation(r.u32()),
        })
    }

    pub(super) fn claim(&mut self) -> Option<CursorClaim> {
        self.optional(|r| CursorClaim { name: r.name(), take_over: r.bool(), number: r.u64() })
    }

    pub(super) fn read_from(&mut self) -> ReadFrom {
        let (offset, count, time) = (self.offset(), self.u64(), self.time());
        self.one_of(&[
            ReadFrom::Earliest,
            ReadFrom::Latest,
            ReadFrom::Offset(offset),
            ReadFrom::Last(count),
            ReadFrom::Time(time),
        ])
    }

    pub(super) fn filter(&mut self) -> Option<Filter> {
        let texts = [r#"header.a = "b""#, "exists header.x and not (key < 'z')"];
        self.optional(|r| r.one_of(&texts).parse().unwrap())
    }

    pub(super) fn batch(&mut self) -> Batch {
        let mut builder = BatchBuilder::new();
        for _ in 0..=self.below(3) {
            let (key, payload) = (self.bytes(), self.bytes());
            let delay = self.optional(|_| Duration::from_secs(5));
            builder.push(&Message { key, payload, delay, ..Message::default() }).unwrap();
        }
        builder.take().unwrap()
    }

    pub(super) fn content(&mut self) -> Option<Content> {
        let batches = self.list(Self::batch);
        Content::of(batches)
    }

    pub(super) fn rate(&mut self) -> ThrottleRate {
        ThrottleRate::parse(self.one_of(&["10/s burst 20", "1/h", "1000000000/s"])).unwrap()
    }

    /// Settings within their bounds.
    pub(super) fn topic_config(&mut self) -> TopicConfig {
        let mut config = TopicConfig::of_kind(self.one_of(&[TopicKind::Queue, TopicKind::Stream]));
        config.partitions = 1 + self.below(9) as u32;
        config.is_paused = self.bool();
        config.durability = self.durability();
        let live = LiveSettings { presence: true, when_behind: WhenBehind::Disconnect };
        config.live = self.one_of(&[LiveSettings::default(), live]);
        let limit = TopicLimit { messages: Some(9), bytes: None, when_full: WhenFull::DropOldest };
        config.limit = self.one_of(&[TopicLimit::default(), limit]);
        let (header, window) = ("order-id".parse().unwrap(), Duration::from_secs(60));
        config.dedup = self.optional(|_| Dedup { header, window, mode: DedupMode::Refuse });
        let tenant = Some("tenant".parse().unwrap());
        let fields = MessageFields { fair_key: tenant, ..MessageFields::default() };
        config.fields = self.optional(|_| Arc::new(fields));
        let Retention { until_settled, .. } = config.retention;
        let retention = Retention {
            age: Some(Duration::from_secs(60)),
            bytes: Some(1 << 30),
            count: Some(7),
            until_settled,
            latest_per_key: None,
        };
        config.retention = self.one_of(&[config.retention, retention]);
        config
    }

    pub(super) fn group_config(&mut self) -> GroupConfig {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(300));
        let backoff = Backoff::Exponential { first, max };
        let retry = RetryPolicy { backoff, jitter_percent: 20, age_max: Some(max) };
        let rule = KeyRule {
            pattern: "tenant:*".parse().unwrap(),
            weight: Some(2),
            concurrency: None,
            throttle: Some(self.rate()),
            is_paused: true,
        };
        GroupConfig {
            retry: self.one_of(&[RetryPolicy::default(), retry]),
            is_paused: self.bool(),
            throttle: self.optional(Self::rate),
            key_rules: KeyRules::new(self.optional(|_| rule).into_iter().collect()),
            ..GroupConfig::default()
        }
    }

    pub(super) fn start(&mut self) -> StartAt {
        let offset = self.offset();
        self.one_of(&[StartAt::Earliest, StartAt::Latest, StartAt::Offset(offset)])
    }

    pub(super) fn group_setting(&mut self) -> GroupSetting {
        GroupSetting { id: self.group(), config: self.group_config(), start: self.start() }
    }

    pub(super) fn note(&mut self) -> StreamNote {
        let producer = self.optional(|r| StreamProducer {
            id: r.text().into(),
            epoch: r.u64(),
            sequence: r.u64(),
        });
        let sequence = self.optional(|r| r.text().into());
        StreamNote { producer, sequence, closes: self.bool() }
    }

    pub(super) fn fork(&mut self) -> ForkOf {
        ForkOf {
            source: self.partition(),
            home: self.topic(),
            name: self.text().into(),
            at: self.offset(),
            requested: (self.text().into(), self.u64()),
        }
    }

    pub(super) fn stream_settings(&mut self) -> StreamSettings {
        StreamSettings {
            content_type: self.text().into(),
            time_to_live: self.optional(Self::u64),
            expires_at: self.optional(|r| (r.time(), r.text().into())),
            is_verified: self.bool(),
            fork: self.optional(Self::fork),
            group: self.optional(|r| r.text().into()),
        }
    }
}
