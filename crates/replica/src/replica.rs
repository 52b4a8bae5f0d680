//! The replica: takes commands, time, messages, and what the lane has done; returns effects, messages, frames and reads.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
};

use bytes::Bytes;
use sennit_engine::{Command, Effect};
use sennit_journal::{Disk, Fault, Frame, Position, Reader};
use sennit_replication::{
    Content, HEARTBEAT_TICKS, Label, Lag, Mark, Member, Membership, Message, MessageKind,
    Quarantine, Refusal, Role, WINDOW_MAX, WINDOW_MIN,
};
use sennit_shard::{
    EntryError, EntryId, Fetch, Rebuild, ReceivedEntry, RecoverError, Shard, Standing, TakeOver,
};

use crate::{
    label,
    message_queue::{MessageQueue, OutgoingMessage},
    moment::Moment,
    start::{self, StartError},
};

/// Bytes of entries that may be under way to a follower.
const WINDOW_BYTES: u64 = 16 << 20;

/// Ticks between two attempts of a leader that should not lead to hand over.
const HAND_OVER_REST_TICKS: usize = 40;

/// The settings of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSettings {
    /// The members of a new group. A replica whose lane knows of members goes by these.
    pub first_members: Membership,
}

/// The reason why a message was not heard. It has changed nothing, except that the replica may be in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HearError {
    /// The group does not hear it.
    #[error(transparent)]
    Group(#[from] sennit_replication::HearError),
    /// The body that came with it is not that of its entry.
    #[error(transparent)]
    Body(#[from] EntryError),
    /// A body came without an entry of records, or an entry of records without a body.
    #[error("a message of a group and the body beside it do not belong together")]
    BodyMissing,
}

/// A shard in a group.
pub struct Replica {
    pub(crate) id: u64,
    pub(crate) shard: Shard,
    pub(crate) member: Member,
    /// What was ordered to be written, up to these positions.
    pub(crate) marks: VecDeque<(Mark, Position)>,
    pub(crate) messages: MessageQueue,
    /// Entries that have come and are not ordered to be written.
    pub(crate) received: BTreeMap<EntryId, ReceivedEntry>,
    /// Replicas that need what lies before the log.
    pub(crate) behind: BTreeSet<u64>,
    /// The average length of an entry, in bytes.
    entry_bytes: u64,
    /// Ticks since the start.
    ticks: usize,
    /// It does not try to hand over before this tick, as the last attempt has come to nothing.
    hands_over_from: usize,
    /// Whether the others were a quorum when it last led with a damaged batch.
    pub(crate) others_suffice: bool,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, standing) = (&self.id, self.shard.standing());
        f.debug_struct("Replica")
            .field("id", id)
            .field("standing", &standing)
            .finish_non_exhaustive()
    }
}

impl Replica {
    /// A replica that begins with what its lane says, and follows nobody yet.
    ///
    /// # Errors
    /// A [`StartError`] if the lane is not that of a replica in a group.
    pub fn new(
        mut shard: Shard,
        settings: &ReplicaSettings,
        now: Moment,
    ) -> Result<Self, StartError> {
        let (member, replica) = start::member(&mut shard, &settings.first_members, now)?;
        let mut started = Self {
            id: replica.id,
            shard,
            member,
            marks: VecDeque::new(),
            messages: MessageQueue::default(),
            received: BTreeMap::new(),
            behind: BTreeSet::new(),
            entry_bytes: 0,
            ticks: 0,
            hands_over_from: 0,
            others_suffice: false,
        };
        started.carry_out(now);
        Ok(started)
    }

    /// Executes commands in order, if this replica leads; otherwise they are refused.
    pub fn handle(&mut self, commands: &mut Vec<Command>, now: Moment) {
        self.follow_standing(now);
        self.shard.handle(commands, now.time);
        self.propose_sealed(now);
    }

    /// Runs the timers that are due, if this replica leads.
    pub fn advance(&mut self, now: Moment) {
        self.follow_standing(now);
        self.shard.advance(now.time);
        self.propose_sealed(now);
    }

    /// A tick of [`sennit_replication::TICK_MS`] has passed.
    pub fn tick(&mut self, now: Moment) {
        self.ticks += 1;
        self.member.set_full(self.shard.is_storage_full());
        self.member.tick();
        if self.shard.standing().decides() {
            self.shard.set_group_full(!self.member.quorum_has_room());
            self.others_suffice = self.shard.damage().is_some() && self.member.others_suffice();
            if let Some(heir) = self.heir(now).filter(|_| self.ticks >= self.hands_over_from) {
                // If the heir does not catch up in time, this one leads on for a while.
                self.hands_over_from = self.ticks + HAND_OVER_REST_TICKS;
                let _ = self.transfer(heir, now);
            } else if self.ticks.is_multiple_of(HEARTBEAT_TICKS) {
                // Without publishes this renews the lease. A round that cannot begin is asked for again.
                let _ = self.member.confirm_leadership();
            }
        }
        self.carry_out(now);
    }

