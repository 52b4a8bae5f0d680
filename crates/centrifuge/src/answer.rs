//! What the server answers to each request, with the fields that the protocol gives each result.

use std::collections::BTreeMap;

use crate::{
    data::Data,
    publication::{ClientInfo, Publication},
};

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `connect`.
    Connect(ConnectResult),
    /// To `subscribe`.
    Subscribe(SubscribeResult),
    /// To `unsubscribe`.
    Unsubscribe,
    /// To `publish`.
    Publish,
    /// To `presence`.
    Presence(PresenceResult),
    /// To `presence_stats`.
    PresenceStats(PresenceStatsResult),
    /// To `history`.
    History(HistoryResult),
    /// To `ping`.
    Ping,
    /// To `rpc`.
    Rpc(RpcResult),
    /// To `refresh`.
    Refresh(RefreshResult),
    /// To `sub_refresh`.
    SubRefresh(SubRefreshResult),
}

message! {
    /// Of `connect`.
    pub struct ConnectResult {
        /// The id of the connection. Not empty.
        1 "client" client: String,
        /// Of the server.
        2 "version" version: String,
        /// Whether the connection expires unless it is refreshed.
        3 "expires" expires: bool,
        /// After as many seconds.
        4 "ttl" ttl_s: u32,
        /// For the application.
        5 "data" data: Data,
        /// The subscriptions that the server made, by channel. The client drops those that it had and that are not here.
        6 "subs" subs: BTreeMap<String, SubscribeResult>,
        /// The server pings in intervals of so many seconds; 0 if it does not.
        7 "ping" ping_s: u32,
        /// Whether the client should answer pings with pongs.
        8 "pong" pong: bool,
        /// Which session an emulation request is for: over SSE and HTTP streams.
        9 "session" session: String,
        /// Which node it is for.
        10 "node" node: String,
        /// The server's time in milliseconds since 1970; 0 if that is not said.
        11 "time" time_ms: i64,
    }

    /// Of `subscribe`.
    pub struct SubscribeResult {
        /// Whether the subscription expires unless it is refreshed.
        1 "expires" expires: bool,
        /// After as many seconds.
        2 "ttl" ttl_s: u32,
        /// Whether the client can recover it later.
        3 "recoverable" recoverable: bool,
        /// The channel's epoch.
        6 "epoch" epoch: String,
        /// What the client missed, the oldest first.
        7 "publications" publications: Vec<Publication>,
        /// Whether these are all that it missed.
        8 "recovered" recovered: bool,
        /// The offset of the channel's last publication before the subscription, from which the client counts on.
        9 "offset" offset: u64,
        /// Whether the server minds the client's position.
        10 "positioned" positioned: bool,
        /// For the application.
        11 "data" data: Data,
        /// Whether the client has asked for recovery.
        12 "was_recovering" was_recovering: bool,
    }

    /// Of `presence`.
    pub struct PresenceResult {
        /// The subscribers by the id of their connection.
        1 "presence" presence: BTreeMap<String, ClientInfo>,
    }

    /// Of `presence_stats`.
    pub struct PresenceStatsResult {
        /// Connections that are subscribed.
        1 "num_clients" clients: u32,
        /// Their different users.
        2 "num_users" users: u32,
    }

    /// Of `history`.
    pub struct HistoryResult {
        /// The publications, in the order that was asked for.
        1 "publications" publications: Vec<Publication>,
        /// The channel's epoch.
        2 "epoch" epoch: String,
        /// The offset of its last publication.
        3 "offset" offset: u64,
    }

    /// Of `rpc`.
    pub struct RpcResult {
        /// What the method returned.
        1 "data" data: Data,
    }

    /// Of `refresh`.
    pub struct RefreshResult {
        /// The id of the connection.
        1 "client" client: String,
        /// Of the server.
        2 "version" version: String,
        /// Whether the connection expires unless it is refreshed again.
        3 "expires" expires: bool,
        /// After as many seconds.
        4 "ttl" ttl_s: u32,
    }

    /// Of `sub_refresh`.
    pub struct SubRefreshResult {
        /// Whether the subscription expires unless it is refreshed again.
        1 "expires" expires: bool,
        /// After as many seconds.
        2 "ttl" ttl_s: u32,
    }
}
