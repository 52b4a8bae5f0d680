//! The options that say how messages are printed. Knows no message.

use crate::{delimiter::Delimiter, shown::Shown};

/// How messages are printed.
#[derive(Clone, Debug, clap::Args)]
pub struct Format {
    /// Print each message and each gap as a JSON object with all that is known of it; `sennit publish
    /// --json-lines` publishes the messages again
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
    /// What was asked for.
    #[must_use]
    pub fn shown(&self) -> Shown {
        match (&self.delimiter, self.null, self.raw) {
            _ if self.json => Shown::Json,
            (Some(delimiter), ..) => Shown::Payloads(delimiter.clone()),
            (None, true, _) => Shown::Payloads(Delimiter::null()),
            (None, _, true) => Shown::Payloads(Delimiter::none()),
            (None, false, false) => Shown::Payloads(Delimiter::default()),
        }
    }
}
