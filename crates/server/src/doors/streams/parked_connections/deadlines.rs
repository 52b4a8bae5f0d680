//! The deadlines of parked connections: a long-poll receives its empty answer, an event stream a sign of life and
//! later its end, and an idle connection is closed. It knows no clock but that of `parked_connections`.

use bytes::Bytes;
use sennit_engine::StreamCommand;
use tokio::time::Instant;

use super::{
    ParkedConnections, READERS_AT_ONCE_MAX,
    readers::{Moment, Patience},
};
use crate::{
    doors::streams::{self, KEEP_ALIVE, Live, ReadPosition},
    http::{
        http1_answers::{encode, put_end, put_pieces},
        response::Response,
    },
    runtime::{clock::now, shard_answers::ParkedQuestion, write_buffer::WriteBuffer},
};

impl ParkedConnections {
    /// Does what is due for some of them; says whether there may be more.
    pub(super) fn do_what_is_due(&mut self) -> bool {
        let now = self.moment(Instant::now());
        for _ in 0..READERS_AT_ONCE_MAX {
            let Some(reader) = self.readers.first_due(now) else { return false };
            match self.readers.position_of(reader).map(|held| held.position.clone()) {
                None => self.part(reader),
                Some(position) => {
                    // Who waits uses the stream.
                    self.command(
                        &position,
                        ParkedQuestion::UNAWAITED,
                        StreamCommand::Status { touches: true },
                    );
                    self.end_silence(reader, position, now);
                }
            }
        }
        true
    }

    /// A reader has waited at `position` for as long as it may be silent.
    fn end_silence(&mut self, reader: u32, position: ReadPosition, now: Moment) {
        let Some(held) = self.readers.get(reader) else { return };
        let (manner, patience) = (held.manner, held.patience);
        let mut out = WriteBuffer::default();
        match position.live {
            Live::LongPoll => {
                let answer = self.nothing(&position, patience.cursor);
                encode(answer, manner, &self.thread_state.date.now(), &mut out);
            }
            _ if now >= patience.until => put_end(manner.is_chunked(), &mut out),
            Live::Events | Live::Base64Events => {
                let comment = Bytes::from_static(KEEP_ALIVE);
                put_pieces(&[&comment], manner.is_chunked(), &mut out);
                return self.keep_alive(
                    reader,
                    &out,
                    position,
                    Patience { said_at: now, ..patience },
                );
            }
        }
        self.leave(reader);
        self.say(reader, &out, None);
    }

    fn nothing(&self, position: &ReadPosition, cursor: u64) -> Response {
        let random = getrandom::u64().unwrap_or_default();
        let cursor = streams::next_cursor(now(), Some(cursor), random);
        let answer = streams::nothing(position.at, cursor, &self.thread_state);
        self.thread_state.count(answer.status());
        answer
    }

    /// Says something to a reader that goes on waiting where it does.
    fn keep_alive(
        &mut self,
        reader: u32,
        out: &WriteBuffer,
        position: ReadPosition,
        patience: Patience,
    ) {
        let Some(held) = self.readers.get_mut(reader) else { return };
        match out.write_now(&mut held.wire, 0) {
            Err(_) => self.part(reader),
            Ok(taken) if taken < out.len() => {
                let wait = self.wait(reader, position, patience, false);
                self.send_back(reader, out.rest(taken), wait);
            }
            Ok(_) => {
                held.patience = patience;
                self.readers.set_due(reader, self.due(position.live, patience));
            }
        }
    }
}
