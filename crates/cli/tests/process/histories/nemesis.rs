//! The nemesis: kills brokers, stops them for a while, and breaks, holds, delays and slows down their links, by the
//! choices of a seed. Afterwards everything is whole again.

use std::{fmt, thread::sleep, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

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
const TWO_ONE_OF: u64 = 5;

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
    /// The broker stands still, and goes on.
    Stop(usize),
    /// Bytes flow otherwise on these lines, in both directions of each.
    Flow(Vec<(usize, [Flow; 2])>),
    /// The connections of these lines break.
    Break(Vec<usize>),
}

impl Fault {
    fn is_of_a_process(&self) -> bool {
        matches!(self, Self::Kill(_) | Self::Stop(_))
    }
}

/// Brokers and their lines, to be troubled.
pub struct Nemesis {
    pub brokers: Vec<Broker>,
    pub lines: Vec<Line>,
    pub choices: Choices,
}

impl Nemesis {
    /// Makes these faults, one after the other, and notes each.
    pub fn rage(&mut self, faults: impl Iterator<Item = u32>, diary: &Diary) {
        for _ in faults {
            self.pause(LIFE_MS_MAX);
            let together = 1 + usize::from(self.choices.below(TWO_ONE_OF) == 0);
            let mut faults: Vec<_> = (0..together).map(|_| self.choose()).collect();
            // A broker that is killed cannot be stopped.
            if faults.iter().all(Fault::is_of_a_process) {
                faults.truncate(1);
            }
            for fault in &faults {
                diary.note(format!("begins: {}", Named(fault, &self.lines)));
                self.begin(fault);
            }
            match self.choices.below(LONG_ONE_OF) {
                0 => self.pause(LONG_FAULT_MS),
                _ => self.pause(FAULT_MS_MAX),
            }
            for fault in &faults {
                self.end(fault);
                diary.note(format!("is over: {}", Named(fault, &self.lines)));
            }
        }
    }

    fn pause(&mut self, ms_max: u64) {
        sleep(Duration::from_millis(self.choices.below(ms_max)));
    }

    fn choose(&mut self) -> Fault {
        let all = self.brokers.len();
        let one = self.choices.below(all as u64) as usize;
        match self.choices.below(8) {
            0 if all > 1 => Fault::Kill((0..all).collect()),
            0..=2 => Fault::Kill(vec![one]),
            3 => Fault::Stop(one),
            4 => Fault::Break(self.touching(one)),
            5 => {
                // Between two ends, in one direction or both.
                let line = self.choices.below(self.lines.len() as u64) as usize;
                let flow = self.flow();
                Fault::Flow(self.between(line, flow))
            }
            _ => {
                let flow = self.flow();
                Fault::Flow(self.touching(one).into_iter().map(|line| (line, [flow; 2])).collect())
            }
        }
    }

    fn flow(&mut self) -> Flow {
        match self.choices.below(6) {
            0 => Flow::Late(Duration::from_millis(1 + self.choices.below(200))),
            1 => Flow::Slow(20_000 + self.choices.below(200_000) as u32),
            _ => Flow::Held,
        }
    }

    /// The lines of a broker: to its peers, or to its clients where it has none, or where the choices say so.
    fn touching(&mut self, broker: usize) -> Vec<usize> {
        let of_clients = self.brokers.len() == 1 || self.choices.below(4) == 0;
        let is_one = |line: &Line| match line.from {
            End::Clients => of_clients && line.to == broker,
            End::Node(from) => !of_clients && (from == broker || line.to == broker),
        };
        (0..self.lines.len()).filter(|&index| is_one(&self.lines[index])).collect()
    }

    /// Troubles what goes from one end of a line to the other, on whichever connections, and by choice what comes back.
    fn between(&mut self, line: usize, flow: Flow) -> Vec<(usize, [Flow; 2])> {
        let back = if self.choices.below(2) == 0 { flow } else { Flow::Open };
        let turned = match self.lines[line].from {
            End::Clients => None,
            End::Node(from) => {
                let ends = (End::Node(self.lines[line].to), from);
                self.lines.iter().position(|other| (other.from, other.to) == ends)
            }
        };
        let turned = turned.map(|turned| (turned, [back, flow]));
        [(line, [flow, back])].into_iter().chain(turned).collect()
    }

    fn begin(&mut self, fault: &Fault) {
        match fault {
            Fault::Kill(brokers) => brokers.iter().for_each(|&index| self.brokers[index].kill()),
            Fault::Stop(index) => self.signal(*index, Signal::STOP),
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
            Fault::Stop(index) => self.signal(*index, Signal::CONT),
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

    fn signal(&self, broker: usize, signal: Signal) {
        let pid = i32::try_from(self.brokers[broker].pid()).unwrap();
        kill_process(Pid::from_raw(pid).expect("no process has number 0"), signal).unwrap();
    }
}

/// A fault, told with the names of its lines.
struct Named<'a>(&'a Fault, &'a [Line]);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fault, lines) = self;
        let name = |&index: &usize| format!("{:?} to {}", lines[index].from, lines[index].to);
        match fault {
            Fault::Kill(brokers) => write!(f, "{brokers:?} are killed"),
            Fault::Stop(broker) => write!(f, "{broker} stands still"),
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
