//! Writes the table as a settings file with comments: each setting with its help, its environment variable and its
//! default. A line with a value is commented out, so that a later default reaches who has copied the file.

use std::fmt::Write as _;

use crate::setting::{Kind, Reload, Setting};

/// The width of a comment.
const COLUMNS: usize = 100;

/// The settings file with the values of `defaults`, all of them commented out as `#field = value`.
#[must_use]
pub fn write_defaults<T>(table: &[Setting<T>], defaults: &T) -> String {
    let mut text = String::from(
        "# The settings of `sennit serve` with their defaults. Remove the # before a field to set it.\n\
         # Flags come before the environment, the environment before this file.\n",
    );
    let mut section = "";
    for row in table {
        if row.section != section {
            section = row.section;
            let _ = write!(text, "\n[{section}]\n");
        }
        text.push('\n');
        comment(&mut text, &format!("{}.", row.help));
        let reload = match row.reload {
            Reload::Applied => "a reload applies it",
            Reload::Restart => "needs a restart",
        };
        let flag = row.flag_name().map(|name| format!("{name}, ")).unwrap_or_default();
        comment(&mut text, &format!("{flag}{}; {reload}", row.variable_name()));
        if let Some(file_field) = row.file_field() {
            let _ = writeln!(text, "#{file_field} = \"path\"");
            continue;
        }
        let _ = match (row.get)(defaults).to_toml() {
            Some(value) => writeln!(text, "#{} = {value}", row.field),
            None => {
                comment(&mut text, &format!("Default: {}.", row.unset));
                writeln!(text, "# {} = {}", row.field, example(row))
            }
        };
    }
    text
}

/// A value's shape, where there is no default to show.
fn example<T>(row: &Setting<T>) -> String {
    match row.kind {
        Kind::Number => row.shape.to_owned(),
        _ => format!("\"{}\"", row.shape),
    }
}

/// Adds `text` as lines of a comment.
fn comment(to: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + 1 + word.len() > COLUMNS && line.len() > 1 {
            to.push_str(&line);
            to.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    to.push_str(&line);
    to.push('\n');
}
