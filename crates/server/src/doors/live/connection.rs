//! One live connection: what it is, what it is subscribed to, and what waits for its socket. It decides nothing.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    rc::Rc,
};

use http::HeaderMap;
use sennit_centrifuge::{
    Answer, Data, DisconnectCode, Disconnected, Encoding, ErrorCode, Push, PushKind, Reply,
    ReplyError, code_reconnects, put_ping, put_push, put_reply,
};
use sennit_model::Timestamp;
use sennit_websocket::{CloseCode, Opcode, frame};
use sennit_wse::Event;
use tokio::time::Instant;

use super::{
    backend::CommandRefusal,
    connection_id::ConnectionId,
    core_requests::{Beginning, SubscriptionStart},
    dialect::{ClientRequest, Dialect, put_centrifuge, put_event},
    format::{Carrier, Format},
    limits::{COMMANDS_A_SECOND_MAX, PUBLISHES_MAX, REFRESH_BEFORE, UNSENT_BYTES_MAX},
    link::Link,
    wse::{self, WseState},
};
use crate::{
    http::addresses::GreetingPlace,
    identity::{key_uses::KeyConnection, principal::Principal, tenant_meter::ConnectionPlace},
    runtime::{clock::now, peer::Peer, write_buffer::TakesNow as _},
};

/// A client that has not said who it is, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) peer: Peer,
    /// Headers of the handshake that an application may be shown.
    pub(crate) headers: HeaderMap,
}

/// By channel: the epoch and the offset of the next message.
pub(crate) type Positions = BTreeMap<String, (String, u64)>;

/// The word of the application on who a client is.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// When it is asked whether the client may stay; not while it is asked, nor where it is not to be.
    pub(crate) ask_at: Option<Timestamp>,
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// It has not said who it is.
    Greeting(Box<Greeting>),
    /// It has, and subscriptions that its token names begin.
    Joining(Box<Joining>),
    /// It is connected on somebody's behalf.
    Connected,
    /// It has been told that it ends.
    Ending,
}

/// The subscriptions that begin before a connect is answered.
#[derive(Debug)]
pub(crate) struct Joining {
    /// How many there are.
    pub(crate) count: usize,
    /// Those of which it is known where they begin.
    pub(crate) starts: Vec<(Beginning, SubscriptionStart)>,
    /// For the client, from the application.
    pub(crate) data: Data,
}

/// What a connection is subscribed to.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The channel, as its client wrote it.
    pub(crate) channel: Rc<str>,
    /// The number of its broadcast, or of its part in a group.
    pub(crate) broadcast: u32,
    /// The offset of the next message that it gets, but in a group.
    pub(crate) next: u64,
    /// Whether its client is told who comes and goes.
    pub(crate) is_told: bool,
    /// On whose behalf it is, where that is not the connection's.
    pub(crate) principal: Option<Box<Principal>>,
    /// Whether its client has not asked for it.
    pub(crate) is_server_side: bool,
    pub(crate) place: Place,
}

/// Where a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this position in the ring of its broadcast.
    Ring(u64),
    /// Behind the ring of a topic that conflates: among the newest frames of each key, at the offset that comes next.
    Newest,
    /// Behind the ring: this reader catches up, and so much of what it was given is not taken.
    Log { reader: u32, owed: (u32, u64) },
    /// In a group, which gives it messages of its own.
    Group,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: ConnectionId,
    pub(crate) link: Link,
    /// Its place among those of its address that have not said who they are, while it has not.
    pub(crate) greeting_place: Option<GreetingPlace>,
    /// Its place among those of its tenant.
    pub(crate) tenant_place: Option<ConnectionPlace>,
    /// The use of its API key, if it has shown one.
    pub(crate) key: Option<KeyConnection>,
    /// When its credentials end by themselves.
    pub(crate) expires: Option<Timestamp>,
    /// If the application has said who it is: it does not show credentials, and asks again instead.
    pub(crate) admission: Option<Box<Admission>>,
    pub(crate) dialect: Dialect,
    pub(crate) phase: Phase,
    /// Whether its client has said that it ends.
    pub(crate) client_has_ended: bool,
    /// On whose behalf it asks; before it is connected, the one whose credentials came with the handshake.
    pub(crate) principal: Principal,
    /// When it came.
    pub(crate) since: Timestamp,
    /// The positions that its client has in channels to which it was subscribed without asking, until it is connected.
    pub(crate) positions: Option<Box<Positions>>,
    pub(crate) subscriptions: Vec<Subscription>,
    /// Requests that have come and were not begun.
    pub(crate) requests: VecDeque<ClientRequest>,
    /// What a connection of WSE has to remember.
    pub(crate) wse: Option<Box<WseState>>,
    /// Whether a command is under way behind which others wait.
    pub(crate) is_busy: bool,
    /// Commands that were begun since it was looked at last, in the half second between two looks.
    pub(crate) begun: u32,
    /// Publications that are not confirmed.
    pub(crate) unconfirmed: usize,
    /// Whether its socket may have something to read.
    pub(crate) is_readable: bool,
    /// Whether its socket takes nothing for now.
    pub(crate) is_blocked: bool,
    /// What goes out before anything of a ring.
    unsent: Vec<u8>,
    /// How much of that the socket has.
    sent: usize,
    /// When it came; later, when it is asked next whether it is there.
    pub(crate) due: Instant,
    /// Whether it was asked, and has not said.
    pub(crate) awaits_pong: bool,
}

