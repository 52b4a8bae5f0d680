//! The door for the native protocol, over TCP or over WebSocket on it.

mod access;
pub(crate) mod arrival;
pub(crate) mod configuration;
pub(crate) mod connection;
pub(crate) mod control_bodies;
pub(crate) mod delivery_frames;
pub(crate) mod flow_control;
pub(crate) mod hooks;
pub(crate) mod native_wire;
pub(crate) mod outbox;
pub(crate) mod pending_request;
pub(crate) mod port;
pub(crate) mod refusal_reply;
pub(crate) mod reply_size;
pub(crate) mod schedules;
pub(crate) mod send_queue;
pub(crate) mod session;
pub(crate) mod session_guard;
pub(crate) mod subscription_routes;
pub(crate) mod topic_watch;
