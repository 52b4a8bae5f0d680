//! Any bytes as a frame from a client: refused with a reason, or read, written and read again to
//! the same value. The first byte is the kind, the rest the body. Knows the wire, not its meaning.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_protocol::{FrameHeader, Kind, Request};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, body)) = data.split_first() else { return };
    let header = FrameHeader { size: body.len() as u32, kind, flags: 0, request: 7 };
    let Ok(request) = Request::decode(&header, Bytes::copy_from_slice(body)) else { return };
    assert_eq!(request.kind() as u8, kind);

    let mut frame = Vec::new();
    request.encode(7, &mut frame);
    let (head, written) = frame.split_first_chunk().expect("a frame begins with its header");
    let head = FrameHeader::decode(head).expect("what is written can be read");
    assert_eq!(head.size as usize, written.len());
    assert_eq!((head.kind, head.request), (kind, 7));
    let again = Request::decode(&head, Bytes::copy_from_slice(written));
    assert_eq!(again.as_ref(), Ok(&request));
    let is_hot = matches!(
        request.kind(),
        Kind::Publish
            | Kind::PublishAt
            | Kind::PublishAtomic
            | Kind::Settle
            | Kind::SetCredit
            | Kind::Taken
    );
    if is_hot {
        assert_eq!(written, body, "a hot body has one form");
    }

    // What the rim does next with what it has read.
    match &request {
        Request::Publish(publish) => drop(publish.check_batch()),
        Request::CreateTopic(create) => drop(create.topic_config()),
        Request::AlterTopic(alter) => drop(alter.topic_config()),
        Request::CreateGroup(create) => drop((create.group_config(), create.start_at())),
        _ => {}
    }
});
