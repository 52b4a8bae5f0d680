//! A client of the WSE protocol over a WebSocket of its own. It keeps positions as PyPI's `wse-client` does. It knows no test.

use std::{
    collections::{HashMap, VecDeque},
    io::{ErrorKind, Read as _, Write as _},
};

use http::{HeaderName, StatusCode};
use sennit_websocket::{
    Close, CloseCode, Decoder, DecoderLimits, Incoming, Inflater, Opcode,
    client::{UpgradeRequest, put_frame},
};
use serde_json::{Value, json};

use crate::{live_client::ask_upgrade, stream::Stream, world::Broker};

/// A client of the protocol.
pub struct WseClient {
    pub stream: Stream,
    decoder: Decoder,
    inflater: Inflater,
    heard: VecDeque<Value>,
    /// Where it is, by topic: epoch and offset. It checks that nothing is missing and nothing comes twice.
    pub positions: HashMap<String, (String, u64)>,
    /// Whether it answers pings.
    pub is_there: bool,
    pub pings: u32,
    pub closed: Option<Close>,
}

impl WseClient {
    pub fn open(broker: &Broker, target: &str, headers: &[(&str, &str)]) -> Self {
        let request = UpgradeRequest {
            host: "localhost",
            target,
            key: [7; 16],
            subprotocols: &[],
            offers_deflate: true,
            headers,
        };
        let (browser, answer) = ask_upgrade(broker, &request);
        let lines = answer.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let named = lines.map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value));
        let status = StatusCode::from_u16(answer.status).unwrap();
        let agreed =
            request.check(status, named).unwrap_or_else(|fault| panic!("{fault}: {answer:?}"));
        let (stream, unread) = browser.into_parts();
        let limits = DecoderLimits { message_bytes_max: 16 << 20 };
        let mut client = Self {
            stream,
            decoder: Decoder::of_client(limits, agreed.is_deflate),
            inflater: Inflater::new(),
            heard: VecDeque::new(),
            positions: HashMap::new(),
            is_there: true,
            pings: 0,
            closed: None,
        };
        client.decode(&unread);
        client
    }

    /// One that was told that it is logged in.
    pub fn connect(broker: &Broker, headers: &[(&str, &str)]) -> Self {
        let mut client = Self::open(broker, "/wse?client_version=2.0.7", headers);
        assert_eq!(client.event("server_ready")["details"]["features"]["recovery"], true);
        client
    }

    pub fn of(broker: &Broker) -> Self {
        Self::connect(broker, &[])
    }

    pub fn say(&mut self, message: &Value) {
        self.say_bytes(Opcode::Text, message.to_string().as_bytes());
    }

    pub fn say_bytes(&mut self, opcode: Opcode, message: &[u8]) {
        let mut frame = Vec::new();
        put_frame(opcode, message, [1, 2, 3, 4], &mut frame);
        let _ = self.stream.write_all(&frame);
    }

    pub fn update(&mut self, payload: Value) {
        self.say(&json!({"c": "WSE", "t": "subscription_update", "p": payload}));
    }

    pub fn ask_for(&mut self, topic: &str) {
        self.update(json!({"action": "subscribe", "topics": [topic]}));
    }

    /// Subscribes to a topic; returns the position.
    pub fn subscribe(&mut self, topic: &str) -> Value {
        self.ask_for(topic);
        let told = self.event("subscription_update");
        assert_eq!(told["success_topics"], json!([topic]), "{told}");
        told["recovery"][topic].clone()
    }

    /// The same behind a position.
    pub fn recover(&mut self, topic: &str, epoch: &str, offset: u64) -> Value {
        let recovery = json!({topic: {"epoch": epoch, "offset": offset}});
        let asked = json!({"action": "subscribe", "topics": [topic], "recover": true, "recovery": recovery});
        self.update(asked);
        let told = self.event("subscription_update");
        assert_eq!(told["success_topics"], json!([topic]), "{told}");
        told["recovery"][topic].clone()
    }

    pub fn publish(&mut self, topic: &str, payload: Value) {
        self.say(&json!({"c": "U", "t": topic, "p": payload, "cid": "q"}));
    }

    /// What comes next; pings are answered. `None` once the broker has closed the connection.
    pub fn next(&mut self) -> Option<Value> {
        loop {
            let Some(heard) = self.heard.pop_front() else {
                if self.closed.is_some() || self.read() == 0 {
                    return None;
                }
                continue;
            };
            if heard["t"] == "ping" && heard["c"] == "WSE" {
                self.pings += 1;
                if self.is_there {
                    self.say(&json!({"c": "WSE", "t": "PONG", "p": {}}));
                }
                continue;
            }
            self.follow(&heard);
            return Some(heard);
        }
    }

    /// Keeps positions, as `wse-client` does.
    fn follow(&mut self, heard: &Value) {
        if heard["t"] == "subscription_update" {
            for (topic, position) in heard["p"]["recovery"].as_object().into_iter().flatten() {
                if position["recovered"] == false {
                    let epoch = position["epoch"].as_str().unwrap().to_owned();
                    let position = (epoch, position["offset"].as_u64().unwrap());
                    self.positions.insert(topic.clone(), position);
                }
            }
        }
        let (Some(topic), Some(epoch)) = (heard["tp"].as_str(), heard["e"].as_str()) else {
            return;
        };
        let offset = heard["o"].as_u64().unwrap();
        if let Some((of, last)) = self.positions.get(topic)
            && of == epoch
        {
            assert_eq!(offset, last + 1, "{topic}: something is missing, or comes twice");
        }
        self.positions.insert(topic.to_owned(), (epoch.to_owned(), offset));
    }

    /// The payload of the next thing that comes, which is of this type.
    pub fn event(&mut self, kind: &str) -> Value {
        let heard = self.next().unwrap_or_else(|| panic!("no {kind}: {:?}", self.closed));
        assert_eq!(heard["t"], kind, "{heard}");
        heard["p"].clone()
    }

    /// The next message of a topic: its payload, and its offset.
    pub fn message(&mut self, topic: &str) -> (Value, u64) {
        let heard = self.next().unwrap_or_else(|| panic!("no message: {:?}", self.closed));
        assert_eq!(heard["tp"], topic, "{heard}");
        (heard["p"].clone(), heard["o"].as_u64().unwrap())
    }

    pub fn offsets(&mut self, topic: &str, count: usize) -> Vec<u64> {
        (0..count).map(|_| self.message(topic).1).collect()
    }

    /// The code of the next error.
    pub fn error(&mut self) -> String {
        self.event("error")["code"].as_str().unwrap().to_owned()
    }

    /// How the broker closes the connection.
    pub fn close(&mut self) -> Option<u16> {
        while self.next().is_some() {}
        self.closed.as_ref().expect("a close").code.map(CloseCode::number)
    }

    fn read(&mut self) -> usize {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.decode(&bytes[..count]);
                count
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("nothing comes: {error}"),
        }
    }

    fn decode(&mut self, mut input: &[u8]) {
        while let Some(message) = self.decoder.next(&mut input, &mut self.inflater).unwrap() {
            match message {
                Incoming::Text(text) => self.heard.push_back(serde_json::from_str(&text).unwrap()),
                Incoming::Close(close) => self.closed = Some(close),
                _ => {}
            }
        }
    }
}