/// After how many seconds a client shows other credentials than those that end at `expires`.
pub(crate) fn time_to_refresh(expires: Timestamp, now: Timestamp) -> u32 {
    let left = expires.since(now);
    let left = left.saturating_sub(REFRESH_BEFORE).max(left / 2);
    u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1)
}

impl Connection {
    pub(crate) fn new(
        id: ConnectionId,
        (link, dialect): (Link, Dialect),
        (principal, greeting): (Principal, Greeting),
        due: Instant,
    ) -> Self {
        Self {
            id,
            link,
            greeting_place: None,
            tenant_place: None,
            key: None,
            expires: None,
            admission: None,
            dialect,
            phase: Phase::Greeting(Box::new(greeting)),
            client_has_ended: false,
            principal,
            since: now(),
            positions: None,
            subscriptions: Vec::new(),
            requests: VecDeque::new(),
            wse: (dialect == Dialect::Wse).then(Box::default),
            is_busy: false,
            begun: 0,
            unconfirmed: 0,
            is_readable: true,
            is_blocked: false,
            unsent: Vec::new(),
            sent: 0,
            due,
            awaits_pong: false,
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending)
    }

    /// Whether its next command may be begun.
    pub(crate) fn may_ask(&self) -> bool {
        !self.is_busy
            && !self.is_ending()
            && self.unconfirmed < PUBLISHES_MAX
            && self.begun < COMMANDS_A_SECOND_MAX / 2
            && self.unsent().len() < UNSENT_BYTES_MAX
    }

    /// How its messages are written.
    pub(crate) fn format(&self) -> Format {
        let carrier = match &self.link {
            Link::WebSocket { .. } => Carrier::WebSocket,
            Link::Emulated(link) => link.carrier,
        };
        Format { dialect: self.dialect, carrier }
    }

