//! The date as answers give it, written once for all of a second.

use std::{cell::Cell, time::SystemTime};

/// Bytes of a date: `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) const DATE_BYTES: usize = 29;

/// The date of answers.
#[derive(Debug)]
pub(crate) struct Date {
    /// The second of the last one, and how it is written.
    last: Cell<(u64, [u8; DATE_BYTES])>,
}

impl Date {
    pub(crate) fn new() -> Self {
        Self { last: Cell::new((u64::MAX, [b' '; DATE_BYTES])) }
    }

    /// What it is now.
    pub(crate) fn now(&self) -> [u8; DATE_BYTES] {
        let now = SystemTime::now();
        let second = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (of, date) = self.last.get();
        if of == second {
            return date;
        }
        let mut date = [b' '; DATE_BYTES];
        let text = httpdate::fmt_http_date(now);
        date.copy_from_slice(&text.as_bytes()[..DATE_BYTES]);
        self.last.set((second, date));
        date
    }
}
