//! The choices of a recurring schedule: what becomes of ticks that were missed, and of those that come while an earlier
//! message is still at work.

/// What becomes of the ticks for which the broker was down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CatchUp {
    /// They are left out.
    Skip,
    /// The last of them is published.
    #[default]
    One,
    /// All of them are published, the last [`crate::limits::CATCH_UP_TICKS_MAX`] at most.
    All,
}

impl CatchUp {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Skip, Self::One, Self::All];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::One => "one",
            Self::All => "all",
        }
    }
}

/// What becomes of a tick while the message of an earlier one is not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It is published.
    #[default]
    Allow,
    /// It is left out.
    Skip,
}

impl Overlap {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Allow, Self::Skip];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
        }
    }
}
