//! The answers to parked readers at one position. The shared part is encoded once; the head, or the offset to
//! continue at, once for all that have the same cursor and kind of answer. It knows no sockets and no readers.

use bytes::Bytes;
use sennit_engine::StreamChunk;
use sennit_model::Timestamp;

use crate::{
    broker::stream_offset::Identified,
    doors::streams::{self, Live},
    http::{
        http1_answers::{Manner, encode, put_end, put_pieces},
        thread_state::HttpThreadState,
    },
    runtime::{clock::now, write_buffer::WriteBuffer},
};

/// Ways to say it that are kept: readers who were told together have the same cursor, so there are few.
const KEPT_MAX: usize = 16;

/// What has come at a position.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) chunk: Identified<StreamChunk>,
    live: Live,
    now: Timestamp,
    random: u64,
    /// The body of an answer, or the event with what has come.
    body: Vec<Bytes>,
    kept: Vec<(Manner, u64, WriteBuffer)>,
}

impl Notice {
    /// News of `chunk` for those who wait so.
    pub(super) fn new(chunk: Identified<StreamChunk>, live: Live) -> Self {
        let body = match live {
            Live::LongPoll => streams::body(&chunk.answer),
            Live::Events | Live::Base64Events => vec![streams::event(&chunk.answer, live)],
        };
        let random = getrandom::u64().unwrap_or_default();
        Self { chunk, live, now: now(), random, body, kept: Vec::new() }
    }

    /// The cursor of one who came with this one. It depends on nobody else's.
    pub(super) fn cursor_after(&self, cursor: u64) -> u64 {
        match self.live {
            Live::LongPoll => streams::next_cursor(self.now, Some(cursor), self.random),
            Live::Events | Live::Base64Events => {
                streams::next_cursor(self.now, None, 0).max(cursor)
            }
        }
    }

    /// What one is told who is answered in that manner and gets this cursor. None if it cannot be said.
    pub(super) fn encoded(
        &mut self,
        manner: Manner,
        cursor: u64,
        thread_state: &HttpThreadState,
    ) -> Option<&WriteBuffer> {
        let is_alike = |(of, at, _): &(Manner, u64, WriteBuffer)| (*of, *at) == (manner, cursor);
        let at = match self.kept.iter().position(is_alike) {
            Some(at) => at,
            None => {
                let mut out = WriteBuffer::default();
                self.say(manner, cursor, thread_state, &mut out)?;
                if self.kept.len() == KEPT_MAX {
                    self.kept.pop();
                }
                self.kept.push((manner, cursor, out));
                self.kept.len() - 1
            }
        };
        Some(&self.kept[at].2)
    }

    fn say(
        &self,
        manner: Manner,
        cursor: u64,
        thread_state: &HttpThreadState,
        out: &mut WriteBuffer,
    ) -> Option<()> {
        match self.live {
            Live::LongPoll => {
                let head = streams::answer(&self.chunk, cursor, thread_state)?;
                let answer = head.with_body(streams::body_of(self.body.clone()));
                encode(answer, manner, &thread_state.date.now(), out);
            }
            Live::Events | Live::Base64Events => {
                let place = streams::control(&self.chunk, cursor);
                put_pieces(&[&self.body[0], &place], manner.is_chunked(), out);
                if self.chunk.answer.is_closed {
                    put_end(manner.is_chunked(), out);
                }
            }
        }
        Some(())
    }
}
