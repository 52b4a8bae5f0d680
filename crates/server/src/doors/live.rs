//! The live door: messages of topics go to browsers over WebSocket, as the Centrifuge client protocol and the WSE protocol
//! have it, or where there is none in the body of an HTTP answer.
//!
//! In reading order: an HTTP request is answered by `upgrade`, or by `emulation`, and its connection comes to the `connections`
//! of its core, with the `link` to its client: a WebSocket, or an `answer_pipe` into the answer. A `format` says what stands
//! around a message there.
//! These have no task each: one loop reads what clients ask (`connections/commands`), follows each topic that somebody is
//! subscribed to by one reader (`broadcast`, `connections/deliveries`), and writes (`connections/writes`). A message is
//! encoded once into a `ring`, in which a subscriber is a position. One that begins earlier, or falls behind, is caught up
//! from the log by a reader of its own, gets the `newest_frames` of each key, or is ended, as its topic has it.
//! `presence` is who is subscribed to a topic, kept on one core for all.
//! `core_requests` waits for answers of other cores, `backend` is the application that may be asked, `sink` takes what
//! shards send, `calls` what other tasks and cores ask of the loop, `channel` translates names, `dialect` is what a client
//! speaks, `published` a message for all dialects, `wse` what the second protocol makes of the answers of the loop.
//! Programs mean some connections by a `target`: they send messages to them (`connections/messages`, encoded once as `push_frames`),
//! list them and have them end (`connections/targets`), and subscribe them (`connections/server_subscriptions`).

mod answer_pipe;
pub(crate) mod backend;
mod broadcast;
mod calls;
pub(in crate::doors) mod channel;
mod connection;
pub(crate) mod connection_id;
pub(crate) mod connections;
mod core_requests;
mod dialect;
mod emulated_session;
pub(crate) mod emulation;
mod format;
pub(crate) mod group_channel;
mod limits;
mod link;
mod newest_frames;
pub(crate) mod pending_subscriptions;
mod presence;
mod published;
mod push_frames;
mod reader_numbers;
pub(crate) mod relay;
mod ring;
mod settlement;
mod sink;
mod source;
pub(crate) mod target;
pub(crate) mod upgrade;
mod users;
mod wse;
