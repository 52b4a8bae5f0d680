//! The memory of all answers of a core that clients have not taken yet, and how much the next answer may read at
//! once: little when they hold much. It knows no connections and no streams.

use std::{cell::Cell, rc::Rc};

use tokio::sync::Notify;

use super::limits::{ANSWERS_CORE_BYTES_MAX, SHORT_PAGE_BYTES};

/// What the answers of a core hold.
#[derive(Debug, Default)]
pub(crate) struct AnswerRoom {
    /// Bytes that their clients have not taken.
    held: Cell<usize>,
    /// Bytes that may come of the pages that are read now.
    read: Cell<usize>,
    /// Rung when there is room again.
    room: Notify,
}

impl AnswerRoom {
    /// Whether who has an answer that it has not taken is to wait with the next.
    pub(crate) fn is_full(&self) -> bool {
        self.held.get() > ANSWERS_CORE_BYTES_MAX
    }

    /// Waits until that may have changed.
    pub(crate) async fn wait_for_room(&self) {
        self.room.notified().await;
    }

    /// An account of answers that hold nothing yet.
    pub(crate) fn account(self: &Rc<Self>) -> AnswerAccount {
        AnswerAccount { room: self.clone(), bytes: 0 }
    }

    /// A page of so many bytes is read, or of fewer where there is no room for them. It counts until what was
    /// read is held, and the page dropped: many may be read at once.
    pub(crate) fn page(self: &Rc<Self>, wanted: u64) -> Page {
        let all = self.held.get() + self.read.get() + wanted as usize;
        let is_short = all > ANSWERS_CORE_BYTES_MAX;
        let bytes = if is_short { SHORT_PAGE_BYTES.min(wanted) } else { wanted };
        self.read.set(self.read.get() + bytes as usize);
        Page { room: self.clone(), bytes }
    }
}

/// Bytes of answers that are there and not taken; none once this is dropped.
#[derive(Debug)]
pub(crate) struct AnswerAccount {
    room: Rc<AnswerRoom>,
    bytes: usize,
}

impl AnswerAccount {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// There are so many now.
    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes == self.bytes {
            return;
        }
        let was_full = self.room.is_full();
        self.room.held.set(self.room.held.get() - self.bytes + bytes);
        self.bytes = bytes;
        if was_full && !self.room.is_full() {
            self.room.room.notify_waiters();
        }
    }
}

impl Drop for AnswerAccount {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A page that is read.
#[derive(Debug)]
pub(crate) struct Page {
    room: Rc<AnswerRoom>,
    bytes: u64,
}

impl Page {
    /// How long it may be; longer only where one message is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.room.read.set(self.room.read.get() - self.bytes as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: u64 = 4 << 20;

    #[test]
    fn pages_are_short_while_answers_hold_too_much_or_those_that_are_read_could_make_them() {
        let room = Rc::<AnswerRoom>::default();
        let mut held = room.account();
        held.set(ANSWERS_CORE_BYTES_MAX - 2 * WANTED as usize);
        let first = room.page(WANTED);
        let second = room.page(WANTED);
        assert_eq!((first.bytes(), second.bytes()), (WANTED, WANTED));
        assert_eq!(room.page(WANTED).bytes(), SHORT_PAGE_BYTES);
        assert_eq!(room.page(7).bytes(), 7);
        drop(first);
        assert_eq!(room.page(WANTED).bytes(), WANTED);
        held.set(ANSWERS_CORE_BYTES_MAX);
        assert_eq!(room.page(WANTED).bytes(), SHORT_PAGE_BYTES);
        drop((held, second));
        assert_eq!((room.held.get(), room.read.get()), (0, 0));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_waits_for_room_hears_of_it_when_another_goes() {
        let room = Rc::<AnswerRoom>::default();
        let mut held = [room.account(), room.account()];
        held.iter_mut().for_each(|held| held.set(ANSWERS_CORE_BYTES_MAX));
        assert!(room.is_full());
        let [one, other] = held;
        tokio::join!(room.wait_for_room(), async move { drop(one) });
        assert!(!room.is_full(), "exactly so much is not too much");
        drop(other);
    }
}
