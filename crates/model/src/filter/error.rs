//! Why a text is no filter: where, what stands there, and what would be right.

/// Why a text is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {position} of the filter: {found}; wanted: {wanted}")]
pub struct FilterError {
    /// Where, in bytes from the start; at most the text's length.
    pub position: usize,
    /// What stands there.
    pub found: String,
    /// What would be right.
    pub wanted: String,
}

impl FilterError {
    pub(super) fn new(
        position: usize,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        Self { position, found: found.into(), wanted: wanted.into() }
    }

    /// The line of `text` that is wrong, a line with a mark under the place, and what is wrong: for
    /// people at a terminal.
    #[must_use]
    pub fn pointed_out_in(&self, text: &str) -> String {
        let mut position = self.position.min(text.len());
        while !text.is_char_boundary(position) {
            position -= 1;
        }
        let start = text[..position].rfind('\n').map_or(0, |end| end + 1);
        let line = text[start..].lines().next().unwrap_or_default();
        let before: String =
            text[start..position].chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        format!("{line}\n{before}^ {}\nwanted: {}", self.found, self.wanted)
    }
}
