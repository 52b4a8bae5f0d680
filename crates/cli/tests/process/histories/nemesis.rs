//! The nemesis: kills brokers, stops them for a while, and breaks, holds, delays and slows down their links, by the
//! choices of a seed. Afterwards everything is whole again.

use std::{collections::BTreeMap, fmt, mem, thread::sleep, time::Duration};

use rustix::process::Signal;

use super::{
    proxy::{Flow, Link},
    recorder::Diary,
};
use crate::{broker::Broker, torture::Choices};

/// Between two faults, in milliseconds.
const LIFE_MS_MAX: u64 = 500;

const FAULT_MS_MAX: u64 = 500;

/// One of so many faults is long: longer than what nodes wait for each other.
const LONG_ONE_OF: u64 = 5;

const LONG_FAULT_MS: u64 = 2500;

/// One of so many faults is made together with another.
const TWO_ONE_OF: u64 = 3;

/// An end of a link: a node, or the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Clients.
    Clients,
    /// The broker of this index.
    Node(usize),
}

/// A link, and what it connects.
pub struct Line {
    pub from: End,
    /// The index of a broker.
    pub to: usize,
    pub link: Link,
}

/// A fault.
#[derive(Debug)]
enum Fault {
    /// These brokers are killed, and start again.
    Kill(Vec<usize>),
    /// These brokers stand still, and go on.
    Stop(Vec<usize>),
    /// Bytes flow otherwise on these lines, in both directions of each.
    Flow(Vec<(usize, [Flow; 2])>),
    /// The connections of these lines break.
    Break(Vec<usize>),
}

impl Fault {
    /// The brokers whose processes it troubles.
    fn processes(&self) -> &[usize] {
        match self {
            Self::Kill(brokers) | Self::Stop(brokers) => brokers,
            Self::Flow(_) | Self::Break(_) => &[],
        }
    }

    /// Its kind, for a count.
    fn kind(&self) -> &'static str {
        let is_held = |wanted: [bool; 2]| {
            let held = |flows: &[Flow; 2]| flows.map(|flow| flow == Flow::Held) == wanted;
            matches!(self, Self::Flow(lines) if lines.iter().any(|(_, flows)| held(flows)))
        };
        match self {
            Self::Kill(brokers) if brokers.len() == 1 => "kills of one",
            Self::Kill(brokers) if brokers.len() == 2 => "kills of two",
            Self::Kill(_) => "kills of all",
            Self::Stop(brokers) if brokers.len() == 1 => "stops of one",
            Self::Stop(_) => "stops of several",
            Self::Break(_) => "breaks",
            Self::Flow(_) if is_held([true; 2]) => "cuts in both directions",
            Self::Flow(_) if is_held([true, false]) => "cuts in one direction",
            Self::Flow(_) => "slow lines",
        }
    }
}

/// Brokers and their lines, to be troubled.
pub struct Nemesis {
    pub brokers: Vec<Broker>,
    pub lines: Vec<Line>,
    pub choices: Choices,
    /// How many faults of each kind it has made.
    made: BTreeMap<&'static str, u32>,
}

impl Nemesis {
    /// One that has made nothing yet.
    pub fn new(brokers: Vec<Broker>, lines: Vec<Line>) -> Self {
        Self { brokers, lines, choices: Choices::new(0), made: BTreeMap::new() }
    }

    /// How many faults of each kind it has made since it was asked last.
    pub fn take_made(&mut self) -> BTreeMap<&'static str, u32> {
        mem::take(&mut self.made)
    }

    /// Makes these faults, one after the other or two at a time, and notes each.
    pub fn rage(&mut self, mut faults: impl Iterator<Item = u32>, diary: &Diary) {
        while faults.next().is_some() {
            self.pause(LIFE_MS_MAX);
            let brokers = self.brokers.len();
            let mut made = vec![choose(&mut self.choices, brokers, &self.lines)];
            if self.choices.below(TWO_ONE_OF) == 0 {
                let other = choose(&mut self.choices, brokers, &self.lines);
                // A broker that is killed cannot be stopped.
                let touched = made[0].processes();
                let is_apart = !other.processes().iter().any(|one| touched.contains(one));
                made.extend(Some(other).filter(|_| is_apart && faults.next().is_some()));
            }
            for fault in &made {
                *self.made.entry(fault.kind()).or_default() += 1;
                diary.note(format!("begins: {}", Named(fault, &self.lines)));
                self.begin(fault);
            }
            match self.choices.below(LONG_ONE_OF) {
                0 => self.pause(LONG_FAULT_MS),
                _ => self.pause(FAULT_MS_MAX),
            }
            for fault in &made {
                self.end(fault);
                diary.note(format!("is over: {}", Named(fault, &self.lines)));
            }
        }
    }

    fn pause(&mut self, ms_max: u64) {
        sleep(Duration::from_millis(self.choices.below(ms_max)));
    }

    fn begin(&mut self, fault: &Fault) {
        match fault {
            Fault::Kill(brokers) => brokers.iter().for_each(|&index| self.brokers[index].kill()),
            Fault::Stop(brokers) => {
                brokers.iter().for_each(|&index| self.brokers[index].signal(Signal::STOP));
            }
            Fault::Flow(lines) => {
                for (index, flows) in lines {
                    self.lines[*index].link.set(*flows);
                }
            }
            Fault::Break(lines) => {
                lines.iter().for_each(|&index| self.lines[index].link.break_all());
            }
        }
    }

    fn end(&mut self, fault: &Fault) {
        match fault {
            Fault::Kill(brokers) => {
                brokers.iter().for_each(|&index| self.brokers[index].start_again());
            }
            Fault::Stop(brokers) => {
                brokers.iter().for_each(|&index| self.brokers[index].signal(Signal::CONT));
            }
            Fault::Flow(lines) => {
                for (index, _) in lines {
                    // By choice nothing of what was held arrives.
                    if self.choices.below(2) == 0 {
                        self.lines[*index].link.break_all();
                    }
                    self.lines[*index].link.set([Flow::Open; 2]);
                }
            }
            Fault::Break(_) => {}
        }
    }
}

