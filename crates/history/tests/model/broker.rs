//! A broker of two partitions and one group that does each call at one instant, and clients that call it at random.
//! A client's call begins, is done, and ends in three steps, between which others take theirs.

use sennit_history::{
    Answer, Content, Delivered, Ended, History, MessageName, Published, Read, ReadStart,
    Settlement, What,
};

const PARTITIONS: u64 = 2;
pub const GROUP: u32 = 7;

/// Choices that a seed repeats (SplitMix64).
pub struct Choices(u64);

impl Choices {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

/// A message in a partition, and what the group knows of it.
struct Held {
    name: MessageName,
    is_settled: bool,
    attempts: u32,
    /// The delivery that holds it: generation and attempt.
    holder: Option<(u64, u32)>,
}

#[derive(Default)]
struct Partition {
    log: Vec<Held>,
    /// All below are settled or held.
    first_ready: usize,
}

impl Partition {
    fn end(&self) -> u64 {
        self.log.len() as u64
    }

    fn append(&mut self, first: MessageName, count: u32) -> u64 {
        let offset = self.end();
        for number in (first.number..).take(count as usize) {
            let name = MessageName { number, ..first };
            self.log.push(Held { name, is_settled: false, attempts: 0, holder: None });
        }
        offset
    }

    fn contents(&self, first: u64, count: u64) -> Vec<Content> {
        let from = self.log.iter().skip(first as usize).take(count as usize);
        from.map(|held| Content::Message(held.name)).collect()
    }

    /// Hands out the first messages that nobody holds.
    fn deliver(&mut self, generation: u64, most: usize) -> Option<(u64, u32, Vec<Content>)> {
        let is_ready = |held: &Held| !held.is_settled && held.holder.is_none();
        let first = (self.first_ready..self.log.len()).find(|&at| is_ready(&self.log[at]))?;
        self.first_ready = first;
        let attempt = self.log[first].attempts + 1;
        let mut contents = Vec::new();
        for held in self.log.iter_mut().skip(first).take(most) {
            if !is_ready(held) || held.attempts + 1 != attempt {
                break;
            }
            held.attempts = attempt;
            held.holder = Some((generation, attempt));
            contents.push(Content::Message(held.name));
        }
        Some((first as u64, attempt, contents))
    }

    /// Settles what nobody else holds; returns whether that is all.
    fn ack(&mut self, first: u64, count: u32, delivery: (u64, u32)) -> bool {
        let mut is_all = true;
        for held in self.log.iter_mut().skip(first as usize).take(count as usize) {
            if held.holder.is_none_or(|holder| holder == delivery) {
                (held.is_settled, held.holder) = (true, None);
            }
            is_all &= held.is_settled;
        }
        is_all
    }

    /// A new life: nobody holds anything.
    fn restart(&mut self) {
        self.first_ready = 0;
        for held in &mut self.log {
            (held.holder, held.attempts) = (None, 0);
        }
    }
}

/// A call that has begun; whether it is done.
struct Call {
    begun_ns: u64,
    is_done: bool,
    /// It is written down only if it came to something.
    what: Option<What>,
    /// No answer comes.
    is_lost: bool,
}

struct Client {
    number: u32,
    call: Option<Call>,
    /// The publisher's next message.
    next: MessageName,
    partition: u32,
    /// Where its reader is.
    at: Option<u64>,
    /// What its consumer has to ack.
    received: Option<Delivered>,
}

struct World {
    choices: Choices,
    now_ns: u64,
    generation: u64,
    publishers: u32,
    partitions: Vec<Partition>,
    history: History,
}

impl World {
    fn partition(&mut self, partition: u32) -> &mut Partition {
        &mut self.partitions[partition as usize]
    }

    /// What the client's call comes to, at this instant.
    fn done(&mut self, client: &mut Client) -> (Option<What>, bool) {
        match client.number {
            0..3 => self.publish(client),
            3 => {
                let partition = client.partition;
                let end = self.partition(partition).end();
                (Some(What::Ended(Ended { partition, end })), false)
            }
            4..6 => (self.read(client), false),
            _ => self.consume(client),
        }
    }

    fn publish(&mut self, client: &mut Client) -> (Option<What>, bool) {
        let (partition, first) = (client.partition, client.next);
        let kind = self.choices.below(10);
        let count = if kind < 7 { 1 } else { 1 + self.choices.below(4) as u32 };
        let once = kind != 1;
        let end = self.partition(partition).end();
        let expected = (kind == 2).then(|| end.saturating_sub(self.choices.below(2)));
        client.next.number += u64::from(count);
        let fate = self.choices.below(20);
        let answer = match expected {
            Some(expected) if expected != end => Answer::NextIs(end),
            _ if fate == 0 => Answer::Refused,
            _ if fate == 1 => Answer::Unknown,
            _ => {
                let offset = self.partition(partition).append(first, count);
                if !once && self.choices.below(3) == 0 {
                    self.partition(partition).append(first, count);
                }
                match fate {
                    2 => Answer::Confirmed(None),
                    3 => Answer::Unknown,
                    _ => Answer::Confirmed(Some(offset)),
                }
            }
        };
        if answer == Answer::Unknown {
            self.publishers += 1;
            client.next = MessageName { publisher: self.publishers, number: 0 };
        }
        let partition = Some(partition);
        let published = Published { first, count, partition, once, expected, answer };
        (Some(What::Published(published)), answer == Answer::Unknown)
    }

