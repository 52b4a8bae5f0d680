//! A history: operations in the order in which they ended, and their form as lines of JSON.

use std::io::{self, BufRead, Write};

use crate::operation::{Operation, What};

/// All operations of a test, in the order in which they ended; those without an answer anywhere. The operations of
/// one reader, and those of one consumer, stand in the order in which it received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
}

impl History {
    /// Adds an operation.
    pub fn push(&mut self, operation: Operation) {
        self.operations.push(operation);
    }

    /// Adds an operation that ran between two instants, in nanoseconds.
    pub fn add(&mut self, process: u32, begun_ns: u64, ended_ns: Option<u64>, what: What) {
        self.push(Operation { process, begun_ns, ended_ns, what });
    }

    /// The operations, by the indexes that a verdict names.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// As [`Self::operations`], for tests that change a history.
    pub fn operations_mut(&mut self) -> &mut Vec<Operation> {
        &mut self.operations
    }

    /// Writes each operation as a line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        for operation in &self.operations {
            serde_json::to_writer(&mut out, operation)?;
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// Reads what [`Self::write`] has written.
    ///
    /// # Errors
    /// Those of `input`, and [`io::ErrorKind::InvalidData`] for a line that is no operation.
    pub fn read(input: impl BufRead) -> io::Result<Self> {
        let mut history = Self::default();
        for (number, line) in (1..).zip(input.lines()) {
            let operation = serde_json::from_str(&line?).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {error}"))
            })?;
            history.push(operation);
        }
        Ok(history)
    }
}