    /// Hears a message of the group. The body of an entry with records comes beside it.
    ///
    /// # Errors
    /// A [`HearError`]; nothing has changed, except that the replica may be in quarantine from now on.
    pub fn hear(
        &mut self,
        message: &Message,
        body: Option<Bytes>,
        now: Moment,
    ) -> Result<(), HearError> {
        let received = match (&message.kind, body) {
            (
                MessageKind::Append {
                    label: Some(Label { id, content: Content::Records(size) }),
                    ..
                },
                Some(body),
            ) => {
                let (id, size) = (label::id_of_group(*id), label::size_of_group(*size));
                let entry = ReceivedEntry::check(id, size, body)?;
                self.shard.check_fits(&entry)?;
                Some(entry)
            }
            (
                MessageKind::Append {
                    label: Some(Label { content: Content::Records(_), .. }), ..
                },
                None,
            )
            | (_, Some(_)) => return Err(HearError::BodyMissing),
            (_, None) => None,
        };
        if received.is_some() && !self.shard.takes_entries() {
            // As if the link had lost it: the leader sends it again.
            return Ok(());
        }
        self.received.extend(received.map(|entry| (entry.id(), entry)));
        let heard = self.member.hear(message);
        self.carry_out(now);
        Ok(heard?)
    }

    /// Seals the gathered records, proposes them, and appends the frames to `out`. The lane writes these next, in order,
    /// once the messages have left.
    pub fn take_frames(&mut self, out: &mut Vec<Frame>, now: Moment) {
        self.follow_standing(now);
        self.shard.take_frames(out);
        self.propose_sealed(now);
    }

    /// The lane has synced everything before `end`.
    pub fn written(&mut self, end: Position, now: Moment) {
        self.shard.written(end, now.time);
        let mut synced = None;
        while let Some((mark, _)) = self.marks.pop_front_if(|(_, position)| *position <= end) {
            synced = Some(mark);
        }
        if let Some(mark) = synced {
            self.member.synced(mark);
        }
        self.carry_out(now);
    }

    /// Takes the messages that leave now, in order.
    pub fn take_messages(&mut self, out: &mut Vec<OutgoingMessage>) {
        self.messages.take_ready(out);
    }

