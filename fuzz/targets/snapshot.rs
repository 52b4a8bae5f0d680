//! Any bytes as a snapshot of an engine: refused with a reason, or restored to a state whose own snapshot restores
//! to itself. Knows the engine's interface only.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_engine::Engine;
use sennit_model::{Generation, Timestamp};

fn snapshot_of(snapshot: Bytes) -> Option<Bytes> {
    let engine = Engine::from_snapshot(snapshot, Generation(3), Timestamp(1_000_000)).ok()?;
    let mut out = Vec::new();
    engine.encode_snapshot(&mut out);
    Some(Bytes::from(out))
}

fuzz_target!(|data: &[u8]| {
    let Some(first) = snapshot_of(Bytes::copy_from_slice(data)) else { return };
    assert_eq!(snapshot_of(first.clone()), Some(first), "a state that cannot be kept");
});
