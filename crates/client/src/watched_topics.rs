//! The topics that a pattern means, as the connection task passes them to a pattern reader. The broker limits their
//! number, and this keeps one entry for each topic, however often topics come and go.

use std::collections::BTreeMap;

use sennit_protocol::control::WatchedTopic;

use crate::error::Error;

/// The topics by number; `None` before the first answer. An error is the reason why no further
/// changes come.
pub(crate) type WatchedTopics = Result<Option<BTreeMap<u32, WatchedTopic>>, Error>;
