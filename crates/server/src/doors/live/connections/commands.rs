//! What clients of live connections ask, and what they are answered. Commands of a connection are done in their order.

use std::{collections::BTreeMap, io, rc::Rc};

use bytes::BufMut as _;
use sennit_centrifuge::{
    Answer, Command, ConnectRequest, ConnectResult, Data, DisconnectCode, Encoding, ErrorCode,
    Limits, PublishRequest, RefreshRequest, RefreshResult, Request, RpcRequest, SubRefreshRequest,
    SubRefreshResult, SubscribeRequest, SubscribeResult, decode_commands,
};
use sennit_websocket::Incoming;
use tokio::time::Instant;

use super::{LiveConnections, server_subscriptions::subscribed, wse};
use crate::{
    doors::live::{
        backend::BackendAsk,
        channel::{pattern_of, topic_of},
        connection::{Connection, Greeting, Phase, Positions, time_to_refresh},
        connection_id::{ClientId, ConnectionId},
        core_requests::{Asker, Beginning, Cause, LetIn, ShownToken, SubscriptionRefresh, Told},
        dialect::{ClientRequest, Dialect},
        format::Format,
        group_channel::{subscription_of, verbs},
        limits::{
            COMMANDS_MAX, CONNECTIONS_AT_ONCE_MAX, MESSAGE_BYTES_MAX, PRESENCE_DATA_BYTES_MAX,
            SUBSCRIPTIONS_MAX,
        },
        link::Link,
        settlement::OWN_METHODS,
    },
    identity::{
        login::{Credential, LoginRefusal},
        principal::Principal,
        tenant_meter::TenantMeter,
    },
    runtime::clock::now,
};

/// Bytes of a read.
const READ_BYTES: usize = 64 << 10;

/// Reads of a connection before others have their turn.
const READS_MAX: usize = 4;

/// What is decoded of the messages of clients.
pub(crate) const LIMITS: Limits = Limits {
    message_bytes_max: MESSAGE_BYTES_MAX,
    commands_max: COMMANDS_MAX,
    depth_max: Limits::DEPTH_MAX,
    entries_max: Limits::ENTRIES_MAX,
};

/// Makes requests of a message; whether its client has said that it is there.
fn take(connection: &mut Connection, message: &[u8]) -> bool {
    match connection.dialect {
        Dialect::Centrifuge(encoding) => take_commands(connection, encoding, message),
        Dialect::Wse => wse::take_message(connection, message),
    }
}

/// The same of a message in the Centrifuge protocol.
fn take_commands(connection: &mut Connection, encoding: Encoding, message: &[u8]) -> bool {
    let mut pongs = false;
    for command in decode_commands(encoding, message, LIMITS) {
        match command {
            Ok(command) if command.is_pong() => pongs = true,
            Ok(command) => {
                connection.requests.push_back(ClientRequest::Centrifuge(Box::new(command)))
            }
            Err(error) => {
                tracing::debug!(%error, "a live client sent what is no command");
                connection.end(DisconnectCode::BadRequest);
                break;
            }
        }
    }
    pongs
}

impl LiveConnections {
    /// The id of a connection, as clients have it: no other connection of this broker has it.
    pub(super) fn client_id(&self, id: ConnectionId) -> String {
        ClientId { core: self.core.index, connection: id }.to_string()
    }

    /// Serves connections with something to read, or to do; says whether there are more.
    pub(super) fn serve_readable(&mut self) -> bool {
        let mut serving = std::mem::take(&mut self.to_read);
        let later = serving.split_off(serving.len().min(CONNECTIONS_AT_ONCE_MAX));
        for slot in serving {
            self.serve(slot);
        }
        self.to_read.extend(later);
        self.part_broken();
        !self.to_read.is_empty()
    }

