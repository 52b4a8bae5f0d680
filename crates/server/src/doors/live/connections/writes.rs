//! Writing to live connections: what waits for one of them goes first, then the rings of what it is subscribed to, in one
//! call. It decides when to write, and what becomes of one that falls behind.

use std::{collections::VecDeque, io, io::IoSlice};

use sennit_centrifuge::{DisconnectCode, UnsubscribeCode};
use sennit_model::WhenBehind;
use tokio::time::Instant;

use super::LiveConnections;
use crate::{
    doors::live::{
        broadcast::Broadcast,
        connection::{Place, Subscription},
        connection_id::ConnectionId,
        format::Format,
        limits::{
            CLOSE_TIMEOUT, CONNECTIONS_AT_ONCE_MAX, RING_SHARE_BYTES, RINGS_BYTES_MAX,
            UNSENT_BYTES_MAX,
        },
    },
    runtime::write_buffer::{SLICES_MAX, TakesNow as _},
};

/// Bytes of one write.
const WRITE_BYTES_MAX: usize = 256 << 10;

/// Bytes that are copied for one write with TLS.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Connections that are written to next.
#[derive(Debug, Default)]
pub(super) struct ToFlush {
    waiting: VecDeque<ConnectionId>,
}

impl ToFlush {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn add(&mut self, connection: ConnectionId) {
        self.waiting.push_back(connection);
    }
}

/// What became of a write.
enum Written {
    /// The socket has all that there is.
    All,
    /// It takes no more, and whether it has taken what waited beside the rings.
    Blocked { took_unsent: bool },
    /// It has gone.
    Gone,
}

impl LiveConnections {
    /// Writes to some connections; says whether there are more.
    pub(super) fn flush_some(&mut self) -> bool {
        let mut turns = CONNECTIONS_AT_ONCE_MAX;
        while turns > 0
            && let Some(id) = self.to_flush.waiting.pop_front()
        {
            turns -= 1;
            self.flush(id);
        }
        while turns > 0
            && let Some(&number) = self.with_news.front()
        {
            turns = self.flush_broadcast(number, turns);
        }
        self.part_broken();
        !self.to_flush.waiting.is_empty() || !self.with_news.is_empty()
    }

    /// Writes to subscribers of a broadcast, as many as there are turns; says how many are left.
    fn flush_broadcast(&mut self, number: u32, mut turns: usize) -> usize {
        while let Some(broadcast) = self.broadcasts.get(&number) {
            let Some(&id) = broadcast.subscribers.get(broadcast.flushed) else { break };
            if turns == 0 {
                return 0;
            }
            turns -= 1;
            let has_all = self.flush(id);
            if !has_all {
                self.end_if_slow(id, number);
            }
            if let Some(broadcast) = self.broadcasts.get_mut(&number) {
                broadcast.flushed += 1;
                broadcast.is_behind |= !has_all;
            }
        }
        self.with_news.pop_front();
        let is_full = self.rings_bytes > RINGS_BYTES_MAX;
        let Some(broadcast) = self.broadcasts.get_mut(&number) else { return turns };
        let before = broadcast.held();
        if broadcast.is_behind {
            broadcast.shrink(!is_full);
        } else if !broadcast.is_disturbed {
            broadcast.clear();
        }
        self.rings_bytes = self.rings_bytes + broadcast.held() - before;
        (broadcast.has_news, broadcast.flushed, broadcast.is_behind) =
            (broadcast.is_disturbed, 0, false);
        if std::mem::take(&mut broadcast.is_disturbed) {
            self.with_news.push_back(number);
        }
        if before >= RING_SHARE_BYTES || broadcast.topic().is_some() {
            self.give_back_taken(number);
        }
        turns
    }

    /// Lets those go whose sockets have gone.
    pub(super) fn part_broken(&mut self) {
        while let Some(id) = self.broken.pop() {
            if self.get(id).is_some() {
                self.part(id.slot);
            }
        }
    }

    /// Writes what there is for a connection, as much as its socket takes; says whether it needs nothing of a ring any
    /// more.
    pub(super) fn flush(&mut self, id: ConnectionId) -> bool {
        let Some(connection) = self.get(id) else { return true };
        if connection.is_blocked {
            return false;
        }
        let written = self.write(id);
        if !matches!(written, Written::Gone) {
            self.settle_taken(id);
        }
        match written {
            Written::All => {
                let Some(connection) = self.get(id) else { return true };
                if connection.is_ending() {
                    self.close_end(id);
                    return true;
                }
                let mut places = connection.subscriptions.iter().map(|of| of.place);
                let is_in_rings = places.all(|of| matches!(of, Place::Ring(_) | Place::Group));
                if !is_in_rings {
                    self.join_rings(id);
                }
                self.took_all(id);
                is_in_rings
            }
            Written::Blocked { took_unsent } => {
                let Some(connection) = self.get(id) else { return true };
                connection.is_blocked = true;
                let has_room = connection.unsent().len() < UNSENT_BYTES_MAX;
                if took_unsent {
                    self.give_back_catching_up(id);
                }
                if has_room {
                    self.read_on(id);
                }
                false
            }
            Written::Gone => {
                self.broken.push(id);
                true
            }
        }
    }

