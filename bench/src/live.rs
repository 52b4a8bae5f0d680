//! Live fan-out: subscribers over WebSocket in a process of their own, each with a connection and every offset checked,
//! beside the producers whose messages they get.

mod bare;
mod bare_redis;
mod brokers;
mod fan_out;
mod frames;
mod idle;
mod publication;
mod redis;
mod subscriber;
mod subscribers;

pub use fan_out::LiveFanOut;
pub use idle::IdleConnections;
pub use redis::{RedisChoice, RedisError};
pub use subscribers::subscribe_all;