    fn serve(&mut self, slot: u32) {
        let mut reads = 0;
        loop {
            self.do_requests(slot);
            let Some(connection) = self.at(slot) else { return };
            let id = connection.id;
            let may_read = connection.is_ending() || connection.may_ask();
            if !may_read || !connection.is_readable {
                return self.to_flush.add(id);
            }
            if reads == READS_MAX {
                self.to_flush.add(id);
                return self.to_read.push(slot);
            }
            reads += 1;
            if self.receive(slot).is_err() {
                return self.broken.push(id);
            }
        }
    }

    /// Reads what has come for a connection, some of it; an error once its client has gone.
    fn receive(&mut self, slot: u32) -> io::Result<()> {
        let mut room = std::mem::take(&mut self.read);
        room.clear();
        let Some(connection) = self.at(slot) else { return Ok(()) };
        let read = match &mut connection.link {
            Link::WebSocket { wire, .. } => wire.read_now(&mut (&mut room).limit(READ_BYTES)),
            Link::Emulated(link) => {
                match link.next() {
                    Some(message) => self.take_message(slot, &message),
                    None => connection.is_readable = false,
                }
                self.read = room;
                return Ok(());
            }
        };
        match read {
            Ok(Some(1..)) => self.decode(slot, &room),
            Ok(None) => connection.is_readable = false,
            Ok(Some(0)) | Err(_) => {}
        }
        self.read = room;
        match read {
            Ok(Some(0)) => Err(io::ErrorKind::UnexpectedEof.into()),
            read => read.map(drop),
        }
    }

    /// Makes requests of what has come.
    pub(super) fn decode(&mut self, slot: u32, mut input: &[u8]) {
        let held = self.connections.get_mut(slot as usize).and_then(Option::as_mut);
        let Some(connection) = held else { return };
        let mut pongs = false;
        // Nothing counts that comes behind the end: it is thrown away, not kept.
        while !connection.is_ending() {
            let Link::WebSocket { decoder, .. } = &mut connection.link else { return };
            match decoder.next(&mut input, &mut self.inflater) {
                Ok(None) => break,
                Ok(Some(Incoming::Ping(payload))) => connection.pong(&payload),
                Ok(Some(Incoming::Pong(_))) => pongs |= connection.dialect == Dialect::Wse,
                Ok(Some(Incoming::Close(close))) => {
                    connection.client_has_ended = true;
                    connection.close(close.code, "");
                }
                Ok(Some(Incoming::Text(text))) => pongs |= take(connection, text.as_bytes()),
                Ok(Some(Incoming::Binary(bytes))) => pongs |= take(connection, &bytes),
                Err(fault) => connection.close(Some(fault.close_code()), &fault.to_string()),
            }
        }
        if pongs {
            self.heard_pong(slot);
        }
    }

    /// Makes requests of a message.
    fn take_message(&mut self, slot: u32, message: &[u8]) {
        let Some(connection) = self.at(slot) else { return };
        if !connection.is_ending() && take(connection, message) {
            self.heard_pong(slot);
        }
    }

    /// Does what a connection has asked, up to what others have to wait for.
    fn do_requests(&mut self, slot: u32) {
        while let Some(connection) = self.at(slot) {
            let id = connection.id;
            if !connection.may_ask() {
                return;
            }
            let Some(request) = connection.requests.pop_front() else { return };
            connection.begun += 1;
            match request {
                ClientRequest::Centrifuge(command) => self.command(id, *command),
                ClientRequest::Wse(request) => self.wse_request(id, request),
            }
        }
    }

