//! Lists of a message, which have a limit while they are read.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};

/// Entries of a list: topics, positions, messages of a batch.
pub const LIST_MAX: usize = 1024;

/// What a reader says of a list that is too long. [`is_too_long`] finds it again.
const TOO_LONG: &str = "LIST_MAX";

/// A list.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// The entries of an object, in their order.
#[derive(Debug)]
pub(crate) struct Entries<T>(pub(crate) Vec<(String, T)>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Whether a list was too long.
pub(crate) fn is_too_long(error: &serde_json::Error) -> bool {
    error.to_string().starts_with(TOO_LONG)
}

struct Reading<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reading<List<T>> {
    type Value = List<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_element()? {
            if list.len() == LIST_MAX {
                return Err(A::Error::custom(TOO_LONG));
            }
            list.push(entry);
        }
        Ok(List(list))
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Reading<Entries<T>> {
    type Value = Entries<T>;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            if list.len() == LIST_MAX {
                return Err(A::Error::custom(TOO_LONG));
            }
            list.push(entry);
        }
        Ok(Entries(list))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Reading::<Self>(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Reading::<Self>(PhantomData))
    }
}
