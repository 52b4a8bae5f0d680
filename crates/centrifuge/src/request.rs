//! What a client may ask for, with the fields that the protocol gives each request.
//!
//! Fields that belong to subscriptions of a map or to shared polling are not here, but for the `kind` by which a client
//! asks for these, so that it can be refused.

use std::collections::BTreeMap;

use crate::{data::Data, tags_filter::TagsFilter, token::Token};

/// What a command asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first of a connection.
    Connect(ConnectRequest),
    /// To get the publications of a channel.
    Subscribe(SubscribeRequest),
    /// To get them no more.
    Unsubscribe(ChannelRequest),
    /// To publish to a channel.
    Publish(PublishRequest),
    /// The subscribers of a channel.
    Presence(ChannelRequest),
    /// As numbers only.
    PresenceStats(ChannelRequest),
    /// Earlier publications of a channel.
    History(HistoryRequest),
    /// An answer, to see that the server is there.
    Ping,
    /// To take a message. There is no reply, and the command has no id.
    Send(SendRequest),
    /// To call a method of the application.
    Rpc(RpcRequest),
    /// To go on with a new token.
    Refresh(RefreshRequest),
    /// To go on with a subscription by a new token.
    SubRefresh(SubRefreshRequest),
}

message! {
    /// Of `connect`.
    pub struct ConnectRequest {
        /// Says who the client is; empty if it has none.
        1 "token" token: Token,
        /// For the application.
        2 "data" data: Data,
        /// Where the subscriptions that the server made should go on, by channel.
        3 "subs" subs: BTreeMap<String, SubscribeRequest>,
        /// The name of the client's program or SDK.
        4 "name" name: String,
        /// Its version.
        5 "version" version: String,
        /// Headers that a browser could not send with the handshake. They may hold secrets.
        6 "headers" headers: BTreeMap<String, Token>,
        /// Bits for what the client can do.
        7 "flag" flag: i64,
    }

    /// Of `subscribe`.
    pub struct SubscribeRequest {
        /// The channel. Empty in the `subs` of a connect, where it is the name of the entry.
        1 "channel" channel: String,
        /// The right to subscribe; empty if the client has none.
        2 "token" token: Token,
        /// Whether publications after `offset` and of `epoch` should be sent first.
        3 "recover" recover: bool,
        /// The channel's epoch as the client knows it.
        6 "epoch" epoch: String,
        /// The offset of the last publication that the client has.
        7 "offset" offset: u64,
        /// For the application.
        8 "data" data: Data,
        /// Whether the client wants to hear when the server loses its position.
        9 "positioned" positioned: bool,
        /// Whether the client wants to recover later.
        10 "recoverable" recoverable: bool,
        /// Whether the client wants to hear who joins and leaves.
        11 "join_leave" join_leave: bool,
        /// The kind of differences that the client can apply to publications; empty for none.
        12 "delta" delta: String,
        /// Which publications the client wants, by their tags.
        13 "tf" tags_filter: Option<TagsFilter>,
        /// Bits for what is wanted, as [`SubscribeRequest::REJECT_UNRECOVERED`].
        14 "flag" flag: i64,
        /// 0 for a stream. Others are maps and shared polling.
        15 "type" kind: i32,
    }

    /// Of `unsubscribe`, `presence` and `presence_stats`.
    pub struct ChannelRequest {
        /// The channel.
        1 "channel" channel: String,
    }

    /// Of `publish`.
    pub struct PublishRequest {
        /// The channel.
        1 "channel" channel: String,
        /// What is published.
        2 "data" data: Data,
        /// 0 for an ordinary publication, 1 for an entry of a map.
        3 "type" kind: i32,
    }

    /// Of `history`.
    pub struct HistoryRequest {
        /// The channel.
        1 "channel" channel: String,
        /// How many publications: 0 for none, only the position; negative for all that there are.
        7 "limit" limit: i32,
        /// Where to begin: behind this position, or with `reverse` before it.
        8 "since" since: Option<Position>,
        /// Whether the newest publication comes first.
        9 "reverse" reverse: bool,
    }

    /// A place in a channel.
    pub struct Position {
        /// Of a publication.
        1 "offset" offset: u64,
        /// For as long as the channel keeps this epoch, offsets mean the same.
        2 "epoch" epoch: String,
    }

    /// Of `send`.
    pub struct SendRequest {
        /// For the application.
        1 "data" data: Data,
    }

    /// Of `rpc`.
    pub struct RpcRequest {
        /// For the application.
        1 "data" data: Data,
        /// The name of the method; may be empty.
        2 "method" method: String,
    }

    /// Of `refresh`.
    pub struct RefreshRequest {
        /// The new token.
        1 "token" token: Token,
    }

    /// Of `sub_refresh`.
    pub struct SubRefreshRequest {
        /// The channel.
        1 "channel" channel: String,
        /// The new token.
        2 "token" token: Token,
        /// 0 for a refresh. Others belong to shared polling.
        3 "type" kind: i32,
    }

    /// Of `ping`.
    pub(crate) struct Empty {}
}

impl SubscribeRequest {
    /// A bit of `flag`: pushes may carry a number in place of the channel. A server need not do so.
    pub const CHANNEL_COMPACTION: i64 = 1;
    /// A bit of `flag`: if not all can be recovered, the client wants error 112 in place of a subscription.
    pub const REJECT_UNRECOVERED: i64 = 2;
}