    fn command(&mut self, id: ConnectionId, command: Command) {
        let Command { id: number, request } = command;
        let Some(connection) = self.get(id) else { return };
        let is_connected = matches!(connection.phase, Phase::Connected);
        if is_connected && connection.has_expired(now()) {
            return connection.end(DisconnectCode::Expired);
        }
        let Some(request) = request else { return connection.end(DisconnectCode::BadRequest) };
        if is_connected == matches!(request, Request::Connect(_)) {
            return connection.end(DisconnectCode::BadRequest);
        }
        if number == 0 && !matches!(request, Request::Send(_)) {
            return connection.end(DisconnectCode::BadRequest);
        }
        match request {
            Request::Connect(request) => self.connect(id, number, request),
            Request::Subscribe(request) => self.subscribe(id, number, request),
            Request::Unsubscribe(request) => {
                if let Some(at) = connection.subscription(&request.channel) {
                    let held = connection.subscriptions.swap_remove(at);
                    let format = connection.format();
                    connection.reply(number, Ok(Answer::Unsubscribe));
                    self.leave(id, format, held.broadcast, held.place);
                } else {
                    connection.reply(number, Ok(Answer::Unsubscribe));
                }
            }
            Request::Publish(request) => self.publish(id, number, request),
            Request::History(request) => self.history(id, number, request),
            Request::Refresh(request) => self.refresh(id, number, &request),
            Request::Ping => connection.reply(number, Ok(Answer::Ping)),
            // Nobody takes these.
            Request::Send(_) => {}
            Request::Presence(request) => self.presence(id, number, &request.channel, false),
            Request::PresenceStats(request) => self.presence(id, number, &request.channel, true),
            Request::Rpc(request) if request.method.starts_with(OWN_METHODS) => {
                self.settle_for_client(id, number, &request);
            }
            Request::Rpc(request) => self.call_application(id, number, request),
            Request::SubRefresh(request) => self.refresh_subscription(id, number, request),
        }
    }

    fn connect(&mut self, id: ConnectionId, number: u32, mut request: ConnectRequest) {
        let Some(connection) = self.get(id) else { return };
        connection.is_busy = true;
        let recovers = std::mem::take(&mut request.subs).into_iter().filter(|(_, of)| of.recover);
        let positions: Positions =
            recovers.map(|(channel, of)| (channel, (of.epoch, of.offset))).collect();
        connection.positions = (!positions.is_empty()).then(|| Box::new(positions));
        let token = request.token.as_str();
        if token.is_empty() && connection.principal.is_known() {
            // The handshake has shown who it is.
            let principal = connection.principal.clone();
            return self.connected(id, number, principal, Data::default());
        }
        let credential = match token {
            "" => Credential::None,
            token => Credential::Key(token.to_owned()),
        };
        let Phase::Greeting(greeting) = &connection.phase else { return };
        let Greeting { peer, headers } = Greeting::clone(greeting);
        let backend = self.requests.backend();
        if token.is_empty() && backend.is_some_and(|backend| backend.is_asked(BackendAsk::Connect))
        {
            let asker = self.asker(id);
            return self.requests.let_in(id, number, asker, request, (peer, headers));
        }
        self.requests.log_in(id, number, credential, peer);
    }

    /// A client shows other credentials, before those that it has expire.
    fn refresh(&mut self, id: ConnectionId, number: u32, request: &RefreshRequest) {
        let Some(connection) = self.get(id) else { return };
        if request.token.is_empty() {
            let detail = "a refresh has a token";
            return connection.refuse(number, ErrorCode::BadRequest, detail);
        }
        connection.is_busy = true;
        let credential = Credential::Key(request.token.as_str().to_owned());
        let peer = connection.link.peer();
        self.requests.log_in(id, number, credential, peer);
    }

    fn refreshed(&mut self, id: ConnectionId, number: u32, principal: Principal) {
        let client = self.client_id(id);
        let Some(connection) = self.get(id) else { return };
        connection.is_busy = false;
        // Subscriptions and quotas are those of one principal.
        let is_another = principal.to_string() != connection.principal.to_string()
            || principal.tenant() != connection.principal.tenant();
        if is_another {
            return connection.end(DisconnectCode::InvalidToken);
        }
        connection.set_principal(principal);
        let refresh = connection.time_to_refresh(now());
        let result = RefreshResult {
            client,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            expires: refresh.is_some(),
            ttl_s: refresh.unwrap_or_default(),
        };
        connection.reply(number, Ok(Answer::Refresh(result)));
        self.look_at_rights_of(id);
    }

