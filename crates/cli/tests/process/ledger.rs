//! The ledger of a long run: for each topic the messages that were published, and which of them were settled. A
//! message's bytes follow from its name, so that each can be compared.

use std::collections::BTreeSet;

/// Bytes of a payload before its filling.
const HEAD_BYTES: usize = 16;
/// The longest filling, in bytes.
const FILLING_BYTES_MAX: u64 = 2000;

/// One topic, as it should be.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Which topic this is.
    number: u32,
    /// How often it was made under the same name.
    life: u32,
    end: u64,
    settled_before: u64,
    /// Settled, with unsettled ones before them.
    settled: BTreeSet<u64>,
    /// Bytes of payloads that are not settled.
    bytes: u64,
}

impl Ledger {
    /// A topic that was just made for the first time.
    pub fn new(number: u32) -> Self {
        Self { number, ..Self::default() }
    }

    /// The topic was deleted, and made again.
    pub fn begin_again(&mut self) {
        *self = Self { number: self.number, life: self.life + 1, ..Self::default() };
    }

    /// The payload of the message at `offset`.
    pub fn payload(&self, offset: u64) -> Vec<u8> {
        let mut mixed = offset ^ (u64::from(self.number) << 32) ^ (u64::from(self.life) << 56);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^= mixed >> 33;
        let filling = (mixed % FILLING_BYTES_MAX) as usize;
        let mut payload = Vec::with_capacity(HEAD_BYTES + filling);
        payload.extend(self.number.to_le_bytes());
        payload.extend(self.life.to_le_bytes());
        payload.extend(offset.to_le_bytes());
        payload.resize(HEAD_BYTES + filling, (mixed >> 40) as u8);
        payload
    }

    /// The offset of the next message.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// `count` more messages were confirmed.
    pub fn confirmed(&mut self, count: u64) {
        let bytes: usize = (self.end..self.end + count).map(|one| self.payload(one).len()).sum();
        self.bytes += bytes as u64;
        self.end += count;
    }

    /// What is wrong with a message that came from `offset`, if anything is.
    pub fn judge(&self, offset: u64, payload: &[u8]) -> Option<&'static str> {
        if offset >= self.end {
            Some("it was never published")
        } else if self.is_settled(offset) {
            Some("it was settled before")
        } else if *payload != *self.payload(offset) {
            Some("it is another one")
        } else {
            None
        }
    }

    fn is_settled(&self, offset: u64) -> bool {
        offset < self.settled_before || self.settled.contains(&offset)
    }

    /// The ack of a message is committed.
    pub fn settle(&mut self, offset: u64) {
        if self.is_settled(offset) {
            return;
        }
        self.bytes -= self.payload(offset).len() as u64;
        self.settled.insert(offset);
        while self.settled.remove(&self.settled_before) {
            self.settled_before += 1;
        }
    }

    /// Messages that are not settled.
    pub fn unsettled(&self) -> u64 {
        self.end - self.settled_before - self.settled.len() as u64
    }

    /// Bytes of their payloads.
    pub fn unsettled_bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_comes_until_it_is_settled_and_not_again() {
        let mut ledger = Ledger::new(7);
        ledger.confirmed(3);
        let second = ledger.payload(1);
        assert_eq!(ledger.judge(1, &second), None);
        assert_eq!(ledger.judge(2, &second), Some("it is another one"));
        assert_eq!(ledger.judge(3, &second), Some("it was never published"));
        ledger.settle(1);
        assert_eq!(ledger.judge(1, &second), Some("it was settled before"));
        assert_eq!(ledger.unsettled(), 2);
        ledger.settle(0);
        ledger.settle(2);
        assert_eq!((ledger.unsettled(), ledger.unsettled_bytes()), (0, 0));
    }

    #[test]
    fn a_message_of_an_earlier_life_is_another_one() {
        let mut ledger = Ledger::new(7);
        ledger.confirmed(1);
        let before = ledger.payload(0);
        ledger.begin_again();
        assert_eq!(ledger.judge(0, &before), Some("it was never published"));
        ledger.confirmed(1);
        assert_eq!(ledger.judge(0, &before), Some("it is another one"));
    }
}
