//! A link that is there: one task reads its frames, writes those that wait, and asks every half second whether the other
//! node is there. It knows no other links.

use std::{
    cell::{Cell, RefCell},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::BytesMut;
use sennit_protocol::peer::{Class, Content, PeerFrame, PeerReader};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf, split},
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    link_listener::LinkListener,
    peer_state::{ClusterState, LinkState, PeerState},
    send_queue::{NotSent, SendQueue},
    socket::{LinkFault, wall_ms},
};
use crate::runtime::wire::Wire;

/// How often the other node is asked.
const PING_EVERY: Duration = Duration::from_millis(500);

/// Pings in a row that go without any byte from the other node before the link counts as broken.
const SILENT_PINGS_MAX: u32 = 6;

/// Difference of the clocks beyond which it is warned of.
const SKEW_MAX_MS: u64 = 500;

/// Room for one read.
const READ_BYTES: usize = 64 << 10;

/// A link that is there.
pub(super) struct Link {
    state: Arc<ClusterState>,
    /// The peer's place in `state`.
    peer: usize,
    /// The core, which is the link's number.
    core: usize,
    queue: RefCell<SendQueue>,
    /// What was taken from the queue last is not written yet.
    is_writing: Cell<bool>,
    /// Something waits to be sent.
    waits: Notify,
    /// It is to end.
    ends: Notify,
    /// It is to end, and what it has read says nothing any more: another one may have taken its place.
    is_over: Cell<bool>,
    /// Bytes that have come since the last ping.
    has_heard: Cell<bool>,
    /// The last ping: its number, and when it was sent.
    pinged: Cell<(u64, Instant)>,
    has_warned_of_skew: Cell<bool>,
}

impl Link {
    pub(super) fn new(state: Arc<ClusterState>, peer: usize, core: usize) -> Self {
        Self {
            state,
            peer,
            core,
            queue: RefCell::default(),
            is_writing: Cell::new(false),
            waits: Notify::new(),
            ends: Notify::new(),
            is_over: Cell::new(false),
            has_heard: Cell::new(true),
            pinged: Cell::new((0, Instant::now())),
            has_warned_of_skew: Cell::new(false),
        }
    }

    pub(super) fn peer(&self) -> &PeerState {
        &self.state.peers[self.peer]
    }

    pub(super) fn state(&self) -> &LinkState {
        &self.peer().links[self.core]
    }

    /// Adds a frame behind those of its class.
    pub(super) fn send(&self, frame: PeerFrame) -> Result<(), NotSent> {
        let mut queue = self.queue.borrow_mut();
        queue.push(frame)?;
        self.state().unsent_bytes.set(queue.unsent_bytes() as u64);
        self.waits.notify_one();
        Ok(())
    }

    /// Whether all that was sent is out of this process.
    pub(super) fn has_sent_all(&self) -> bool {
        !self.is_writing.get() && self.queue.borrow().unsent_bytes() == 0
    }

    /// Ends it. Nothing that it has read and not passed on is passed on any more.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        self.ends.notify_one();
    }

    /// Serves the connection until it ends; what came behind the greeting is unread.
    pub(super) async fn serve(
        &self,
        wire: Wire,
        unread: (PeerReader, BytesMut),
        listener: &dyn LinkListener,
    ) -> LinkFault {
        let (receives, sends) = split(wire);
        let ended = tokio::select! {
            ended = self.read(receives, unread, listener) => ended,
            ended = self.write(sends) => ended,
            ended = self.ping() => ended,
            () = self.ends.notified() => Err(LinkFault::Ended),
        };
        ended.err().unwrap_or(LinkFault::Closed)
    }

    /// Takes frames until the other end closes the connection.
    async fn read(
        &self,
        mut receives: ReadHalf<Wire>,
        (mut reader, mut input): (PeerReader, BytesMut),
        listener: &dyn LinkListener,
    ) -> Result<(), LinkFault> {
        loop {
            while let Some(frame) = reader.next_frame(&mut input)? {
                self.take(frame, listener);
            }
            input.reserve(READ_BYTES);
            if receives.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            self.has_heard.set(true);
        }
    }

    /// Writes what waits. Others may add frames while it does.
    async fn write(&self, mut sends: WriteHalf<Wire>) -> Result<(), LinkFault> {
        loop {
            let write = self.queue.borrow_mut().next_write();
            self.is_writing.set(write.is_some());
            self.state().unsent_bytes.set(self.queue.borrow().unsent_bytes() as u64);
            match write {
                Some(mut write) => sends.write_all_buf(&mut write).await?,
                None => self.waits.notified().await,
            }
        }
    }

    /// Asks the other node until it says nothing any more.
    async fn ping(&self) -> Result<(), LinkFault> {
        let mut ticks = interval(PING_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut silent = 0;
        loop {
            ticks.tick().await;
            silent = if self.has_heard.replace(false) { 0 } else { silent + 1 };
            if silent > SILENT_PINGS_MAX {
                return Err(LinkFault::Silent(PING_EVERY * SILENT_PINGS_MAX));
            }
            let number = self.pinged.get().0 + 1;
            self.pinged.set((number, Instant::now()));
            // A queue that takes no ping is a silence too.
            let _ = self.send(urgent(number, Content::Ping { clock_ms: wall_ms() }));
        }
    }

    fn take(&self, frame: PeerFrame, listener: &dyn LinkListener) {
        match frame.content {
            _ if self.is_over.get() => {}
            Content::Ping { .. } => {
                let _ = self.send(urgent(frame.number, Content::Pong { clock_ms: wall_ms() }));
            }
            Content::Pong { clock_ms } => self.take_pong(frame.number, clock_ms),
            _ => listener.on_frame(self.peer().node, frame),
        }
    }

    /// Notes the round trip, and the difference of the clocks: the other one was read in the middle of it.
    fn take_pong(&self, number: u64, clock_ms: u64) {
        let (pinged, at) = self.pinged.get();
        if number != pinged {
            return;
        }
        let round_trip = at.elapsed();
        let skew = skew_ms(clock_ms, wall_ms(), round_trip);
        self.state().round_trip_us.set(u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX));
        self.state().skew_ms.store(skew, Relaxed);
        let is_large = skew.unsigned_abs() > SKEW_MAX_MS;
        if is_large && !self.has_warned_of_skew.get() {
            let peer = self.peer().node;
            tracing::warn!(peer, skew_ms = skew, "the clocks of two nodes differ");
        }
        self.has_warned_of_skew.set(is_large);
    }
}

fn urgent(number: u64, content: Content) -> PeerFrame {
    PeerFrame { class: Class::Urgent, group: 0, number, content }
}

/// How far the other clock is ahead, if it said `theirs` on a way there and back that ended when ours said `ours`.
fn skew_ms(theirs: u64, ours: u64, round_trip: Duration) -> i64 {
    let half = i64::try_from(round_trip.as_millis() / 2).unwrap_or(i64::MAX);
    let difference = i128::from(theirs) - i128::from(ours) + i128::from(half);
    difference.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_clock_was_read_in_the_middle_of_the_round_trip() {
        let ms = Duration::from_millis;
        assert_eq!(skew_ms(1_000, 1_000, ms(0)), 0);
        assert_eq!(skew_ms(1_000, 1_050, ms(100)), 0);
        assert_eq!(skew_ms(1_650, 1_050, ms(100)), 650);
        assert_eq!(skew_ms(500, 1_050, ms(100)), -500);
        assert_eq!(skew_ms(u64::MAX, 0, ms(100)), i64::MAX);
    }
}
