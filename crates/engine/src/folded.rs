//! A partition at rest in a few bytes: its whole state in numbers of seven bits a byte. Nothing is decided here,
//! and the bytes never leave the process: `kept` has the layout for checkpoints.

use std::sync::Arc;

use sennit_model::{GroupId, Offset, PartitionId, ProducerId, Timestamp, TopicConfig, TopicId};

use crate::{
    command::DeadLetters,
    group::Group,
    log::{Entry, Log, Place},
    partition::Partition,
    producer::{AppendedBatch, Producer, Producers},
    stored::Stored,
    terms::Terms,
    tries::Tries,
};

/// A partition of which there is more to say stays as it is.
const BYTES_MAX: usize = 512;

/// Bits that say what there is.
const FLAGS: u32 = 6;

/// The settings of a partition and of its groups. Many partitions have the same.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) config: Arc<TopicConfig>,
    /// Those of its groups, in their order.
    pub(crate) terms: Vec<Arc<Terms>>,
}

impl Form {
    pub(crate) fn of(partition: &Partition) -> Self {
        let terms = partition.groups.iter().map(|group| group.terms().clone()).collect();
        Self { config: partition.config.clone(), terms }
    }

    /// What makes it another form than others.
    pub(crate) fn key(&self, out: &mut Vec<u8>) {
        out.extend((Arc::as_ptr(&self.config) as usize).to_le_bytes());
        for terms in &self.terms {
            out.extend((Arc::as_ptr(terms) as usize).to_le_bytes());
        }
    }
}

/// A partition in which nothing is under way.
#[derive(Debug)]
pub(crate) struct Folded {
    form: Arc<Form>,
    bytes: Box<[u8]>,
}

impl Folded {
    /// `None` if something is under way in the partition, or if there is too much to say of it.
    pub(crate) fn of(
        partition: &Partition,
        form: impl FnOnce(&Partition) -> Arc<Form>,
    ) -> Option<Self> {
        let is_busy = partition.is_loading || partition.is_in_ready_list;
        let is_busy = is_busy || !partition.classes.is_empty() || !partition.seen.is_empty();
        if is_busy || !partition.groups.iter().all(Group::is_at_rest) {
            return None;
        }
        let mut w = Packer(Vec::new());
        w.partition(partition)?;
        let folded = Self { form: form(partition), bytes: w.0.as_slice().into() };
        #[cfg(any(test, debug_assertions))]
        folded.check(partition);
        Some(folded)
    }

    /// Asserts that this is all there is to say of a partition: a checkpoint says the same of what it
    /// is unfolded to, and what a checkpoint does not say is the same too.
    #[cfg(any(test, debug_assertions))]
    fn check(&self, partition: &Partition) {
        use crate::kept;
        let kept = |partition: &Partition| {
            let (mut out, ids) = (Vec::new(), partition.producers.ids());
            let limit = kept::SliceLimit { batches: usize::MAX, messages: u64::MAX };
            let all = partition.log.start()..partition.log.end();
            kept::encode_head(&mut out, partition);
            kept::encode_producers(&mut out, partition, &ids, true);
            kept::encode_slice(&mut out, partition, all, limit);
            let ready = partition.groups.iter().map(|group| group.ready.within(0, u64::MAX));
            let timers = (partition.age_due, partition.delays.timer_due());
            let unsaid = (partition.dead_letter_topic_requested, timers);
            (out, partition.visible, partition.log.bytes(), unsaid, ready.collect::<Vec<_>>())
        };
        let unfolded = self.unfolded(partition.id);
        assert_eq!(self.stored(), Stored::of(&partition.log, &partition.config));
        assert_eq!(kept(&unfolded), kept(partition), "{partition:?}");
    }

    /// Whether one of its groups may hold messages that others are through with.
    pub(crate) fn may_hold(&self) -> bool {
        self.form.terms.len() > 1 && self.form.config.retention.until_settled
    }

    /// How many messages it has at most, settled ones included.
    pub(crate) fn messages(&self) -> u64 {
        let mut numbers = Unpacker(&self.bytes);
        let (_, start) = (numbers.take(), numbers.take());
        numbers.near(start) - start
    }

    /// What it stores.
    pub(crate) fn stored(&self) -> Stored {
        let mut numbers = Unpacker(&self.bytes);
        numbers.take();
        let start = numbers.take();
        let end = numbers.near(start);
        numbers.near(end);
        let mut log = Log::empty(start, end);
        numbers.entries(&mut log);
        Stored::of(&log, &self.form.config)
    }

    /// Whether some of its messages are delayed.
    pub(crate) fn has_delays(&self) -> bool {
        self.flag(2)
    }

    /// Whether some of its messages have a time to live.
    pub(crate) fn has_expiries(&self) -> bool {
        self.flag(1)
    }

    fn flag(&self, bit: u32) -> bool {
        Unpacker(&self.bytes).take() >> bit & 1 == 1
    }

