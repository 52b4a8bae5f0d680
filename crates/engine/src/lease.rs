//! A lease: the consumer that holds a run of messages, and its deadline. It does not know the other leases.

use sennit_model::Timestamp;

use crate::{command::SessionId, tries::Tries, wheel::TimerKey};

/// The holder of a lease: a subscription of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) session: SessionId,
    pub(crate) subscription: u32,
}

/// A run of messages that one consumer holds.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) end: u64,
    /// The result of earlier deliveries.
    pub(crate) tries: Tries,
    pub(crate) deadline: Timestamp,
    pub(crate) holder: Holder,
    /// The messages' bytes. When a run is split they are shared out by count, so that the parts
    /// always add up to the whole.
    pub(crate) bytes: u64,
    /// The consumer has said that it works on the messages before this offset. A consumer begins with
    /// the front of a run as a rule, so this needs no run of its own. At most `end`.
    pub(crate) started_to: u64,
    /// Set for the run's last offset: a run loses its front more often than its back.
    pub(crate) timer: TimerKey,
}

impl Lease {
    /// The attempt number of this delivery, as frames name it.
    pub(crate) fn attempt(&self) -> u32 {
        self.tries.next_attempt()
    }

    /// The bytes of `count` of its messages; its first one is at `start`.
    pub(crate) fn share(&self, start: u64, count: u64) -> u64 {
        let bytes = u128::from(self.bytes) * u128::from(count) / u128::from(self.end - start);
        u64::try_from(bytes).expect("a share is not more than the whole")
    }
}
