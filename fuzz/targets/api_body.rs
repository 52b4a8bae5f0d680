//! Any bytes as the body of a request of the HTTP API: refused in words by each request that has one, or messages that can be
//! stored as they are, a message to connections, or a channel. Knows only what the server makes of a body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_model::{BatchBuilder, Message, Messages};
use sennit_server::ApiBody;

/// A message that a batch takes is in it as it was.
fn check_message(message: &Message) {
    let mut builder = BatchBuilder::new();
    if let Err(error) = builder.push(message) {
        return assert!(!error.to_string().is_empty());
    }
    let batch = builder.take().expect("it has a message");
    let mut views = Messages::of_checked(batch.bytes());
    let view = views.next().expect("it is there");
    assert_eq!((view.payload(), view.key()), (&message.payload[..], &message.key[..]));
    let headers: Vec<_> = view.headers().map(|header| header.expect("a header")).collect();
    assert_eq!(headers.len(), message.headers.len());
    for ((name, kind, value), header) in headers.into_iter().zip(&message.headers) {
        assert_eq!((name, kind, value), (&*header.name, header.kind, &header.value[..]));
    }
    assert!(views.next().is_none());
}

fuzz_target!(|body: &[u8]| {
    let ApiBody { published, sent, subscription } = ApiBody::read(body);
    match published {
        Ok(messages) => {
            let bytes: usize = messages.iter().map(|(_, message)| message.payload.len()).sum();
            assert!(!messages.is_empty() && bytes <= body.len());
            messages.iter().for_each(|(_, message)| check_message(message));
        }
        Err(refusal) => assert!(!refusal.is_empty()),
    }
    match sent {
        Ok(payload) => assert!(payload.len() <= body.len()),
        Err(refusal) => assert!(!refusal.is_empty()),
    }
    match subscription {
        // Each byte of a channel is three of the name of its topic at most.
        Ok((channel, topic)) => assert!(topic.as_str().len() <= 3 * channel.len()),
        Err(refusal) => assert!(!refusal.is_empty()),
    }
});
