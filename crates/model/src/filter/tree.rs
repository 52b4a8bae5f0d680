//! The tree of a filter: tests of a message, joined by `and`, `or` and `not`.

use std::cmp::Ordering;

use super::{decimal::Decimal, glob::Glob};

/// A filter, or a part of one.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Test(Field, Check),
    Not(Box<Tree>),
    /// At least one.
    All(Vec<Tree>),
    /// At least one.
    Any(Vec<Tree>),
}

/// The field that a test examines.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Key,
    Header(Box<str>),
}

/// The relation between a value and a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Relation {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// The literal that a value is compared with. Its kind determines the comparison.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    /// Compared byte by byte.
    Text(Box<[u8]>),
    /// Compared as a number. A value that is no number never matches.
    Number(Decimal<'static>),
}

/// The check of a value.
#[derive(Clone, Debug)]
pub(super) enum Check {
    Exists,
    Compare(Relation, Literal),
    Prefix(Box<[u8]>),
    Glob(Glob),
}

impl Check {
    pub(super) fn holds(&self, value: &[u8]) -> bool {
        match self {
            Self::Exists => true,
            // Lengths say most of it.
            Self::Compare(Relation::Equal, Literal::Text(text)) => value == &**text,
            Self::Compare(relation, Literal::Text(text)) => relation.allows(value.cmp(text)),
            Self::Compare(relation, Literal::Number(number)) => {
                Decimal::parse(value).is_some_and(|value| relation.allows(value.compare(number)))
            }
            Self::Prefix(prefix) => value.starts_with(prefix),
            Self::Glob(glob) => glob.matches(value),
        }
    }

    /// How often the check may examine each byte of a value.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Glob(glob) => glob.weight(),
            _ => 1,
        }
    }
}
