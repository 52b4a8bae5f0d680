//! What the server sends: replies, pushes and pings, each a message of its own that may follow another.

use crate::{
    answer::{
        Answer, ConnectResult, HistoryResult, PresenceResult, PresenceStatsResult, RefreshResult,
        RpcResult, SubRefreshResult, SubscribeResult,
    },
    decode_error::DecodeError,
    encoding::Encoding,
    error_code::ErrorCode,
    field::{Writer, put_whole},
    limits::Limits,
    parts::Parts,
    push::{Push, PushFields},
    request::Empty,
};

/// The reply to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Of the command.
    pub id: u32,
    /// What was asked for, or why not.
    pub result: Result<Answer, ReplyError>,
}

message! {
    /// Why a request is refused.
    pub struct ReplyError {
        /// As of [`ErrorCode`], or the application's own, from 400 to 1999.
        1 "code" code: u32,
        /// For people. Not empty: some clients insist on it.
        2 "message" message: String,
        /// Whether the client may ask again later. Clients retry a subscribe, and keep a connection, only then.
        3 "temporary" temporary: bool,
    }

    /// A reply, push or ping as it is sent.
    struct ReplyFields {
        1 "id" id: u32,
        2 "error" error: Option<ReplyError>,
        4 "push" push: Option<PushFields>,
        5 "connect" connect: Option<ConnectResult>,
        6 "subscribe" subscribe: Option<SubscribeResult>,
        7 "unsubscribe" unsubscribe: Option<Empty>,
        8 "publish" publish: Option<Empty>,
        9 "presence" presence: Option<PresenceResult>,
        10 "presence_stats" presence_stats: Option<PresenceStatsResult>,
        11 "history" history: Option<HistoryResult>,
        12 "ping" ping: Option<Empty>,
        13 "rpc" rpc: Option<RpcResult>,
        14 "refresh" refresh: Option<RefreshResult>,
        15 "sub_refresh" sub_refresh: Option<SubRefreshResult>,
    }
}

impl From<ErrorCode> for ReplyError {
    fn from(code: ErrorCode) -> Self {
        Self {
            code: code.code(),
            message: code.message().to_owned(),
            temporary: code.is_temporary(),
        }
    }
}

impl ReplyError {
    /// An error with a message that says more than that of the code.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..code.into() }
    }
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromServer {
    /// To one of its commands.
    Reply(Reply),
    /// Without being asked.
    Push(Push),
    /// To see whether the client is there; it answers with an empty command.
    Ping,
}

impl ReplyFields {
    /// What it is, unless it is several things.
    fn into_from_server(self) -> Option<FromServer> {
        let answers = [
            self.connect.map(Answer::Connect),
            self.subscribe.map(Answer::Subscribe),
            self.unsubscribe.map(|Empty {}| Answer::Unsubscribe),
            self.publish.map(|Empty {}| Answer::Publish),
            self.presence.map(Answer::Presence),
            self.presence_stats.map(Answer::PresenceStats),
            self.history.map(Answer::History),
            self.ping.map(|Empty {}| Answer::Ping),
            self.rpc.map(Answer::Rpc),
            self.refresh.map(Answer::Refresh),
            self.sub_refresh.map(Answer::SubRefresh),
        ];
        let results = answers.into_iter().flatten().map(Ok);
        let mut results = results.chain(self.error.map(Err));
        match (results.next(), self.push) {
            (Some(result), None) if results.next().is_none() => {
                Some(FromServer::Reply(Reply { id: self.id, result }))
            }
            (None, Some(push)) => push.into_push().map(FromServer::Push),
            (None, None) if self.id == 0 => Some(FromServer::Ping),
            _ => None,
        }
    }
}

/// Appends a reply: a line of JSON, or Protobuf behind its length.
pub fn put_reply(encoding: Encoding, reply: &Reply, out: &mut Vec<u8>) {
    put_whole(encoding, out, |to| {
        to.field(1, "id", &reply.id);
        match &reply.result {
            Ok(answer) => put_answer(answer, to),
            Err(error) => to.put(2, "error", error),
        }
    });
}

fn put_answer(answer: &Answer, to: &mut Writer<'_>) {
    match answer {
        Answer::Connect(result) => to.put(5, "connect", result),
        Answer::Subscribe(result) => to.put(6, "subscribe", result),
        Answer::Unsubscribe => to.put(7, "unsubscribe", &Empty {}),
        Answer::Publish => to.put(8, "publish", &Empty {}),
        Answer::Presence(result) => to.put(9, "presence", result),
        Answer::PresenceStats(result) => to.put(10, "presence_stats", result),
        Answer::History(result) => to.put(11, "history", result),
        Answer::Ping => to.put(12, "ping", &Empty {}),
        Answer::Rpc(result) => to.put(13, "rpc", result),
        Answer::Refresh(result) => to.put(14, "refresh", result),
        Answer::SubRefresh(result) => to.put(15, "sub_refresh", result),
    }
}

/// Appends a ping of the server: an empty reply.
pub fn put_ping(encoding: Encoding, out: &mut Vec<u8>) {
    put_whole(encoding, out, |_| {});
}

/// What one message of a connection has for a client: lines of JSON, or Protobuf behind lengths. Nothing follows an error.
pub fn decode_replies(encoding: Encoding, message: &[u8], limits: Limits) -> Replies<'_> {
    Replies(Parts::new(encoding, message, limits))
}

/// The iterator of [`decode_replies`].
pub struct Replies<'m>(Parts<'m>);

impl Iterator for Replies<'_> {
    type Item = Result<FromServer, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(ReplyFields::into_from_server)
    }
}
