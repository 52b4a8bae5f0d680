//! The promises of the crate: the vectors, round trips of any frame, arbitrary bytes, and the page.

mod any_access;
mod any_atomic;
mod any_bytes;
mod any_delayed;
mod any_explanation;
mod any_frame;
mod any_hook;
mod any_schedule;
mod any_settings;
mod any_workbench;
pub mod base64_text;
mod page;
mod round_trip;
mod vectors;
