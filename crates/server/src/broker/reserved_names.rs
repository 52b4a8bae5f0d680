//! The names that clients cannot use for streams or topics: those of the broker's own and of the streams protocol.

use sennit_model::TopicName;

/// The first segment of a name that is reserved.
pub(crate) const RESERVED: &str = "__ds";

/// Whether a name is reserved.
pub(crate) fn is_reserved(name: &TopicName) -> bool {
    name.as_str().split('/').next() == Some(RESERVED)
}
