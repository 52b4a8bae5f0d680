//! Whether the messages of a group keep their order, by having one consumer at a time.

use std::{fmt, str::FromStr};

use crate::ConfigError;

/// The unit that has one active consumer at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Nothing: each message goes to a consumer that has room.
    #[default]
    None,
    /// Each fair key.
    Key,
    /// Each partition.
    Partition,
}

impl Order {
    const ALL: [Self; 3] = [Self::None, Self::Key, Self::Partition];

    /// Its number in records and on the wire.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Key => 1,
            Self::Partition => 2,
        }
    }

    /// The order of this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Key => "key",
            Self::Partition => "partition",
        })
    }
}

impl FromStr for Order {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|order| order.to_string() == text).ok_or_else(|| ConfigError {
            field: "order",
            value: format!("{text:?}"),
            allowed: "none, key or partition".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_word_and_a_number() {
        for order in Order::ALL {
            assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
            assert_eq!(Order::of_number(order.number()), Some(order));
        }
        assert_eq!(Order::of_number(3), None);
        let refused = "keys".parse::<Order>().unwrap_err().to_string();
        assert_eq!(refused, "order is \"keys\", allowed is none, key or partition");
    }
}