    /// An answer has come for a connection.
    pub(super) fn hear(&mut self, id: ConnectionId, told: Told) {
        let Some(connection) = self.get(id) else { return };
        match told {
            Told::LoggedIn(number, Ok(principal))
                if matches!(connection.phase, Phase::Connected) =>
            {
                self.refreshed(id, number, principal);
            }
            Told::LoggedIn(number, Ok(principal)) => {
                self.connected(id, number, principal, Data::default());
            }
            Told::LetIn(number, Ok(LetIn { principal, data })) => {
                connection.admission = Some(Box::default());
                self.connected(id, number, principal, data);
                self.ask_before_end(id);
            }
            Told::KeptIn(kept) => self.hear_kept_in(id, kept),
            Told::LetIn(number, Err(refusal)) => {
                connection.is_busy = false;
                connection.not_granted(number, refusal);
            }
            Told::LoggedIn(number, Err(refusal)) => {
                connection.is_busy = false;
                match refusal {
                    LoginRefusal::Expired => {
                        connection.refuse(number, ErrorCode::TokenExpired, refusal.to_string());
                    }
                    LoginRefusal::NotReady => {
                        connection.refuse(number, ErrorCode::Internal, refusal.to_string());
                    }
                    LoginRefusal::TooMany(_) => {
                        connection.refuse(number, ErrorCode::TooManyRequests, refusal.to_string());
                    }
                    _ if connection.dialect == Dialect::Wse => {
                        let code = sennit_wse::CloseCode::AuthFailed;
                        connection.end_wse(code, &refusal.to_string());
                    }
                    _ => connection.end(DisconnectCode::InvalidToken),
                }
            }
            Told::Begins(beginning, start) => match beginning.cause {
                Cause::Client => {
                    connection.is_busy = false;
                    let command = beginning.command;
                    match start {
                        Ok(start) => {
                            let begun = self.begin_at(id, beginning, start);
                            let Some(connection) = self.get(id) else { return };
                            connection.reply(command, begun.map(Answer::Subscribe));
                        }
                        Err(refusal) => connection.not_granted(command, refusal),
                    }
                }
                Cause::Token => self.hear_start(id, beginning, start),
                Cause::Program(_) => self.begin_for_program(id, beginning, start),
            },
            Told::Refreshes(refresh, Ok(principal)) => {
                self.refreshed_subscription(id, refresh, principal)
            }
            Told::Refreshes(refresh, Err(error)) => {
                connection.is_busy = false;
                connection.reply(refresh.command, Err(error));
            }
            Told::HasHistory(question, Ok(kept)) => self.begin_history(id, question, kept),
            Told::HasHistory(question, Err(error)) => {
                connection.is_busy = false;
                connection.reply(question.command, Err(error));
            }
            Told::HasPresence(question, Ok(())) => self.ask_presence(id, question),
            Told::HasPresence(question, Err(error)) => {
                connection.is_busy = false;
                connection.reply(question.command, Err(error));
            }
            Told::Handed => connection.is_busy = false,
            Told::Done(number, outcome) => {
                connection.unconfirmed -= 1;
                match outcome {
                    Ok(answer) => connection.reply(number, Ok(answer)),
                    Err(refusal) => connection.not_granted(number, refusal),
                }
            }
        }
        self.to_flush.add(id);
        self.to_read.push(id.slot);
    }

