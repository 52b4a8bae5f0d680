//! Any bytes as a record of a group: refused with a reason, or decoded and encoded to the same bytes. The first byte
//! is the kind, the rest the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_shard::GroupRecord;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, body)) = data.split_first() else { return };
    let Ok(record) = GroupRecord::decode(kind, body) else { return };
    assert!(GroupRecord::is_kind(kind), "only kinds of groups are decoded");
    assert_eq!(record.kind(), kind);
    assert_eq!(record.encode(), body, "a record has one form");
});
