//! The client against a scripted [`broker`].

mod broker;
mod connection;
mod consume;
mod failover;
mod publish;
mod read;
mod started;
