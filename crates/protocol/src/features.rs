//! What a connection may carry beyond the first frames of this version: asked for in Hello, granted
//! in HelloOk. It knows the names, not who has what.

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `gaps`: the server tells of messages that it passes over, with [`crate::Gap`].
    pub gaps: bool,
}

impl Features {
    /// All that this version knows.
    pub const ALL: Self = Self { gaps: true };

    /// Those of these names that this version knows; the others are nothing to it.
    #[must_use]
    pub fn of_names(names: &[String]) -> Self {
        Self { gaps: names.iter().any(|name| name == "gaps") }
    }

    /// Their names, as Hello and HelloOk carry them.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        self.gaps.then(|| "gaps".to_owned()).into_iter().collect()
    }
}
