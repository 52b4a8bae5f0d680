//! The window of a reader, which is one whatever leaders it has had: a new leader does not know what the reader holds of
//! those before, so the reader's home takes that off the window that it asks for. It knows no reader's position.

use sennit_engine::Credit;

/// Messages that were delivered to a reader and that it has not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    messages: u64,
    bytes: u64,
}

/// What a reader holds.
#[derive(Debug, Default)]
pub(super) struct ReaderWindow {
    of_leader: Held,
    /// Of the leaders before.
    of_former: Held,
}

impl ReaderWindow {
    /// The leader has delivered messages.
    pub(super) fn delivered(&mut self, messages: u32, bytes: u64) {
        self.of_leader.messages += u64::from(messages);
        self.of_leader.bytes += bytes;
    }

    /// The reader has taken messages, the earliest first. Returns how many of them the leader has delivered, and their
    /// bytes, and whether it has to know of another window.
    pub(super) fn taken(&mut self, messages: u32, bytes: u64) -> ((u32, u64), bool) {
        let Held { messages: held, bytes: held_bytes } = self.of_former;
        if held == 0 {
            self.take_of_leader(messages, bytes);
            return ((messages, bytes), false);
        }
        let of_former = u32::try_from(held).unwrap_or(u32::MAX).min(messages);
        let left = held - u64::from(of_former);
        let bytes_of_former = if left == 0 { held_bytes } else { held_bytes.min(bytes) };
        self.of_former = Held { messages: left, bytes: held_bytes - bytes_of_former };
        let rest = (messages - of_former, bytes.saturating_sub(bytes_of_former));
        self.take_of_leader(rest.0, rest.1);
        (rest, true)
    }

    fn take_of_leader(&mut self, messages: u32, bytes: u64) {
        let Held { messages: held, bytes: held_bytes } = self.of_leader;
        let messages = held.saturating_sub(messages.into());
        self.of_leader = Held { messages, bytes: held_bytes.saturating_sub(bytes) };
    }

    /// The reader is asked for again, of another leader or of the same: what it holds is of one before.
    pub(super) fn begin_anew(&mut self) {
        let Held { messages, bytes } = std::mem::take(&mut self.of_leader);
        self.of_former.messages += messages;
        self.of_former.bytes += bytes;
    }

    /// What the leader may fill of a window.
    pub(super) fn left_of(&self, window: Credit) -> Credit {
        let Held { messages: held, bytes: held_bytes } = self.of_former;
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let bytes = window.bytes.saturating_sub(held_bytes);
        // Where nothing is held one message is always allowed, however large.
        let messages =
            if held > 0 && bytes == 0 { 0 } else { window.messages.saturating_sub(held) };
        Credit { messages, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Credit = Credit { messages: 10, bytes: 1_000 };

    fn credit(messages: u32, bytes: u64) -> Credit {
        Credit { messages, bytes }
    }

    #[test]
    fn a_reader_that_holds_nothing_of_leaders_before_has_its_whole_window() {
        let mut reader = ReaderWindow::default();
        assert_eq!(reader.left_of(WINDOW), WINDOW);
        reader.delivered(4, 400);
        assert_eq!(reader.left_of(WINDOW), WINDOW, "the leader knows what it has delivered");
        assert_eq!(reader.taken(4, 400), ((4, 400), false));
        reader.begin_anew();
        assert_eq!(reader.left_of(WINDOW), WINDOW);
    }

    #[test]
    fn another_leader_gets_what_is_left_of_the_window_and_more_as_the_reader_takes() {
        let mut reader = ReaderWindow::default();
        reader.delivered(6, 600);
        reader.begin_anew();
        assert_eq!(reader.left_of(WINDOW), credit(4, 400));
        reader.delivered(3, 90);
        assert_eq!(reader.taken(2, 200), ((0, 0), true));
        assert_eq!(reader.left_of(WINDOW), credit(6, 600));
        assert_eq!(reader.taken(5, 430), ((1, 30), true), "one is the leader's");
        assert_eq!(reader.left_of(WINDOW), WINDOW);
        assert_eq!(reader.taken(2, 60), ((2, 60), false));
        reader.begin_anew();
        assert_eq!(reader.left_of(WINDOW), WINDOW);
    }

    #[test]
    fn what_is_held_of_several_leaders_adds_up_and_a_full_window_has_no_room() {
        let mut reader = ReaderWindow::default();
        for _ in 0..2 {
            reader.delivered(3, 500);
            reader.begin_anew();
        }
        assert_eq!(reader.left_of(WINDOW), credit(0, 0), "no room for bytes is no room at all");
        assert_eq!(reader.left_of(credit(2, 5_000)), credit(0, 4_000));
        assert!(reader.taken(u32::MAX, u64::MAX).1);
        assert_eq!(reader.left_of(WINDOW), WINDOW);
    }
}
