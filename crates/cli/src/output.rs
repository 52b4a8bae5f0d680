//! The output of verbs: data to standard output as a table, as tab-separated lines or as JSON; notes to standard
//! error. A closed pipe is no failure.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::exit::Failure;

/// Prints `text` to standard error. Ignores errors.
pub fn print_to_stderr(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Returns whether standard error is a terminal, which can show progress bars.
pub fn may_show_progress() -> bool {
    io::stderr().is_terminal()
}

/// A progress bar on standard error for this many bytes; hidden if it is not a terminal.
pub fn progress_of_bytes(bytes: u64) -> ProgressBar {
    if !may_show_progress() {
        return ProgressBar::hidden();
    }
    let progress = ProgressBar::new(bytes);
    let template = "{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        progress.set_style(style);
    }
    progress
}

/// A spinner on standard error with a message about messages, which has no end that is known; hidden if it is not a
/// terminal.
pub fn progress_of_messages() -> ProgressBar {
    if may_show_progress() { ProgressBar::new_spinner() } else { ProgressBar::hidden() }
}

/// Treats a broken pipe as success: the reader has seen enough.
///
/// # Errors
/// Every other write error.
pub fn ignore_broken_pipe(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::from(error).about("standard output")),
    }
}

/// Prints a JSON value on one line.
///
/// # Errors
/// Standard output fails.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    ignore_broken_pipe(writeln!(io::stdout(), "{value}"))
}

/// Prints a text as it is.
///
/// # Errors
/// Standard output fails.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    ignore_broken_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// Prints `rows` below `heads`: a table on a terminal, otherwise tab-separated lines without heads.
///
/// # Errors
/// Standard output fails.
pub fn print_table(heads: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let text = if io::stdout().is_terminal() { table(heads, rows) } else { lines(rows) };
    let mut out = io::stdout().lock();
    ignore_broken_pipe(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heads.iter().copied());
    table.add_rows(rows);
    format!("{}\n", table.trim_fmt())
}

fn lines(rows: &[Vec<String>]) -> String {
    rows.iter().map(|cells| cells.join("\t") + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_cells_between_tabs_and_no_heads() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["b".to_owned(), "2".to_owned()]];
        assert_eq!(lines(&rows), "a\t1\nb\t2\n");
    }

    #[test]
    fn a_terminal_gets_heads() {
        let shown = table(&["NAME"], &[vec!["orders".to_owned()]]);
        assert!(shown.contains("NAME") && shown.contains("orders"), "{shown}");
    }

    #[test]
    fn a_reader_that_left_is_no_failure() {
        let gone = io::Error::from(io::ErrorKind::BrokenPipe);
        assert!(ignore_broken_pipe(Err(gone)).is_ok());
        assert!(ignore_broken_pipe(Err(io::Error::from(io::ErrorKind::StorageFull))).is_err());
    }
}
