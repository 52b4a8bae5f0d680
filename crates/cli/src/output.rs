//! What verbs print: data to standard output as a table, as tab-separated lines or as JSON; talk
//! to standard error. A reader that has gone away is no failure.

use std::io::{self, IsTerminal, Write};

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::exit::Failure;

/// Says `text` on standard error. Where even that fails there is nobody to tell.
pub fn talk(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Whether standard error is a terminal: the place for progress bars.
pub fn may_show_progress() -> bool {
    io::stderr().is_terminal()
}

/// A bar on standard error for work of so many bytes; hidden where nobody would see it.
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

/// Takes a broken pipe for success: whoever read has seen enough.
///
/// # Errors
/// Every other failure to write.
pub fn unless_reader_left(written: io::Result<()>) -> Result<(), Failure> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::from(error).about("standard output")),
    }
}

/// Prints one JSON value on a line of its own.
///
/// # Errors
/// Standard output does not take it.
pub fn print_json(value: &Value) -> Result<(), Failure> {
    unless_reader_left(writeln!(io::stdout(), "{value}"))
}

/// Prints `rows` below `heads`: a table on a terminal, tab-separated lines elsewhere, where the
/// heads are left out.
///
/// # Errors
/// Standard output does not take it.
pub fn print_table(heads: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    let text = if io::stdout().is_terminal() { table(heads, rows) } else { lines(rows) };
    let mut out = io::stdout().lock();
    unless_reader_left(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
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
        assert!(unless_reader_left(Err(gone)).is_ok());
        assert!(unless_reader_left(Err(io::Error::from(io::ErrorKind::StorageFull))).is_err());
    }
}
