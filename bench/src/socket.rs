//! Sockets that one thread polls. It writes as much as the kernel accepts, and reads into one shared buffer. It
//! knows bytes and no requests.

use std::{
    io::{self, Read, Write},
    mem::MaybeUninit,
    os::fd::OwnedFd,
    sync::Arc,
};

use anyhow::{Result, bail};
use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};

use crate::link::Link;

/// The greatest number of sockets that one wait returns.
const EVENTS: usize = 256;

/// The sockets of a thread, by number.
#[derive(Debug)]
pub struct Poller {
    handle: PollerHandle,
    ready: Vec<usize>,
}

/// A handle with which any thread adds sockets to a [`Poller`].
#[derive(Clone, Debug)]
pub struct PollerHandle(Arc<OwnedFd>);

impl PollerHandle {
    /// Adds `socket` under `number`. The poller returns it whenever it is readable, or writable again.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn add(&self, socket: &Socket, number: usize) -> io::Result<()> {
        // Both directions, edge-triggered: the registration stays the same between requests.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, &socket.link.stream, EventData::new_u64(number as u64), flags)?)
    }
}

impl Poller {
    /// A poller without sockets.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn new() -> io::Result<Self> {
        let handle = PollerHandle(Arc::new(epoll::create(CreateFlags::CLOEXEC)?));
        Ok(Self { handle, ready: Vec::with_capacity(EVENTS) })
    }

    /// The handle of this poller.
    #[must_use]
    pub fn handle(&self) -> PollerHandle {
        self.handle.clone()
    }

    /// Waits at most `wait_ns` for sockets that are ready. Returns their numbers.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn wait(&mut self, wait_ns: u64) -> io::Result<&[usize]> {
        let second = i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: second, tv_nsec: (wait_ns % 1_000_000_000) as _ };
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        self.ready.clear();
        match epoll::wait(&self.handle.0, &mut room[..], Some(&timeout)) {
            Ok((events, _)) => {
                self.ready.extend(events.iter().map(|event| event.data.u64() as usize));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(&self.ready)
    }
}

/// A socket and the bytes that it must send.
#[derive(Debug)]
pub struct Socket {
    link: Link,
    /// The buffer, and the number of its bytes that are sent.
    out: Vec<u8>,
    sent: usize,
}

impl Socket {
    /// Makes a connection non-blocking.
    ///
    /// # Errors
    /// The kernel reports an error.
    pub fn new(link: impl Into<Link>) -> io::Result<Self> {
        let link = link.into();
        link.stream.set_nodelay(true)?;
        link.stream.set_nonblocking(true)?;
        Ok(Self { link, out: Vec::new(), sent: 0 })
    }

    /// Replaces the buffer by the bytes that `make` writes, and sends as many as the kernel accepts.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, make: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        make(&mut self.out);
        self.sent = 0;
        self.send_on()
    }

    /// Sends the rest of the buffer.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send_on(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.link.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes received bytes to `take`, in pieces of `buffer`. A piece that does not fill the buffer is the
    /// last one: the poller returns the socket again for later bytes.
    ///
    /// # Errors
    /// The connection has ended, or `take` fails.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        loop {
            match self.link.read(buffer) {
                Ok(0) => bail!("the server has closed a connection"),
                Ok(count) => {
                    take(&buffer[..count])?;
                    if count < buffer.len() && self.link.reads_all() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
