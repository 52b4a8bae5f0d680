//! The messages of topics that are not durable. Their readers receive messages before these are committed, so a fail-over may
//! take messages that were received. No offset that was given is given to another message, and what was confirmed as durable
//! stays.

use std::collections::BTreeMap;

use sennit_engine::{Confirmed, Delivery};
use sennit_history::Content;
use sennit_model::{Durability, Messages};

use super::calls::content;
use crate::oracle::Violation;

/// The promise that an offset is of one message.
pub const GIVEN_ONCE: &str = "I4 no offset that was given is given to another message";
/// The promise that what is confirmed as durable stays.
pub const STAYS: &str = "I1 what was confirmed as durable is not lost";

/// A message, by its partition's index and its offset.
type Place = (u32, u64);

/// The messages that were received or confirmed.
#[derive(Debug, Default)]
pub struct EarlyMessages {
    seen: BTreeMap<Place, Content>,
    /// Those that were confirmed as durable, and were not read back yet.
    owed: BTreeMap<Place, Content>,
}

impl EarlyMessages {
    /// A batch is confirmed, with these messages.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn confirmed(
        &mut self,
        partition: u32,
        confirmed: &Confirmed,
        contents: Vec<Content>,
    ) -> Result<(), Violation> {
        let Some(first) = confirmed.first_offset else { return Ok(()) };
        for (offset, content) in (first.0..).zip(contents) {
            self.see((partition, offset), content)?;
            if confirmed.durability == Durability::Durable {
                self.owed.insert((partition, offset), content);
            }
        }
        Ok(())
    }

    /// Messages have come.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn delivered(
        &mut self,
        partition: u32,
        delivery: &Delivery,
        reads_back: bool,
    ) -> Result<(), Violation> {
        let messages = Messages::of_checked(&delivery.messages);
        for (offset, message) in (delivery.first.0..).zip(messages) {
            let place = (partition, offset);
            self.see(place, content(&message))?;
            if reads_back {
                self.owed.remove(&place);
            }
        }
        Ok(())
    }

    fn see(&mut self, place: Place, content: Content) -> Result<(), Violation> {
        let before = *self.seen.entry(place).or_insert(content);
        if before == content {
            return Ok(());
        }
        let detail = format!("{place:?} was {before:?}, and is {content:?}");
        Err(Violation::new(GIVEN_ONCE, detail))
    }

    /// All was read back.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn end(&self) -> Result<(), Violation> {
        match self.owed.first_key_value() {
            None => Ok(()),
            Some(lost) => Err(Violation::new(STAYS, format!("{lost:?}"))),
        }
    }
}
