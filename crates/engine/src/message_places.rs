//! Where the messages of a batch begin, so that one in its midst is found in one step.

use std::ops::Range;

use bytes::Bytes;
use sennit_model::Messages;

use crate::log::{Entry, Place};

/// Batches of which the places of all messages are remembered.
const PLACES_MAX: usize = 16;

/// Where the messages of some batches begin.
#[derive(Debug, Default)]
pub(crate) struct MessagePlaces(Vec<(Place, Box<[u32]>)>);

impl MessagePlaces {
    /// The bytes of the message at `index` of a batch. O(1) as a rule.
    pub(crate) fn of(&mut self, (entry, batch): (&Entry, &Bytes), index: usize) -> Range<usize> {
        if entry.count == 1 {
            return 0..batch.len();
        }
        let known = self.0.iter().position(|(place, _)| *place == entry.place);
        let at = known.unwrap_or_else(|| {
            let mut messages = Messages::of_checked(batch);
            let mut begin = 0;
            let begins = (0..entry.count).map(|_| {
                let begins = begin;
                begin += messages.skip_bytes(1);
                u32::try_from(begins).expect("a batch is limited far below 4 GiB")
            });
            let begins = begins.collect();
            if self.0.len() == PLACES_MAX {
                self.0.remove(0);
            }
            self.0.push((entry.place, begins));
            self.0.len() - 1
        });
        let begins = &self.0[at].1;
        let end = begins.get(index + 1).map_or(batch.len(), |end| *end as usize);
        begins[index] as usize..end
    }
}
