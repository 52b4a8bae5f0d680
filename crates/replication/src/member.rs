//! A member of a group: one replica's part of raft, and the only owner of it.
//!
//! raft hands out work as a `Ready`, and between taking one and returning it nothing may be called; `outcome` does both
//! in one function. What raft would panic on is looked for before it is told.

use std::collections::BTreeSet;

use raft::{Config, RawNode, ReadOnlyOption, StateRole};

use crate::heir::Heir;
use crate::label::{Content, EntryId, Label};
use crate::lease::Lease;
use crate::log::Log;
use crate::membership::Membership;
use crate::message::{Message, MessageKind};
use crate::orders::{Leadership, Role, Round, Vote};
use crate::refusal::{HearError, Quarantine, Refusal};
use crate::rooms::Rooms;
use crate::settings::{
    ELECTION_TICKS, ELECTION_TICKS_END, HEARTBEAT_TICKS, ROUNDS_MAX, Settings, Start, StartError,
    WINDOW_MAX, WINDOW_MIN,
};
use crate::sync_queue::SyncQueue;
use crate::{change, election, raft_form};

/// A replica's part of its group.
pub struct Member {
    pub(crate) settings: Settings,
    pub(crate) node: RawNode<Log>,
    /// The members as applied.
    pub(crate) membership: Membership,
    /// The term and vote that were last told to be kept.
    pub(crate) kept: Vote,
    /// What the lane has not synced.
    pub(crate) unsynced: SyncQueue,
    /// Messages that had to wait for a sync that is done.
    pub(crate) released: Vec<Message>,
    pub(crate) lease: Lease,
    /// The term that the lease is of, if this replica leads in it.
    lease_term: Option<u64>,
    /// The number of the last round.
    last_round: u64,
    /// Rounds that began and whose heartbeats have not left.
    pub(crate) new_rounds: Vec<u64>,
    /// Leadership is to be handed over, and the heir was not told yet.
    pub(crate) heir: Option<Heir>,
    /// The command to take over has left.
    pub(crate) handed_over: bool,
    /// Ticks until this replica may vote.
    deaf_ticks: usize,
    pub(crate) window: usize,
    /// The timeout in the term for which it was worked out.
    timeout: (u64, usize),
    pub(crate) quarantine: Option<Quarantine>,
    /// It may not come to lead.
    abstains: bool,
    pub(crate) rooms: Rooms,
}

