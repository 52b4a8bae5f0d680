//! Durability: when messages are delivered and confirmed, and which of them survive a crash. It knows no journal.

use std::{fmt, str::FromStr};

/// When a message is delivered and confirmed: the setting of a topic, or the state that a message
/// has reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Durability {
    /// Delivered and confirmed after the sync.
    #[default]
    Durable = 1,
    /// Delivered at append, confirmed after the sync.
    Speculative = 2,
    /// Delivered and confirmed at append, written a moment later.
    Ephemeral = 3,
    /// Delivered and confirmed at append, never written.
    Memory = 4,
}

/// A text that is not the name of a durability.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no durability: durable, speculative, ephemeral or memory")]
pub struct DurabilityError {
    /// The text.
    pub text: String,
}

impl Durability {
    /// All durabilities, by number.
    pub const ALL: [Self; 4] = [Self::Durable, Self::Speculative, Self::Ephemeral, Self::Memory];

    /// The number on the wire and in the journal, 1 to 4.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The durability with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|durability| durability.number() == number)
    }

    /// The name as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Speculative => "speculative",
            Self::Ephemeral => "ephemeral",
            Self::Memory => "memory",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = DurabilityError;

    fn from_str(text: &str) -> Result<Self, DurabilityError> {
        let named = Self::ALL.into_iter().find(|durability| durability.name() == text);
        named.ok_or_else(|| DurabilityError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_its_number_and_its_name_and_nothing_else_is() {
        for durability in Durability::ALL {
            assert_eq!(Durability::of_number(durability.number()), Some(durability));
            assert_eq!(durability.to_string().parse(), Ok(durability));
        }
        assert_eq!((Durability::of_number(0), Durability::of_number(5)), (None, None));
        assert!("Durable".parse::<Durability>().is_err());
    }
}
