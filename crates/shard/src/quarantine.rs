//! Quarantine: a replica that is not the one that acknowledged what it did gives no vote and acknowledges nothing, until
//! another takes its place under a new number. The lane keeps that, so that it outlives a start.

/// The reason why a replica is in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quarantine {
    /// A part of its lane is damaged that holds entries or its state.
    Damaged {
        /// The position of the first damage that was found.
        position: u64,
    },
    /// Its leader knows that it has acknowledged more than it has.
    Forgotten {
        /// The leader's commit index for this replica.
        committed: u64,
        /// The replica's last index.
        last: u64,
    },
    /// Its leader has another entry where this replica knows one to be committed.
    Contradicted {
        /// The index.
        index: u64,
        /// The entry's term here.
        own: u64,
        /// The entry's term at the leader.
        leaders: u64,
    },
    /// A committed change of members cannot be applied to the members that the replica knows.
    Members {
        /// The entry's index.
        index: u64,
    },
}

impl Quarantine {
    /// The number of the reason, and the three numbers that belong to it; unused ones are 0.
    pub(crate) fn numbers(self) -> (u8, [u64; 3]) {
        match self {
            Self::Damaged { position } => (0, [position, 0, 0]),
            Self::Forgotten { committed, last } => (1, [committed, last, 0]),
            Self::Contradicted { index, own, leaders } => (2, [index, own, leaders]),
            Self::Members { index } => (3, [index, 0, 0]),
        }
    }

    /// The reason with these numbers, if there is one.
    pub(crate) fn of(reason: u8, numbers: [u64; 3]) -> Option<Self> {
        let [first, second, third] = numbers;
        let found = match reason {
            0 => Self::Damaged { position: first },
            1 => Self::Forgotten { committed: first, last: second },
            2 => Self::Contradicted { index: first, own: second, leaders: third },
            3 => Self::Members { index: first },
            _ => return None,
        };
        (found.numbers() == (reason, numbers)).then_some(found)
    }
}
