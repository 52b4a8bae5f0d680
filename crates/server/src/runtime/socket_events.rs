//! The sockets of connections that have no task each: finds those with something to read, with room for a write, or that
//! have ended. All of them have one registration with the runtime. It does not know the connections.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
};

use rustix::event::{
    Timespec,
    epoll::{self, CreateFlags, Event, EventData, EventFlags},
};
use tokio::io::{self as async_io, unix::AsyncFd};

use super::wire::WireAtRest;

/// Events that are taken at once.
const EVENTS_MAX: usize = 256;

/// Sockets, each with the number of its connection.
#[derive(Debug)]
pub(crate) struct Sockets(AsyncFd<OwnedFd>);

/// The events of a socket that are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Something to read, or the end; told again as long as it is there.
    Reading,
    /// The same, and room for a write; each is told once, when it comes.
    Changes,
}

/// An event of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketEvent {
    /// The number of its connection.
    pub(crate) number: u32,
    /// Whether it has something to read, or its client sends no more.
    pub(crate) is_readable: bool,
    /// Whether it has room for a write.
    pub(crate) is_writable: bool,
    /// Whether nothing can be said to it any more.
    pub(crate) is_gone: bool,
}

impl Sockets {
    #[expect(
        unsafe_code,
        reason = "the runtime trusts whoever registers a descriptor to keep it open"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // SAFETY: an owned descriptor stays open, and the same, until it is dropped.
        let registered =
            unsafe { AsyncFd::register_with_interest(epoll, async_io::Interest::READABLE) };
        Ok(Self(registered?))
    }

    /// Registers `wire` under the number of its connection.
    pub(crate) fn add(&self, wire: &WireAtRest, number: u32, interest: Interest) -> io::Result<()> {
        let reading = EventFlags::IN | EventFlags::RDHUP;
        let flags = match interest {
            Interest::Reading => reading,
            Interest::Changes => reading | EventFlags::OUT | EventFlags::ET,
        };
        Ok(epoll::add(self.0.as_fd(), wire, EventData::new_u64(number.into()), flags)?)
    }

    /// Deregisters `wire`.
    pub(crate) fn remove(&self, wire: &WireAtRest) {
        let _ = epoll::delete(self.0.as_fd(), wire);
    }

    /// Waits until there is something to take.
    pub(crate) async fn wait_for_events(&self) {
        if let Ok(mut ready) = self.0.readable().await {
            ready.clear_ready();
        }
    }

    /// Takes what there is; says whether there may be more.
    pub(crate) fn take(&self, heard: &mut Vec<SocketEvent>) -> bool {
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_MAX];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((events, _)) = epoll::wait(self.0.get_ref(), &mut room[..], Some(&at_once)) else {
            return true;
        };
        heard.extend(events.iter().map(|event| {
            let (flags, number) = (event.flags, event.data.u64() as u32);
            SocketEvent {
                number,
                is_readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                is_writable: flags.contains(EventFlags::OUT),
                is_gone: flags.intersects(EventFlags::ERR | EventFlags::HUP),
            }
        }));
        events.len() == EVENTS_MAX
    }
}
