//! The start of a subscription: what is new, all that is kept, or a position that one has had.

use std::str::FromStr;

/// Where a subscription begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// With what is published from now on.
    Latest,
    /// With the oldest publication that is kept.
    Earliest,
    /// Behind a position.
    Behind(ChannelPosition),
}

/// The last publication that one has had. An empty epoch is that of any topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelPosition {
    /// The epoch of the channel.
    pub epoch: String,
    /// The offset of the publication; 0 before the first.
    pub offset: u64,
}

impl ChannelPosition {
    /// The offset of the publication behind it.
    pub fn next(&self) -> u64 {
        self.offset.saturating_add(1)
    }
}

impl FromStr for Start {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" | "now" => return Ok(Self::Latest),
            "earliest" | "beginning" => return Ok(Self::Earliest),
            _ => {}
        }
        let (epoch, offset) = text.rsplit_once(':').unwrap_or(("", text));
        let offset = offset.parse().map_err(|_| {
            format!(
                "{text:?} is no place to begin: write latest, earliest, an offset (42) or a \
                 position with its epoch (7:42)"
            )
        })?;
        Ok(Self::Behind(ChannelPosition { epoch: epoch.to_owned(), offset }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_read_in_each_of_its_forms() {
        let behind = |epoch: &str, offset| {
            Start::Behind(ChannelPosition { epoch: epoch.to_owned(), offset })
        };
        for (text, start) in [
            ("latest", Start::Latest),
            ("beginning", Start::Earliest),
            ("42", behind("", 42)),
            ("7:42", behind("7", 42)),
            ("a:b:42", behind("a:b", 42)),
        ] {
            assert_eq!(text.parse(), Ok(start), "{text}");
        }
        for text in ["", "7:", "-1", "soon"] {
            assert!(text.parse::<Start>().unwrap_err().contains("write latest"), "{text}");
        }
    }
}
