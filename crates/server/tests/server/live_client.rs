//! A client of the live door: the Centrifuge client protocol over a WebSocket of its own, or without one. It knows no test.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read as _, Write as _},
};

use http::{HeaderName, StatusCode};
use sennit_centrifuge::{
    Answer, ChannelRequest, Command, ConnectRequest, ConnectResult, Data, Encoding, FromServer,
    Limits, Publication, PublishRequest, Push, PushKind, Reply, ReplyError, Request,
    SubscribeRequest, SubscribeResult, Token, decode_replies, put_command,
};
use sennit_websocket::{
    Close, CloseCode, Decoder, DecoderLimits, Incoming, Inflater, Opcode,
    client::{UpgradeRequest, put_frame},
};

use crate::{
    browser::{Answer as HttpAnswer, Browser},
    emulated::{Emulated, Form, Http},
    stream::{Dialing, Stream},
    world::Broker,
};

/// A connection.
pub struct LiveClient {
    /// Its id, once it is connected.
    pub id: String,
    pub encoding: Encoding,
    way: Way,
    asked: u32,
    heard: VecDeque<FromServer>,
    /// Pushes that came before an answer that was waited for.
    passed_over: VecDeque<FromServer>,
    /// Whether it answers pings.
    pub is_there: bool,
    /// How the broker has closed it.
    pub closed: Option<Close>,
}

/// What carries its messages.
enum Way {
    WebSocket { stream: Stream, decoder: Decoder, inflater: Inflater },
    Emulated(Emulated),
}

/// A subscription that goes on behind this position.
pub fn recovering(channel: &str, (epoch, offset): (&str, u64)) -> SubscribeRequest {
    SubscribeRequest {
        channel: channel.into(),
        recover: true,
        epoch: epoch.into(),
        offset,
        ..SubscribeRequest::default()
    }
}

/// The answer to a request for a WebSocket, with the connection.
pub fn ask_upgrade(broker: &Broker, request: &UpgradeRequest<'_>) -> (Browser, HttpAnswer) {
    ask_upgrade_by(broker, &broker.dialing, request)
}

/// The same by another way.
fn ask_upgrade_by(
    broker: &Broker,
    dialing: &Dialing,
    request: &UpgradeRequest<'_>,
) -> (Browser, HttpAnswer) {
    let mut browser = Browser::by(broker, dialing);
    let mut bytes = Vec::new();
    request.put(&mut bytes);
    browser.say(&bytes);
    let answer = browser.hear(true);
    (browser, answer)
}

impl LiveClient {
    /// A WebSocket on which nothing was said.
    pub fn open(broker: &Broker, encoding: Encoding, headers: &[(&str, &str)]) -> Self {
        Self::open_by(broker, &broker.dialing, encoding, headers)
    }