    /// Bytes that wait for its socket, but for those in rings.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.unsent[self.sent..]
    }

    /// Where what goes out next is encoded: whole frames.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.unsent
    }

    /// The socket has taken so much of it.
    pub(crate) fn note_sent(&mut self, bytes: usize) {
        self.sent += bytes;
        if self.sent == self.unsent.len() {
            // At rest it holds nothing.
            self.unsent = Vec::new();
            self.sent = 0;
        } else if self.sent >= 64 << 10 {
            self.unsent.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Writes what waits, but for rings; whether the socket has all of it.
    pub(crate) fn write_unsent(&mut self) -> io::Result<bool> {
        while !self.unsent().is_empty() {
            match self.link.take(&self.unsent[self.sent..]) {
                Ok(count) => self.note_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes a message of the Centrifuge protocol.
    fn message(&mut self, encoding: Encoding, put: impl FnOnce(Encoding, &mut Vec<u8>)) {
        let mut body = Vec::new();
        put_centrifuge(encoding, &mut body, put);
        self.format().put(&body, &mut self.unsent);
    }

    /// Answers a request.
    pub(crate) fn reply(&mut self, id: u32, result: Result<Answer, ReplyError>) {
        if self.is_ending() {
            return;
        }
        match self.dialect {
            Dialect::Centrifuge(encoding) => {
                self.message(encoding, |encoding, out| {
                    put_reply(encoding, &Reply { id, result }, out);
                });
            }
            Dialect::Wse => {
                let user = self.principal.to_string();
                let Some(wse) = &mut self.wse else { return };
                if let Some(code) = wse.put_answer(id, &user, &result, &mut self.unsent) {
                    let error = result.err().unwrap_or_default();
                    self.end_wse(code, &error.message);
                }
            }
        }
    }

    /// Refuses a request.
    pub(crate) fn refuse(&mut self, id: u32, code: ErrorCode, message: impl Into<String>) {
        self.reply(id, Err(ReplyError::new(code, message)));
    }

    pub(crate) fn push(&mut self, push: &Push) {
        if self.is_ending() {
            return;
        }
        match self.dialect {
            Dialect::Centrifuge(encoding) => {
                self.message(encoding, |encoding, out| put_push(encoding, push, out));
            }
            Dialect::Wse => wse::put_push(push, &mut self.unsent),
        }
    }

    /// Tells a client of WSE something.
    pub(crate) fn tell(&mut self, event: &Event<'_>) {
        if !self.is_ending() {
            put_event(event, &mut self.unsent);
        }
    }

    /// Asks whether its client is there.
    pub(crate) fn ping(&mut self, now: Timestamp) {
        if self.is_ending() {
            return;
        }
        match self.dialect {
            Dialect::Centrifuge(encoding) => self.message(encoding, put_ping),
            Dialect::Wse => {
                self.tell(&Event::Ping { now_ms: now.0.cast_signed() });
                // A client that only listens has a WebSocket that answers this one.
                frame::put_frame(Opcode::Ping, b"", &mut self.unsent);
            }
        }
    }

    pub(crate) fn pong(&mut self, payload: &[u8]) {
        if !self.is_ending() {
            frame::put_frame(Opcode::Pong, payload, &mut self.unsent);
        }
    }

    /// Tells its client that it ends, and why; nothing follows.
    pub(crate) fn end(&mut self, code: DisconnectCode) {
        match self.dialect {
            Dialect::Centrifuge(_) => self.close(CloseCode::of(code.code()), code.reason()),
            Dialect::Wse => {
                let code = wse::close_code(code);
                self.end_wse(code, code.reason());
            }
        }
    }

    /// The same of a connection of WSE, with a message for people.
    pub(crate) fn end_wse(&mut self, code: sennit_wse::CloseCode, message: &str) {
        if !self.is_ending() {
            wse::put_end(code, message, &mut self.unsent);
            self.close(CloseCode::of(code.code()), code.reason());
        }
    }

    /// The same with a code of WebSocket.
    pub(crate) fn close(&mut self, code: Option<CloseCode>, reason: &str) {
        if !self.is_ending() {
            let code = code.unwrap_or(CloseCode::NORMAL);
            match self.link {
                Link::WebSocket { .. } => frame::put_close(code, reason, &mut self.unsent),
                Link::Emulated(_) => {
                    let disconnected = Disconnected {
                        code: code.number().into(),
                        reason: reason.to_owned(),
                        reconnect: code_reconnects(code.number()),
                    };
                    let kind = PushKind::Disconnect(disconnected);
                    self.push(&Push { channel: String::new(), kind });
                }
            }
            self.phase = Phase::Ending;
            self.requests.clear();
        }
    }

    /// A command is not granted.
    pub(crate) fn not_granted(&mut self, id: u32, refusal: CommandRefusal) {
        match refusal {
            CommandRefusal::Refused(error) => self.reply(id, Err(error)),
            CommandRefusal::Ends { code, reason } => {
                self.close(CloseCode::of(code), &reason);
            }
        }
    }

    /// On whose behalf it follows a topic, by the channel of this name.
    pub(crate) fn follower(&self, channel: &str) -> &Principal {
        let held = self.subscription(channel).map(|at| &self.subscriptions[at]);
        held.and_then(|held| held.principal.as_deref()).unwrap_or(&self.principal)
    }

    /// From now on it asks on this principal's behalf.
    pub(crate) fn set_principal(&mut self, principal: Principal) {
        self.key = principal.connect();
        self.expires = principal.expires();
        self.principal = principal;
    }

    /// Whether its credentials have ended by themselves.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }

    /// Whether its client has to show others, and after how many seconds.
    pub(crate) fn time_to_refresh(&self, now: Timestamp) -> Option<u32> {
        if self.admission.is_some() {
            return None;
        }
        Some(time_to_refresh(self.expires?, now))
    }

    /// Its subscription to a channel.
    pub(crate) fn subscription(&self, channel: &str) -> Option<usize> {
        self.subscriptions.iter().position(|held| &*held.channel == channel)
    }
}
