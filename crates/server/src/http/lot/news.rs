//! What those are told who wait at a spot: made once for each way to say it, whoever hears it. It knows
//! no sockets and nobody who waits.

use bytes::Bytes;
use sennit_engine::StreamChunk;

use crate::{
    core::now,
    http::{
        hall::Hall,
        http1_answers::{Manner, encode, put_end, put_piece},
        streams::{self, Live},
    },
    outgoing::Outgoing,
};

/// What has come at a spot.
#[derive(Debug)]
pub(super) struct News {
    pub(super) chunk: StreamChunk,
    live: Live,
    /// The cursor of those whose own lies behind it.
    cursor: u64,
    /// The cursor of those who are ahead: beyond all of theirs.
    cursor_ahead: u64,
    made: Vec<(Manner, u64, Outgoing)>,
    event: Option<Bytes>,
}

impl News {
    /// News of `chunk` for those who wait so, of whose cursors `cursor_max` is the highest.
    pub(super) fn new(chunk: StreamChunk, live: Live, cursor_max: u64) -> Self {
        let random = getrandom::u64().unwrap_or_default();
        let cursor = streams::next_cursor(now(), None, 0);
        // All who are ahead get one cursor, so that those between them and the broker may let them share
        // an answer again.
        let cursor_ahead = match live {
            Live::LongPoll => streams::next_cursor(now(), Some(cursor_max), random),
            Live::Events => cursor.max(cursor_max),
        };
        Self { chunk, live, cursor, cursor_ahead, made: Vec::new(), event: None }
    }

    /// The cursor of one who came with this one.
    pub(super) fn cursor_after(&self, cursor: u64) -> u64 {
        let is_ahead = self.live == Live::Events || cursor >= self.cursor;
        if is_ahead { self.cursor_ahead } else { self.cursor }
    }

    /// What one is told who is answered in that manner and came with this cursor. None if it cannot be
    /// said.
    pub(super) fn told(&mut self, manner: Manner, cursor: u64, hall: &Hall) -> Option<&Outgoing> {
        let cursor = self.cursor_after(cursor);
        let is_alike = |(of, at, _): &(Manner, u64, Outgoing)| (*of, *at) == (manner, cursor);
        let at = match self.made.iter().position(is_alike) {
            Some(at) => at,
            None => {
                let mut out = Outgoing::default();
                self.say(manner, cursor, hall, &mut out)?;
                self.made.push((manner, cursor, out));
                self.made.len() - 1
            }
        };
        Some(&self.made[at].2)
    }

    fn say(&mut self, manner: Manner, cursor: u64, hall: &Hall, out: &mut Outgoing) -> Option<()> {
        match self.live {
            Live::LongPoll => {
                let answer = streams::answer(&self.chunk, cursor)?;
                encode(answer, manner, &hall.date(), out);
            }
            Live::Events => {
                let event = self.event.get_or_insert_with(|| streams::events(&self.chunk, cursor));
                put_piece(event, manner.is_chunked(), out);
                if self.chunk.is_closed {
                    put_end(manner.is_chunked(), out);
                }
            }
        }
        Some(())
    }
}
