//! A broker that executes given acts without randomness: two topics, one for small and one for long messages, and a
//! consumer of each group. After a stop it checks all promises. The caller chooses the acts and the faults.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use sennit_engine::{
    Command, Content, Credit, DeadLetters, GroupSetting, OpenStream, Origin, PartitionCommand,
    Publish, SessionId, StreamAppend, StreamCommand, StreamNote, StreamSettings, Verdict,
};
use sennit_journal::disk::FaultPlan;
use sennit_model::{
    Batch, BatchBuilder, GroupConfig, GroupId, Message, PartitionId, PartitionIndex, ProducerStamp,
    StartAt, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{PackLengths, Settings};

use crate::{
    act::Act,
    oracle::{OUTSTANDING, Violation},
    random::Random,
    stream_actions,
    topics::names,
    trace::Trace,
    world::{RECOVERS, Stop, World},
};

/// The shortest length of a segment.
pub const SEGMENT_BYTES: u64 = 16 << 10;
/// Messages in a small batch.
const SMALL_MESSAGES: u64 = 3;
/// The payload of a long message: its frame fills a segment.
const LONG_BYTES: usize = 9_000;
/// The streams of a group.
const ACCOUNTS: [PartitionId; 3] =
    [account(1 << 20), account((1 << 20) + 1), account((1 << 20) + 2)];
/// The payload of a message in these streams: two rounds fill most of a segment.
const ACCOUNT_BYTES: usize = 1_500;
/// Steps within which the lane finishes its work.
const CALM_STEPS: u32 = 400;
/// Steps within which the mover finishes its work.
const MOVE_STEPS: u32 = 400;
/// The promise that a crash damages nothing.
const DAMAGED: &str = "I1 no stored byte is damaged";
/// Rounds within which all outstanding messages are delivered.
const DRAIN_ROUNDS: u32 = 60;

const fn account(topic: u32) -> PartitionId {
    PartitionId { topic: TopicId(topic), index: PartitionIndex(0) }
}

/// A broker and the state of its script.
#[derive(Debug)]
pub struct Script {
    /// The broker.
    pub world: World,
    random: Random,
    orders: Option<PartitionId>,
    mails: PartitionId,
    topics: BTreeMap<PartitionId, (Vec<GroupSetting>, DeadLetters)>,
    dropped: Vec<PartitionId>,
    next_topic: u32,
    next_group: u32,
    next_message: u64,
    settles_all: bool,
    extra_group: Option<GroupId>,
    /// Whether something was appended to the streams of the group.
    has_accounts: bool,
}

impl Script {
    /// A broker that has started for the first time, with its two topics.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn begin(trace: Trace) -> Result<Self, Violation> {
        let packs = PackLengths { finished: 24 << 10, own: 16 << 10 };
        let settings = Settings {
            cache_bytes: 0,
            journal_segments: 1,
            packs,
            writes_superseded: false,
            replica: None,
        };
        let world = World::begin(1, SEGMENT_BYTES, settings, trace)?;
        let mails = PartitionId { topic: TopicId(0), index: PartitionIndex(0) };
        let mut script = Self {
            world,
            random: Random::new(0),
            orders: None,
            mails,
            topics: BTreeMap::new(),
            dropped: Vec::new(),
            next_topic: 1,
            next_group: 0,
            next_message: 0,
            settles_all: false,
            extra_group: None,
            has_accounts: false,
        };
        script.mails = script.create().map_err(to_violation)?;
        script.orders = Some(script.create().map_err(to_violation)?);
        Ok(script)
    }

    /// Runs an act. After a failure of the lane only a restart has an effect.
    ///
    /// # Errors
    /// The promise that was broken, or that the power went.
    pub fn act(&mut self, act: Act) -> Result<(), Stop> {
        self.world.trace.step(format_args!("{act:?}"));
        if self.world.is_fenced && act != Act::Restart {
            return Ok(());
        }
        match act {
            Act::Small => self.publish(true, false)?,
            Act::Long => self.publish(false, true)?,
            Act::Both => self.publish(true, true)?,
            Act::Gather => return Ok(self.publish(true, false)?),
            Act::Settle => {
                let all = self.settles_all;
                self.settles_all = !all;
                self.settle(&Verdict::Ack, |offset| all || offset % 3 != 1)?;
            }
            Act::Retry => self.settle(&Verdict::Retry, |_| true)?,
            Act::Bury => {
                let reason = "it cannot be done".into();
                self.settle(&Verdict::DeadLetter { reason }, |_| true)?;
            }
            Act::Delete => match self.orders.take() {
                Some(orders) => self.drop_topic(orders)?,
                None => self.orders = Some(self.create()?),
            },
            Act::Group => self.change_groups()?,
            Act::Together => self.append_together()?,
            Act::GatherTogether => {
                self.append_together()?;
                return Ok(self.append_together()?);
            }
            Act::Several => self.append_several()?,
            Act::GatherSeveral => {
                self.append_several()?;
                return Ok(self.append_several()?);
            }
            Act::Checkpoint => self.world.parts.shard.checkpoint_soon(),
            Act::Piece => {
                self.world.parts.shard.checkpoint_soon();
                for _ in 0..3 {
                    self.world.lane_step()?;
                    self.world.slot_step()?;
                }
                return Ok(());
            }
            Act::Move => self.move_all()?,
            Act::MoveSteps => {
                for _ in 0..3 {
                    self.world.move_step()?;
                }
            }
            Act::Mark => self.pass(Duration::from_millis(60))?,
            Act::Later => self.pass(Duration::from_secs(600))?,
            Act::Full => {
                for _ in 0..CALM_STEPS {
                    if !self.world.has_held_slots() {
                        self.world.slot_step()?;
                    }
                }
                self.set_room(Some(0));
            }
            Act::Room => self.set_room(None),
            Act::Restart => self.restart(Ending::Kill)?,
        }
        self.run_until_idle()
    }

    fn set_room(&mut self, room: Option<u64>) {
        let used: usize = self.world.disk.files().iter().map(|(_, length)| length).sum();
        let capacity_bytes = room.map_or(0, |room| used as u64 + room);
        let plan = self.world.disk.plan();
        self.world.disk.set_plan(FaultPlan { capacity_bytes, ..plan });
    }

    fn origin(&mut self) -> Origin {
        Origin { session: SessionId(1), request: self.world.request() }
    }

    fn publish(&mut self, small: bool, long: bool) -> Result<(), Violation> {
        if let Some(orders) = self.orders.filter(|_| small) {
            let mut builder = BatchBuilder::new();
            for _ in 0..SMALL_MESSAGES {
                self.push_message(&mut builder, 20);
            }
            self.publish_batch(orders, builder);
        }
        if long {
            let mut builder = BatchBuilder::new();
            self.push_message(&mut builder, LONG_BYTES);
            self.publish_batch(self.mails, builder);
        }
        self.world.turn()
    }

    fn push_message(&mut self, builder: &mut BatchBuilder, length: usize) {
        self.next_message += 1;
        let mut payload = self.next_message.to_le_bytes().to_vec();
        payload.resize(8 + length, self.next_message as u8);
        builder.push(&Message::new(payload)).expect("within all limits");
    }

    fn publish_batch(&mut self, partition: PartitionId, mut builder: BatchBuilder) {
        let batch = builder.take().expect("it holds a message");
        let (origin, producer) = (self.origin(), ProducerStamp::default());
        self.world.submit(Command::Publish(Publish { origin, partition, producer, batch }));
    }

    /// Appends a message to each stream of the group. They are so long that segments end between them.
    fn append_together(&mut self) -> Result<(), Violation> {
        let mut appends = Vec::new();
        for id in ACCOUNTS {
            self.open_account(id);
            let content = Some(self.account_batch().into());
            let note = StreamNote::default();
            appends.push((id, StreamAppend { content, content_type: None, note }));
        }
        let origin = self.origin();
        self.world.submit(Command::AppendTogether(origin, appends));
        self.world.turn()
    }

    /// Appends as many bytes to one stream, in as many batches.
    fn append_several(&mut self) -> Result<(), Violation> {
        let id = ACCOUNTS[0];
        self.open_account(id);
        let content = Content::of(ACCOUNTS.map(|_| self.account_batch()));
        let append = StreamAppend { content, content_type: None, note: StreamNote::default() };
        let origin = self.origin();
        self.world.submit(Command::Stream(origin, id, StreamCommand::Append(Box::new(append))));
        self.world.turn()
    }

    fn open_account(&mut self, id: PartitionId) {
        self.has_accounts = true;
        let settings = StreamSettings {
            group: Some("accounts".into()),
            is_verified: true,
            ..StreamSettings::of_topic()
        };
        let config = TopicConfig::of_kind(TopicKind::Stream);
        let open = OpenStream { config, settings, content: None, closes: false };
        let origin = self.origin();
        self.world.submit(Command::Stream(origin, id, StreamCommand::Open(Box::new(open))));
    }

    fn account_batch(&mut self) -> Batch {
        let mut builder = BatchBuilder::new();
        self.push_message(&mut builder, ACCOUNT_BYTES);
        builder.take().expect("it holds a message")
    }

    /// Reads all messages of the group's streams.
    fn read_accounts(&mut self) -> Result<(), Stop> {
        if !self.has_accounts {
            return Ok(());
        }
        ACCOUNTS.into_iter().for_each(|id| stream_actions::audit(&mut self.world, id));
        while self.world.streams.is_busy() {
            self.world.turn()?;
            self.run_until_idle()?;
            stream_actions::handle_responses(&mut self.world);
        }
        Ok(())
    }

    fn settle(&mut self, verdict: &Verdict, which: impl Fn(u64) -> bool) -> Result<(), Violation> {
        let World { consumers, requests, .. } = &mut self.world;
        let settles = consumers.settle_where(requests, verdict, which);
        settles.into_iter().for_each(|settle| self.world.submit(settle));
        self.world.turn()
    }

    fn new_group(&mut self) -> GroupSetting {
        self.next_group += 1;
        let id = GroupId(self.next_group);
        GroupSetting { id, config: GroupConfig::default(), start: StartAt::Earliest }
    }

    /// Creates a topic with a group, and its dead-letter topic.
    fn create(&mut self) -> Result<PartitionId, Stop> {
        let [id, letters] = [0, 1].map(|more| TopicId(self.next_topic + more));
        self.next_topic += 2;
        let index = PartitionIndex(0);
        let (group, of_letters) = (self.new_group(), self.new_group());
        let letters_at = PartitionId { topic: letters, index };
        self.topics.insert(letters_at, (vec![of_letters.clone()], DeadLetters::Stay));
        let partition = PartitionId { topic: id, index };
        self.topics.insert(partition, (vec![group.clone()], DeadLetters::To(letters)));
        for (partition, group) in [(letters_at, of_letters), (partition, group)] {
            self.open(partition)?;
            self.subscribe(partition, group.id)?;
        }
        Ok(partition)
    }

    fn drop_topic(&mut self, partition: PartitionId) -> Result<(), Violation> {
        let letters = match self.topics.get(&partition) {
            Some((_, DeadLetters::To(topic))) => Some(PartitionId { topic: *topic, ..partition }),
            _ => None,
        };
        for partition in [Some(partition), letters].into_iter().flatten() {
            self.topics.remove(&partition);
            self.dropped.push(partition);
            let origin = self.origin();
            self.world.submit(Command::Partition(origin, partition, PartitionCommand::Drop));
        }
        self.world.turn()
    }

    fn change_groups(&mut self) -> Result<(), Stop> {
        let gone = self.extra_group.take();
        let new = if gone.is_none() { Some(self.new_group()) } else { None };
        self.extra_group = new.as_ref().map(|group| group.id);
        let own = [self.orders, Some(self.mails)].into_iter().flatten();
        for partition in own.collect::<Vec<_>>() {
            if let Some((groups, _)) = self.topics.get_mut(&partition) {
                groups.retain(|group| Some(group.id) != gone);
                groups.extend(new.clone());
            }
            self.open(partition)?;
            if let Some(group) = &new {
                self.subscribe(partition, group.id)?;
            }
        }
        Ok(())
    }

    /// Opens a topic in the shard with its current settings.
    fn open(&mut self, partition: PartitionId) -> Result<(), Violation> {
        let Some((groups, dead_letters)) = self.topics.get(&partition).cloned() else {
            return Ok(());
        };
        let config = TopicConfig { partitions: 1, ..TopicConfig::of_kind(TopicKind::Queue) };
        // The start of a new group depends on the current end.
        self.world.describe(partition)?;
        let origin = self.origin();
        let names = Arc::new(names(partition.topic, &groups));
        let open = PartitionCommand::Open { config, groups, dead_letters };
        self.world.submit(Command::Partition(origin, partition, open));
        if matches!(dead_letters, DeadLetters::To(_)) {
            let origin = self.origin();
            let name = PartitionCommand::Name(names);
            self.world.submit(Command::Partition(origin, partition, name));
        }
        self.world.turn()
    }

    /// Retries all parked messages.
    fn retry_parked(&mut self) -> Result<(), Violation> {
        let letters = self.topics.iter().filter(|(_, held)| held.1 == DeadLetters::Stay);
        let parked = letters.flat_map(|(&id, held)| held.0.iter().map(move |group| (id, group.id)));
        for (partition, group) in parked.collect::<Vec<_>>() {
            let origin = self.origin();
            let retry = PartitionCommand::RetryParked(group, None);
            self.world.submit(Command::Partition(origin, partition, retry));
        }
        self.world.turn()
    }

    fn subscribe(&mut self, partition: PartitionId, group: GroupId) -> Result<(), Violation> {
        let credit = Credit { messages: 10_000, bytes: 1 << 24 };
        let request = self.world.request();
        let World { consumers, .. } = &mut self.world;
        let command = consumers.subscribe(&mut self.random, partition, group, credit, request);
        self.world.submit(command);
        self.world.turn()
    }

    fn subscribe_all(&mut self) -> Result<(), Violation> {
        for (partition, (groups, _)) in self.topics.clone() {
            for group in groups {
                self.subscribe(partition, group.id)?;
            }
        }
        Ok(())
    }

    fn pass(&mut self, span: Duration) -> Result<(), Violation> {
        self.world.now = self.world.now.plus(span);
        self.world.advance()
    }

    /// Lets the lane and the reader finish their work.
    fn run_until_idle(&mut self) -> Result<(), Stop> {
        for _ in 0..CALM_STEPS {
            self.world.slot_step()?;
            if !self.world.is_committing() {
                return Ok(());
            }
            self.world.lane_step()?;
            self.world.read_step(0)?;
        }
        Err(Violation::new("I8 the lane finishes its work", "it does not").into())
    }

    fn move_all(&mut self) -> Result<(), Stop> {
        for _ in 0..MOVE_STEPS {
            self.world.move_step()?;
            self.run_until_idle()?;
            if !self.world.moving.is_busy() {
                return Ok(());
            }
        }
        Err(Violation::new("I8 the mover finishes its work", "it does not").into())
    }

    /// Stops the broker with this ending, starts it again, and checks its state.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn restart(&mut self, ending: Ending) -> Result<(), Violation> {
        let plan = self.world.disk.plan();
        self.world.disk.set_plan(FaultPlan { crash_keeps: ending.keeps(), ..plan });
        self.world.restart(ending != Ending::Kill, |_, _| {})?;
        // The catalogue opens and drops its partitions again.
        for partition in self.dropped.clone() {
            if self.world.oracle.partitions().contains(&partition) {
                let origin = self.origin();
                self.world.submit(Command::Partition(origin, partition, PartitionCommand::Drop));
                self.world.turn()?;
            }
        }
        for partition in self.topics.keys().copied().collect::<Vec<_>>() {
            self.open(partition)?;
        }
        self.subscribe_all()
    }

    /// Checks that all outstanding messages are delivered, and that a new group can read every kept message.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn drain(&mut self) -> Result<(), Violation> {
        self.drained().map_err(to_violation)
    }

    fn drained(&mut self) -> Result<(), Stop> {
        self.set_room(None);
        self.run_until_idle()?;
        self.read_accounts()?;
        let leave_commands = self.world.consumers.leave_all();
        leave_commands.into_iter().for_each(|command| self.world.submit(command));
        self.world.turn()?;
        for partition in self.topics.keys().copied().collect::<Vec<_>>() {
            let auditor = self.new_group();
            if let Some((groups, _)) = self.topics.get_mut(&partition) {
                groups.push(auditor);
            }
            self.open(partition)?;
        }
        self.subscribe_all()?;
        for _ in 0..DRAIN_ROUNDS {
            self.run_until_idle()?;
            self.retry_parked()?;
            let World { consumers, requests, .. } = &mut self.world;
            let acks = consumers.ack_all(requests);
            if acks.is_empty() && self.world.oracle.outstanding(self.world.now).is_empty() {
                break;
            }
            if acks.is_empty() && self.reports_damage() {
                break;
            }
            let is_idle = acks.is_empty();
            acks.into_iter().for_each(|ack| self.world.submit(ack));
            self.world.turn()?;
            if is_idle {
                self.pass(Duration::from_secs(60))?;
            }
        }
        self.run_until_idle()?;
        for partition in self.topics.keys().copied().collect::<Vec<_>>() {
            self.world.describe(partition)?;
        }
        self.world.check();
        self.world.oracle.check_settled(self.world.now)?;
        let damaged = self.world.parts.shard.counters().damaged_batches;
        if damaged > 0 {
            let detail = format!("{damaged} batches were found damaged");
            return Err(Violation::new(DAMAGED, detail).into());
        }
        Ok(())
    }

    /// Stops the broker with this ending, and checks every promise: after the start, during more work, and after
    /// another stop.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn stop_and_check(&mut self, ending: Ending) -> Result<(), Violation> {
        self.world.disk.clear_injected_fault();
        self.restart(ending)?;
        // Recovery must not mistake bytes of the last generation for new ones, and its unsynced bytes must be
        // durable by now.
        self.run_until_idle().map_err(to_violation)?;
        self.restart(Ending::Loses)?;
        self.drain()?;
        self.continue_work().map_err(to_violation)?;
        self.restart(Ending::Loses)?;
        self.drain()?;
        self.check_checksums()
    }

    /// Flips a bit of a file after a mark. The next start reports the loss or refuses, or readers report unreadable
    /// messages, or nothing is missing. If no start reports a loss, nothing is missing after the bit is flipped
    /// back.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn read_rotten(&mut self, path: &Path, byte: usize, bit: u8) -> Result<(), Violation> {
        let Some(rotten) = self.world.disk.rot(path, byte, bit) else { return Ok(()) };
        let ends = self.world.oracle.durable_ends();
        self.world.has_rot = true;
        match self.restart(Ending::Kill) {
            Err(violation) if violation.rule == RECOVERS => {}
            _ if self.world.reports_damage() => return self.world.check_no_offset_reused(&ends),
            restarted => match restarted.and_then(|()| self.drain()) {
                Err(violation) if violation.rule == OUTSTANDING && self.reports_damage() => {}
                Err(violation) if violation.rule == DAMAGED => {}
                drained => drained?,
            },
        }
        self.world.disk.mend(&rotten);
        self.world.has_rot = false;
        self.restart(Ending::Kill)?;
        self.drain()
    }

    /// Whether all outstanding messages were reported as unreadable.
    fn reports_damage(&self) -> bool {
        let damaged = self.world.parts.shard.counters().damaged_batches;
        damaged > 0 && self.world.oracle.outstanding_unreported(self.world.now).is_empty()
    }

    fn continue_work(&mut self) -> Result<(), Stop> {
        for act in [Act::Long, Act::Both, Act::Checkpoint, Act::Long, Act::Move, Act::Mark] {
            self.act(act)?;
        }
        if self.has_accounts { self.act(Act::Together) } else { Ok(()) }
    }

    /// Checks every checksum on the disk.
    fn check_checksums(&self) -> Result<(), Violation> {
        let verdict = sennit_journal::verify(&self.world.disk, self.world.config());
        let verdict =
            verdict.map_err(|fault| Violation::new("the disk is readable", fault.to_string()))?;
        match verdict.damage.first() {
            None => Ok(()),
            Some(damage) => Err(Violation::new(DAMAGED, format!("{damage:?}"))),
        }
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The process dies, the system does not.
    Kill,
    /// The power fails, and unsynced writes are kept.
    Keeps,
    /// The power fails, and unsynced writes are lost.
    Loses,
}

impl Ending {
    fn keeps(self) -> u32 {
        if self == Self::Loses { 0 } else { 1000 }
    }
}

/// The violation behind a stop without a power cut.
pub fn to_violation(stop: Stop) -> Violation {
    match stop {
        Stop::Violation(violation) => violation,
        Stop::PowerOff => {
            Violation::new("the power stays on while no fault is injected", "the power went")
        }
    }
}
