//! What the connection task tells one who watches for topics: which there are, as it last heard. It knows
//! neither. As many as the broker lets a pattern mean are kept, however often they come and go.

use std::collections::BTreeMap;

use sennit_protocol::control::WatchedTopic;

use crate::error::Error;

/// The topics there are, by number; `None` before the first answer. Or why no more is heard.
pub(crate) type Heard = Result<Option<BTreeMap<u32, WatchedTopic>>, Error>;
