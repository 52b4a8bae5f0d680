//! The features of a connection beyond the first version of the protocol: the client asks for them in Hello, the
//! server grants them in HelloOk.

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `gaps`: the server reports messages that a subscription does not receive, with
    /// [`crate::Gap`].
    pub gaps: bool,
    /// `readers`: the client reads topics by offset, with Read and [`crate::Taken`].
    pub readers: bool,
    /// `cursors`: the client sets named cursors and reads with them.
    pub cursors: bool,
    /// `filters`: the client's readers use filters.
    pub filters: bool,
    /// `watches`: the client watches for topics by pattern, with Watch.
    pub watches: bool,
    /// `started`: the client reports the deliveries that it works on, with
    /// [`crate::Verdict::Started`].
    pub started: bool,
    /// `publish-notes`: the server reports what a publish did to older messages, with
    /// [`crate::PublishNote`].
    pub publish_notes: bool,
}

impl Features {
    /// All features of this version.
    pub const ALL: Self = Self {
        gaps: true,
        readers: true,
        cursors: true,
        filters: true,
        watches: true,
        started: true,
        publish_notes: true,
    };

    /// The features with these names. Unknown names are ignored.
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
            publish_notes: has("publish-notes"),
        }
    }

    /// The names, for Hello and HelloOk.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let held = [
            (self.gaps, "gaps"),
            (self.readers, "readers"),
            (self.cursors, "cursors"),
            (self.filters, "filters"),
            (self.watches, "watches"),
            (self.started, "started"),
            (self.publish_notes, "publish-notes"),
        ];
        held.into_iter().filter(|(held, _)| *held).map(|(_, name)| name.to_owned()).collect()
    }
}