/// A fault of these brokers and lines.
fn choose(choices: &mut Choices, brokers: usize, lines: &[Line]) -> Fault {
    let one = choices.below(brokers as u64) as usize;
    let others = || (0..brokers).filter(|&other| other != one).collect();
    match choices.below(20) {
        0..=1 if brokers > 1 => Fault::Kill((0..brokers).collect()),
        2..=3 if brokers > 1 => Fault::Kill(others()),
        0..=6 => Fault::Kill(vec![one]),
        7 if brokers > 1 => Fault::Stop(others()),
        8 if brokers > 1 => Fault::Stop((0..brokers).collect()),
        7..=9 => Fault::Stop(vec![one]),
        10..=11 => Fault::Break(touching(choices, brokers, lines, one)),
        12..=14 => {
            // Between two ends, in one direction or both.
            let line = choices.below(lines.len() as u64) as usize;
            let flow = chosen_flow(choices);
            Fault::Flow(between(choices, lines, line, flow))
        }
        _ => {
            let flow = chosen_flow(choices);
            let touching = touching(choices, brokers, lines, one);
            Fault::Flow(touching.into_iter().map(|line| (line, [flow; 2])).collect())
        }
    }
}

fn chosen_flow(choices: &mut Choices) -> Flow {
    match choices.below(6) {
        0 => Flow::Late(Duration::from_millis(1 + choices.below(200))),
        1 => Flow::Slow(20_000 + choices.below(200_000) as u32),
        _ => Flow::Held,
    }
}

/// The lines of a broker: to its peers, or to its clients where it has none, or where the choices say so.
fn touching(choices: &mut Choices, brokers: usize, lines: &[Line], broker: usize) -> Vec<usize> {
    let of_clients = brokers == 1 || choices.below(4) == 0;
    let is_one = |line: &Line| match line.from {
        End::Clients => of_clients && line.to == broker,
        End::Node(from) => !of_clients && (from == broker || line.to == broker),
    };
    (0..lines.len()).filter(|&index| is_one(&lines[index])).collect()
}

/// Troubles what goes from one end of a line to the other, on whichever connections, and by choice what comes back.
fn between(
    choices: &mut Choices,
    lines: &[Line],
    line: usize,
    flow: Flow,
) -> Vec<(usize, [Flow; 2])> {
    let back = if choices.below(2) == 0 { flow } else { Flow::Open };
    let turned = match lines[line].from {
        End::Clients => None,
        End::Node(from) => {
            let ends = (End::Node(lines[line].to), from);
            lines.iter().position(|other| (other.from, other.to) == ends)
        }
    };
    let turned = turned.map(|turned| (turned, [back, flow]));
    [(line, [flow, back])].into_iter().chain(turned).collect()
}

/// A fault, told with the names of its lines.
struct Named<'a>(&'a Fault, &'a [Line]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fault, lines) = self;
        let name = |&index: &usize| format!("{:?} to {}", lines[index].from, lines[index].to);
        match fault {
            Fault::Kill(brokers) => write!(f, "{brokers:?} are killed"),
            Fault::Stop(brokers) => write!(f, "{brokers:?} stand still"),
            Fault::Flow(changed) => {
                let changed = changed.iter().map(|(line, flows)| (name(line), flows));
                write!(f, "flows are {:?}", changed.collect::<Vec<_>>())
            }
            Fault::Break(broken) => {
                write!(f, "breaks of {:?}", broken.iter().map(name).collect::<Vec<_>>())
            }
        }
    }
}

#[test]
fn faults_of_three_nodes_are_of_all_kinds() {
    let network = super::proxy::Network::new();
    let ends = [End::Clients, End::Node(0), End::Node(1), End::Node(2)];
    let pairs = ends.into_iter().flat_map(|from| (0..3).map(move |to| (from, to)));
    let pairs = pairs.filter(|(from, to)| *from != End::Node(*to));
    let lines = pairs.map(|(from, to)| Line { from, to, link: network.link("127.0.0.1:1") });
    let lines: Vec<_> = lines.collect();
    let mut choices = Choices::new(1);
    let mut made = BTreeMap::new();
    for _ in 0..1000 {
        *made.entry(choose(&mut choices, 3, &lines).kind()).or_insert(0) += 1;
    }
    let kinds = [
        "breaks",
        "cuts in both directions",
        "cuts in one direction",
        "kills of all",
        "kills of one",
        "kills of two",
        "slow lines",
        "stops of one",
        "stops of several",
    ];
    assert!(made.keys().copied().eq(kinds), "{made:?}");
    assert!(made.values().all(|&count| count > 20), "{made:?}");
}
