//! Detects that the reader of standard output has closed it, so that verbs which wait for messages end soon after
//! their reader, and not only when they print the next message.

use std::{
    fs::File,
    future::pending,
    io,
    os::{fd::AsFd, unix::fs::FileTypeExt},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use tokio::sync::oneshot;

/// Waits until the reader of standard output has closed its end; for ever if standard output is
/// neither a pipe nor a socket.
pub async fn stdout_closed() {
    let watched = io::stdout().as_fd().try_clone_to_owned().map(File::from).and_then(watch);
    let Ok(left) = watched else { return pending().await };
    if left.await.is_err() {
        // It cannot be watched: the next print finds out.
        pending().await
    }
}

/// Watches `out` on a thread of its own, which sleeps until the reader has closed it, and ends with
/// the program. The runtime could watch it only through an unsafe call.
///
/// # Errors
/// `out` is neither a pipe nor a socket, or no thread can be started.
fn watch(out: File) -> io::Result<oneshot::Receiver<()>> {
    let kind = out.metadata()?.file_type();
    if !kind.is_fifo() && !kind.is_socket() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let (said, left) = oneshot::channel();
    thread::Builder::new().name("reader".into()).spawn(move || {
        if wait_for_the_end(&out).is_ok() {
            // The verb may have ended meanwhile.
            let _ = said.send(());
        }
    })?;
    Ok(left)
}

/// Blocks until the reader of `out` has closed it. Room in a pipe does not wake it.
fn wait_for_the_end(out: &File) -> Result<(), Errno> {
    loop {
        // The system tells of errors and hang-ups, whatever is asked for.
        let mut polled = [PollFd::new(out, PollFlags::empty())];
        match poll(&mut polled, None) {
            Ok(_) if polled[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) => {
                return Ok(());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        os::{fd::OwnedFd, unix::net::UnixStream},
    };

    use super::*;

    #[test]
    fn a_pipe_is_left_once_its_reader_has_closed_it_and_not_when_it_was_emptied() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut left = watch(File::from(OwnedFd::from(writer.try_clone().unwrap()))).unwrap();
        writer.write_all(b"one").unwrap();
        reader.read_exact(&mut [0; 3]).unwrap();
        assert_eq!(left.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(reader);
        assert_eq!(left.blocking_recv(), Ok(()));
    }

    #[test]
    fn a_socket_is_left_once_its_other_end_is_closed() {
        let (reader, writer) = UnixStream::pair().unwrap();
        let left = watch(File::from(OwnedFd::from(writer))).unwrap();
        drop(reader);
        assert_eq!(left.blocking_recv(), Ok(()));
    }

    #[test]
    fn a_file_has_no_reader_that_could_leave() {
        assert!(watch(tempfile::tempfile().unwrap()).is_err());
    }
}
