//! The settings of a topic for live connections: whether subscribers know of each other, and what becomes of one that
//! reads more slowly than messages come.

use std::fmt;

/// How live connections follow a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LiveSettings {
    /// Whether subscribers may ask who else is subscribed, and are told who comes and goes.
    pub presence: bool,
    /// What becomes of a subscriber that falls behind what is in memory.
    pub when_behind: WhenBehind,
}

/// What becomes of a live subscriber that falls behind what is in memory for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenBehind {
    /// It gets every message that is kept, from the log.
    #[default]
    Recover,
    /// It gets the newest message of each key only.
    Conflate,
    /// Its connection is ended; it comes back and recovers.
    Disconnect,
}

impl LiveSettings {
    /// The settings of a topic that a live connection creates.
    pub const OF_CHANNEL: Self = Self { presence: true, when_behind: WhenBehind::Recover };
}

impl WhenBehind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Recover, Self::Conflate, Self::Disconnect];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Recover => "recover",
            Self::Conflate => "conflate",
            Self::Disconnect => "disconnect",
        }
    }

    /// Its number in records and in the protocol.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Recover => 1,
            Self::Conflate => 2,
            Self::Disconnect => 3,
        }
    }

    /// The one with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|of| of.number() == number)
    }
}

impl fmt::Display for WhenBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for WhenBehind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|of| of.name() == text);
        found.ok_or_else(|| format!("{text:?} is none of recover, conflate and disconnect"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_a_name_and_a_number_of_its_own() {
        for rule in WhenBehind::ALL {
            assert_eq!(rule.name().parse(), Ok(rule));
            assert_eq!(WhenBehind::of_number(rule.number()), Some(rule));
        }
        assert_eq!(WhenBehind::of_number(0), None);
        let error = "skip".parse::<WhenBehind>().unwrap_err();
        assert_eq!(error, "\"skip\" is none of recover, conflate and disconnect");
    }
}
