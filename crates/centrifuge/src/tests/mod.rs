//! Tests of the protocol: vectors, the data of applications, hostile input, round trips.

mod codes;
mod data;
mod refusals;
mod round_trips;
mod vectors;
mod wire;
