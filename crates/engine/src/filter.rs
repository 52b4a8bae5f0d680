//! Readers with a filter: a turn checks the messages at the reader's position, within a budget of work, and
//! delivers those that match. It does not know how filters are written.
//!
//! A message that does not match costs nothing of the window. The reader receives a gap for it only where no
//! delivery follows that implies it: at the end, and every [`FILTERED_SPAN`] messages.

use std::ops::Range;

use bytes::Bytes;
use sennit_model::Messages;

use crate::{
    effect::{Effect, GapReason},
    engine::{Outbox, Payloads},
    gather::byte_of,
    group::range,
    log::Entry,
    read::Pass,
    readers::{Reader, ReaderFilter},
};

/// Most work that the filter of one reader does in a turn.
const READER_WORK_MAX: u64 = 1 << 20;

/// Work that each may do even when the turn's work is used up, so that none starves.
const READER_WORK_MIN: u64 = 4 << 10;

/// Work to find a batch, beside its messages.
const BATCH_COST: u64 = 512;

/// Most messages that a reader passes over without a gap. The gap moves its position on, and a cursor that it
/// commits.
const FILTERED_SPAN: u64 = 65_536;

impl Pass<'_> {
    /// Delivers the messages that match a reader's filter, as far as its window and this turn reach.
    pub(crate) fn serve_filtered(
        &mut self,
        reader: &mut Reader,
        filter: &mut ReaderFilter,
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
                // A gap was reported for messages that are not kept.
                filter.reported_to = reader.at;
            }
            let Some((entry, batch)) = found else { break };
            work = work.saturating_sub(BATCH_COST);
            self.filter_batch(reader, filter, (&entry, &batch), &mut work, out);
        }
        *self.work_left = self.work_left.saturating_sub(allowed - work);
        let passed = reader.at - filter.reported_to;
        if passed > FILTERED_SPAN || passed > 0 && reader.at == visible {
            self.report_filtered(reader, filter, out);
        }
    }

    fn report_filtered(&self, reader: &Reader, filter: &mut ReaderFilter, out: &mut Outbox) {
        let range = range(filter.reported_to, reader.at);
        filter.reported_to = reader.at;
        out.now.push(Effect::gap(reader.holder, self.id, range, GapReason::Filtered));
    }

    /// Checks the messages of one batch, and delivers neighbours that match together.
    fn filter_batch(
        &self,
        reader: &mut Reader,
        filter: &mut ReaderFilter,
        (entry, batch): (&Entry, &Bytes),
        work: &mut u64,
        out: &mut Outbox,
    ) {
        let mut byte = byte_of(reader.place_hint, entry, batch, reader.at);
        // Offset and byte of the first message that matches and is not delivered yet.
        let mut run = None;
        for message in Messages::of_checked(&batch[byte..]) {
            *work = work.saturating_sub(filter.wanted.cost(&message));
            let length = message.encoded().len();
            if filter.wanted.matches(&message) {
                run.get_or_insert((reader.at, byte));
                reader.held_messages += 1;
                reader.held_bytes += length as u64;
            } else if let Some((first, start)) = run.take() {
                self.deliver_run(reader, filter, (entry, batch), first, start..byte, out);
            }
            reader.at += 1;
            byte += length;
            if *work == 0 || reader.room_messages() == 0 {
                break;
            }
        }
        if let Some((first, start)) = run {
            self.deliver_run(reader, filter, (entry, batch), first, start..byte, out);
        }
        reader.place_hint = (reader.at < entry.end()).then_some((reader.at, byte));
    }

    /// Delivers the messages from `first` to the reader's position, which are `bytes` of the batch.
    fn deliver_run(
        &self,
        reader: &Reader,
        filter: &mut ReaderFilter,
        (entry, batch): (&Entry, &Bytes),
        first: u64,
        bytes: Range<usize>,
        out: &mut Outbox,
    ) {
        filter.reported_to = reader.at;
        self.deliver(reader, entry, first, batch.slice(bytes), out);
    }
}
