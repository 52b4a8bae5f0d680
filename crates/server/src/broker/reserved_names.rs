//! Names that no client's stream or topic has: the broker and the protocol of streams keep theirs there.

use sennit_model::TopicName;

/// The first segment of a name that is reserved.
pub(crate) const RESERVED: &str = "__ds";

/// Whether a name is reserved.
pub(crate) fn is_reserved(name: &TopicName) -> bool {
    name.as_str().split('/').next() == Some(RESERVED)
}
