//! The Centrifuge client protocol, version 2, as the SDKs for JavaScript, Python, Go, Dart, Swift, Java and .NET speak
//! it: converts bytes to typed commands, and replies and pushes to bytes, in JSON and in Protobuf.
//!
//! bytes of a message -> [`decode_commands`] -> [`Command`] at the server; [`put_reply`], [`put_push`], [`put_ping`] and,
//! for the fan-out, [`put_publication`] append to a buffer what goes to the client. Clients use [`put_command`] and
//! [`decode_replies`]. Each message of the protocol lists its fields once, by number and name, and both encodings walk
//! over that list ([decision 43](../../../docs/decisions/0043-one-list-of-fields-for-both-encodings.md)).
//!
//! This crate knows no socket, no clock and no topic. It decides nothing: what a command means is the door's to say.

#[macro_use]
mod message;

mod answer;
mod command;
mod context;
mod data;
mod decode_error;
mod disconnect_code;
mod emulation;
mod encoding;
mod error_code;
mod field;
mod fields;
mod limits;
mod parts;
mod protobuf;
mod publication;
mod push;
mod reply;
mod request;
mod tags_filter;
mod token;
mod unsubscribe_code;

pub use answer::{
    Answer, ConnectResult, HistoryResult, PresenceResult, PresenceStatsResult, RefreshResult,
    RpcResult, SubRefreshResult, SubscribeResult,
};
pub use command::{Command, Commands, decode_commands, put_command};
pub use data::{Data, DataView};
pub use decode_error::{DecodeError, Problem};
pub use disconnect_code::{DisconnectCode, code_reconnects};
pub use emulation::EmulationRequest;
pub use encoding::Encoding;
pub use error_code::ErrorCode;
pub use limits::Limits;
pub use publication::{ClientInfo, Publication, PublicationView, put_publication};
pub use push::{Disconnected, ExpiryPush, Push, PushKind, SubscribePush, Unsubscribed, put_push};
pub use reply::{FromServer, Replies, Reply, ReplyError, decode_replies, put_ping, put_reply};
pub use request::{
    ChannelRequest, ConnectRequest, HistoryRequest, Position, PublishRequest, RefreshRequest,
    Request, RpcRequest, SendRequest, SubRefreshRequest, SubscribeRequest,
};
pub use tags_filter::TagsFilter;
pub use token::Token;
pub use unsubscribe_code::UnsubscribeCode;

#[cfg(test)]
mod tests;
