//! What a filter's text says: tests of a message, and how they are joined.

use std::cmp::Ordering;

use super::{decimal::Decimal, glob::Glob};

/// What a text says.
#[derive(Clone, Debug)]
pub(super) enum Tree {
    Test(Field, Check),
    Not(Box<Tree>),
    /// At least one.
    All(Vec<Tree>),
    /// At least one.
    Any(Vec<Tree>),
}

/// What is looked at.
#[derive(Clone, Debug)]
pub(super) enum Field {
    Key,
    Header(Box<str>),
}

/// How a value has to stand to a literal.
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

/// What a value is compared with; it says how.
#[derive(Clone, Debug)]
pub(super) enum Literal {
    /// Byte by byte.
    Text(Box<[u8]>),
    /// As numbers; what is none compares with nothing.
    Number(Decimal<'static>),
}

/// What has to hold of a value.
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

    /// How many times a byte of a value may be looked at.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Glob(glob) => glob.weight(),
            _ => 1,
        }
    }
}
