//! What a connection may carry beyond the first frames of this version: asked for in Hello, granted
//! in HelloOk. It knows the names, not who has what.

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `gaps`: the server tells of messages that it passes over, with [`crate::Gap`].
    pub gaps: bool,
    /// `readers`: the client reads topics by offset, with Read and [`crate::Taken`].
    pub readers: bool,
    /// `cursors`: the client sets named cursors, and reads under their names.
    pub cursors: bool,
    /// `filters`: the client says which messages its readers want.
    pub filters: bool,
    /// `watches`: the client watches for topics by pattern, with Watch.
    pub watches: bool,
    /// `started`: the client says which deliveries it works on, with [`crate::Verdict::Started`].
    pub started: bool,
}

impl Features {
    /// All that this version knows.
    pub const ALL: Self = Self {
        gaps: true,
        readers: true,
        cursors: true,
        filters: true,
        watches: true,
        started: true,
    };

    /// Those of these names that this version knows; the others are nothing to it.
    #[must_use]
    pub fn of_names(names: &[String]) -> Self {
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        Self {
            gaps: has("gaps"),
            readers: has("readers"),
            cursors: has("cursors"),
            filters: has("filters"),
            watches: has("watches"),
            started: has("started"),
        }
    }

    /// Their names, as Hello and HelloOk carry them.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let held = [
            (self.gaps, "gaps"),
            (self.readers, "readers"),
            (self.cursors, "cursors"),
            (self.filters, "filters"),
            (self.watches, "watches"),
            (self.started, "started"),
        ];
        held.into_iter().filter(|(held, _)| *held).map(|(_, name)| name.to_owned()).collect()
    }
}
