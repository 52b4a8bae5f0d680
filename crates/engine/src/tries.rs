//! The number of deliveries of a message, and how many of them count as failed attempts. It knows no lease.

use sennit_model::Timestamp;

/// The result of a message's deliveries in a group, without the one that is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Deliveries that count as failed attempts: these are compared with the group's `attempts_max`,
    /// recorded, and kept in checkpoints.
    pub(crate) failed: u32,
    /// Deliveries that were returned without having been worked on. In memory only: after a restart
    /// the generation tells old deliveries from new ones.
    returned: u32,
    /// Whether the last holder left on purpose, and so has no more to say of its delivery.
    is_given_up: bool,
}

/// A run of messages that failed and are not ready before their due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) tries: Tries,
    pub(crate) due: Timestamp,
}

/// Most returned deliveries that are counted; more need as many leases.
const RETURNED_MAX: u32 = u32::MAX >> 1;

impl Tries {
    /// So many failed attempts, and nothing else.
    pub(crate) fn of_failed(failed: u32) -> Self {
        Self { failed, returned: 0, is_given_up: false }
    }

    /// The `attempt` of the last delivery, as frames name it; 0 if there was none.
    fn last_attempt(self) -> u32 {
        self.failed.saturating_add(self.returned)
    }

    /// The `attempt` of the next delivery. It rises with each delivery of a generation, so that it says
    /// which delivery is meant.
    pub(crate) fn next_attempt(self) -> u32 {
        self.last_attempt().saturating_add(1)
    }

    /// Whether the message was never delivered.
    pub(crate) fn is_none(self) -> bool {
        self == Self::default()
    }

    /// Whether a settle that names `attempt` means the last delivery, and its holder may still speak of
    /// it.
    pub(crate) fn is_last(self, attempt: u32) -> bool {
        attempt > 0 && attempt == self.last_attempt() && !self.is_given_up
    }

    /// The delivery under way has failed, and `failed` attempts have by now.
    #[must_use]
    pub(crate) fn with_failed(self, failed: u32) -> Self {
        Self { failed, is_given_up: false, ..self }
    }

    /// The delivery under way was returned without having been worked on.
    #[must_use]
    pub(crate) fn with_return(self) -> Self {
        let returned = self.returned.saturating_add(1).min(RETURNED_MAX);
        Self { returned, is_given_up: false, ..self }
    }

    /// No failed attempt counts any more; the next delivery still has a higher `attempt`.
    #[must_use]
    pub(crate) fn with_failures_forgiven(self) -> Self {
        let returned = self.last_attempt().min(RETURNED_MAX);
        Self { failed: 0, returned, is_given_up: false }
    }

    /// The holder of the delivery under way has left on purpose.
    #[must_use]
    pub(crate) fn with_given_up(self) -> Self {
        Self { is_given_up: true, ..self.with_return() }
    }

    /// All of it as one number, which is small where little has happened.
    pub(crate) fn to_bits(self) -> u64 {
        let returned = u64::from(self.returned) << 1 | u64::from(self.is_given_up);
        returned << u32::BITS | u64::from(self.failed)
    }

    /// What [`Self::to_bits`] was made of.
    pub(crate) fn of_bits(bits: u64) -> Self {
        let returned = (bits >> u32::BITS) as u32;
        Self { failed: bits as u32, returned: returned >> 1, is_given_up: returned & 1 == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_rise_whatever_becomes_of_a_delivery() {
        let mut tries = Tries::default();
        let mut attempt = 0;
        for failed in [0, 1, 1, 2, 2] {
            let before = std::mem::replace(&mut attempt, tries.next_attempt());
            assert!(attempt > before, "{tries:?}");
            tries =
                if failed > tries.failed { tries.with_failed(failed) } else { tries.with_return() };
            assert!(tries.is_last(attempt) && !tries.is_last(before));
        }
        assert!(!tries.with_given_up().is_last(tries.next_attempt()));
        let forgiven = tries.with_failures_forgiven();
        assert_eq!((forgiven.failed, forgiven.next_attempt()), (0, tries.next_attempt()));
    }

    #[test]
    fn the_bits_say_everything() {
        let most = Tries { failed: u32::MAX, returned: RETURNED_MAX, is_given_up: true };
        for tries in [Tries::default(), Tries::of_failed(7), Tries::default().with_given_up(), most]
        {
            assert_eq!(Tries::of_bits(tries.to_bits()), tries);
        }
        assert_eq!(Tries::of_failed(3).to_bits(), 3);
        assert_eq!(most.with_return(), Tries { is_given_up: false, ..most });
    }
}
