//! What the codec has to do.

mod messages;
mod requests;
mod vectors;
