//! The bytes of a live connection without a WebSocket, as its client has them: an answer that goes on, by either HTTP, and
//! requests beside it. It knows no test.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::TokioIo;
use sennit_centrifuge::Encoding;
use tokio::{runtime::Runtime, task::LocalSet, time::timeout};

use crate::{browser::Browser, http_connections::LocalExecutor, stream::Dialing, world::SOON};

/// What an answer carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Server-sent events.
    Events,
    /// Lines of JSON.
    Lines,
    /// Messages of Protobuf behind their lengths.
    Delimited,
}

impl Form {
    pub const ALL: [Self; 3] = [Self::Events, Self::Lines, Self::Delimited];

    pub fn encoding(self) -> Encoding {
        match self {
            Self::Events | Self::Lines => Encoding::Json,
            Self::Delimited => Encoding::Protobuf,
        }
    }

    fn content_type(self) -> &'static str {
        match self.encoding() {
            Encoding::Json => "application/json",
            Encoding::Protobuf => "application/octet-stream",
        }
    }
}

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    One,
    Two,
}

/// An answer that goes on.
enum Answer {
    One(Browser),
    Two(Incoming),
}

/// A connection of HTTP/2, driven while its client does something.
struct Http2 {
    runtime: Runtime,
    local: LocalSet,
    sender: SendRequest<Full<Bytes>>,
}

/// Both ways of a client.
pub struct Emulated {
    http: SocketAddr,
    dialing: Dialing,
    form: Form,
    two: Option<Http2>,
    answer: Option<Answer>,
    /// What has come of a message.
    input: Vec<u8>,
    pub session: String,
    pub node: String,
    /// A header of the request that begins it.
    pub header: Option<(&'static str, String)>,
}

impl Http2 {
    fn connect(address: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let local = LocalSet::new();
        let connecting = async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let client = hyper::client::conn::http2::Builder::new(LocalExecutor);
            let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
            tokio::task::spawn_local(connection);
            sender
        };
        let connecting = async { timeout(SOON, connecting).await.expect("it connects") };
        let sender = local.block_on(&runtime, connecting);
        Self { runtime, local, sender }
    }

    /// Waits for something that is to happen soon.
    fn within<F: Future>(&self, what: F) -> F::Output {
        let bounded = async { timeout(SOON, what).await.expect("it happens") };
        self.local.block_on(&self.runtime, bounded)
    }

    fn ask(&mut self, request: Request<Full<Bytes>>) -> (u16, Incoming) {
        let asked = self.sender.send_request(request);
        let answer = self.within(asked).unwrap();
        (answer.status().as_u16(), answer.into_body())
    }
}

impl Emulated {
    pub fn new(http: SocketAddr, dialing: &Dialing, form: Form, version: Http) -> Self {
        Self {
            http,
            dialing: dialing.clone(),
            form,
            two: (version == Http::Two).then(|| Http2::connect(http)),
            answer: None,
            input: Vec::new(),
            session: String::new(),
            node: String::new(),
            header: None,
        }
    }

    /// Says a message of commands: the first begins the connection.
    pub fn say(&mut self, commands: &[u8]) {
        if self.answer.is_none() {
            assert_eq!(self.begin(commands), 200);
        } else {
            let status = self.send(commands);
            // It has ended, perhaps, and says so itself.
            assert!([204, 404].contains(&status), "{status}");
        }
    }

    /// Begins the connection; the status of the answer that it is.
    pub fn begin(&mut self, commands: &[u8]) -> u16 {
        let (method, path, body) = match self.form {
            Form::Events => {
                let encoded: String = commands.iter().map(|byte| format!("%{byte:02X}")).collect();
                ("GET", format!("/connection/sse?cf_connect={encoded}"), &[][..])
            }
            Form::Lines | Form::Delimited => ("POST", "/connection/http_stream".into(), commands),
        };
        let (status, answer) = self.ask(method, &path, body, self.header.clone());
        self.answer = Some(answer);
        status
    }

