//! The options for the format of printed messages.

use crate::{delimiter::Delimiter, message_format::MessageFormat};

/// The format of printed messages.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Format {
    /// Print each message and each gap as a JSON object with all that is known of it; `sennit
    /// publish --json-lines` publishes the messages again
    #[arg(long)]
    pub json: bool,
    /// Print this behind each payload instead of a newline; \n, \t, \0 and \x1e are single bytes
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "json")]
    delimiter: Option<Delimiter>,
    /// Print a zero byte behind each payload, for `xargs -0`: --delimiter '\0'
    #[arg(long, short = '0', conflicts_with_all = ["json", "delimiter"])]
    null: bool,
    /// Print the payloads and nothing else: --delimiter ''
    #[arg(long, conflicts_with_all = ["json", "delimiter", "null"])]
    raw: bool,
}

impl Format {
    /// The chosen format.
    #[must_use]
    pub fn message_format(&self) -> MessageFormat {
        match (&self.delimiter, self.null, self.raw) {
            _ if self.json => MessageFormat::Json,
            (Some(delimiter), ..) => MessageFormat::Payloads(delimiter.clone()),
            (None, true, _) => MessageFormat::Payloads(Delimiter::null()),
            (None, _, true) => MessageFormat::Payloads(Delimiter::none()),
            (None, false, false) => MessageFormat::Payloads(Delimiter::default()),
        }
    }
}