    /// A client has said who it is.
    fn connected(&mut self, id: ConnectionId, number: u32, principal: Principal, data: Data) {
        let Some(connection) = self.get(id) else { return };
        connection.is_busy = false;
        match principal.meter().map(TenantMeter::connect).transpose() {
            Ok(place) => connection.tenant_place = place,
            Err(over) => {
                tracing::debug!(%over, "a live connection was refused");
                return connection.end(DisconnectCode::ConnectionLimit);
            }
        }
        connection.set_principal(principal.clone());
        match principal.channels() {
            [] => self.answer_connect(id, number, BTreeMap::new(), data),
            channels => self.begin_of_token(id, number, channels, data),
        }
    }

    /// A client is connected, with the subscriptions that its token names.
    pub(super) fn answer_connect(
        &mut self,
        id: ConnectionId,
        number: u32,
        subs: BTreeMap<String, SubscribeResult>,
        data: Data,
    ) {
        let (ping_interval, client) = (self.rules.ping_interval, self.client_id(id));
        let (session, node) = self.session_of(id);
        let Some(connection) = self.get(id) else { return };
        connection.is_busy = false;
        connection.positions = None;
        let refresh = connection.time_to_refresh(now());
        // Clients of WSE are told of each.
        let told = if connection.dialect == Dialect::Wse { subs.clone() } else { BTreeMap::new() };
        let result = ConnectResult {
            subs,
            client,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            expires: refresh.is_some(),
            ttl_s: refresh.unwrap_or_default(),
            ping_s: u32::try_from(ping_interval.as_secs().max(1)).unwrap_or(u32::MAX),
            pong: true,
            data,
            session,
            node,
            ..ConnectResult::default()
        };
        connection.phase = Phase::Connected;
        connection.greeting_place = None;
        connection.due = Instant::now() + ping_interval;
        connection.reply(number, Ok(Answer::Connect(result)));
        for (channel, result) in told {
            connection.push(&subscribed(&channel, result));
        }
        let user = connection.principal.user_name();
        self.users.add(&user, id);
    }

    /// A connection, as it asks for something.
    pub(super) fn asker(&mut self, id: ConnectionId) -> Asker {
        let info = self.client_info(id);
        let held = self.get(id);
        let format = held.as_ref().map_or(Format::ALL[0], |connection| connection.format());
        let principal = held.map_or_else(Principal::nobody, |held| held.principal.clone());
        Asker { principal, info, format }
    }

    /// A method of the application is called.
    fn call_application(&mut self, id: ConnectionId, number: u32, request: RpcRequest) {
        let backend = self.requests.backend();
        let is_asked = backend.is_some_and(|backend| backend.is_asked(BackendAsk::Rpc));
        let Some(connection) = self.get(id) else { return };
        if !is_asked {
            let detail = "no application answers calls here: live.backend_asks does not have rpc";
            return connection.refuse(number, ErrorCode::NotAvailable, detail);
        }
        connection.unconfirmed += 1;
        let asker = self.asker(id);
        self.requests.call(id, number, asker, request);
    }

    /// A subscription is to go on with another token.
    fn refresh_subscription(&mut self, id: ConnectionId, number: u32, request: SubRefreshRequest) {
        let Some(connection) = self.get(id) else { return };
        let held = connection.subscription(&request.channel);
        if held.is_none_or(|at| connection.subscriptions[at].principal.is_none()) {
            let detail = "there is no subscription with a token to this channel";
            return connection.refuse(number, ErrorCode::BadRequest, detail);
        }
        connection.is_busy = true;
        let user = connection.principal.user_name();
        let refresh = SubscriptionRefresh { command: number, channel: request.channel };
        let shown = ShownToken { text: request.token, peer: connection.link.peer() };
        self.requests.refresh(id, user, refresh, shown);
    }

