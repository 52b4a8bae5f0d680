//! Filter errors: the position, the text found there and the text expected.

/// The reason why a text is not a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at byte {position} of the filter: {found}; wanted: {wanted}")]
pub struct FilterError {
    /// The position in bytes from the start; at most the text's length.
    pub position: usize,
    /// The text at that position.
    pub found: String,
    /// The text that was expected.
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

    /// The invalid line of `text`, a line with a mark below the position, and the error: for people
    /// at a terminal.
    #[must_use]
    pub fn show_in(&self, text: &str) -> String {
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
