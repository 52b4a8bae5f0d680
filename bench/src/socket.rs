//! Sockets that one thread polls: it writes what the kernel takes, and reads into one shared buffer. Knows bytes
//! and no requests.

use std::{
    io::{self, Read, Write},
    mem::MaybeUninit,
    net::TcpStream,
    os::fd::OwnedFd,
    sync::Arc,
};

use anyhow::{Result, bail};
use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};

/// Sockets told of at once.
const EVENTS: usize = 256;

/// The sockets of a thread, by number.
#[derive(Debug)]
pub struct Poller {
    door: PollerDoor,
    told: Vec<usize>,
}

/// Where sockets are added to a [`Poller`], from any thread.
#[derive(Clone, Debug)]
pub struct PollerDoor(Arc<OwnedFd>);

impl PollerDoor {
    /// Tells of `socket` under `number` whenever something has come, or it takes more after it took
    /// no more.
    ///
    /// # Errors
    /// The kernel has no room.
    pub fn add(&self, socket: &Socket, number: usize) -> io::Result<()> {
        // Both at once and only on change: nothing has to be said again between requests.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, &socket.stream, EventData::new_u64(number as u64), flags)?)
    }
}

impl Poller {
    /// For none yet.
    ///
    /// # Errors
    /// The kernel has no room.
    pub fn new() -> io::Result<Self> {
        let door = PollerDoor(Arc::new(epoll::create(CreateFlags::CLOEXEC)?));
        Ok(Self { door, told: Vec::with_capacity(EVENTS) })
    }

    /// Where sockets are added.
    #[must_use]
    pub fn door(&self) -> PollerDoor {
        self.door.clone()
    }

    /// Waits until there is something to do, or `wait_ns` are over; says which sockets.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&mut self, wait_ns: u64) -> io::Result<&[usize]> {
        let second = i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: second, tv_nsec: (wait_ns % 1_000_000_000) as _ };
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS];
        self.told.clear();
        match epoll::wait(&self.door.0, &mut room[..], Some(&timeout)) {
            Ok((events, _)) => {
                self.told.extend(events.iter().map(|event| event.data.u64() as usize));
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(&self.told)
    }
}

/// A socket with what it has yet to send.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    /// What is sent, and how much of it is.
    out: Vec<u8>,
    sent: usize,
}

impl Socket {
    /// A socket that never blocks.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, out: Vec::new(), sent: 0 })
    }

    /// Sends what `make` puts into the buffer, over what it held, as far as the kernel takes it.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, make: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        make(&mut self.out);
        self.sent = 0;
        self.send_on()
    }

    /// Sends what is left.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send_on(&mut self) -> io::Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives what has come to `take`, in pieces of `buffer`. A piece that leaves room is the last: what
    /// comes after it is told of anew.
    ///
    /// # Errors
    /// The connection has ended, or what `take` says.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => bail!("the server has closed a connection"),
                Ok(count) => {
                    take(&buffer[..count])?;
                    if count < buffer.len() {
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