    /// Sends commands in a request of their own; its status.
    pub fn send(&mut self, commands: &[u8]) -> u16 {
        let (session, node) = (self.session.clone(), self.node.clone());
        self.send_to(&session, &node, commands)
    }

    /// The same to some session.
    pub fn send_to(&mut self, session: &str, node: &str, commands: &[u8]) -> u16 {
        let body = match self.form.encoding() {
            Encoding::Json => {
                let data = str::from_utf8(commands).unwrap();
                serde_json::json!({ "session": session, "node": node, "data": data })
                    .to_string()
                    .into_bytes()
            }
            Encoding::Protobuf => {
                let mut body = Vec::new();
                for (number, bytes) in
                    [(1, node.as_bytes()), (2, session.as_bytes()), (3, commands)]
                {
                    body.push(number << 3 | 2);
                    put_length(bytes.len(), &mut body);
                    body.extend_from_slice(bytes);
                }
                body
            }
        };
        self.ask("POST", "/emulation", &body, None).0
    }

    fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        header: Option<(&'static str, String)>,
    ) -> (u16, Answer) {
        let content_type = self.form.content_type();
        if let Some(two) = &mut self.two {
            let uri = format!("http://localhost{path}");
            let mut request =
                Request::builder().method(method).uri(uri).header("content-type", content_type);
            if let Some((name, value)) = header {
                request = request.header(name, value);
            }
            let body = Full::new(Bytes::copy_from_slice(body));
            let (status, body) = two.ask(request.body(body).unwrap());
            return (status, Answer::Two(body));
        }
        let header = header.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
        let mut browser = Browser::to(self.http, &self.dialing);
        browser.say(format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        ));
        browser.say(body);
        let head = browser.until("\r\n\r\n");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        if status == 200 {
            assert!(head.contains("transfer-encoding: chunked"), "{head}");
            assert!(head.contains("cache-control: no-store"), "{head}");
        }
        (status, Answer::One(browser))
    }

    /// The messages that come next; `None` once the answer has ended.
    pub fn hear(&mut self) -> Option<Vec<Vec<u8>>> {
        loop {
            let piece = match self.answer.as_mut()? {
                Answer::One(browser) => browser.chunk()?,
                Answer::Two(body) => {
                    let frame = self.two.as_ref()?.within(body.frame())?;
                    frame.ok()?.into_data().ok()?.to_vec()
                }
            };
            self.input.extend_from_slice(&piece);
            let messages: Vec<_> = std::iter::from_fn(|| self.message()).collect();
            if !messages.is_empty() {
                return Some(messages);
            }
        }
    }

    /// Takes a message that is whole.
    fn message(&mut self) -> Option<Vec<u8>> {
        let place = |end: &[u8]| self.input.windows(end.len()).position(|at| at == end);
        let (begin, end, after) = match self.form {
            Form::Events => {
                let end = place(b"\n\n")?;
                assert!(self.input.starts_with(b"data: "), "an event has data");
                ("data: ".len(), end, end + 2)
            }
            Form::Lines => {
                let end = place(b"\n")?;
                (0, end, end + 1)
            }
            Form::Delimited => {
                let last = self.input.iter().position(|byte| byte & 0x80 == 0)?;
                let length = self.input[..=last]
                    .iter()
                    .rev()
                    .fold(0, |length, byte| length << 7 | usize::from(byte & 0x7F));
                let end = last + 1 + length;
                (0, end, end)
            }
        };
        if self.input.len() < after {
            return None;
        }
        let mut message = self.input[begin..end].to_vec();
        self.input.drain(..after);
        if self.form == Form::Events {
            // A message may have several lines.
            message = String::from_utf8(message).unwrap().replace("\ndata: ", "\n").into_bytes();
        }
        Some(message)
    }
}

/// Writes a varint.
fn put_length(mut length: usize, out: &mut Vec<u8>) {
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}
