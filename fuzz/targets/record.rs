//! Any bytes as an engine's record: refused with a reason, or decoded and encoded to the same bytes, as a fact has
//! one form. The first byte is the kind, the rest the body. Knows records, not their effects.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_engine::Record;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, body)) = data.split_first() else { return };
    let Ok((record, head)) = Record::decode(kind, Bytes::copy_from_slice(body)) else { return };
    assert_eq!(record.kind(), kind);

    let mut written = Vec::new();
    record.encode_head(&mut written);
    assert_eq!(written.len(), head, "the head has one length");
    if let Some(batch) = record.batch() {
        written.extend_from_slice(batch.bytes());
    }
    assert_eq!(written, body, "a fact has one form");
});