    fn read(&mut self, client: &mut Client) -> Option<What> {
        let (reader, partition) = (client.number, client.partition);
        let most = 1 + self.choices.below(5);
        let from_end = self.choices.below(2) == 0;
        let log = &self.partitions[partition as usize];
        let end = log.end();
        let Some(first) = client.at else {
            let from = (!from_end).then_some(0);
            let first = from.unwrap_or(end);
            client.at = Some(first);
            let start = ReadStart { reader, partition, from, first, end, reads_back: false };
            return Some(What::ReadStart(start));
        };
        let contents = log.contents(first, most);
        client.at = Some(first + contents.len() as u64);
        let read = Read { reader, partition, first, contents };
        (!read.contents.is_empty()).then_some(What::Read(read))
    }

    fn consume(&mut self, client: &mut Client) -> (Option<What>, bool) {
        let (generation, consumer, group) = (self.generation, client.number, GROUP);
        if let Some(delivered) = client.received.take() {
            let Delivered { partition, first, generation, attempt, .. } = delivered;
            let count = delivered.contents.len() as u32;
            let is_confirmed = self.partition(partition).ack(first, count, (generation, attempt));
            let settlement =
                Settlement { group, partition, first, count, generation, attempt, is_confirmed };
            return (Some(What::Settlement(settlement)), self.choices.below(10) == 0);
        }
        let partition = self.choices.below(PARTITIONS) as u32;
        let most = 1 + self.choices.below(4) as usize;
        let Some((first, attempt, contents)) = self.partition(partition).deliver(generation, most)
        else {
            return (None, false);
        };
        let delivered =
            Delivered { consumer, group, partition, first, contents, generation, attempt };
        client.received = Some(delivered.clone());
        (Some(What::Delivered(delivered)), false)
    }

    /// The client takes its next step.
    fn step(&mut self, client: &mut Client) {
        self.now_ns += 1;
        match client.call.take() {
            None => {
                let (begun_ns, is_done) = (self.now_ns, false);
                client.call = Some(Call { begun_ns, is_done, what: None, is_lost: false });
                if client.number < 4 {
                    client.partition = self.choices.below(PARTITIONS) as u32;
                }
            }
            Some(call) if !call.is_done => {
                let (what, is_lost) = self.done(client);
                client.call = Some(Call { is_done: true, what, is_lost, ..call });
            }
            Some(Call { begun_ns, what, is_lost, .. }) => {
                let ended_ns = (!is_lost).then_some(self.now_ns);
                if let Some(what) = what {
                    self.history.add(client.number, begun_ns, ended_ns, what);
                }
            }
        }
    }
}

/// The history of a broker and eight clients that take so many steps; then the group is drained and all is read back.
pub fn history_of(seed: u64, steps: usize) -> History {
    let mut world = World {
        choices: Choices::new(seed),
        now_ns: 0,
        generation: 1,
        publishers: 10,
        partitions: (0..PARTITIONS).map(|_| Partition::default()).collect(),
        history: History::default(),
    };
    let mut clients: Vec<Client> = (0..8)
        .map(|number| Client {
            number,
            call: None,
            next: MessageName { publisher: number, number: 0 },
            partition: number % PARTITIONS as u32,
            at: None,
            received: None,
        })
        .collect();
    for _ in 0..steps {
        let client = world.choices.below(clients.len() as u64) as usize;
        world.step(&mut clients[client]);
        if world.choices.below(2000) == 0 {
            world.generation += 1;
            world.partitions.iter_mut().for_each(Partition::restart);
        }
    }
    for client in &mut clients {
        while client.call.is_some() {
            world.step(client);
        }
    }
    let is_settled = |partition: &Partition| partition.log.iter().all(|held| held.is_settled);
    while !world.partitions.iter().all(is_settled) {
        clients[6..].iter_mut().for_each(|client| world.step(client));
    }
    let now_ns = world.now_ns + 1;
    world.history.add(9, now_ns, Some(now_ns + 1), What::Drained { group: GROUP });
    for (partition, log) in (0..).zip(&world.partitions) {
        let (reader, first, end) = (100, 0, log.end());
        let start = ReadStart { reader, partition, from: Some(0), first, end, reads_back: true };
        world.history.add(9, now_ns + 2, Some(now_ns + 3), What::ReadStart(start));
        let contents = log.contents(0, end);
        let read = Read { reader, partition, first, contents };
        world.history.add(9, now_ns + 4, Some(now_ns + 5), What::Read(read));
    }
    world.history
}
