//! Refuses messages that came before, and those that are too old to know. It keeps the ids of as many messages as it is
//! told, for as long as it is told.

use std::collections::{BTreeSet, HashSet};

use crate::{limits::CLOCK_SKEW_MAX_MS, message_id::MessageId, opening::Opened};

/// Why a message that was opened is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayRefusal {
    /// The same message came before.
    #[error("the message {0} came before")]
    Replayed(MessageId),
    /// It may have come before: nobody remembers that long.
    #[error("the message was sealed {age_ms} ms ago, and may be {age_max_ms} ms old at most")]
    TooOld {
        /// Its age.
        age_ms: u64,
        /// The greatest one.
        age_max_ms: u64,
    },
    /// The clocks of sender and receiver are too far apart.
    #[error(
        "the message was sealed {ahead_ms} ms from now: the clock of its sender is wrong, or this one"
    )]
    FromTheFuture {
        /// How far.
        ahead_ms: u64,
    },
    /// Too many messages came within the age that is remembered.
    #[error("{ids_max} messages came that may not come again: no more are remembered")]
    Full {
        /// The limit.
        ids_max: usize,
    },
}

impl ReplayRefusal {
    /// The name of the refusal for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Replayed(_) => "replayed",
            Self::TooOld { .. } => "too-old",
            Self::FromTheFuture { .. } => "from-the-future",
            Self::Full { .. } => "full",
        }
    }
}

/// Remembers messages.
#[derive(Clone, Debug)]
pub struct ReplayGuard {
    age_max_ms: u64,
    ids_max: usize,
    ids: HashSet<MessageId>,
    by_time: BTreeSet<(u64, MessageId)>,
}

impl ReplayGuard {
    /// A guard that takes messages up to this age, and remembers so many ids, of 100 bytes each.
    #[must_use]
    pub fn new(age_max_ms: u64, ids_max: usize) -> Self {
        Self { age_max_ms, ids_max, ids: HashSet::new(), by_time: BTreeSet::new() }
    }

    /// Takes a message that was opened, once.
    ///
    /// # Errors
    /// It came before, or might have.
    pub fn take(&mut self, opened: &Opened, now_ms: u64) -> Result<(), ReplayRefusal> {
        let Opened { id, sent_at_ms, .. } = *opened;
        if sent_at_ms > now_ms.saturating_add(CLOCK_SKEW_MAX_MS) {
            return Err(ReplayRefusal::FromTheFuture { ahead_ms: sent_at_ms - now_ms });
        }
        let age_ms = now_ms.saturating_sub(sent_at_ms);
        if age_ms > self.age_max_ms {
            return Err(ReplayRefusal::TooOld { age_ms, age_max_ms: self.age_max_ms });
        }
        // What is older than that is refused for its age.
        let kept_from = now_ms.saturating_sub(self.age_max_ms);
        while let Some(&(sent_at_ms, id)) = self.by_time.first()
            && sent_at_ms < kept_from
        {
            self.by_time.pop_first();
            self.ids.remove(&id);
        }
        if self.ids.contains(&id) {
            return Err(ReplayRefusal::Replayed(id));
        }
        if self.ids.len() >= self.ids_max {
            return Err(ReplayRefusal::Full { ids_max: self.ids_max });
        }
        self.ids.insert(id);
        self.by_time.insert((sent_at_ms, id));
        Ok(())
    }
}
