//! Messages of a batch that go into another one, as they are or changed. Their bytes are copied once; nothing else is
//! allocated.

use bytes::BufMut;

use super::{BatchBuilder, BatchError, message_checksum};
use crate::{
    header::HeaderError,
    limits::{
        BATCH_MESSAGES_MAX, DURATION_MAX, HEADERS_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX,
    },
    message::{FLAG_DELAY, FLAG_TIME_TO_LIVE, MessageView},
    message_change::MessageChange,
};

impl BatchBuilder {
    /// Adds a message of a checked batch as it is.
    ///
    /// # Errors
    /// A [`BatchError`] that names the exceeded limit. The builder is then unchanged.
    pub fn push_copy(&mut self, message: &MessageView<'_>) -> Result<(), BatchError> {
        let encoded = message.encoded();
        let length = self.bytes.len() + encoded.len();
        if length > self.bytes_max {
            return Err(BatchError::TooLong { length });
        }
        if self.count as usize == BATCH_MESSAGES_MAX {
            return Err(BatchError::TooMany);
        }
        self.bytes.put_slice(encoded);
        self.counted(message.delay().is_some() || message.time_to_live().is_some(), message.key());
        Ok(())
    }

    /// Adds a message of a checked batch with a change.
    ///
    /// # Errors
    /// A [`BatchError`] that names the exceeded limit, or what is wrong with the message's own headers. The builder is
    /// then unchanged.
    pub fn push_changed(
        &mut self,
        message: &MessageView<'_>,
        change: &MessageChange<'_>,
    ) -> Result<(), BatchError> {
        let start = self.bytes.len();
        let pushed = self.try_push_changed(message, change, start);
        if pushed.is_err() {
            self.bytes.truncate(start);
        }
        pushed
    }