    fn refreshed_subscription(
        &mut self,
        id: ConnectionId,
        refresh: SubscriptionRefresh,
        principal: Principal,
    ) {
        let SubscriptionRefresh { command, channel } = refresh;
        let Some(connection) = self.get(id) else { return };
        connection.is_busy = false;
        let Some(at) = connection.subscription(&channel) else {
            return connection.refuse(command, ErrorCode::BadRequest, "the subscription has ended");
        };
        let may = subscription_of(&channel).is_ok_and(|(topic, group)| {
            let mut verbs = verbs(group.as_ref()).iter();
            verbs.all(|verb| principal.may(*verb, topic.as_str()).is_ok())
        });
        if !may {
            let detail = "the token does not allow this subscription";
            return connection.refuse(command, ErrorCode::PermissionDenied, detail);
        }
        let ttl_s = principal.expires().map(|at| time_to_refresh(at, now()));
        connection.subscriptions[at].principal = Some(Box::new(principal));
        let result =
            SubRefreshResult { expires: ttl_s.is_some(), ttl_s: ttl_s.unwrap_or_default() };
        connection.reply(command, Ok(Answer::SubRefresh(result)));
    }

    pub(super) fn subscribe(&mut self, id: ConnectionId, number: u32, request: SubscribeRequest) {
        let tells_all = self.rules.tells_all;
        let Some(connection) = self.get(id) else { return };
        if let Some(pattern) = pattern_of(&request.channel) {
            return self.subscribe_to_pattern(id, number, &request, pattern);
        }
        let (topic, group) = match subscription_of(&request.channel) {
            Ok(meant) => meant,
            Err(error) => {
                return connection.refuse(number, ErrorCode::BadRequest, error.to_string());
            }
        };
        if request.kind != 0 {
            let detail = "subscriptions are to streams: other types are not served";
            return connection.refuse(number, ErrorCode::BadRequest, detail);
        }
        if connection.subscription(&request.channel).is_some() {
            let detail = ErrorCode::AlreadySubscribed.message();
            return connection.refuse(number, ErrorCode::AlreadySubscribed, detail);
        }
        if connection.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            let detail = format!("SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}");
            return connection.refuse(number, ErrorCode::LimitExceeded, detail);
        }
        if request.data.as_bytes().len() > PRESENCE_DATA_BYTES_MAX {
            let detail = format!("PRESENCE_DATA_BYTES_MAX is {PRESENCE_DATA_BYTES_MAX}");
            return connection.refuse(number, ErrorCode::LimitExceeded, detail);
        }
        let shown = |text| ShownToken { text, peer: connection.link.peer() };
        let token = Some(request.token).filter(|token| !token.is_empty()).map(shown);
        let channel: Rc<str> = request.channel.into();
        let rejects_unrecovered = request.flag & SubscribeRequest::REJECT_UNRECOVERED != 0;
        let recovers = request.recover.then_some((request.epoch, request.offset));
        let beginning = Beginning {
            command: number,
            channel,
            topic,
            group,
            recovers,
            rejects_unrecovered,
            is_told: request.join_leave || tells_all,
            data: request.data,
            token,
            principal: None,
            answer: Data::default(),
            cause: Cause::Client,
            interest: None,
        };
        // A token for the subscription is looked at first.
        if beginning.token.is_none()
            && let Err(error) = beginning.check_rights(&connection.principal)
        {
            return connection.reply(number, Err(error));
        }
        connection.is_busy = true;
        let asker = self.asker(id);
        self.requests.begin(id, asker, beginning);
    }

    pub(super) fn publish(&mut self, id: ConnectionId, number: u32, request: PublishRequest) {
        let Some(connection) = self.get(id) else { return };
        let topic = match topic_of(&request.channel) {
            Ok(topic) => topic,
            Err(error) => {
                return connection.refuse(number, ErrorCode::BadRequest, error.to_string());
            }
        };
        if request.data.is_absent() && connection.dialect == Dialect::Centrifuge(Encoding::Json) {
            let detail = "a publication has data";
            return connection.refuse(number, ErrorCode::BadRequest, detail);
        }
        connection.is_busy = true;
        connection.unconfirmed += 1;
        let asker = self.asker(id);
        self.requests.publish(id, asker, number, (topic, request.channel), request.data);
    }
}