impl Member {
    /// A member that begins with what its lane says. A sole voter asks for votes at once, and so leads.
    ///
    /// # Errors
    /// A [`StartError`] if no lane can say this.
    pub fn new(settings: Settings, start: Start) -> Result<Self, StartError> {
        if settings.replica == 0 {
            return Err(StartError::Replica);
        }
        start.check()?;
        let config = Config {
            id: settings.replica,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: ELECTION_TICKS_END,
            applied: start.commit,
            // One entry a message: sizes of labels say nothing of bodies.
            max_size_per_msg: 0,
            max_inflight_msgs: WINDOW_MAX,
            check_quorum: true,
            pre_vote: true,
            read_only_option: ReadOnlyOption::Safe,
            skip_bcast_commit: true,
            ..Config::default()
        };
        let (membership, kept) = (start.membership.clone(), start.vote);
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, Log::new(start), &logger)
            .expect("settings and a log that were checked");
        let mut member = Self {
            settings,
            node,
            membership,
            kept,
            unsynced: SyncQueue::default(),
            released: Vec::new(),
            lease: Lease::default(),
            lease_term: None,
            last_round: 0,
            new_rounds: Vec::new(),
            heir: None,
            handed_over: false,
            deaf_ticks: ELECTION_TICKS,
            window: WINDOW_MAX,
            timeout: (0, 0),
            quarantine: None,
            abstains: false,
            rooms: Rooms::default(),
        };
        member.set_timeout(member.node.raft.term);
        member.stepped();
        if member.membership.is_sole_voter(settings.replica) {
            member.campaign();
        }
        Ok(member)
    }

    /// The entry that comes next, if one would be taken now. A frame is sealed only then: once it is sealed it has a
    /// position, and is written whatever raft says.
    ///
    /// # Errors
    /// A [`Refusal`] that says why none would be taken.
    pub fn next_entry(&self) -> Result<EntryId, Refusal> {
        self.check_leads()?;
        let raft = &self.node.raft;
        Ok(EntryId { term: raft.term, index: raft.raft_log.last_index() + 1 })
    }

    /// Proposes the records of a sealed frame.
    ///
    /// # Errors
    /// A [`Refusal`] if the label is not that of [`Self::next_entry`].
    pub fn propose(&mut self, label: &Label) -> Result<(), Refusal> {
        let next = self.next_entry()?;
        if label.id != next {
            return Err(Refusal::NotNext { next, found: label.id });
        }
        let Content::Records(body) = label.content else {
            return Err(Refusal::NotRecords);
        };
        let proposed = self.node.propose(Vec::new(), raft_form::data(body));
        proposed.expect("an established leader takes entries");
        self.stepped();
        Ok(())
    }

    /// Proposes other members. Three steps are possible: one replica is added or removed, or becomes a voter; the
    /// members become joint, with `outgoing` what the voters were; joint members become what follows from them.
    ///
    /// # Errors
    /// A [`Refusal`] if it is none of these, if the leader would lose its vote, or a change is under way.
    pub fn change_members(&mut self, to: &Membership) -> Result<(), Refusal> {
        self.check_leads()?;
        to.check()?;
        if self.node.raft.has_pending_conf() {
            return Err(Refusal::ChangeUnderWay);
        }
        let change = change::step(&self.membership, to, self.node.raft.prs())
            .filter(|_| to.voters.contains(&self.settings.replica))
            .ok_or(Refusal::NotOneStep)?;
        let proposed = self.node.propose_conf_change(raft_form::context(to), change);
        proposed.expect("an established leader takes a change that was checked");
        self.stepped();
        Ok(())
    }

    /// Begins a round that shows whether this replica still leads: [`Orders::confirmed`](crate::Orders::confirmed)
    /// names it once a quorum has answered. The lease counts from when the round's messages left.
    ///
    /// # Errors
    /// A [`Refusal`] if it does not lead, or too many rounds wait.
    pub fn confirm_leadership(&mut self) -> Result<Round, Refusal> {
        self.check_leads()?;
        if self.node.raft.read_only.pending_read_count() >= ROUNDS_MAX {
            return Err(Refusal::TooManyRounds);
        }
        self.last_round += 1;
        self.new_rounds.push(self.last_round);
        self.node.read_index(raft_form::round_context(self.last_round));
        self.stepped();
        Ok(Round(self.last_round))
    }

    /// Hears a message.
    ///
    /// # Errors
    /// A [`HearError`]; the message has changed nothing, except that the replica may be in quarantine.
    pub fn hear(&mut self, message: &Message) -> Result<(), HearError> {
        if let Some(quarantine) = self.quarantine {
            return Err(quarantine.into());
        }
        if message.group != self.settings.group || message.to != self.settings.replica {
            return Err(HearError::Astray { group: message.group, replica: message.to });
        }
        message.check()?;
        self.look_at(message)?;
        if self.is_deaf_to(&message.kind) {
            return Ok(());
        }
        // The only error left is a proposal that is dropped, and a message is none.
        let heard = self.node.step(raft_form::to_raft(message));
        debug_assert!(heard.is_ok(), "raft refuses a message that was looked at");
        if let MessageKind::HeartbeatHeard { is_full, .. } = message.kind
            && message.term == self.node.raft.term
        {
            self.rooms.heard(message.from, is_full);
        }
        self.stepped();
        Ok(())
    }

    /// A tick of the clock has passed.
    pub fn tick(&mut self) {
        self.deaf_ticks = self.deaf_ticks.saturating_sub(1);
        if self.quarantine.is_some() || self.has_to_wait() {
            return;
        }
        self.tick_heir();
        if self.abstains && self.node.raft.state != StateRole::Leader {
            // The leader's silence counts, as votes for others depend on it; the timeout brings no campaign.
            self.node.raft.election_elapsed += 1;
        } else {
            self.node.tick();
        }
        self.stepped();
    }

    /// Has this replica abstain from elections, or not any more: it follows and votes, and does not come to lead.
    pub fn abstain(&mut self, abstains: bool) {
        self.abstains = abstains;
        let raft = &mut self.node.raft;
        if abstains && matches!(raft.state, StateRole::Candidate | StateRole::PreCandidate) {
            let term = raft.term;
            raft.become_follower(term, raft::INVALID_ID);
            self.stepped();
        }
    }

    /// The voter that can take leadership over soonest: of those that were heard lately, the one with most of the log.
    /// None if this replica does not lead, or hears none.
    #[must_use]
    pub fn heir(&self) -> Option<u64> {
        self.heir_of(|_| true)
    }

    /// The same of those that have said that they have room.
    #[must_use]
    pub fn heir_with_room(&self) -> Option<u64> {
        self.heir_of(|id| self.rooms.has_said_so(id))
    }

    fn heir_of(&self, may: impl Fn(u64) -> bool) -> Option<u64> {
        let raft = &self.node.raft;
        let is_other = |id: &u64| *id != self.settings.replica && may(*id);
        let heard = |id: u64| {
            let progress = raft.prs().get(id).filter(|progress| progress.recent_active)?;
            Some((progress.matched, id))
        };
        let voters = self.membership.voters.iter().copied().filter(is_other);
        let heirs = voters.filter(|_| raft.state == StateRole::Leader).filter_map(heard);
        heirs.max_by_key(|(matched, _)| *matched).map(|(_, id)| id)
    }

    /// Whether the voters that were heard lately are a quorum without this one, if it leads.
    #[must_use]
    pub fn others_suffice(&self) -> bool {
        let raft = &self.node.raft;
        let is_heard = |id: &u64| {
            let progress = raft.prs().get(*id);
            *id != self.settings.replica && progress.is_some_and(|progress| progress.recent_active)
        };
        let suffice = |voters: &BTreeSet<u64>| {
            2 * voters.iter().filter(|id| is_heard(id)).count() > voters.len()
        };
        let Membership { voters, outgoing, .. } = &self.membership;
        raft.state == StateRole::Leader
            && suffice(voters)
            && (outgoing.is_empty() || suffice(outgoing))
    }

    /// The own disk has no room for more messages, or has it again. The leader hears of it.
    pub fn set_full(&mut self, is_full: bool) {
        self.rooms.is_full = is_full;
    }

    /// Returns whether a quorum may have room: only who has said that it has none counts as full.
    #[must_use]
    pub fn quorum_has_room(&self) -> bool {
        self.rooms.quorum_has_room(&self.membership, self.settings.replica)
    }

    /// Asks for votes now, unless this replica leads, has no vote, abstains, or is a sole voter whose lane is behind.
    pub fn campaign(&mut self) {
        let may = self.quarantine.is_none() && !self.abstains && self.node.raft.promotable();
        if may && !self.has_to_wait() {
            let campaigned = self.node.campaign();
            debug_assert!(campaigned.is_ok(), "nothing is proposed");
            self.stepped();
        }
    }

    /// The link to a replica has lost messages.
    pub fn link_lost(&mut self, replica: u64) {
        self.node.report_unreachable(replica);
        self.stepped();
    }

    /// At most so many entries are under way to a follower, between [`WINDOW_MIN`] and [`WINDOW_MAX`].
    pub fn set_window(&mut self, entries: usize) {
        self.window = entries.clamp(WINDOW_MIN, WINDOW_MAX);
        self.spread_window();
    }

    /// The log begins with this entry from now on: labels before it are let go.
    ///
    /// # Panics
    /// If an entry before it is not both committed and synced.
    pub fn log_begins(&mut self, index: u64) {
        assert!(index <= self.decided() + 1, "entry {} is not decided", index - 1);
        self.node.mut_store().begin_with(index);
    }

    /// The last entry that is both committed and synced here.
    #[must_use]
    pub fn decided(&self) -> u64 {
        self.node.raft.raft_log.applied
    }

    /// Which member it is.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The leadership of the group, as this member knows it.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        let raft = &self.node.raft;
        let role = match (self.quarantine, raft.state) {
            (Some(_), _) => Role::Quarantined,
            (None, StateRole::Leader) => Role::Leader,
            (None, StateRole::Candidate | StateRole::PreCandidate) => Role::Candidate,
            (None, StateRole::Follower) => Role::Follower,
        };
        Leadership {
            role,
            term: raft.term,
            leader: raft_form::replica(raft.leader_id),
            established: role == Role::Leader && raft.commit_to_current_term(),
        }
    }

    /// Until when this replica may give, on the clock whose time [`Self::orders`](Member::orders) is told. None if it
    /// does not lead, is handing over, or no quorum has acknowledged anything in its term yet. A sole voter may always.
    #[must_use]
    pub fn lease_until_ns(&self) -> Option<u64> {
        let alone = self.membership.is_sole_voter(self.settings.replica);
        match (self.check_leads(), alone) {
            (Err(_), _) => None,
            (Ok(()), true) => Some(u64::MAX),
            (Ok(()), false) => self.lease.until_ns(),
        }
    }

    /// The reason why the replica is in quarantine, if it is.
    #[must_use]
    pub fn quarantine(&self) -> Option<Quarantine> {
        self.quarantine
    }

    /// The members, as committed and synced here.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// The label of an entry of which [`Self::orders`](Member::orders) has told.
    #[must_use]
    pub fn label(&self, index: u64) -> Option<&Label> {
        self.node.store().label(index)
    }

    /// The last entry of which [`Self::orders`](Member::orders) has told.
    #[must_use]
    pub fn last(&self) -> EntryId {
        self.node.store().last()
    }

    /// The index with which the log begins.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.node.store().first_index()
    }

    /// After each call into raft: raft draws timeouts at random, and the lease follows the term.
    pub(crate) fn stepped(&mut self) {
        let raft = &self.node.raft;
        let leads = raft.state == StateRole::Leader;
        if leads && self.handed_over && raft.lead_transferee.is_none() {
            let term = raft.term;
            self.node.raft.become_follower(term, raft::INVALID_ID);
            return self.stepped();
        }
        let term = raft.term;
        let lease_term = leads.then_some(term);
        if self.lease_term != lease_term {
            self.lease_term = lease_term;
            self.lease = Lease::default();
            self.new_rounds.clear();
            (self.heir, self.handed_over) = (None, false);
            self.rooms.forget();
            self.spread_window();
        }
        if self.tell_heir() {
            return self.stepped();
        }
        self.lease.committed(self.node.raft.raft_log.committed);
        if self.timeout.0 != term {
            self.set_timeout(term);
        }
        self.node.raft.set_randomized_election_timeout(self.timeout.1);
    }

    /// Works the timeout of a term out.
    pub(crate) fn set_timeout(&mut self, term: u64) {
        let Settings { group, replica } = self.settings;
        self.timeout = (term, election::timeout_ticks(&self.membership, replica, group, term));
    }

    pub(crate) fn spread_window(&mut self) {
        let raft = &mut self.node.raft;
        for (_, progress) in raft.mut_prs().iter_mut() {
            progress.ins.set_cap(self.window);
        }
    }

    pub(crate) fn check_leads(&self) -> Result<(), Refusal> {
        let Leadership { role, leader, established, .. } = self.leadership();
        match (self.quarantine, role) {
            (Some(quarantine), _) => Err(quarantine.into()),
            (None, Role::Leader) if self.hands_over() => Err(Refusal::HandingOver),
            (None, Role::Leader) if !established => Err(Refusal::NotEstablished),
            (None, Role::Leader) => Ok(()),
            (None, _) => Err(Refusal::NotLeader { leader }),
        }
    }

    /// A sole voter wins at once, and raft wants all of a new leader's log to be synced.
    fn has_to_wait(&self) -> bool {
        self.membership.is_sole_voter(self.settings.replica)
            && self.node.raft.state != StateRole::Leader
            && (!self.is_all_synced() || self.node.has_ready())
    }

    /// A replica that has just started may have promised its leader not to vote. It does not know; so it waits. What a
    /// leader has handed over needs no waiting: that leader has given up its lease.
    fn is_deaf_to(&self, kind: &MessageKind) -> bool {
        let unasked = matches!(kind, MessageKind::RequestVote { handed_over: false, .. });
        // A sole voter would win at once and needs nobody to tell it.
        let needless = matches!(kind, MessageKind::TakeOver)
            && (self.abstains || self.membership.is_sole_voter(self.settings.replica));
        (unasked && self.deaf_ticks > 0) || needless
    }

    /// Looks for what raft would panic on, or would believe.
    fn look_at(&mut self, message: &Message) -> Result<(), HearError> {
        let raft = &self.node.raft;
        let (from, term, last) = (message.from, message.term, raft.raft_log.last_index());
        let leads = raft.state == StateRole::Leader && raft.term == term;
        match &message.kind {
            MessageKind::Append { .. } | MessageKind::Heartbeat { .. } if leads => {
                Err(HearError::SecondLeader { replica: from, term })
            }
            MessageKind::Heartbeat { commit, .. } if term >= raft.term && *commit > last => {
                Err(self.refuse_for_good(Quarantine::Forgotten { committed: *commit, last }))
            }
            MessageKind::Append { before, label, .. } if term >= raft.term => {
                let entries = [Some(*before), label.as_ref().map(|label| label.id)];
                let contradicted =
                    entries.into_iter().flatten().find_map(|id| self.contradicts(id));
                contradicted.map_or(Ok(()), |quarantine| Err(self.refuse_for_good(quarantine)))
            }
            MessageKind::Appended { index, .. } if leads && *index > last => {
                Err(HearError::Ahead { replica: from, index: *index, last })
            }
            MessageKind::Appended { .. }
            | MessageKind::NotAppended { .. }
            | MessageKind::Vote { .. }
            | MessageKind::HeartbeatHeard { .. }
                if raft.prs().get(from).is_none() =>
            {
                Err(HearError::UnknownReplica { replica: from })
            }
            MessageKind::Vote { pre_vote: false, granted: true, .. }
                if raft.state == StateRole::Candidate
                    && raft.term == term
                    && !self.is_all_synced() =>
            {
                Err(HearError::VoteUnasked { replica: from, term })
            }
            _ => Ok(()),
        }
    }

    /// All of the log is synced. A request for votes leaves only then, and raft wants it of a new leader.
    fn is_all_synced(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.persisted == log.last_index() && self.unsynced.is_empty()
    }

    /// An entry of the leader's where another one is committed here.
    fn contradicts(&self, leaders: EntryId) -> Option<Quarantine> {
        let log = &self.node.raft.raft_log;
        let known = log.first_index() - 1..=log.committed;
        let own = known.contains(&leaders.index).then(|| log.term(leaders.index).ok())??;
        (own != leaders.term).then_some(Quarantine::Contradicted {
            index: leaders.index,
            own,
            leaders: leaders.term,
        })
    }

    /// Puts the replica into quarantine, for good. Its lane has to say so from now on.
    pub fn enter_quarantine(&mut self, quarantine: Quarantine) {
        self.quarantine.get_or_insert(quarantine);
    }

    fn refuse_for_good(&mut self, quarantine: Quarantine) -> HearError {
        self.enter_quarantine(quarantine);
        quarantine.into()
    }
}
