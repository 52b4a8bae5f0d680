//! A live connection: commands of the Centrifuge client protocol and what comes of them, over a WebSocket of its own. Pings
//! are answered here. It knows no channel, and does not come back by itself.

use std::{collections::HashMap, collections::VecDeque, time::Duration};

use bytes::BytesMut;
use ring::rand::{SecureRandom as _, SystemRandom};
use sennit_centrifuge::{
    Answer, Command, ConnectRequest, Encoding, FromServer, Limits, Push, PushKind, Reply,
    ReplyError, Request, decode_replies, put_command,
};
use sennit_model::limits::MESSAGE_BYTES_MAX;
use sennit_websocket::{Decoder, DecoderLimits, Incoming, Inflater, Opcode, client::put_frame};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, sleep, timeout},
};

use crate::{
    connect_options::CONNECT_TIMEOUT,
    exit::{Exit, Failure},
    http::{ConnectOptions, Stream, Unanswered},
    http_retry::RetryLimit,
};

use super::{refusal, upgrade::upgrade};

/// The longest message that the broker may send: a message of a topic, or a page of a history, and what is around it.
const ANSWER_BYTES_MAX: usize = MESSAGE_BYTES_MAX + (2 << 20);

/// Entries of one list: a channel may have many subscribers.
const ENTRIES_MAX: usize = 1 << 20;

/// How long beyond its interval a ping may be late.
const PING_DELAY_MAX: Duration = Duration::from_secs(20);

/// How long to wait where the broker refuses to connect for a moment.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the broker may say nothing, if it does not ping.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// A live connection.
pub struct LiveConnection {
    address: String,
    stream: Box<dyn Stream>,
    decoder: Decoder,
    inflater: Inflater,
    random: SystemRandom,
    /// Bytes that were read and not decoded.
    input: BytesMut,
    /// The number of the last command.
    asked: u32,
    /// Replies that nobody has waited for yet.
    replies: HashMap<u32, Result<Answer, ReplyError>>,
    pushes: VecDeque<Push>,
    /// How long nothing may come.
    silence_max: Duration,
}

impl LiveConnection {
    /// Connects, and says who it is. A node that refuses for a moment is asked again, or another one.
    ///
    /// # Errors
    /// The broker cannot be reached, or refuses.
    pub async fn open(
        options: &ConnectOptions,
        authorization: Option<&str>,
    ) -> Result<Self, Failure> {
        let limit = RetryLimit::of_request(Instant::now());
        loop {
            let Unanswered { failure, again_after } =
                match Self::open_once(options, authorization).await {
                    Ok(connection) => return Ok(connection),
                    Err(unanswered) => unanswered,
                };
            let may_wait = |delay: &Duration| limit.allows(*delay, Instant::now());
            let Some(delay) = again_after.filter(may_wait) else { return Err(failure) };
            sleep(delay).await;
        }
    }

    async fn open_once(
        options: &ConnectOptions,
        authorization: Option<&str>,
    ) -> Result<Self, Unanswered> {
        let random = SystemRandom::new();
        let (address, mut stream) = options.stream().await?;
        let mut key = [0; 16];
        fill(&random, &mut key)?;
        let input = upgrade(&mut stream, &address, authorization, key).await?;
        let limits = DecoderLimits { message_bytes_max: ANSWER_BYTES_MAX };
        let mut connection = Self {
            address,
            stream,
            decoder: Decoder::of_client(limits, false),
            inflater: Inflater::new(),
            random,
            input,
            asked: 0,
            replies: HashMap::new(),
            pushes: VecDeque::new(),
            silence_max: CONNECT_TIMEOUT,
        };
        let request = ConnectRequest { name: "sennit".to_owned(), ..ConnectRequest::default() };
        match connection.ask(Request::Connect(request)).await? {
            Ok(Answer::Connect(result)) => {
                let interval = Duration::from_secs(result.ping_s.into());
                connection.silence_max =
                    if interval.is_zero() { SILENCE_MAX } else { interval + PING_DELAY_MAX };
                Ok(connection)
            }
            Ok(_) => Err(connection.lost("it answers something that was not asked").into()),
            Err(error) => Err(Unanswered {
                failure: refusal::refused(&error),
                again_after: error.temporary.then_some(AGAIN_AFTER),
            }),
        }
    }

