//! A node whose replica has labels alone: raft as `sennit-replication` has it, on a lane of labels.

use sennit_replication::{
    Body, Content, GROUP_BEGINS, HEARTBEAT_TICKS, Label, Mark, Member, Membership, Message,
    MessageKind, Role, Settings, Start, WINDOW_MAX,
};

use crate::{
    cluster::{
        label_lane::{LabelFrame, LabelLane},
        network::Class,
        node::{Node, Outgoing, Stop},
        sent_messages::check_sent,
        weather::Weather,
    },
    oracle::Violation,
    random::Random,
    trace::Trace,
};

/// The promise that a lane is enough to start with.
const STARTS: &str = "I1 a replica starts with what its lane has";
/// The number of the group.
const GROUP: u64 = 7;

/// A node with a replica of labels.
pub struct LabelNode {
    node: usize,
    nodes: usize,
    lane: LabelLane,
    member: Option<Member>,
    /// What is to be written next, each with the commit index that was known, and its mark.
    gathered: Vec<(LabelFrame, u64)>,
    gathered_mark: Option<Mark>,
    /// The mark of what is written and not synced.
    syncing: Option<Mark>,
    outgoing: Vec<Outgoing>,
    /// The commit index that it knows.
    committed: u64,
    window: usize,
    /// Whether a leader renews its lease by itself, as a replica does. Otherwise clients ask for that.
    renews_lease: bool,
    ticks: usize,
    crash_keeps_all: u32,
    trace: Trace,
}

/// The id of the replica on a node.
pub fn replica_id(node: usize) -> u64 {
    node as u64 + 1
}

/// The queue of a message.
pub fn class_of(message: &Message) -> Class {
    match message.kind {
        MessageKind::Append { label: Some(_), .. } => Class::Appends,
        _ => Class::Votes,
    }
}

impl LabelNode {
    /// A node that has never run.
    pub fn new(node: usize, weather: &Weather, random: &mut Random, trace: Trace) -> Self {
        Self {
            node,
            nodes: weather.nodes,
            lane: LabelLane::new(),
            member: None,
            gathered: Vec::new(),
            gathered_mark: None,
            syncing: None,
            outgoing: Vec::new(),
            committed: 0,
            window: random.between(16, WINDOW_MAX as u64) as usize,
            renews_lease: weather.restarts > 0,
            ticks: 0,
            crash_keeps_all: weather.crash_keeps_all,
            trace,
        }
    }

    /// The lane.
    pub fn lane(&self) -> &LabelLane {
        &self.lane
    }

    /// The replica, while the process runs.
    pub fn member(&self) -> Option<&Member> {
        self.member.as_ref()
    }

    /// The commit index that it knows.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// A client writes something here, if the node lets it.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn serve(&mut self, random: &mut Random, read_us: u64) -> Result<(), Violation> {
        let Some(member) = &mut self.member else { return Ok(()) };
        for _ in 0..random.between(1, 4) {
            let body = Body {
                length: random.between(64, 1 << 20) as u32,
                checksum: random.number() as u32,
                records: random.between(1, 100) as u32,
            };
            let Ok(id) = member.next_entry() else { break };
            let label = Label { id, content: Content::Records(body) };
            let proposed = member.propose(&label);
            proposed.map_err(|error| Violation::new(STARTS, error.to_string()))?;
        }
        self.carry_out(read_us)
    }

    /// Carries out what the replica orders.
    fn carry_out(&mut self, read_us: u64) -> Result<(), Violation> {
        let Some(member) = &mut self.member else { return Ok(()) };
        let orders = member.orders(read_us * 1000);
        for message in &orders.messages {
            check_sent(self.node, message, member, self.lane.durable())?;
            self.trace.step(format_args!("  {} > {message:?}", self.node));
            let (to, class) = (message.to as usize - 1, class_of(message));
            self.outgoing.push(Outgoing { to, class, bytes: message.encode() });
        }
        if orders.mark.is_some() {
            let (node, append, vote) = (self.node, &orders.append, orders.vote);
            let cut_from = orders.cut_from;
            self.trace.step(format_args!("  {node} writes {append:?} cut {cut_from:?} {vote:?}"));
        }
        // The vote first: a crash in between must not leave an entry of a term that the replica does not know.
        let vote = orders.vote.into_iter().map(LabelFrame::Vote);
        let frames = vote.chain(orders.append.into_iter().map(LabelFrame::Entry));
        self.gathered.extend(frames.map(|frame| (frame, self.committed)));
        self.gathered_mark = orders.mark.or(self.gathered_mark);
        self.committed = orders.committed;
        Ok(())
    }
}

