//! Batches that are kept in memory alone, by numbers that count up. They lie in pages, as most are put
//! behind the last and go from the front; a page is there as long as one of its batches is. It does not
//! know whose they are.

use std::{collections::BTreeMap, iter};

use bytes::Bytes;

/// Batches of a page: where one stays and its neighbours go, it costs the room of so many.
const PAGE_BATCHES: u64 = 32;

/// Batches whose numbers follow one another.
#[derive(Debug)]
struct Page {
    batches: Box<[Option<Bytes>]>,
    /// How many are there.
    count: usize,
}

/// Batches, by number.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Full once, and not empty since.
    pages: BTreeMap<u64, Page>,
    /// The page that fills.
    last: Option<Page>,
    /// How many were ever kept.
    ever: u64,
    bytes: u64,
}

/// The page of a number, and its place there.
fn place_of(number: u64) -> (u64, usize) {
    (number / PAGE_BATCHES, (number % PAGE_BATCHES) as usize)
}

impl Kept {
    /// Keeps a batch; says its number.
    pub(crate) fn put(&mut self, batch: Bytes) -> u64 {
        let number = self.ever;
        let (page, at) = place_of(number);
        self.ever += 1;
        self.bytes += batch.len() as u64;
        let empty = || iter::repeat_n(None, PAGE_BATCHES as usize).collect();
        let last = self.last.get_or_insert_with(|| Page { batches: empty(), count: 0 });
        last.batches[at] = Some(batch);
        last.count += 1;
        if place_of(self.ever).0 != page
            && let Some(full) = self.last.take()
        {
            self.pages.insert(page, full);
        }
        number
    }

    /// The batch of this number, if it is here.
    pub(crate) fn get(&self, number: u64) -> Option<&Bytes> {
        let (page, at) = place_of(number);
        let is_last = page == place_of(self.ever).0;
        let page = if is_last { self.last.as_ref() } else { self.pages.get(&page) };
        page?.batches[at].as_ref()
    }

    /// Lets go of the batch of this number.
    pub(crate) fn free(&mut self, number: u64) {
        let (page, at) = place_of(number);
        let is_last = page == place_of(self.ever).0;
        let held = if is_last { self.last.as_mut() } else { self.pages.get_mut(&page) };
        let Some(held) = held else { return };
        let Some(batch) = held.batches[at].take() else { return };
        self.bytes -= batch.len() as u64;
        held.count -= 1;
        if held.count == 0 && !is_last {
            self.pages.remove(&page);
        }
    }

    /// Bytes of all that is here.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_here_until_it_is_freed_and_its_number_is_nobody_elses() {
        let mut kept = Kept::default();
        let count = 3 * PAGE_BATCHES + 5;
        for number in 0..count {
            assert_eq!(kept.put(Bytes::from(number.to_string())), number);
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
        assert_eq!(kept.put(Bytes::new()), count);
    }

    #[test]
    fn a_page_goes_with_its_last_batch() {
        let mut kept = Kept::default();
        let put: Vec<_> = (0..2 * PAGE_BATCHES).map(|_| kept.put(Bytes::from("x"))).collect();
        assert_eq!((kept.pages.len(), kept.last.is_some()), (2, false));
        put.iter().for_each(|number| kept.free(*number));
        assert_eq!((kept.pages.len(), kept.bytes()), (0, 0));
        // The one that fills is needed again at once.
        let number = kept.put(Bytes::from("x"));
        kept.free(number);
        (1..PAGE_BATCHES).for_each(|_| {
            kept.put(Bytes::new());
        });
        assert_eq!((kept.pages.len(), kept.get(number)), (1, None));
    }
}