    /// Sends a command, and returns its number.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn send(&mut self, request: Request) -> Result<u32, Failure> {
        self.asked += 1;
        self.say(&Command { id: self.asked, request: Some(request) }).await?;
        Ok(self.asked)
    }

    /// The answer to a command with this number. Each may be asked for once.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn answer_to(&mut self, number: u32) -> Result<Result<Answer, ReplyError>, Failure> {
        loop {
            if let Some(answer) = self.replies.remove(&number) {
                return Ok(answer);
            }
            self.hear().await?;
        }
    }

    /// Sends a command, and waits for its answer.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn ask(&mut self, request: Request) -> Result<Result<Answer, ReplyError>, Failure> {
        let number = self.send(request).await?;
        self.answer_to(number).await
    }

    /// The next push.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn push(&mut self) -> Result<Push, Failure> {
        loop {
            if let Some(push) = self.pushes.pop_front() {
                return Ok(push);
            }
            self.hear().await?;
        }
    }

    /// A push that has come already.
    pub fn push_that_came(&mut self) -> Option<Push> {
        self.pushes.pop_front()
    }

    async fn say(&mut self, command: &Command) -> Result<(), Failure> {
        let mut message = Vec::new();
        put_command(Encoding::Protobuf, command, &mut message);
        self.write(Opcode::Binary, &message).await
    }

    async fn write(&mut self, opcode: Opcode, message: &[u8]) -> Result<(), Failure> {
        let mut mask = [0; 4];
        fill(&self.random, &mut mask)?;
        let mut frame = Vec::new();
        put_frame(opcode, message, mask, &mut frame);
        match timeout(SILENCE_MAX, self.stream.write_all(&frame)).await {
            Ok(Ok(())) => Ok(()),
            // It may have said why before it went.
            Ok(Err(error)) => match self.hear_all().await {
                Err(failure) => Err(failure),
                Ok(()) => Err(self.lost(&error.to_string())),
            },
            Err(_) => Err(self.lost("it takes nothing")),
        }
    }

    /// Decodes what has been read, until nothing more comes.
    async fn hear_all(&mut self) -> Result<(), Failure> {
        while self.stream.read_buf(&mut self.input).await.is_ok_and(|read| read > 0) {}
        self.decode().await
    }

    /// Waits until something has come, and takes it. May be cancelled, but while a ping is answered.
    async fn hear(&mut self) -> Result<(), Failure> {
        if self.input.is_empty() {
            let read = timeout(self.silence_max, self.stream.read_buf(&mut self.input)).await;
            match read {
                Ok(Ok(0)) => return Err(self.lost("it has closed the connection")),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(self.lost(&error.to_string())),
                Err(_) => {
                    return Err(self.lost(&format!("nothing came for {:?}", self.silence_max)));
                }
            }
        }
        self.decode().await
    }

    async fn decode(&mut self) -> Result<(), Failure> {
        let input = std::mem::take(&mut self.input);
        let mut rest: &[u8] = &input;
        let limits = Limits {
            message_bytes_max: ANSWER_BYTES_MAX,
            entries_max: ENTRIES_MAX,
            ..Limits::default()
        };
        let mut pings = false;
        loop {
            let message = self.decoder.next(&mut rest, &mut self.inflater);
            let message = message.map_err(|fault| self.lost(&fault.to_string()))?;
            match message {
                None => break,
                Some(Incoming::Binary(bytes)) => {
                    for heard in decode_replies(Encoding::Protobuf, &bytes, limits) {
                        match heard.map_err(|error| self.lost(&error.to_string()))? {
                            FromServer::Ping => pings = true,
                            FromServer::Reply(Reply { id, result }) => {
                                self.replies.insert(id, result);
                            }
                            FromServer::Push(Push { kind: PushKind::Disconnect(end), .. }) => {
                                let code = u16::try_from(end.code).unwrap_or(u16::MAX);
                                return Err(refusal::closed(code, &end.reason));
                            }
                            FromServer::Push(push) => self.pushes.push_back(push),
                        }
                    }
                }
                Some(Incoming::Close(close)) => {
                    // 1005 is what a close without a code stands for.
                    let code = close.code.map_or(1005, |code| code.number());
                    return Err(refusal::closed(code, &close.reason));
                }
                Some(Incoming::Ping(payload)) => {
                    Box::pin(self.write(Opcode::Pong, &payload)).await?
                }
                Some(Incoming::Text(_) | Incoming::Pong(_)) => {}
            }
        }
        if pings {
            Box::pin(self.say(&Command { id: 0, request: None })).await?;
        }
        Ok(())
    }

    fn lost(&self, why: &str) -> Failure {
        let text =
            format!("the live connection with the broker at {} is lost: {why}", self.address);
        Failure::new(Exit::Unreachable, text)
    }
}

fn fill(random: &SystemRandom, bytes: &mut [u8]) -> Result<(), Failure> {
    let none = |_| Failure::new(Exit::Failed, "the system has no random numbers");
    random.fill(bytes).map_err(none)
}