impl Node for LabelNode {
    fn is_up(&self) -> bool {
        self.member.is_some()
    }

    fn leads(&self) -> bool {
        let role = |member: &Member| member.leadership().role;
        self.member.as_ref().map(role) == Some(Role::Leader)
    }

    fn start(&mut self, read_us: u64) -> Result<(), Violation> {
        let found = self.lane.start();
        let (vote, commit) = (found.vote, found.commit);
        let start = Start {
            vote,
            commit,
            membership: Membership::of((0..self.nodes).map(replica_id)),
            before: GROUP_BEGINS,
            labels: found.labels.clone(),
        };
        let settings = Settings { group: GROUP, replica: replica_id(self.node) };
        let member = Member::new(settings, start);
        let mut member = member.map_err(|error| Violation::new(STARTS, error.to_string()))?;
        member.set_window(self.window);
        self.member = Some(member);
        self.committed = commit;
        self.carry_out(read_us)
    }

    fn stop(&mut self, how: Stop, random: &mut Random) {
        self.trace.step(format_args!("  {} stops: {how:?}", self.node));
        self.member = None;
        self.gathered.clear();
        self.outgoing.clear();
        (self.gathered_mark, self.syncing) = (None, None);
        if how == Stop::PowerCut {
            self.lane.lose_unsynced(random, self.crash_keeps_all);
        }
    }

    fn tick(&mut self, read_us: u64) -> Result<(), Violation> {
        self.ticks += 1;
        if let Some(member) = &mut self.member {
            member.tick();
            if self.renews_lease && self.ticks.is_multiple_of(HEARTBEAT_TICKS) {
                // Refused where it does not lead, or too many rounds wait.
                let _ = member.confirm_leadership();
            }
        }
        self.carry_out(read_us)
    }

    fn hear(&mut self, _from: usize, bytes: &[u8], read_us: u64) -> Result<(), Violation> {
        let Some(member) = &mut self.member else { return Ok(()) };
        let message = Message::decode(bytes)
            .map_err(|error| Violation::new("I2 a message is what was sent", error.to_string()))?;
        self.trace.step(format_args!("  {} < {message:?}", self.node));
        if let Err(error) = member.hear(&message) {
            self.trace.step(format_args!("  {} does not hear it: {error}", self.node));
        }
        self.carry_out(read_us)
    }

    fn lose_link(&mut self, peer: usize, read_us: u64) -> Result<(), Violation> {
        if let Some(member) = &mut self.member {
            member.link_lost(replica_id(peer));
        }
        self.carry_out(read_us)
    }

    fn ask(&mut self, read_us: u64) -> Result<(), Violation> {
        if let Some(member) = &mut self.member {
            // Refused where it does not lead, or too many rounds wait.
            let round = member.confirm_leadership();
            self.trace.step(format_args!("  {} asks whether it leads: {round:?}", self.node));
        }
        self.carry_out(read_us)
    }

    fn transfer(&mut self, to: usize, read_us: u64) -> Result<(), Violation> {
        if let Some(member) = &mut self.member {
            let refused = member.transfer(replica_id(to)).err();
            self.trace.step(format_args!("  {} hands over to {to}: {refused:?}", self.node));
        }
        self.carry_out(read_us)
    }

    fn begin_sync(&mut self) -> bool {
        if self.gathered_mark.is_none() {
            return false;
        }
        self.lane.write(std::mem::take(&mut self.gathered));
        self.syncing = self.gathered_mark.take();
        true
    }

    fn end_sync(&mut self, read_us: u64) -> Result<(), Violation> {
        self.lane.sync();
        if let (Some(member), Some(mark)) = (&mut self.member, self.syncing.take()) {
            member.synced(mark);
        }
        self.carry_out(read_us)
    }

    fn fail_sync(&mut self, random: &mut Random) {
        self.lane.lose_unsynced(random, self.crash_keeps_all);
    }

    fn take_outgoing(&mut self) -> Result<Vec<Outgoing>, Violation> {
        Ok(std::mem::take(&mut self.outgoing))
    }
}