    /// The partition of which it was made.
    pub(crate) fn unfolded(&self, id: PartitionId) -> Partition {
        Unpacker(&self.bytes).partition(id, &self.form)
    }
}

fn dead_letters_to_bits(dead_letters: DeadLetters) -> u64 {
    match dead_letters {
        DeadLetters::NotYet => 0,
        DeadLetters::Stay => 1,
        DeadLetters::To(topic) => 2 + u64::from(topic.0),
    }
}

fn dead_letters_of_bits(bits: u64) -> DeadLetters {
    match bits {
        0 => DeadLetters::NotYet,
        1 => DeadLetters::Stay,
        topic => DeadLetters::To(TopicId((topic - 2) as u32)),
    }
}

/// Writes numbers; `None` once there are too many.
struct Packer(Vec<u8>);

impl Packer {
    fn put(&mut self, mut value: u64) -> Option<&mut Self> {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        (self.0.len() <= BYTES_MAX).then_some(self)
    }

    /// A number that is near another.
    fn near(&mut self, value: u64, to: u64) -> Option<&mut Self> {
        let apart = value.wrapping_sub(to).cast_signed();
        self.put(((apart << 1) ^ (apart >> 63)).cast_unsigned())
    }

    fn partition(&mut self, partition: &Partition) -> Option<()> {
        // Each by its name, so that none that comes later is forgotten here.
        let Partition {
            id: _,
            config: _,
            dead_letters,
            log,
            visible,
            producers,
            groups,
            // Who has classes is not folded.
            classes: _,
            delays,
            expiries,
            age_due,
            dead_letter_topic_requested,
            is_loading: _,
            is_in_ready_list: _,
            awaits_batch: _,
            seen: _,
            rest: _,
        } = partition;
        let has_producers = !producers.ids().is_empty();
        // As a rule it is due when the oldest batch is too old.
        let has_age_due = *age_due != partition.too_old_at();
        let has_delays_due = delays.timer_due() != delays.earliest();
        let flags = [
            has_delays_due,
            has_age_due,
            *dead_letter_topic_requested,
            !delays.is_empty(),
            !expiries.is_empty(),
            has_producers,
        ];
        let flags = flags.into_iter().fold(0, |flags, flag| flags << 1 | u64::from(flag));
        self.put(dead_letters_to_bits(*dead_letters) << FLAGS | flags)?;
        self.put(log.start())?.near(log.end(), log.start())?;
        self.near(*visible, log.end())?;
        self.entries(log)?;
        if !delays.is_empty() {
            let delays = delays.runs(0, u64::MAX).map(|run| (run.start, run.end, run.due.0));
            self.runs(delays, log.start())?;
        }
        if !expiries.is_empty() {
            let expiries = expiries.runs().iter();
            self.runs(expiries.map(|(start, end, time)| (start, end, time.0)), log.start())?;
        }
        if has_producers {
            self.producers(producers, log.end())?;
        }
        if has_age_due {
            self.put(age_due.0)?;
        }
        if has_delays_due {
            self.put(delays.timer_due().0)?;
        }
        groups.iter().try_for_each(|group| self.group(group, log))
    }

    fn group(&mut self, group: &Group, log: &Log) -> Option<()> {
        self.put(group.id().0.into())?.near(group.settled.floor(), log.end())?;
        let settled = group.settled.above().map(|settled| (settled.start, settled.end, 0));
        self.runs(settled, log.start())?;
        // All other offsets are ready or delayed; only those that were delivered before are written.
        let ready = group.ready.iter().filter(|(.., tries)| !tries.is_none());
        let tried = ready.map(|(start, end, tries)| (start, end, tries.to_bits()));
        self.runs(tried, log.start())?;
        Some(())
    }

    fn entries(&mut self, log: &Log) -> Option<&mut Self> {
        let mut at = (log.start(), 0, 0);
        for Entry { first, count, place, appended_at } in log.entries() {
            self.put(u64::from(*count))?.near(*first, at.0)?;
            self.near(place.position, at.1)?.put(place.bytes.into())?.near(appended_at.0, at.2)?;
            at = (first + u64::from(*count), place.position, appended_at.0);
        }
        // No batch is empty.
        self.put(0)
    }

    /// Runs of offsets with what is said of them.
    fn runs(
        &mut self,
        runs: impl Iterator<Item = (u64, u64, u64)>,
        start: u64,
    ) -> Option<&mut Self> {
        let (mut at, mut last) = (start, 0);
        for (start, end, value) in runs {
            self.put(end - start)?.near(start, at)?.near(value, last)?;
            (at, last) = (end, value);
        }
        // No run is empty.
        self.put(0)
    }