    /// Appends the reads to `out`; the caller answers each with [`Replica::handle_fetch`].
    pub fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        self.messages.take_wanted(out);
        self.shard.take_fetches(out);
    }

    /// Handles a read; `None` if it failed.
    pub fn handle_fetch(&mut self, fetch: Fetch, bytes: Option<Bytes>, now: Moment) {
        match self.messages.handle_body(fetch, bytes.as_ref()) {
            None => self.shard.handle_fetch(fetch, bytes, now.time),
            Some(read) => {
                read.lost.into_iter().for_each(|receiver| self.member.link_lost(receiver));
                // An entry that has left the log meanwhile may have been written over.
                if read.damaged.is_some_and(|index| self.shard.keeps_body(index, fetch.position)) {
                    return self.find_damage(fetch.position.0, now);
                }
            }
        }
        self.carry_out(now);
    }

    /// The link to a replica has lost messages.
    pub fn link_lost(&mut self, replica: u64, now: Moment) {
        self.messages.forget(replica);
        self.member.link_lost(replica);
        self.carry_out(now);
    }

    /// Hands leadership to another voter. What was decided is proposed first, and nothing more is decided.
    ///
    /// # Errors
    /// A [`Refusal`] if this replica does not lead, or the other has no vote.
    pub fn transfer(&mut self, to: u64, now: Moment) -> Result<(), Refusal> {
        self.shard.seal();
        self.propose_sealed(now);
        let transferred = self.member.transfer(to);
        self.carry_out(now);
        transferred
    }

    /// Asks for votes now.
    pub fn campaign(&mut self, now: Moment) {
        self.member.campaign();
        self.carry_out(now);
    }

    /// Returns whether the state is poisoned: it has to be made anew by [`Replica::begin_rebuild`]. Until then the replica
    /// writes, acknowledges and votes, and does not campaign.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.shard.standing() == Standing::Poisoned
    }

    /// Begins to make a poisoned state anew. `reader` is of the lane, and nobody else's. The rebuild may run on any
    /// thread; [`Replica::take_over`] ends it.
    ///
    /// # Panics
    /// If the state is not poisoned.
    pub fn begin_rebuild<D: Disk>(&mut self, reader: Reader<D>, now: Moment) -> Rebuild<D> {
        self.shard.begin_rebuild(reader, now.time)
    }

    /// Takes a rebuild over that has nothing more to read, unless the log has gone on too far meanwhile.
    ///
    /// # Errors
    /// A [`RecoverError`]: the lane is damaged, and the replica is in quarantine from now on.
    ///
    /// # Panics
    /// If the rebuild has more to read.
    pub fn take_over<D: Disk>(
        &mut self,
        rebuild: Rebuild<D>,
        now: Moment,
    ) -> Result<TakeOver<D>, RecoverError> {
        if !self.is_poisoned() {
            // It is in quarantine by now.
            return Ok(TakeOver::Done);
        }
        let taken = self.shard.take_over(rebuild, now.time);
        if let Err(error) = &taken {
            self.handle_failed_rebuild(error, now);
        }
        self.carry_out(now);
        taken
    }

    /// A rebuild has failed. If the lane is damaged, the replica is in quarantine from now on; if it could not be read, the
    /// state stays poisoned, and another rebuild may begin.
    pub fn handle_failed_rebuild(&mut self, error: &RecoverError, now: Moment) {
        let position = match error {
            RecoverError::Journal(Fault::Rot { position, .. })
            | RecoverError::Record { position, .. }
            | RecoverError::Replica { position, .. }
            | RecoverError::Checkpoint { position } => *position,
            RecoverError::Journal(Fault::MissingSegment { .. }) => self.shard.end(),
            RecoverError::Journal(_) => return,
        };
        self.find_damage(position.0, now);
    }

    /// The effects that go out now. The caller drains them after each call.
    pub fn effects(&mut self) -> &mut Vec<Effect> {
        self.shard.effects()
    }

    /// The role in the group, as raft has it. Commands are decided by who leads and is established:
    /// [`Shard::standing`].
    #[must_use]
    pub fn role(&self) -> Role {
        self.member.leadership().role
    }

    /// The term.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.member.leadership().term
    }

    /// The replica that leads, this one too, if that is known.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        self.member.leadership().leader
    }

    /// The other members' lags, if this replica leads.
    #[must_use]
    pub fn lags(&self) -> Vec<Lag> {
        self.member.lags()
    }

    /// Entries that are not committed, as far as this replica knows.
    #[must_use]
    pub fn uncommitted(&self) -> u64 {
        self.member.uncommitted()
    }

    /// Whether frames wait for the lane for which somebody waits: a caller here, or another replica.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        let taken = self.shard.end().0 - self.shard.gathered_bytes();
        self.shard.is_awaited() || self.marks.back().is_some_and(|(_, end)| end.0 > taken)
    }

    /// The reason why the replica neither votes nor acknowledges any more, if it does not.
    #[must_use]
    pub fn quarantine(&self) -> Option<Quarantine> {
        self.member.quarantine()
    }

    /// The replicas that need what lies before the log, since this was asked last.
    pub fn take_behind(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.behind)
    }

    /// The shard, read-only.
    #[must_use]
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// The shard, for what is this replica's own: moves, compaction, settings of the broker.
    pub fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// A replica with a damaged batch that leads no more goes into quarantine if the group was well without it. Else it
    /// follows, as its vote is needed, and never leads.
    pub(crate) fn leave_if_damaged(&mut self) {
        if let Some(position) = self.shard.damage()
            && self.others_suffice
            && self.role() == Role::Follower
            && self.leader().is_some()
        {
            self.member.enter_quarantine(Quarantine::Damaged { position: position.0 });
        }
    }

    /// Puts the replica into quarantine: its lane is damaged at this position.
    fn find_damage(&mut self, position: u64, now: Moment) {
        self.member.enter_quarantine(Quarantine::Damaged { position });
        self.carry_out(now);
    }

    /// Proposes the entries that are sealed. A leader that decides is one that takes them.
    fn propose_sealed(&mut self, now: Moment) {
        let mut has_proposed = false;
        while let Ok(next) = self.member.next_entry() {
            let Some(label) = self.shard.labels().and_then(|all| label::of_shard(all, next.index))
            else {
                break;
            };
            if let Content::Records(body) = label.content {
                self.note_length(body.length.into());
            }
            self.member.propose(&label).expect("the next entry of a leader is taken");
            has_proposed = true;
        }
        if has_proposed {
            self.carry_out(now);
        }
    }

    /// The longer entries are, the fewer may be under way.
    fn note_length(&mut self, bytes: u64) {
        self.entry_bytes = (self.entry_bytes * 7 + bytes) / 8;
        let entries = WINDOW_BYTES / self.entry_bytes.max(1);
        let entries = usize::try_from(entries).unwrap_or(WINDOW_MAX);
        self.member.set_window(entries.clamp(WINDOW_MIN, WINDOW_MAX));
    }

    /// The voter to which a leader hands over that should not lead: a batch of its own is damaged that others have, its
    /// lane is behind, or its disk is full and others have room.
    fn heir(&self, now: Moment) -> Option<u64> {
        if self.shard.damage().is_some() || self.shard.is_lane_behind(now.time) {
            return self.member.heir();
        }
        let is_full = self.shard.is_storage_full() && self.member.quorum_has_room();
        self.member.heir_with_room().filter(|_| is_full)
    }

    /// Lets the group's log begin where the lane's does. Both begin with the same entry, or a message would go without its
    /// body.
    pub(crate) fn release_labels(&mut self) {
        if let Some(first) = self.shard.release_labels(self.member.decided() + 1) {
            self.member.log_begins(first);
        }
    }
}
