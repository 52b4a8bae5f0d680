//! Standard output, and how much of it its reader has taken. A pipe holds what its reader never
//! reads: whoever settles or commits what was printed asks here first. Knows no message.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::{fd::AsFd, unix::fs::FileTypeExt},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionread,
};

/// How many bytes are to be pushed before the next [`Printer::deliver`], at most but for one thing.
pub const WINDOW_BYTES: usize = 1 << 20;

/// How long a reader of standard output may take for what was printed already, after a signal.
pub const GRACE: Duration = Duration::from_secs(1);

/// What a pipe with room takes at once without making its writer wait, in bytes: `PIPE_BUF`.
const PIECE_BYTES: usize = 4096;

/// How often it is looked at a pipe before the first rest: some ten microseconds.
const LOOKS_MAX: u32 = 100;

/// How long it is waited between two looks at a pipe whose reader rests, at first and at most.
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(20);

/// Standard output. What is pushed is written by [`Printer::deliver`]; then [`Printer::settle`] says how
/// much of it was taken.
///
/// Into a pipe few things are written before it is looked whether its reader has taken them: one at first,
/// then twice as many each time. So `| head -1` takes one, and a reader that goes on is not kept waiting.
pub struct Printer {
    file: File,
    is_pipe: bool,
    /// Whether it is a pipe, and what its reader leaves in it matters.
    waits: bool,
    bytes: Vec<u8>,
    /// Where each thing ends in `bytes`.
    ends: Vec<usize>,
    written: usize,
    window: usize,
}

impl Printer {
    /// A printer to standard output. If `waits` is false, what lies in a pipe counts as taken.
    ///
    /// # Errors
    /// There is none.
    pub fn standard(waits: bool) -> io::Result<Self> {
        Ok(Self::to(File::from(io::stdout().as_fd().try_clone_to_owned()?), waits))
    }

    fn to(file: File, waits: bool) -> Self {
        let is_pipe = file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        let waits = waits && is_pipe;
        let window = if waits { 1 } else { usize::MAX };
        Self { file, is_pipe, waits, bytes: Vec::new(), ends: Vec::new(), written: 0, window }
    }

    /// How many things are to be pushed before the next [`Printer::deliver`], at most.
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    /// How many things were pushed.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// How many bytes they have.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Adds one thing, as `print` writes it.
    pub fn push(&mut self, print: impl FnOnce(&mut Vec<u8>)) {
        print(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Writes what was pushed, and waits until the reader of a pipe has taken it. May be cancelled:
    /// what was written is known.
    ///
    /// # Errors
    /// [`ErrorKind::BrokenPipe`] if the reader has left, or why standard output takes nothing.
    pub async fn deliver(&mut self) -> io::Result<()> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            let piece = if self.is_pipe { &rest[..rest.len().min(PIECE_BYTES)] } else { rest };
            if self.is_pipe {
                wait_for(&self.file, |state| state.intersects(PollFlags::OUT)).await?;
            }
            match (&self.file).write(piece) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.waits {
            wait_for(&self.file, |_| unread(&self.file) == 0).await?;
        }
        Ok(())
    }

    /// How many of the things that were pushed the reader has taken, from the first. Forgets all of them.
    pub fn settle(&mut self) -> usize {
        let unread = if self.waits { unread(&self.file) } else { 0 };
        let taken = self.written.saturating_sub(unread);
        let count = self.ends.iter().take_while(|end| **end <= taken).count();
        // Less than the window says nothing of how much more a reader would take.
        if count == self.ends.len() && count >= self.window {
            self.window = self.window.saturating_mul(2);
        }
        self.bytes.clear();
        self.ends.clear();
        self.written = 0;
        count
    }
}

/// How many bytes a pipe holds that nobody has read. Where the system does not tell, none.
fn unread(pipe: &File) -> usize {
    ioctl_fionread(pipe).map_or(0, |bytes| bytes as usize)
}

/// Waits until `is_so` of a pipe, or its reader has left.
async fn wait_for(pipe: &File, is_so: impl Fn(PollFlags) -> bool) -> io::Result<()> {
    let (mut rest, mut looks) = (REST_MIN, 0);
    loop {
        let mut polled = [PollFd::new(pipe, PollFlags::OUT)];
        poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let state = polled[0].revents();
        if is_so(state) {
            return Ok(());
        }
        if state.intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(ErrorKind::BrokenPipe.into());
        }
        // A pipe tells when there is room in it, and never when it is empty. A reader that is at work
        // needs less time than the shortest rest.
        if looks < LOOKS_MAX {
            looks += 1;
            std::thread::yield_now();
            tokio::task::yield_now().await;
            continue;
        }
        tokio::time::sleep(rest).await;
        rest = (2 * rest).min(REST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, thread};

    use super::*;
    use crate::reach::block_on;

    fn pipe() -> (io::PipeReader, Printer) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, Printer::to(File::from(std::os::fd::OwnedFd::from(writer)), true))
    }

    fn deliver(printer: &mut Printer) -> io::Result<()> {
        block_on(async { Ok(printer.deliver().await) }).unwrap()
    }

    #[test]
    fn what_a_reader_leaves_in_a_pipe_was_not_taken() {
        let (mut reader, mut printer) = pipe();
        assert_eq!(printer.window(), 1);
        for text in [b"one\n", b"two\n", b"six\n"] {
            printer.push(|out| out.extend_from_slice(text));
        }
        let reading = thread::spawn(move || reader.read_exact(&mut [0; 9]));
        // The third is taken in part, and its reader has gone.
        assert_eq!(deliver(&mut printer).unwrap_err().kind(), ErrorKind::BrokenPipe);
        reading.join().unwrap().unwrap();
        assert_eq!((printer.settle(), printer.window()), (2, 1));
        assert_eq!((printer.count(), printer.byte_count()), (0, 0));
    }

    #[test]
    fn a_reader_that_takes_all_is_given_twice_as_much_the_next_time() {
        let (mut reader, mut printer) = pipe();
        let reading = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).map(|_| all)
        });
        for round in 0..3 {
            assert_eq!(printer.window(), 1 << round);
            // The first is more than the pipe holds.
            printer.push(|out| out.resize(1 << 20, b'x'));
            (1..1 << round).for_each(|_| printer.push(|out| out.push(b'\n')));
            deliver(&mut printer).unwrap();
            assert_eq!(printer.settle(), 1 << round);
        }
        // One of four: how much more it would take is not known.
        printer.push(|out| out.push(b'\n'));
        deliver(&mut printer).unwrap();
        assert_eq!((printer.settle(), printer.window()), (1, 8));
        drop(printer);
        assert_eq!(reading.join().unwrap().unwrap().len(), (3 << 20) + 5);
    }

    #[test]
    fn what_is_written_to_a_file_is_taken() {
        let mut printer = Printer::to(tempfile::tempfile().unwrap(), true);
        assert_eq!(printer.window(), usize::MAX);
        printer.push(|out| out.extend_from_slice(b"one"));
        printer.push(|_| {});
        deliver(&mut printer).unwrap();
        assert_eq!(printer.settle(), 2);
    }
}
