//! What the whole crate promises: the vectors, round trips of any frame, any bytes, and the page.

mod any_bytes;
mod any_frame;
mod page;
mod round_trip;
mod vectors;
