//! The client against a scripted [`broker`].

mod broker;
mod connection;
mod consume;
mod publish;
mod read;
mod started;