    /// A connection has room again: what catches up goes on, and what its client asks is read.
    fn took_all(&mut self, id: ConnectionId) {
        self.give_back_catching_up(id);
        self.read_on(id);
    }

    fn read_on(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        if connection.may_ask() && (connection.is_readable || !connection.requests.is_empty()) {
            self.to_read.push(id.slot);
        }
    }

    /// A connection was told that it ends, and its socket has all of it. Its client ends it, or time does.
    fn close_end(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        if connection.client_has_ended || !connection.link.shut_down().unwrap_or_default() {
            return self.broken.push(id);
        }
        connection.due = Instant::now() + CLOSE_TIMEOUT;
        if connection.is_readable {
            self.to_read.push(id.slot);
        }
    }

    fn write(&mut self, id: ConnectionId) -> Written {
        let mut took_unsent = false;
        loop {
            let Some(connection) = self.get(id) else { return Written::Gone };
            match connection.write_unsent() {
                Ok(true) => took_unsent = true,
                Ok(false) => return Written::Blocked { took_unsent },
                Err(_) => return Written::Gone,
            }
            match self.write_rings(id) {
                Ok(0) if self.find_places(id) => {}
                Ok(0) => return Written::All,
                Ok(taken) => self.advance(id, taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Written::Blocked { took_unsent };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Written::Gone,
            }
        }
    }

    /// Offers a socket what the rings have for it; says how much it takes. 0 if they have nothing.
    fn write_rings(&mut self, id: ConnectionId) -> io::Result<usize> {
        let Self { connections, broadcasts, .. } = self;
        let held = connections.get_mut(id.slot as usize).and_then(Option::as_mut);
        let Some(connection) = held else { return Ok(0) };
        if connection.is_ending() {
            return Ok(0);
        }
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (mut count, mut bytes) = (0, 0);
        for subscription in &connection.subscriptions {
            let Some(broadcast) = broadcasts.get(&subscription.broadcast) else { continue };
            let mut offer = |piece| {
                let has_room = count < SLICES_MAX && bytes < WRITE_BYTES_MAX;
                if has_room {
                    slices[count] = IoSlice::new(piece);
                    count += 1;
                    bytes += piece.len();
                }
                has_room
            };
            match subscription.place {
                Place::Ring(position) => {
                    let ring = broadcast.ring(connection.format());
                    if (ring.start()..ring.tail()).contains(&position) {
                        ring.pieces(position).all(offer);
                    }
                }
                Place::Newest => {
                    let next = subscription.next;
                    if let Some(newest) = broadcast.newest(connection.format(), next) {
                        newest.behind(next).all(|(_, frame)| offer(frame));
                    }
                }
                Place::Log { .. } | Place::Group => {}
            }
        }
        let slices = &slices[..count];
        if connection.link.is_plain() {
            return match slices {
                [] => Ok(0),
                [one] => connection.link.take(one),
                some => connection.link.take_slices(some),
            };
        }
        // What TLS has begun to send has to be offered again, whatever becomes of the rings: it is copied.
        let mut room = COPIED_BYTES_MAX;
        for slice in slices {
            let length = slice.len().min(room);
            connection.out().extend_from_slice(&slice[..length]);
            room -= length;
        }
        Ok(COPIED_BYTES_MAX - room)
    }

    /// A connection's socket has taken so much of its rings. The rest of a frame that it has begun is copied: positions
    /// are between frames.
    fn advance(&mut self, id: ConnectionId, mut taken: usize) {
        let Self { connections, broadcasts, .. } = self;
        let held = connections.get_mut(id.slot as usize).and_then(Option::as_mut);
        let Some(connection) = held else { return };
        let format = connection.format();
        let mut rest = Vec::new();
        let mut delivered = 0;
        for subscription in &mut connection.subscriptions {
            if taken == 0 {
                break;
            }
            let Some(broadcast) = broadcasts.get(&subscription.broadcast) else { continue };
            if subscription.place == Place::Newest {
                let Some(newest) = broadcast.newest(format, subscription.next) else { continue };
                for (offset, frame) in newest.behind(subscription.next) {
                    if taken == 0 {
                        break;
                    }
                    let length = taken.min(frame.len());
                    rest.extend_from_slice(frame.get(length..).unwrap_or_default());
                    taken -= length;
                    delivered += 1;
                    subscription.next = offset + 1;
                }
                continue;
            }
            let Place::Ring(position) = subscription.place else { continue };
            let ring = broadcast.ring(format);
            if position >= ring.tail() || position < ring.start() {
                continue;
            }
            let there = (ring.tail() - position) as usize;
            if taken >= there {
                taken -= there;
                delivered += broadcast.next - subscription.next;
                subscription.place = Place::Ring(ring.tail());
                subscription.next = broadcast.next;
                continue;
            }
            let reached = position + taken as u64;
            taken = 0;
            let before = ring.frame_behind(reached - 1);
            if let Some(frame) = before {
                if frame.end > reached {
                    let length = (frame.end - reached) as usize;
                    rest.extend(ring.pieces(reached).flatten().take(length));
                }
                delivered += (frame.offset + 1).saturating_sub(subscription.next);
                subscription.place = Place::Ring(frame.end);
                subscription.next = frame.offset + 1;
            }
        }
        connection.out().extend_from_slice(&rest);
        self.thread_state.metrics.live_deliveries.add(delivered);
    }

    /// Finds places for subscriptions whose place in the ring has gone, as their topics have it, and for those that have all
    /// of the newest frames; says whether there may be more to write.
    fn find_places(&mut self, id: ConnectionId) -> bool {
        let Self { connections, broadcasts, .. } = self;
        let held = connections.get_mut(id.slot as usize).and_then(Option::as_mut);
        let Some(connection) = held else { return false };
        if connection.is_ending() {
            return false;
        }
        let format = connection.format();
        let metrics = &self.thread_state.metrics;
        let (mut to_log, mut has_more, mut is_slow) = (Vec::new(), false, false);
        let mut lost = Vec::new();
        for (at, subscription) in connection.subscriptions.iter_mut().enumerate() {
            let Some(broadcast) = broadcasts.get(&subscription.broadcast) else { continue };
            let next = subscription.next;
            match subscription.place {
                Place::Ring(_) if !is_behind(subscription, broadcast, format) => {}
                Place::Ring(_) if broadcast.live().when_behind == WhenBehind::Disconnect => {
                    is_slow = true;
                }
                Place::Ring(_) if broadcast.newest(format, next).is_some() => {
                    metrics.live_behind_conflated.add(1);
                    subscription.place = Place::Newest;
                    has_more = true;
                }
                Place::Newest => match broadcast.newest(format, next) {
                    Some(newest) if newest.behind(next).next().is_some() => has_more = true,
                    None if next < broadcast.next => to_log.push(at),
                    _ => {
                        subscription.next = broadcast.next;
                        subscription.place = Place::Ring(broadcast.ring(format).tail());
                    }
                },
                // There is no one log from which it could go on.
                Place::Ring(_) if broadcast.pattern().is_some() => {
                    lost.push(subscription.broadcast);
                    has_more = true;
                }
                Place::Ring(_) => {
                    metrics.live_behind_recovered.add(1);
                    to_log.push(at);
                }
                Place::Log { .. } | Place::Group => {}
            }
        }
        if is_slow {
            self.end_slow(id);
            return true;
        }
        for at in to_log {
            self.catch_up(id, at);
        }
        for number in lost {
            self.unsubscribe_from(id, number, UnsubscribeCode::InsufficientState);
        }
        has_more
    }

    /// Ends a connection that takes nothing and has lost its place in the ring of a topic that has it so.
    fn end_if_slow(&mut self, id: ConnectionId, number: u32) {
        let Self { connections, broadcasts, .. } = self;
        let Some(broadcast) = broadcasts.get(&number) else { return };
        if broadcast.live().when_behind != WhenBehind::Disconnect {
            return;
        }
        let held = connections.get(id.slot as usize).and_then(Option::as_ref);
        let Some(connection) = held.filter(|held| held.id == id && !held.is_ending()) else {
            return;
        };
        let mut subscriptions = connection.subscriptions.iter();
        let subscription = subscriptions.find(|held| held.broadcast == number);
        let format = connection.format();
        if subscription.is_some_and(|held| is_behind(held, broadcast, format)) {
            self.end_slow(id);
        }
    }

    /// Tells a connection that it ends because it reads too slowly. It does not have long to take that.
    fn end_slow(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        connection.end(DisconnectCode::Slow);
        connection.due = Instant::now() + CLOSE_TIMEOUT;
        self.thread_state.metrics.live_behind_disconnected.add(1);
    }
}

/// Whether the place of a subscription in the ring has gone, and with it messages that it needs.
fn is_behind(subscription: &Subscription, broadcast: &Broadcast, format: Format) -> bool {
    match subscription.place {
        Place::Ring(position) => {
            position < broadcast.ring(format).start() && subscription.next < broadcast.next
        }
        Place::Newest | Place::Log { .. } | Place::Group => false,
    }
}
