//! Any bytes as a frame from a server: refused with a reason, or read, written and read again to
//! the same value. The first byte is the kind, the rest the body. Knows the wire, not its meaning.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_protocol::{FrameHeader, Kind, Reply};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, body)) = data.split_first() else { return };
    let header = FrameHeader { size: body.len() as u32, kind, flags: 0, request: 7 };
    let Ok(reply) = Reply::decode(&header, Bytes::copy_from_slice(body)) else { return };
    assert_eq!(reply.kind() as u8, kind);

    let mut frame = Vec::new();
    reply.encode(7, &mut frame);
    let (head, written) = frame.split_first_chunk().expect("a frame begins with its header");
    let head = FrameHeader::decode(head).expect("what is written can be read");
    assert_eq!(head.size as usize, written.len());
    assert_eq!((head.kind, head.request), (kind, 7));
    let again = Reply::decode(&head, Bytes::copy_from_slice(written));
    assert_eq!(again.as_ref(), Ok(&reply));
    let is_hot = matches!(
        reply.kind(),
        Kind::Confirm
            | Kind::Deliver
            | Kind::Settled
            | Kind::Gap
            | Kind::PublishedAt
            | Kind::PublishNote
    );
    if is_hot {
        assert_eq!(written, body, "a hot body has one form");
    }

    // What a client does next with what it has read.
    match &reply {
        Reply::Deliver(deliver) => drop(deliver.check_messages()),
        Reply::Error(error) => drop(error.error_code()),
        _ => {}
    }
});
