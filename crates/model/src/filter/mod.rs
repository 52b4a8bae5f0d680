//! Filters select messages for a reader by key and headers (docs/reference/filters.md). A filter is parsed once
//! into a flat list of tests, each of which names its successors. It knows no reader and no topic.

mod decimal;
mod error;
mod glob;
mod parser;
mod program;
mod tokens;
mod tree;

use std::{fmt, str::FromStr, sync::Arc};

pub use error::FilterError;
use program::Program;

use crate::{limits::FILTER_BYTES_MAX, message::MessageView};

/// Selects messages for a reader by key and headers. Cheap to clone.
///
/// ```
/// use sennit_model::Filter;
///
/// let filter: Filter = r#"header.region = "eu" and not exists header.test"#.parse()?;
/// assert_eq!(filter.test_count(), 2);
/// # Ok::<(), sennit_model::FilterError>(())
/// ```
#[derive(Clone)]
pub struct Filter {
    text: Arc<str>,
    program: Arc<Program>,
}

impl Filter {
    /// The filter as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number of its tests, 1 to [`crate::limits::FILTER_TESTS_MAX`].
    #[must_use]
    pub fn test_count(&self) -> usize {
        self.program.tests.len()
    }

    /// Returns whether `message` passes. Allocates nothing; each test that is evaluated iterates
    /// over the headers once. A header that cannot be read, and those behind it, count as absent.
    #[must_use]
    pub fn matches(&self, message: &MessageView<'_>) -> bool {
        self.program.matches(message)
    }

    /// An upper bound for the bytes that [`Self::matches`] examines in `message`. Shards budget
    /// filters in this unit.
    #[must_use]
    pub fn cost(&self, message: &MessageView<'_>) -> u64 {
        let looked_at = message.key().len() + message.encoded_headers().len();
        64 + looked_at as u64 * self.program.weight
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    /// # Errors
    /// A [`FilterError`] with the position of the error, or with the exceeded limit.
    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.len() > FILTER_BYTES_MAX {
            let found = format!("a filter of {} bytes", text.len());
            let wanted = format!("at most {FILTER_BYTES_MAX} (FILTER_BYTES_MAX)");
            return Err(FilterError { position: FILTER_BYTES_MAX, found, wanted });
        }
        let tree = parser::parse(text)?;
        Ok(Self { text: text.into(), program: Arc::new(Program::of(tree)) })
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Filter {}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Filter").field(&self.text).finish()
    }
}

#[cfg(test)]
mod tests;
