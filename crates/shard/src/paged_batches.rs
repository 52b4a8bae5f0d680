//! Batches that are kept in memory alone, under increasing numbers. They lie in pages, as most are added at the end
//! and freed at the front; a page exists as long as one of its batches does.

use std::{collections::BTreeMap, iter};

use bytes::Bytes;

/// Batches of a page. A batch that outlives its neighbours costs the memory of a page.
const PAGE_BATCHES: u64 = 32;

/// Batches with successive numbers.
#[derive(Debug)]
struct BatchPage {
    batches: Box<[Option<Bytes>]>,
    /// The number of its batches.
    count: usize,
}

/// Batches, by number.
#[derive(Debug, Default)]
pub(crate) struct PagedBatches {
    /// Pages that were full once and are not empty.
    pages: BTreeMap<u64, BatchPage>,
    /// The page that is being filled.
    last: Option<BatchPage>,
    /// The number of the next batch.
    next_number: u64,
    bytes: u64,
}

/// The page of a number, and the index there.
fn place_of(number: u64) -> (u64, usize) {
    (number / PAGE_BATCHES, (number % PAGE_BATCHES) as usize)
}

impl PagedBatches {
    /// Adds a batch and returns its number.
    pub(crate) fn push(&mut self, batch: Bytes) -> u64 {
        let number = self.next_number;
        let (page, at) = place_of(number);
        self.next_number += 1;
        self.bytes += batch.len() as u64;
        let empty = || iter::repeat_n(None, PAGE_BATCHES as usize).collect();
        let last = self.last.get_or_insert_with(|| BatchPage { batches: empty(), count: 0 });
        last.batches[at] = Some(batch);
        last.count += 1;
        if place_of(self.next_number).0 != page
            && let Some(full) = self.last.take()
        {
            self.pages.insert(page, full);
        }
        number
    }

    /// The batch with this number, if it exists.
    pub(crate) fn get(&self, number: u64) -> Option<&Bytes> {
        let (page, at) = place_of(number);
        let is_last = page == place_of(self.next_number).0;
        let page = if is_last { self.last.as_ref() } else { self.pages.get(&page) };
        page?.batches[at].as_ref()
    }

    /// Frees the batch with this number.
    pub(crate) fn free(&mut self, number: u64) {
        let (page, at) = place_of(number);
        let is_last = page == place_of(self.next_number).0;
        let held = if is_last { self.last.as_mut() } else { self.pages.get_mut(&page) };
        let Some(held) = held else { return };
        let Some(batch) = held.batches[at].take() else { return };
        self.bytes -= batch.len() as u64;
        held.count -= 1;
        if held.count == 0 && !is_last {
            self.pages.remove(&page);
        }
    }

    /// Bytes of all batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_here_until_it_is_freed_and_its_number_is_nobody_elses() {
        let mut kept = PagedBatches::default();
        let count = 3 * PAGE_BATCHES + 5;
        for number in 0..count {
            assert_eq!(kept.push(Bytes::from(number.to_string())), number);
            assert_eq!(kept.get(number), Some(&Bytes::from(number.to_string())));
        }
        assert_eq!(kept.get(count), None);
        for number in (0..count).filter(|number| number % 7 != 0) {
            kept.free(number);
            kept.free(number);
        }
        for number in 0..count {
            let wanted = (number % 7 == 0).then(|| Bytes::from(number.to_string()));
            assert_eq!(kept.get(number), wanted.as_ref(), "{number}");
        }
        let left = (0..count).step_by(7).map(|number| number.to_string().len() as u64);
        assert_eq!(kept.bytes(), left.sum::<u64>());
        assert_eq!(kept.push(Bytes::new()), count);
    }

    #[test]
    fn a_page_goes_with_its_last_batch() {
        let mut kept = PagedBatches::default();
        let put: Vec<_> = (0..2 * PAGE_BATCHES).map(|_| kept.push(Bytes::from("x"))).collect();
        assert_eq!((kept.pages.len(), kept.last.is_some()), (2, false));
        put.iter().for_each(|number| kept.free(*number));
        assert_eq!((kept.pages.len(), kept.bytes()), (0, 0));
        // The one that fills is needed again at once.
        let number = kept.push(Bytes::from("x"));
        kept.free(number);
        (1..PAGE_BATCHES).for_each(|_| {
            kept.push(Bytes::new());
        });
        assert_eq!((kept.pages.len(), kept.get(number)), (1, None));
    }
}