    fn try_push_changed(
        &mut self,
        message: &MessageView<'_>,
        change: &MessageChange<'_>,
        start: usize,
    ) -> Result<(), BatchError> {
        let index = self.count as usize;
        if index == BATCH_MESSAGES_MAX {
            return Err(BatchError::TooMany);
        }
        let delay = change.delay.or(message.delay());
        let time_to_live = change.time_to_live.or(message.time_to_live());
        let flags = FLAG_DELAY * u16::from(delay.is_some())
            + FLAG_TIME_TO_LIVE * u16::from(time_to_live.is_some());
        let key = message.key();
        let key_len = u16::try_from(key.len())
            .ok()
            .filter(|&length| usize::from(length) <= KEY_BYTES_MAX)
            .ok_or(BatchError::KeyTooLong { index, length: key.len() })?;
        self.bytes.put_bytes(0, 8);
        self.bytes.put_u16_le(flags);
        self.bytes.put_u16_le(key_len);
        self.bytes.put_u32_le(0);
        for time in [delay, time_to_live].into_iter().flatten() {
            if time > DURATION_MAX {
                return Err(BatchError::Duration { index });
            }
            self.bytes.put_u64_le(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        }
        self.bytes.put_slice(key);
        let headers_start = self.bytes.len();
        self.put_headers(message, change)?;
        let headers = self.bytes.len() - headers_start;
        if headers > HEADERS_BYTES_MAX + self.extra {
            return Err(HeaderError::TooLong { length: headers }.into());
        }
        self.bytes.put_slice(message.payload());
        let length = self.bytes.len() - start;
        if length > MESSAGE_BYTES_MAX + self.extra {
            return Err(BatchError::MessageTooLong { index, length });
        }
        if self.bytes.len() > self.bytes_max {
            return Err(BatchError::TooLong { length: self.bytes.len() });
        }
        let bytes = &mut self.bytes[start..];
        let headers_len = u16::try_from(headers).unwrap_or(u16::MAX);
        bytes[12..14].copy_from_slice(&headers_len.to_le_bytes());
        let size = u32::try_from(length).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        let checksum = message_checksum(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        self.counted(flags != 0, key);
        Ok(())
    }

    /// The message's headers that the change does not name, and then those that it sets.
    fn put_headers(
        &mut self,
        message: &MessageView<'_>,
        change: &MessageChange<'_>,
    ) -> Result<(), HeaderError> {
        for header in message.headers() {
            let (name, kind, value) = header?;
            if !change.headers.iter().any(|changed| changed.name == name) {
                self.put_header(name, kind as u8, value)?;
            }
        }
        for (at, changed) in change.headers.iter().enumerate() {
            let is_last = change.headers[at + 1..].iter().all(|later| later.name != changed.name);
            if let Some((kind, value)) = changed.value.filter(|_| is_last) {
                self.put_header(changed.name, kind as u8, value)?;
            }
        }
        Ok(())
    }

    fn put_header(&mut self, name: &str, kind: u8, value: &[u8]) -> Result<(), HeaderError> {
        let name_len = u8::try_from(name.len())
            .ok()
            .filter(|&length| length > 0)
            .ok_or(HeaderError::NameLength { length: name.len() })?;
        let value_len =
            u16::try_from(value.len()).map_err(|_| HeaderError::TooLong { length: value.len() })?;
        self.bytes.put_u8(kind);
        self.bytes.put_u8(name_len);
        self.bytes.put_u16_le(value_len);
        self.bytes.put_slice(name.as_bytes());
        self.bytes.put_slice(value);
        Ok(())
    }

    fn counted(&mut self, timed: bool, key: &[u8]) {
        self.count += 1;
        self.timed |= timed;
        self.keyless |= key.is_empty();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Batch, Header, HeaderChange, HeaderKind, Message};

    fn batch(message: &Message) -> Batch {
        let mut builder = BatchBuilder::new();
        builder.push(message).unwrap();
        builder.take().unwrap()
    }

    fn headers(batch: &Batch) -> Vec<(String, Vec<u8>)> {
        let message = batch.messages().next().unwrap();
        let headers = message.headers().map(Result::unwrap);
        headers.map(|(name, _, value)| (name.to_owned(), value.to_vec())).collect()
    }

    fn message() -> Message {
        Message {
            key: "k".into(),
            headers: vec![Header::text("a", "1"), Header::text("b", "2"), Header::text("a", "3")],
            payload: "payload".into(),
            delay: None,
            time_to_live: Some(Duration::from_secs(9)),
        }
    }

    #[test]
    fn a_changed_message_has_the_new_headers_and_all_else_as_it_was() {
        let old = batch(&message());
        let view = old.messages().next().unwrap();
        let mut builder = BatchBuilder::new();
        let value = |text: &'static str| Some((HeaderKind::Text, text.as_bytes()));
        let headers_changed = [
            HeaderChange { name: "a", value: value("first") },
            HeaderChange { name: "c", value: value("new") },
            HeaderChange { name: "b", value: None },
            HeaderChange { name: "a", value: value("last") },
        ];
        let delay = Some(Duration::from_millis(5));
        let change = MessageChange { headers: &headers_changed, delay, time_to_live: None };
        builder.push_copy(&view).unwrap();
        builder.push_changed(&view, &change).unwrap();
        let new = builder.take().unwrap();
        let checked = Batch::check(new.bytes().clone()).unwrap();
        assert_eq!((checked, new.is_timed(), new.is_keyed()), (new.clone(), true, true));
        assert_eq!(new.part(0..1).bytes(), old.bytes());
        let new = new.part(1..2);
        let named = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
        assert_eq!(headers(&new), [named("c", "new"), named("a", "last")]);
        let view = new.messages().next().unwrap();
        assert_eq!((view.key(), view.payload()), (&b"k"[..], &b"payload"[..]));
        assert_eq!((view.delay(), view.time_to_live()), (delay, Some(Duration::from_secs(9))));
    }

    #[test]
    fn a_change_beyond_a_limit_leaves_the_builder_as_it_was() {
        let old = batch(&message());
        let view = old.messages().next().unwrap();
        let mut builder = BatchBuilder::new();
        builder.push_copy(&view).unwrap();
        let long = vec![b'x'; HEADERS_BYTES_MAX];
        let long = [HeaderChange { name: "a", value: Some((HeaderKind::Text, &long)) }];
        let nameless = [HeaderChange { name: "", value: Some((HeaderKind::Text, b"")) }];
        for headers in [&long, &nameless] {
            let change = MessageChange { headers, ..MessageChange::default() };
            assert!(matches!(builder.push_changed(&view, &change), Err(BatchError::Header(_))));
        }
        let delay = Some(DURATION_MAX + Duration::from_millis(1));
        let change = MessageChange { delay, ..MessageChange::default() };
        assert_eq!(builder.push_changed(&view, &change), Err(BatchError::Duration { index: 1 }));
        assert_eq!(builder.take().unwrap().bytes(), old.bytes());
    }
}
