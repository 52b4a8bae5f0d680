//! A trace of a run as a hash and, if wanted, as text: every command, effect and call of the disk.

use std::{cell::RefCell, fmt, io::Write, rc::Rc};

use sennit_engine::{Command, Content, Effect, Publish, StreamAnswer, StreamAppend, StreamCommand};
use sennit_model::PartitionId;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The record of a run; clones write to the same one.
#[derive(Clone)]
pub struct Trace {
    /// `None` for a silent trace.
    state: Option<Rc<RefCell<State>>>,
}

struct State {
    hasher: Xxh3,
    steps: u64,
    line: Vec<u8>,
    echo: bool,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("steps", &self.steps()).finish_non_exhaustive()
    }
}

impl Trace {
    /// An empty record; with `echo` each step is also written to standard error.
    #[must_use]
    pub fn new(echo: bool) -> Self {
        let state = State { hasher: Xxh3::new(), steps: 0, line: Vec::new(), echo };
        Self { state: Some(Rc::new(RefCell::new(state))) }
    }

    /// A trace without contents, for very many runs.
    #[must_use]
    pub fn silent() -> Self {
        Self { state: None }
    }

    /// Whether anything is recorded.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.state.is_none()
    }

    /// Adds a step.
    pub fn step(&self, what: fmt::Arguments<'_>) {
        let Some(state) = &self.state else { return };
        let state = &mut *state.borrow_mut();
        state.line.clear();
        // Writing to memory does not fail.
        let _ = state.line.write_fmt(what);
        state.line.push(b'\n');
        state.hasher.update(&state.line);
        state.steps += 1;
        if state.echo {
            // Where nobody reads any more, nobody misses it.
            let _ = std::io::stderr().write_all(&state.line);
        }
    }

    /// Adds a command.
    pub fn command(&self, command: &Command) {
        match command {
            _ if self.is_silent() => {}
            Command::Publish(publish) => self.publish(publish, format_args!("")),
            Command::PublishAt(publish, at) => self.publish(publish, format_args!(" at {at}")),
            Command::Stream(origin, id, command) => self.stream(origin.request, *id, command),
            Command::AppendTogether(origin, appends) => {
                for (id, append) in appends {
                    self.append("append together", origin.request, *id, append);
                }
            }
            other => self.step(format_args!("  > {other:?}")),
        }
    }

    fn publish(&self, publish: &Publish, at: fmt::Arguments<'_>) {
        self.step(format_args!(
            "  > publish {:?} to {}{at} {:?} {} messages {:016x}",
            publish.origin.request,
            publish.partition,
            publish.producer,
            publish.batch.count(),
            xxh3_64(publish.batch.bytes()),
        ));
    }

    fn stream(&self, request: u64, id: PartitionId, command: &StreamCommand) {
        match command {
            StreamCommand::Open(open) => self.step(format_args!(
                "  > open {request} {id} {:?} closes {} {:016x}",
                open.settings,
                open.closes,
                hash(open.content.as_ref()),
            )),
            StreamCommand::Append(append) => self.append("append", request, id, append),
            other => self.step(format_args!("  > {request} {id} {other:?}")),
        }
    }

    fn append(&self, what: &str, request: u64, id: PartitionId, append: &StreamAppend) {
        let StreamAppend { content, content_type, note } = append;
        let hash = hash(content.as_ref());
        self.step(format_args!("  > {what} {request} {id} {content_type:?} {note:?} {hash:016x}"));
    }

    /// Adds an effect.
    pub fn effect(&self, effect: &Effect) {
        match effect {
            _ if self.is_silent() => {}
            Effect::Deliver(delivery) => self.step(format_args!(
                "  < deliver {}+{} of {} attempt {} generation {} to {}.{} {:016x}",
                delivery.first,
                delivery.count,
                delivery.partition,
                delivery.attempt,
                delivery.generation.0,
                delivery.session.0,
                delivery.subscription,
                xxh3_64(&delivery.messages),
            )),
            Effect::Stream(origin, answer) => match &**answer {
                StreamAnswer::Chunk(chunk) => self.step(format_args!(
                    "  < {} of {:?} {}..{} up to date {} closed {} {:?}",
                    origin.request,
                    chunk.topic,
                    chunk.first,
                    chunk.next,
                    chunk.is_up_to_date,
                    chunk.is_closed,
                    chunk.messages.iter().map(|part| xxh3_64(part)).collect::<Vec<_>>(),
                )),
                other => self.step(format_args!("  < {} {other:?}", origin.request)),
            },
            other => self.step(format_args!("  < {other:?}")),
        }
    }

    /// A hash of everything so far; 0 of a silent one.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.borrow().hasher.digest())
    }

    /// The number of steps.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| state.borrow().steps)
    }
}

/// A hash of the content of an append.
fn hash(content: Option<&Content>) -> u64 {
    let batches = content.into_iter().flat_map(Content::batches);
    batches.fold(0, |hash, batch| hash ^ xxh3_64(batch.bytes()))
}
