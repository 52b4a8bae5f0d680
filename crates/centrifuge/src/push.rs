//! Pushes: what the server sends without being asked.

use crate::{
    data::Data,
    encoding::Encoding,
    field::{Writer, put_whole},
    publication::{ClientInfo, Publication},
};

/// A push to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The channel; empty for what concerns the connection.
    pub channel: String,
    /// What is told.
    pub kind: PushKind,
}

/// What a push tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushKind {
    /// A message of the channel.
    Publication(Publication),
    /// A client joined the channel.
    Join(ClientInfo),
    /// A client left it.
    Leave(ClientInfo),
    /// The server ended the client's subscription.
    Unsubscribe(Unsubscribed),
    /// A message from the application, of no channel.
    Message(Data),
    /// The server made a subscription for the client.
    Subscribe(SubscribePush),
    /// The connection ends.
    Disconnect(Disconnected),
    /// The expiry of the connection has changed.
    Refresh(ExpiryPush),
}

message! {
    /// How a subscription was ended.
    pub struct Unsubscribed {
        /// As of [`UnsubscribeCode`](crate::UnsubscribeCode): from 2500 on the client subscribes again.
        2 "code" code: u32,
        /// For people. Not empty: some clients insist on it.
        3 "reason" reason: String,
    }

    /// A subscription that the server made.
    pub struct SubscribePush {
        /// Whether it can be recovered later.
        1 "recoverable" recoverable: bool,
        /// The channel's epoch.
        4 "epoch" epoch: String,
        /// The offset of its last publication.
        5 "offset" offset: u64,
        /// Whether the server minds the client's position.
        6 "positioned" positioned: bool,
        /// For the application.
        7 "data" data: Data,
    }

    /// How a connection ends.
    pub struct Disconnected {
        /// As of [`DisconnectCode`](crate::DisconnectCode): it says whether the client comes back.
        1 "code" code: u32,
        /// For people. Not empty: some clients insist on it.
        2 "reason" reason: String,
        /// For clients of the protocol's first version; those of the second go by the code.
        3 "reconnect" reconnect: bool,
    }

    /// When the connection expires.
    pub struct ExpiryPush {
        /// Whether it does.
        1 "expires" expires: bool,
        /// After as many seconds.
        2 "ttl" ttl_s: u32,
    }

    /// A message from the application.
    pub(crate) struct MessagePush {
        1 "data" data: Data,
    }

    /// Of `join` and `leave`.
    pub(crate) struct Presence {
        1 "info" info: Option<ClientInfo>,
    }

    /// A push as it is sent: one of the kinds is there.
    pub(crate) struct PushFields {
        2 "channel" channel: String,
        4 "pub" publication: Option<Publication>,
        5 "join" join: Option<Presence>,
        6 "leave" leave: Option<Presence>,
        7 "unsubscribe" unsubscribe: Option<Unsubscribed>,
        8 "message" message: Option<MessagePush>,
        9 "subscribe" subscribe: Option<SubscribePush>,
        11 "disconnect" disconnect: Option<Disconnected>,
        12 "refresh" refresh: Option<ExpiryPush>,
    }
}

impl PushFields {
    /// The push, if there is one kind.
    pub fn into_push(self) -> Option<Push> {
        let kinds = [
            self.publication.map(PushKind::Publication),
            self.join.map(|join| PushKind::Join(join.info.unwrap_or_default())),
            self.leave.map(|leave| PushKind::Leave(leave.info.unwrap_or_default())),
            self.unsubscribe.map(PushKind::Unsubscribe),
            self.message.map(|message| PushKind::Message(message.data)),
            self.subscribe.map(PushKind::Subscribe),
            self.disconnect.map(PushKind::Disconnect),
            self.refresh.map(PushKind::Refresh),
        ];
        let mut kinds = kinds.into_iter().flatten();
        let kind = kinds.next()?;
        kinds.next().is_none().then_some(Push { channel: self.channel, kind })
    }
}

/// Appends a push: a line of JSON, or Protobuf behind its length.
pub fn put_push(encoding: Encoding, push: &Push, out: &mut Vec<u8>) {
    put_whole(encoding, out, |to| {
        to.nested(4, "push", |to| {
            to.field(2, "channel", &push.channel);
            put_kind(&push.kind, to);
        });
    });
}

fn put_kind(kind: &PushKind, to: &mut Writer<'_>) {
    let info_of = |info: &ClientInfo, to: &mut Writer<'_>| to.put(1, "info", info);
    match kind {
        PushKind::Publication(publication) => to.put(4, "pub", publication),
        PushKind::Join(info) => to.nested(5, "join", |to| info_of(info, to)),
        PushKind::Leave(info) => to.nested(6, "leave", |to| info_of(info, to)),
        PushKind::Unsubscribe(unsubscribed) => to.put(7, "unsubscribe", unsubscribed),
        PushKind::Message(data) => to.nested(8, "message", |to| to.field(1, "data", data)),
        PushKind::Subscribe(subscribe) => to.put(9, "subscribe", subscribe),
        PushKind::Disconnect(disconnected) => to.put(11, "disconnect", disconnected),
        PushKind::Refresh(expiry) => to.put(12, "refresh", expiry),
    }
}
