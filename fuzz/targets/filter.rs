//! Any text as a filter, any bytes as its message: an error with a position within the text, or a result, the same
//! each time. Knows only the model.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_model::{
    Batch, BatchBuilder, Filter, Message,
    limits::{FILTER_BYTES_MAX, FILTER_TESTS_MAX},
};

// The text ends at the first zero byte; what follows is a batch, or else key and payload of a message.
fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let filter: Filter = match text.parse() {
        Ok(filter) => filter,
        Err(error) => {
            assert!(error.position <= text.len() && !error.wanted.is_empty());
            let _ = error.show_in(text);
            return;
        }
    };
    assert!(
        text.len() <= FILTER_BYTES_MAX && (1..=FILTER_TESTS_MAX).contains(&filter.test_count())
    );
    let negated: Option<Filter> = format!("not ({text})").parse().ok();
    let rest = Bytes::copy_from_slice(data.get(end + 1..).unwrap_or_default());
    let batch = Batch::from_journal(rest.clone()).ok().or_else(|| {
        let key = rest.slice(..rest.len().min(100));
        let mut builder = BatchBuilder::new();
        builder.push(&Message { key, ..Message::new(rest) }).ok()?;
        builder.take()
    });
    for message in batch.iter().flat_map(Batch::messages) {
        let passes = filter.matches(&message);
        assert_eq!(passes, filter.matches(&message));
        assert!(filter.cost(&message) > 0);
        if let Some(negated) = &negated {
            assert_ne!(passes, negated.matches(&message), "a filter and its opposite agree");
        }
    }
});
