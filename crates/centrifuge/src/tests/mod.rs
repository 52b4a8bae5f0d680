//! Tests of the protocol: vectors, round trips, hostile input.

mod wire;
