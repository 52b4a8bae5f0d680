//! A right: it allows or denies verbs for what matches a pattern. Its text is how it is given, kept and shown.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    limits::RIGHT_BYTES_MAX,
    pattern::{PatternError, RightPattern},
    verb::{Subject, UnknownVerb, Verb, VerbSet},
};

/// Whether a right allows or denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightEffect {
    /// It allows, unless another denies.
    Allow,
    /// It denies, whatever allows.
    Deny,
}

/// A right: `publish,settle orders.>`, `deny read orders.secret`, `monitor`. `*` are all verbs about topics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Right {
    /// Whether it allows or denies.
    pub effect: RightEffect,
    /// The verbs. All are about the same things.
    pub verbs: VerbSet,
    /// The names that it is about; `None` for verbs about the broker.
    pub pattern: Option<RightPattern>,
}

/// The reason why a text is no right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightError {
    /// The text is too long.
    #[error("a right has at most {RIGHT_BYTES_MAX} bytes, this one has {0}")]
    Length(usize),
    /// The text names no verb.
    #[error("a right is `[deny] VERB[,VERB...] [PATTERN]`, as in `publish,settle orders.>`")]
    NoVerb,
    /// A verb is none.
    #[error(transparent)]
    Verb(#[from] UnknownVerb),
    /// The pattern is none.
    #[error("{pattern:?} is no pattern: {error}")]
    Pattern {
        /// The text that is none.
        pattern: String,
        /// The reason.
        error: PatternError,
    },
    /// Verbs are about different things.
    #[error("{0} and {1} are about different things: make two rights of them")]
    Mixed(Verb, Verb),
    /// A verb needs a pattern and has none.
    #[error("{0} needs a pattern: `{0} orders.>`, or `{0} >` for all")]
    PatternMissing(Verb),
    /// A verb about the broker has a pattern.
    #[error("{0} is about the broker as a whole: leave the pattern out")]
    PatternTooMuch(Verb),
    /// Something follows the pattern.
    #[error("{0:?} follows the pattern: a right has one")]
    Rest(String),
}

impl FromStr for Right {
    type Err = RightError;

    fn from_str(text: &str) -> Result<Self, RightError> {
        if text.len() > RIGHT_BYTES_MAX {
            return Err(RightError::Length(text.len()));
        }
        let mut words = text.split_ascii_whitespace().peekable();
        let effect = match words.peek() {
            Some(&"allow") => RightEffect::Allow,
            Some(&"deny") => RightEffect::Deny,
            _ => RightEffect::Allow,
        };
        words.next_if(|word| matches!(*word, "allow" | "deny"));
        let verbs = words.next().ok_or(RightError::NoVerb)?;
        let mut all = VerbSet::default();
        for name in verbs.split(',') {
            let more = match name {
                "*" => VerbSet::of_subject(Subject::Topic),
                name => [name.parse::<Verb>()?].into_iter().collect(),
            };
            all = all.or(more);
        }
        let first = all.iter().next().ok_or(RightError::NoVerb)?;
        if let Some(other) = all.iter().find(|verb| verb.subject() != first.subject()) {
            return Err(RightError::Mixed(first, other));
        }
        let pattern = match (words.next(), first.subject()) {
            (None, Subject::Broker) => None,
            (None, _) => return Err(RightError::PatternMissing(first)),
            (Some(_), Subject::Broker) => return Err(RightError::PatternTooMuch(first)),
            (Some(pattern), _) => Some(
                pattern
                    .parse()
                    .map_err(|error| RightError::Pattern { pattern: pattern.into(), error })?,
            ),
        };
        match words.next() {
            Some(rest) => Err(RightError::Rest(rest.into())),
            None => Ok(Self { effect, verbs: all, pattern }),
        }
    }
}

impl TryFrom<String> for Right {
    type Error = RightError;

    fn try_from(text: String) -> Result<Self, RightError> {
        text.parse()
    }
}

impl From<Right> for String {
    fn from(right: Right) -> Self {
        right.to_string()
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.effect {
            RightEffect::Allow => "allow ",
            RightEffect::Deny => "deny ",
        })?;
        if self.verbs == VerbSet::of_subject(Subject::Topic) {
            f.write_str("*")?;
        } else {
            for (at, verb) in self.verbs.iter().enumerate() {
                f.write_str(if at == 0 { "" } else { "," })?;
                f.write_str(verb.name())?;
            }
        }
        self.pattern.as_ref().map_or(Ok(()), |pattern| write!(f, " {pattern}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rights_are_shown_as_they_can_be_given_again() {
        for (text, shown) in [
            ("publish orders.>", "allow publish orders.>"),
            ("allow settle,publish  orders.>", "allow publish,settle orders.>"),
            ("deny read a", "deny read a"),
            ("* user.{sub}.>", "allow * user.{sub}.>"),
            ("monitor", "allow monitor"),
            ("deny monitor,backup", "deny monitor,backup"),
            ("kv-read throttle.>", "allow kv-read throttle.>"),
        ] {
            let right: Right = text.parse().unwrap();
            assert_eq!(right.to_string(), shown);
            assert_eq!(shown.parse(), Ok(right));
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "a right is `[deny] VERB"),
            ("deny", "a right is `[deny] VERB"),
            ("publish", "publish needs a pattern"),
            ("fly orders", "\"fly\" is no verb; the verbs are publish, consume"),
            ("publish,", "\"\" is no verb"),
            ("publish,monitor a", "publish and monitor are about different things"),
            ("monitor >", "leave the pattern out"),
            ("publish a b", "\"b\" follows the pattern"),
            ("publish a*", "\"a*\" is no pattern"),
        ] {
            let error = text.parse::<Right>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            if let Ok(right) = text.parse::<Right>() {
                prop_assert_eq!(right.to_string().parse(), Ok(right));
            }
        }
    }
}
