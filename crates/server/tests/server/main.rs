//! A broker in this process, driven by raw frames over its sockets.
#![expect(clippy::unwrap_used, reason = "a step that fails ends the test")]

mod access;
mod access_matrix;
mod admission;
mod archives;
mod attempts;
mod browser;
mod configuration;
mod consuming;
mod control;
mod cores;
mod filtering;
mod golden;
mod groups;
mod http;
mod http_atomic;
mod http_browsers;
mod http_catch_up;
mod http_connections;
mod http_decoding;
mod http_forks;
mod http_incarnations;
mod http_native;
mod http_parked;
mod http_streams;
mod http_strictness;
mod moving;
mod publishing;
mod reading;
mod scrubbing;
mod starting;
mod stopping;
mod subscribing;
mod watching;
mod webhooks;
mod world;