    /// The same by another way.
    pub fn open_by(
        broker: &Broker,
        dialing: &Dialing,
        encoding: Encoding,
        headers: &[(&str, &str)],
    ) -> Self {
        let subprotocol = match encoding {
            Encoding::Json => Encoding::JSON_SUBPROTOCOL,
            Encoding::Protobuf => Encoding::PROTOBUF_SUBPROTOCOL,
        };
        let request = UpgradeRequest {
            host: "localhost",
            target: "/connection/websocket",
            key: [7; 16],
            subprotocols: &[subprotocol],
            offers_deflate: true,
            headers,
        };
        let (browser, answer) = ask_upgrade_by(broker, dialing, &request);
        let lines = answer.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let named = lines.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value));
        let status = StatusCode::from_u16(answer.status).unwrap();
        let agreed =
            request.check(status, named).unwrap_or_else(|fault| panic!("{fault}: {answer:?}"));
        assert_eq!(agreed.subprotocol.as_deref(), Some(subprotocol));
        let (stream, unread) = browser.into_parts();
        let limits = DecoderLimits { message_bytes_max: 16 << 20 };
        let decoder = Decoder::of_client(limits, agreed.is_deflate);
        let way = Way::WebSocket { stream, decoder, inflater: Inflater::new() };
        let mut client = Self::over(encoding, way);
        client.decode(&unread);
        client
    }

    fn over(encoding: Encoding, way: Way) -> Self {
        Self {
            id: String::new(),
            encoding,
            way,
            asked: 0,
            heard: VecDeque::new(),
            passed_over: VecDeque::new(),
            is_there: true,
            closed: None,
        }
    }

    /// One without a WebSocket, which begins with what is said first.
    pub fn emulated(broker: &Broker, form: Form, http: Http) -> Self {
        Self::emulated_by(broker, &broker.dialing, form, http)
    }

    /// The same by another way.
    pub fn emulated_by(broker: &Broker, dialing: &Dialing, form: Form, http: Http) -> Self {
        let emulated = Emulated::new(broker.addresses.http, dialing, form, http);
        Self::over(form.encoding(), Way::Emulated(emulated))
    }

    /// What its commands are sent with, if it has no WebSocket.
    pub fn emulation(&mut self) -> &mut Emulated {
        match &mut self.way {
            Way::Emulated(emulated) => emulated,
            Way::WebSocket { .. } => panic!("it has a WebSocket"),
        }
    }

    /// One that has connected, with this token.
    pub fn connect(broker: &Broker, encoding: Encoding, token: &str) -> Self {
        let mut client = Self::open(broker, encoding, &[]);
        client.log_in(token).unwrap();
        client
    }

    /// One that speaks JSON and has connected, where nobody is asked for credentials.
    pub fn of(broker: &Broker) -> Self {
        Self::connect(broker, Encoding::Json, "")
    }

    pub fn log_in(&mut self, token: &str) -> Result<(), ReplyError> {
        let token = Token(token.into());
        let request = ConnectRequest { token, ..ConnectRequest::default() };
        self.log_in_with(request).map(drop)
    }

    /// The same, with all that a client says when it connects.
    pub fn log_in_with(&mut self, request: ConnectRequest) -> Result<ConnectResult, ReplyError> {
        match self.ask(Request::Connect(request))? {
            Answer::Connect(result) => {
                self.id.clone_from(&result.client);
                if let Way::Emulated(emulated) = &mut self.way {
                    emulated.session.clone_from(&result.session);
                    emulated.node.clone_from(&result.node);
                }
                Ok(result)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Says who it is; `None` if the broker ends the connection.
    pub fn try_log_in(&mut self, token: &str) -> Option<Result<(), ReplyError>> {
        let token = Token(token.into());
        let number =
            self.send(Request::Connect(ConnectRequest { token, ..ConnectRequest::default() }));
        match self.hear()? {
            FromServer::Reply(Reply { id, result }) if id == number => Some(result.map(|_| ())),
            other => panic!("{other:?}"),
        }
    }

    /// Says a message of the WebSocket.
    pub fn say(&mut self, opcode: Opcode, message: &[u8]) {
        let mut frame = Vec::new();
        put_frame(opcode, message, [1, 2, 3, 4], &mut frame);
        self.say_bytes(&frame);
    }

    pub fn say_bytes(&mut self, bytes: &[u8]) {
        match &mut self.way {
            Way::WebSocket { stream, .. } => drop(stream.write_all(bytes)),
            Way::Emulated(_) => panic!("it has no WebSocket"),
        }
    }

    /// Sends a request, and returns its number.
    pub fn send(&mut self, request: Request) -> u32 {
        self.asked += 1;
        let command = Command { id: self.asked, request: Some(request) };
        self.say_commands(&[command]);
        self.asked
    }

    /// Sends requests in one message, and returns the number of the last.
    pub fn send_together(&mut self, requests: impl IntoIterator<Item = Request>) -> u32 {
        let mut commands = Vec::new();
        for request in requests {
            self.asked += 1;
            commands.push(Command { id: self.asked, request: Some(request) });
        }
        self.say_commands(&commands);
        self.asked
    }

    fn say_commands(&mut self, commands: &[Command]) {
        let mut message = Vec::new();
        commands.iter().for_each(|command| put_command(self.encoding, command, &mut message));
        if let Way::Emulated(emulated) = &mut self.way {
            return emulated.say(&message);
        }
        let opcode = match self.encoding {
            Encoding::Json => Opcode::Text,
            Encoding::Protobuf => Opcode::Binary,
        };
        self.say(opcode, &message);
    }

    /// Says that it is there.
    fn pong(&mut self) {
        self.say_commands(&[Command { id: 0, request: None }]);
    }

    pub fn ask(&mut self, request: Request) -> Result<Answer, ReplyError> {
        let number = self.send(request);
        self.answer_to(number)
    }

    pub fn answer_to(&mut self, number: u32) -> Result<Answer, ReplyError> {
        loop {
            match self.hear() {
                Some(FromServer::Reply(Reply { id, result })) if id == number => return result,
                Some(other) => self.passed_over.push_back(other),
                None => panic!("no answer comes: {:?}", self.closed),
            }
        }
    }

    pub fn subscribe(&mut self, channel: &str) -> SubscribeResult {
        let request = SubscribeRequest { channel: channel.into(), ..SubscribeRequest::default() };
        self.subscribed(request).unwrap()
    }

    pub fn subscribed(&mut self, request: SubscribeRequest) -> Result<SubscribeResult, ReplyError> {
        match self.ask(Request::Subscribe(request))? {
            Answer::Subscribe(result) => Ok(result),
            other => panic!("{other:?}"),
        }
    }

    pub fn unsubscribe(&mut self, channel: &str) {
        let request = ChannelRequest { channel: channel.into() };
        assert_eq!(self.ask(Request::Unsubscribe(request)), Ok(Answer::Unsubscribe));
    }

    /// A publication of some text, as this encoding has it.
    pub fn publication(&self, channel: &str, text: &str) -> Request {
        let payload = match self.encoding {
            Encoding::Json => format!("{text:?}"),
            Encoding::Protobuf => text.to_owned(),
        };
        let data = Data::of_payload(payload.into_bytes().into());
        Request::Publish(PublishRequest { channel: channel.into(), data, kind: 0 })
    }

    pub fn publish(&mut self, channel: &str, text: &str) -> Result<(), ReplyError> {
        self.ask(self.publication(channel, text)).map(|_| ())
    }

    /// What comes next, but for pings; `None` once the broker has closed the connection.
    pub fn next(&mut self) -> Option<FromServer> {
        self.passed_over.pop_front().or_else(|| self.hear())
    }

    /// The next push.
    pub fn push(&mut self) -> (String, PushKind) {
        match self.next() {
            Some(FromServer::Push(push)) => (push.channel, push.kind),
            other => panic!("no push, but {other:?}, {:?}", self.closed),
        }
    }

    /// The next push, which is a publication.
    pub fn published(&mut self) -> (String, Publication) {
        match self.push() {
            (channel, PushKind::Publication(publication)) => (channel, publication),
            other => panic!("no publication, but {other:?}"),
        }
    }

    /// The offsets of so many publications that come next, all of them of `channel`.
    pub fn offsets(&mut self, channel: &str, count: usize) -> Vec<u64> {
        let mut next = || {
            let (of, publication) = self.published();
            assert_eq!(of, channel);
            publication.offset
        };
        (0..count).map(|_| next()).collect()
    }

    /// The channel and offset of a publication that came before the last answer.
    pub fn heard_already(&mut self) -> Option<(String, u64)> {
        match self.passed_over.pop_front()? {
            FromServer::Push(push) => match push.kind {
                PushKind::Publication(publication) => Some((push.channel, publication.offset)),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// How the broker closes the connection: all that comes before is passed over.
    pub fn close(&mut self) -> Close {
        while self.hear().is_some() {}
        self.closed.clone().expect("a close")
    }

    fn hear(&mut self) -> Option<FromServer> {
        loop {
            match self.heard.pop_front() {
                Some(FromServer::Ping) if self.is_there => self.pong(),
                Some(FromServer::Ping) => {}
                Some(heard) => return Some(heard),
                None if self.closed.is_some() || self.read() == 0 => return None,
                None => {}
            }
        }
    }

    /// Reads what has come.
    pub fn read(&mut self) -> usize {
        let mut bytes = [0; 64 << 10];
        let stream = match &mut self.way {
            Way::WebSocket { stream, .. } => stream,
            Way::Emulated(emulated) => {
                let Some(messages) = emulated.hear() else { return 0 };
                messages.iter().for_each(|message| self.take(message));
                return messages.len();
            }
        };
        match stream.read(&mut bytes) {
            Ok(count) => {
                self.decode(&bytes[..count]);
                count
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing comes: {error}"),
        }
    }

    fn decode(&mut self, mut input: &[u8]) {
        loop {
            let Way::WebSocket { decoder, inflater, .. } = &mut self.way else { return };
            let Some(message) = decoder.next(&mut input, inflater).unwrap() else { return };
            let bytes = match message {
                Incoming::Text(text) => text.into_bytes(),
                Incoming::Binary(bytes) => bytes,
                Incoming::Close(close) => {
                    self.closed = Some(close);
                    continue;
                }
                _ => continue,
            };
            self.take(&bytes);
        }
    }

    /// Takes a message.
    fn take(&mut self, message: &[u8]) {
        let limits = Limits { message_bytes_max: 16 << 20, ..Limits::default() };
        for heard in decode_replies(self.encoding, message, limits).map(Result::unwrap) {
            match heard {
                FromServer::Push(Push { kind: PushKind::Disconnect(told), .. }) => {
                    let code = CloseCode::of(u16::try_from(told.code).unwrap());
                    self.closed = Some(Close { code, reason: told.reason });
                }
                heard => self.heard.push_back(heard),
            }
        }
    }
}

/// Data as a client of its encoding has sent it: text.
pub fn text_of(encoding: Encoding, data: &Data) -> String {
    let text = String::from_utf8(data.as_bytes().to_vec()).unwrap();
    match encoding {
        Encoding::Json => serde_json::from_str(&text).unwrap(),
        Encoding::Protobuf => text,
    }
}
