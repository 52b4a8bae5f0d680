//! Commands: what a client sends. One message of a connection holds one or more, each with an id and one request.

use crate::{
    decode_error::DecodeError,
    encoding::Encoding,
    field::{self, Writer},
    limits::Limits,
    parts::Parts,
    request::{
        ChannelRequest, ConnectRequest, Empty, HistoryRequest, PublishRequest, RefreshRequest,
        Request, RpcRequest, SendRequest, SubRefreshRequest, SubscribeRequest,
    },
};

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// By which the client knows the reply; 0 for a pong and for `send`.
    pub id: u32,
    /// What is asked for.
    pub request: Option<Request>,
}

impl Command {
    /// Whether it answers a ping of the server.
    pub fn is_pong(&self) -> bool {
        self.id == 0 && self.request.is_none()
    }
}

message! {
    /// A command as it is sent: at most one of the requests is there.
    struct CommandFields {
        1 "id" id: u32,
        4 "connect" connect: Option<ConnectRequest>,
        5 "subscribe" subscribe: Option<SubscribeRequest>,
        6 "unsubscribe" unsubscribe: Option<ChannelRequest>,
        7 "publish" publish: Option<PublishRequest>,
        8 "presence" presence: Option<ChannelRequest>,
        9 "presence_stats" presence_stats: Option<ChannelRequest>,
        10 "history" history: Option<HistoryRequest>,
        11 "ping" ping: Option<Empty>,
        12 "send" send: Option<SendRequest>,
        13 "rpc" rpc: Option<RpcRequest>,
        14 "refresh" refresh: Option<RefreshRequest>,
        15 "sub_refresh" sub_refresh: Option<SubRefreshRequest>,
    }
}

impl CommandFields {
    /// The command, unless there are several requests.
    fn into_command(self) -> Option<Command> {
        let requests = [
            self.connect.map(Request::Connect),
            self.subscribe.map(Request::Subscribe),
            self.unsubscribe.map(Request::Unsubscribe),
            self.publish.map(Request::Publish),
            self.presence.map(Request::Presence),
            self.presence_stats.map(Request::PresenceStats),
            self.history.map(Request::History),
            self.ping.map(|Empty {}| Request::Ping),
            self.send.map(Request::Send),
            self.rpc.map(Request::Rpc),
            self.refresh.map(Request::Refresh),
            self.sub_refresh.map(Request::SubRefresh),
        ];
        let mut requests = requests.into_iter().flatten();
        let request = requests.next();
        requests.next().is_none().then_some(Command { id: self.id, request })
    }
}

/// Appends a command, for clients: a line of JSON, or Protobuf behind its length.
pub fn put_command(encoding: Encoding, command: &Command, out: &mut Vec<u8>) {
    field::put_whole(encoding, out, |to| {
        to.field(1, "id", &command.id);
        if let Some(request) = &command.request {
            put_request(request, to);
        }
    });
}

fn put_request(request: &Request, to: &mut Writer<'_>) {
    match request {
        Request::Connect(request) => to.put(4, "connect", request),
        Request::Subscribe(request) => to.put(5, "subscribe", request),
        Request::Unsubscribe(request) => to.put(6, "unsubscribe", request),
        Request::Publish(request) => to.put(7, "publish", request),
        Request::Presence(request) => to.put(8, "presence", request),
        Request::PresenceStats(request) => to.put(9, "presence_stats", request),
        Request::History(request) => to.put(10, "history", request),
        Request::Ping => to.put(11, "ping", &Empty {}),
        Request::Send(request) => to.put(12, "send", request),
        Request::Rpc(request) => to.put(13, "rpc", request),
        Request::Refresh(request) => to.put(14, "refresh", request),
        Request::SubRefresh(request) => to.put(15, "sub_refresh", request),
    }
}

/// The commands of one message of a connection: lines of JSON, or Protobuf behind lengths. Empty lines are passed over.
/// After an error nothing follows, as the client does not keep the protocol.
pub fn decode_commands(encoding: Encoding, message: &[u8], limits: Limits) -> Commands<'_> {
    Commands(Parts::new(encoding, message, limits))
}

/// The iterator of [`decode_commands`].
pub struct Commands<'m>(Parts<'m>);

impl Iterator for Commands<'_> {
    type Item = Result<Command, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next(CommandFields::into_command)
    }
}
