//! Any bytes as a batch of messages: checked or refused; an accepted batch can be iterated to its end. Knows only
//! the model.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_model::{Batch, HeaderKind};

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    // The checksums stop nearly every mutation, so the walk is fuzzed behind the journal's door,
    // which does not look at them.
    let journalled = Batch::from_journal(bytes.clone());
    let delivered = Batch::check_delivered(bytes.clone());
    let kept = Batch::check_kept(bytes.clone());
    if let Ok(published) = Batch::check(bytes) {
        assert_eq!(delivered.as_ref(), Ok(&published), "a consumer refuses what was published");
    }
    if let Ok(delivered) = delivered {
        assert_eq!(journalled.as_ref(), Ok(&delivered), "the journal refuses what is delivered");
        assert_eq!(kept.as_ref(), Ok(&delivered), "what is kept cannot be read back");
    }
    let Ok(batch) = journalled else { return };
    let mut count = 0;
    let mut length = 0;
    for message in batch.messages() {
        count += 1;
        length += message.encoded().len();
        let fields =
            message.key().len() + message.encoded_headers().len() + message.payload().len();
        let times = 8 * usize::from(message.delay().is_some())
            + 8 * usize::from(message.time_to_live().is_some());
        assert_eq!(16 + times + fields, message.encoded().len(), "fields overlap or leave a gap");
        let mut headers = 0;
        let mut broken = false;
        for header in message.headers() {
            assert!(!broken, "a walk goes on after its first error");
            match header {
                Ok((name, kind, value)) => {
                    assert!(!name.is_empty());
                    assert!(kind as u8 <= HeaderKind::Boolean as u8);
                    headers += 4 + name.len() + value.len();
                }
                Err(_) => broken = true,
            }
        }
        assert!(broken || headers == message.encoded_headers().len());
    }
    assert_eq!(count, batch.count());
    assert_eq!(length, data.len());
});
