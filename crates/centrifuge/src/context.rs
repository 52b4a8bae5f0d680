//! What decoding carries along: the limits, the depth, and upon an error the field and the problem. serde's errors hold
//! text only, and may quote the message, so the problem travels beside them.

use std::cell::{Cell, RefCell};

use crate::{
    decode_error::{DecodeError, Problem},
    limits::Limits,
};

/// Decoding stopped; the problem lies in the context.
pub(crate) struct Stopped;

/// Of the message that is decoded.
pub(crate) struct Context {
    pub limits: Limits,
    depth: Cell<usize>,
    problem: Cell<Option<Problem>>,
    /// What the innermost field wants, once an error has passed it.
    expected: Cell<Option<&'static str>>,
    /// The names of the fields around the problem, from the inside to the outside.
    path: RefCell<Vec<&'static str>>,
}

impl Context {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            depth: Cell::new(0),
            problem: Cell::new(None),
            expected: Cell::new(None),
            path: RefCell::new(Vec::new()),
        }
    }

    /// Stops the decoding.
    pub fn stop(&self, problem: Problem) -> Stopped {
        if self.problem.get().is_none() {
            self.problem.set(Some(problem));
        }
        Stopped
    }

    /// Stops a decoding by serde.
    pub fn stop_json<E: serde::de::Error>(&self, problem: Problem) -> E {
        self.stop(problem);
        E::custom("")
    }

    /// An error passes a field on its way out.
    pub fn note_field(&self, name: &'static str, expected: &'static str) {
        self.path.borrow_mut().push(name);
        if self.expected.get().is_none() {
            self.expected.set(Some(expected));
        }
    }

    /// One object deeper, until [`Context::leave`].
    pub fn enter(&self) -> Result<(), Problem> {
        let depth = self.depth.get() + 1;
        self.depth.set(depth);
        let depth_max = self.limits.depth_max.min(Limits::DEPTH_MAX);
        if depth > depth_max { Err(Problem::TooDeep { depth_max }) } else { Ok(()) }
    }

    pub fn leave(&self) {
        self.depth.set(self.depth.get() - 1);
    }

    /// Whether a map or list may have that many entries.
    pub fn check_entries(&self, entries: usize) -> Result<(), Problem> {
        let entries_max = self.limits.entries_max;
        if entries > entries_max { Err(Problem::TooManyEntries { entries_max }) } else { Ok(()) }
    }

    /// The error of command `command`, after a decoding of Protobuf stopped.
    pub fn error(&self, command: usize) -> DecodeError {
        let problem = self.problem.get().unwrap_or(Problem::NotProtobuf);
        let path = self.path.borrow();
        let names: Vec<_> = path.iter().rev().copied().collect();
        DecodeError { command, field: names.join("."), problem }
    }

    /// The error of command `command`, after serde stopped with `error`.
    pub fn json_error(&self, command: usize, error: &serde_json::Error) -> DecodeError {
        let problem = if error.is_data() {
            Problem::WrongValue { expected: self.expected.get().unwrap_or("an object") }
        } else {
            Problem::NotJson { at: error.column() }
        };
        self.stop(problem);
        self.error(command)
    }
}
