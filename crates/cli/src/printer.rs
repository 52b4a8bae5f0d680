//! Standard output, and how much of it its reader has taken. A pipe holds bytes that its reader may never read, so
//! verbs that settle or commit printed messages ask here first.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::{fd::AsFd, unix::fs::FileTypeExt},
    pin::{Pin, pin},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionread,
};
use tokio::time::timeout;

use crate::{exit::Failure, output::ignore_broken_pipe};

/// Bytes to push before the next [`Printer::deliver`], beside one item.
pub const WINDOW_BYTES: usize = 1 << 20;

/// How long a reader of standard output may take for printed items after a signal.
pub const GRACE: Duration = Duration::from_secs(1);

/// Bytes that a pipe with room takes at once without blocking: `PIPE_BUF`.
const PIECE_BYTES: usize = 4096;

/// Checks of a pipe before the first pause: some ten microseconds.
const CHECKS_MAX: u32 = 100;

/// The first and the longest delay between two checks of a pipe.
const CHECK_DELAY_MIN: Duration = Duration::from_millis(1);
const CHECK_DELAY_MAX: Duration = Duration::from_millis(20);

/// Standard output. [`Printer::deliver`] writes the pushed items; then [`Printer::settle`] says how
/// many of them were taken.
///
/// Into a pipe it writes few items before it checks whether the reader has taken them: one at
/// first, then twice as many each time. So `| head -1` takes one, and a steady reader does not
/// wait.
pub struct Printer {
    file: File,
    is_pipe: bool,
    /// Whether it is a pipe, and unread bytes matter.
    waits: bool,
    bytes: Vec<u8>,
    /// The end of each item in `bytes`.
    ends: Vec<usize>,
    written: usize,
    window: usize,
}

impl Printer {
    /// A printer to standard output. If `waits` is false, bytes in a pipe count as taken.
    ///
    /// # Errors
    /// None.
    pub fn standard(waits: bool) -> io::Result<Self> {
        Ok(Self::to(File::from(io::stdout().as_fd().try_clone_to_owned()?), waits))
    }

    fn to(file: File, waits: bool) -> Self {
        let is_pipe = file.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        let waits = waits && is_pipe;
        let window = if waits { 1 } else { usize::MAX };
        Self { file, is_pipe, waits, bytes: Vec::new(), ends: Vec::new(), written: 0, window }
    }

    /// The number of items to push before the next [`Printer::deliver`].
    #[must_use]
    pub fn window(&self) -> usize {
        self.window
    }

    /// The number of pushed items.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// Their bytes.
    #[must_use]
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an item that `print` writes.
    pub fn push(&mut self, print: impl FnOnce(&mut Vec<u8>)) {
        print(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Writes the pushed items, and waits until the reader of a pipe has taken them. May be
    /// cancelled without losing count.
    ///
    /// # Errors
    /// [`ErrorKind::BrokenPipe`] if the reader has closed the pipe, or another write error.
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

    /// Writes the pushed items as [`Printer::deliver`] does, and settles them: returns how many were taken, and the end if
    /// nothing is to be printed behind them. Once `interrupted`, the reader has [`GRACE`] for what was printed before.
    pub async fn deliver_unless(
        &mut self,
        interrupted: &mut Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    ) -> (usize, Option<Result<(), Failure>>) {
        let end = {
            let mut delivering = pin!(self.deliver());
            tokio::select! {
                delivered = &mut delivering => match delivered {
                    Ok(()) => None,
                    failed => Some(ignore_broken_pipe(failed)),
                },
                () = interrupted => Some(ignore_broken_pipe(
                    timeout(GRACE, &mut delivering).await.unwrap_or(Ok(())),
                )),
            }
        };
        (self.settle(), end)
    }

    /// Returns how many of the pushed items, from the first, the reader has taken, and forgets all
    /// of them.
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

/// The number of unread bytes in a pipe; 0 if the system does not tell.
fn unread(pipe: &File) -> usize {
    ioctl_fionread(pipe).map_or(0, |bytes| bytes as usize)
}

/// Waits until `is_so` of a pipe, or the reader has closed it.
async fn wait_for(pipe: &File, is_so: impl Fn(PollFlags) -> bool) -> io::Result<()> {
    let (mut rest, mut looks) = (CHECK_DELAY_MIN, 0);
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
        if looks < CHECKS_MAX {
            looks += 1;
            std::thread::yield_now();
            tokio::task::yield_now().await;
            continue;
        }
        tokio::time::sleep(rest).await;
        rest = (2 * rest).min(CHECK_DELAY_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, thread};

    use super::*;
    use crate::connect_options::block_on;

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
