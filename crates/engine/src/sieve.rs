//! Readers that want a part of the messages: each filter looks at what its reader comes by, as far as
//! this turn allows, and passes over the rest. It does not know how filters are written.
//!
//! What is passed over costs nothing of a window. It is told only where a reader would not hear of it by
//! the next delivery: at the end, and now and then on the way.

use bytes::Bytes;
use sennit_model::Messages;

use crate::{
    effect::{Effect, GapReason},
    engine::{Outbox, Payloads},
    gather::byte_of,
    group::range,
    log::Entry,
    read::Pass,
    readers::{Reader, Sieve},
};

/// The most that the filter of one reader does in a turn.
const READER_WORK_MAX: u64 = 1 << 20;

/// What each does even when the turn's work is used up, so that none starves.
const READER_WORK_MIN: u64 = 4 << 10;

/// What finding a batch counts, beside its messages.
const BATCH_COST: u64 = 512;

/// Messages that may be passed over before the reader is told, so that its position, and a cursor that
/// it commits, moves on.
const FILTERED_SPAN: u64 = 65_536;

impl Pass<'_> {
    /// Gives a reader what its filter lets through, as far as its window and this turn reach.
    pub(crate) fn sieve(
        &mut self,
        reader: &mut Reader,
        sieve: &mut Sieve,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let allowed = READER_WORK_MAX.min((*self.work_left).max(READER_WORK_MIN));
        let mut work = allowed;
        let visible = self.partition.visible;
        while reader.at < visible && reader.room_messages() > 0 {
            if work == 0 {
                self.has_more = true;
                self.wakeups.wake(reader.holder);
                break;
            }
            let at = reader.at;
            let found = self.batch(reader, payloads, out);
            if reader.at > at {
                // It was told of what is not kept.
                sieve.told = reader.at;
            }
            let Some((entry, batch)) = found else { break };
            work = work.saturating_sub(BATCH_COST);
            self.sift(reader, sieve, (&entry, &batch), &mut work, out);
        }
        *self.work_left = self.work_left.saturating_sub(allowed - work);
        let passed = reader.at - sieve.told;
        if passed > FILTERED_SPAN || passed > 0 && reader.at == visible {
            self.tell_filtered(reader, sieve, out);
        }
    }

    fn tell_filtered(&self, reader: &Reader, sieve: &mut Sieve, out: &mut Outbox) {
        let range = range(sieve.told, reader.at);
        sieve.told = reader.at;
        out.now.push(Effect::gap(reader.holder, self.id, range, GapReason::Filtered));
    }

    /// Looks at the messages of one batch, and delivers neighbours that pass together.
    fn sift(
        &self,
        reader: &mut Reader,
        sieve: &mut Sieve,
        (entry, batch): (&Entry, &Bytes),
        work: &mut u64,
        out: &mut Outbox,
    ) {
        let mut byte = byte_of(reader.place_hint, entry, batch, reader.at);
        // Of the messages that pass and are not delivered yet: offset and byte of the first.
        let mut run = None;
        for message in Messages::of_checked(&batch[byte..]) {
            *work = work.saturating_sub(sieve.filter.cost(&message));
            let length = message.encoded().len();
            if sieve.filter.matches(&message) {
                run.get_or_insert((reader.at, byte));
                reader.held_messages += 1;
                reader.held_bytes += length as u64;
            } else if let Some(start) = run.take() {
                self.deliver_run(reader, sieve, (entry, batch), (start, byte), out);
            }
            reader.at += 1;
            byte += length;
            if *work == 0 || reader.room_messages() == 0 {
                break;
            }
        }
        if let Some(start) = run {
            self.deliver_run(reader, sieve, (entry, batch), (start, byte), out);
        }
        reader.place_hint = (reader.at < entry.end()).then_some((reader.at, byte));
    }

    /// Delivers what lies between `start` and where the reader is, whose byte is `end`.
    fn deliver_run(
        &self,
        reader: &Reader,
        sieve: &mut Sieve,
        (entry, batch): (&Entry, &Bytes),
        ((first, start), end): ((u64, usize), usize),
        out: &mut Outbox,
    ) {
        sieve.told = reader.at;
        self.give(reader, entry, first, batch.slice(start..end), out);
    }
}