    fn producers(&mut self, producers: &Producers, log_end: u64) -> Option<&mut Self> {
        let ids = producers.ids();
        self.put(ids.len() as u64)?;
        for (id, producer) in ids.iter().filter_map(|&id| Some((id, producers.get(id)?))) {
            let Producer { epoch, next_sequence, last_end, recent } = producer;
            self.put(id.0)?.put((*epoch).into())?.put(*next_sequence)?.near(*last_end, log_end)?;
            let mut at = (*next_sequence, *last_end);
            for AppendedBatch { first_sequence, count, first } in recent {
                self.put((*count).into())?.near(*first_sequence, at.0)?.near(first.0, at.1)?;
                at = (*first_sequence, first.0);
            }
            self.put(0)?;
        }
        Some(self)
    }
}

/// Reads what a [`Packer`] wrote in this process: what is missing is a bug.
struct Unpacker<'a>(&'a [u8]);

impl Unpacker<'_> {
    fn take(&mut self) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = self.0.split_first().expect("all was written");
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return value;
            }
            shift += 7;
        }
    }

    fn near(&mut self, to: u64) -> u64 {
        let coded = self.take();
        let apart = (coded >> 1).cast_signed() ^ -(coded & 1).cast_signed();
        to.wrapping_add(apart.cast_unsigned())
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.take()).expect("it was 32 bits long")
    }

    fn partition(mut self, id: PartitionId, form: &Form) -> Partition {
        let mut partition = Partition::new(id, form.config.clone());
        let head = self.take();
        let [has_delays_due, has_age_due, requested, has_delays, has_expiries, has_producers] =
            [5, 4, 3, 2, 1, 0].map(|bit| head >> bit & 1 == 1);
        partition.dead_letter_topic_requested = requested;
        partition.dead_letters = dead_letters_of_bits(head >> FLAGS);
        let start = self.take();
        let end = self.near(start);
        partition.visible = self.near(end);
        partition.log = Log::empty(start, end);
        self.entries(&mut partition.log);
        let Partition { delays, expiries, producers, .. } = &mut partition;
        for (start, end, due) in has_delays.then(|| self.runs(start)).into_iter().flatten() {
            delays.insert(start, end, Timestamp(due));
        }
        for (start, end, time) in has_expiries.then(|| self.runs(start)).into_iter().flatten() {
            expiries.insert(start, end, Timestamp(time));
        }
        if has_producers {
            self.producers(producers, end);
        }
        partition.age_due =
            if has_age_due { Timestamp(self.take()) } else { partition.too_old_at() };
        let delays_due = has_delays_due.then(|| Timestamp(self.take()));
        let earliest = partition.delays.earliest();
        partition.delays.set_timer_due(delays_due.unwrap_or(earliest));
        partition.groups.reserve_exact(form.terms.len());
        for terms in &form.terms {
            let group = self.group(&partition, terms.clone());
            partition.groups.push(group);
        }
        partition
    }

    fn group(&mut self, partition: &Partition, terms: Arc<Terms>) -> Group {
        let (start, end) = (partition.log.start(), partition.log.end());
        let id = GroupId(self.small());
        let mut group = Group::new(partition.id, (id, terms), self.near(end));
        for (start, end, _) in self.runs(start) {
            group.settled.insert(start, end);
        }
        group.appear(group.settled.floor(), partition.visible, &partition.delays);
        for (start, end, tries) in self.runs(start) {
            group.ready.insert(start, end, Tries::of_bits(tries));
        }
        group
    }

    fn entries(&mut self, log: &mut Log) {
        let mut at = (log.start(), 0, 0);
        loop {
            let count = self.small();
            if count == 0 {
                return;
            }
            let first = self.near(at.0);
            let place = Place { position: self.near(at.1), bytes: self.small() };
            let appended_at = Timestamp(self.near(at.2));
            log.put_back(Entry { first, count, place, appended_at });
            at = (first + u64::from(count), place.position, appended_at.0);
        }
    }

    fn runs(&mut self, start: u64) -> Vec<(u64, u64, u64)> {
        let (mut at, mut last) = (start, 0);
        let mut runs = Vec::new();
        loop {
            let length = self.take();
            if length == 0 {
                return runs;
            }
            let start = self.near(at);
            (at, last) = (start + length, self.near(last));
            runs.push((start, at, last));
        }
    }

    fn producers(&mut self, producers: &mut Producers, log_end: u64) {
        for _ in 0..self.take() {
            let (id, epoch, next_sequence) = (ProducerId(self.take()), self.small(), self.take());
            let last_end = self.near(log_end);
            let mut recent = std::collections::VecDeque::new();
            let mut at = (next_sequence, last_end);
            loop {
                let count = self.small();
                if count == 0 {
                    break;
                }
                let first_sequence = self.near(at.0);
                let first = Offset(self.near(at.1));
                recent.push_back(AppendedBatch { first_sequence, count, first });
                at = (first_sequence, first.0);
            }
            producers.put_back(id, Producer { epoch, next_sequence, last_end, recent });
        }
    }
}
