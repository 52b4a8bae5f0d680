//! The sockets of parked connections: finds those with something to read, or that have ended. All of them have one
//! registration with the runtime. It does not know the connections.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};
use tokio::io::{Interest, unix::AsyncFd};

use crate::runtime::wire::WireAtRest;

/// Events that are taken at once.
const EVENTS_MAX: usize = 256;

/// The sockets of parked connections.
#[derive(Debug)]
pub(super) struct Sockets(AsyncFd<OwnedFd>);

/// An event of a socket: it has something to read, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketEvent {
    /// Its number.
    pub(super) reader: u32,
    /// Whether nothing can be said to it any more.
    pub(super) is_gone: bool,
}

impl Sockets {
    #[expect(
        unsafe_code,
        reason = "the runtime trusts whoever registers a descriptor to keep it open"
    )]
    pub(super) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // SAFETY: an owned descriptor stays open, and the same, until it is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(epoll, Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Registers `wire` under the number of its reader.
    pub(super) fn add(&self, wire: &WireAtRest, reader: u32) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::RDHUP;
        Ok(epoll::add(self.0.as_fd(), wire, EventData::new_u64(reader.into()), flags)?)
    }

    /// Deregisters `wire`.
    pub(super) fn remove(&self, wire: &WireAtRest) {
        let _ = epoll::delete(self.0.as_fd(), wire);
    }

    /// Waits until there is something to take.
    pub(super) async fn wait_for_events(&self) {
        if let Ok(mut ready) = self.0.readable().await {
            ready.clear_ready();
        }
    }

    /// Takes what there is; says whether there may be more.
    pub(super) fn take(&self, heard: &mut Vec<SocketEvent>) -> bool {
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(self.0.get_ref(), &mut room[..], Some(&at_once)) else {
            return true;
        };
        heard.extend(events.iter().map(|event| {
            let (flags, reader) = (event.flags, event.data.u64() as u32);
            SocketEvent { reader, is_gone: flags.intersects(EventFlags::ERR | EventFlags::HUP) }
        }));
        events.len() == EVENTS_MAX
    }
}
