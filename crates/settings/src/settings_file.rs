//! Reads the settings file: TOML with one table for each section. Every problem is found, not only the first.

use std::{ops::Range, sync::Arc};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    assignment::{Assignment, Assignments},
    limits::{FILE_BYTES_MAX, NO_VALUE_ROUNDS_MAX},
    problem::{Source, shown},
    setting::{Kind, Setting},
    suggestion::nearest,
};

/// What a settings file says: `path` is how it was named, `bytes` is what it holds.
#[must_use]
pub fn assignments_of_file<T>(table: &[Setting<T>], path: &str, bytes: &[u8]) -> Assignments {
    let path: Arc<str> = path.into();
    let mut found = Assignments::default();
    let at_first_line = Source::File { path: path.clone(), line: 1 };
    if bytes.len() > FILE_BYTES_MAX {
        found.problems.add(&at_first_line, || {
            format!(
                "the file has {} bytes; FILE_BYTES_MAX is {FILE_BYTES_MAX}: is it the settings file?",
                bytes.len()
            )
        });
        return found;
    }
    let text = match str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = 1 + count_newlines(&bytes[..error.valid_up_to()]);
            found.problems.add(&Source::File { path, line }, || "this is not UTF-8".to_owned());
            return found;
        }
    };
    let (text, errors) = without_lines_of_no_value(text);
    let mut file = File { table, path, text: &text, found };
    let (root, more_errors) = DeTable::parse_recoverable(&text);
    for error in errors.iter().chain(&more_errors) {
        let said = error.message().lines().collect::<Vec<_>>().join("; ");
        file.problem(error.span().unwrap_or_default(), || format!("this is not TOML: {said}"));
    }
    for (key, value) in root.get_ref().iter() {
        file.section(key, value);
    }
    file.found.problems.sort();
    file.found
}

/// The text with spaces in place of the lines that are a key without a value, and the errors in those lines: the parser
/// drops all that is behind the first of them.
fn without_lines_of_no_value(text: &str) -> (String, Vec<toml::de::Error>) {
    const NO_VALUE: [&str; 2] = ["key with no value", "missing value for key"];
    let (mut text, mut errors) = (text.to_owned(), Vec::new());
    for _ in 0..NO_VALUE_ROUNDS_MAX {
        let (_, found) = DeTable::parse_recoverable(&text);
        let of_no_value = |error: &toml::de::Error| {
            NO_VALUE.iter().any(|message| error.message().starts_with(message))
        };
        let found: Vec<_> = found.into_iter().filter(of_no_value).collect();
        if found.is_empty() {
            break;
        }
        let mut bytes = text.into_bytes();
        for span in found.iter().filter_map(toml::de::Error::span) {
            let at = span.start.min(bytes.len());
            let start =
                bytes[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            let end = bytes[at..].iter().position(|byte| *byte == b'\n');
            let end = end.map_or(bytes.len(), |length| at + length);
            bytes[start..end].fill(b' ');
        }
        // Lines were taken whole, so no character was cut.
        text = String::from_utf8(bytes).unwrap_or_default();
        errors.extend(found);
    }
    (text, errors)
}

struct File<'a, T: 'static> {
    table: &'a [Setting<T>],
    path: Arc<str>,
    text: &'a str,
    found: Assignments,
}

type Key<'a> = Spanned<std::borrow::Cow<'a, str>>;

impl<T> File<'_, T> {
    fn source(&self, span: Range<usize>) -> Source {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        Source::File { path: self.path.clone(), line: 1 + count_newlines(before) }
    }

    fn problem(&mut self, span: Range<usize>, text: impl FnOnce() -> String) {
        let source = self.source(span);
        self.found.problems.add(&source, text);
    }

    /// Reads a section, `[name]`.
    fn section(&mut self, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let (table, section) = (self.table, &**key.get_ref());
        let is_known = table.iter().any(|row| row.section == section);
        match value.get_ref() {
            DeValue::Table(fields) if is_known => {
                for (field, value) in fields.iter() {
                    self.field(section, field, value);
                }
                self.secrets_given_twice(section, fields);
            }
            DeValue::Table(_) => {
                self.problem(key.span(), || unknown_section(table, section));
            }
            _ if is_known => self.problem(key.span(), || {
                format!("{section} is a section: write [{section}] and its fields below it")
            }),
            _ => self.problem(key.span(), || {
                let sections = sections_of(table, section);
                let where_it_goes = match &sections[..] {
                    [] => unknown_section(table, section),
                    sections => format!("write it below [{}]", sections.join("] or [")),
                };
                format!("{} stands in no section: {where_it_goes}", shown(section))
            }),
        }
    }

    /// Reads a field of a section.
    fn field(&mut self, section: &str, key: &Key<'_>, value: &Spanned<DeValue<'_>>) {
        let (table, field) = (self.table, &**key.get_ref());
        let matches = |row: &Setting<T>| {
            row.section == section
                && (row.field == field || row.file_field().as_deref() == Some(field))
        };
        let Some(at) = table.iter().position(matches) else {
            self.problem(key.span(), || unknown_field(table, section, field));
            return;
        };
        let row = &table[at];
        let is_secret_path = row.field != field;
        let kind = if is_secret_path { Kind::Text } else { row.kind };
        match texts_of(kind, value.get_ref()) {
            Ok(texts) => {
                let source = self.source(key.span());
                self.found.list.push((at, Assignment { texts, source, is_secret_path }));
            }
            Err(what) => self.problem(value.span(), || format!("{section}.{field} {what}")),
        }
    }

    fn secrets_given_twice(&mut self, section: &str, fields: &DeTable<'_>) {
        let table = self.table;
        for row in table.iter().filter(|row| row.section == section) {
            let Some(file_field) = row.file_field() else { continue };
            if let (Some(_), Some((key, _))) =
                (fields.get(row.field), fields.get_key_value(&*file_field))
            {
                self.problem(key.span(), || {
                    format!(
                        "{section}.{} and {section}.{file_field} both stand here: write one",
                        row.field
                    )
                });
            }
        }
    }
}

/// The texts of a TOML value of this kind.
///
/// # Errors
/// It has another type: what it is, and what to write.
fn texts_of(kind: Kind, value: &DeValue<'_>) -> Result<Vec<String>, String> {
    let of_type = || value.type_str();
    let one = |text: &str| Ok(vec![text.to_owned()]);
    let number = |digits: &toml::de::DeInteger<'_>| {
        // Also of hexadecimal numbers; what is negative stays so, and is refused with its value.
        let parsed = i128::from_str_radix(digits.as_str(), digits.radix());
        parsed.map_or_else(|_| one(digits.as_str()), |number| one(&number.to_string()))
    };
    match (kind, value) {
        (Kind::Number | Kind::Size | Kind::Duration, DeValue::Integer(digits)) => number(digits),
        (Kind::Size | Kind::Duration | Kind::Text | Kind::OneOf(_), DeValue::String(text)) => {
            one(text)
        }
        (Kind::Secret, DeValue::String(text)) => one(text),
        (Kind::Switch, DeValue::Boolean(switch)) => one(&switch.to_string()),
        (Kind::List, DeValue::Array(values)) => {
            let texts = values.iter().map(|value| match value.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                other => Err(format!(
                    "is a list of strings, and one of it is of type {}",
                    other.type_str()
                )),
            });
            texts.collect()
        }
        (Kind::Number, DeValue::String(text)) if text.parse::<u64>().is_ok() => {
            Err(format!("is a number: write {text} without quotes"))
        }
        (Kind::Number, _) => Err(format!("is a number, not of type {}", of_type())),
        (Kind::Size, _) => Err(format!("is a size, not of type {}: write \"64MiB\"", of_type())),
        (Kind::Duration, _) => {
            Err(format!("is a duration, not of type {}: write \"30s\"", of_type()))
        }
        (Kind::Switch, DeValue::String(text)) if matches!(&**text, "true" | "false") => {
            Err(format!("is true or false: write {text} without quotes"))
        }
        (Kind::Switch, _) => Err(format!("is true or false, not of type {}", of_type())),
        (Kind::List, DeValue::String(text)) => Err(format!("is a list: write [{}]", shown(text))),
        (Kind::List, _) => Err(format!("is a list, not of type {}: write [\"...\"]", of_type())),
        (Kind::OneOf(words), _) => Err(format!(
            "is a string, not of type {}: write \"{}\"",
            of_type(),
            words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join("\" or \"")
        )),
        (Kind::Text | Kind::Secret, _) => {
            Err(format!("is a string, not of type {}: write it in quotes", of_type()))
        }
    }
}

fn count_newlines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == b'\n').count()
}

/// The sections that have this field.
fn sections_of<T>(table: &[Setting<T>], field: &str) -> Vec<&'static str> {
    table.iter().filter(|row| row.field == field).map(|row| row.section).collect()
}

/// There is no such section: the nearest one, or all of them.
pub(crate) fn unknown_section<T>(table: &[Setting<T>], section: &str) -> String {
    let mut sections: Vec<_> = table.iter().map(|row| row.section).collect();
    sections.dedup();
    let what = format!("there is no section {}", shown(section));
    match nearest(section, sections.iter().copied()) {
        Some(near) => format!("{what}; did you mean {near:?}?"),
        None => format!("{what}: the sections are {}", sections.join(", ")),
    }
}

/// There is no such field: the nearest one of its section, the sections that have it, or the fields of its section.
pub(crate) fn unknown_field<T>(table: &[Setting<T>], section: &str, field: &str) -> String {
    let of_section = || table.iter().filter(|row| row.section == section);
    let names: Vec<_> = of_section()
        .flat_map(|row| [Some(row.field.to_owned()), row.file_field()])
        .flatten()
        .collect();
    let what = format!("{section} has no field {}", shown(field));
    let elsewhere = sections_of(table, field);
    match nearest(field, names.iter().map(String::as_str)) {
        _ if !elsewhere.is_empty() => {
            format!(
                "{what}; did you mean {}?",
                elsewhere
                    .iter()
                    .map(|section| format!("{section}.{field}"))
                    .collect::<Vec<_>>()
                    .join(" or ")
            )
        }
        Some(near) => format!("{what}; did you mean {near:?}?"),
        None => format!("{what}: its fields are {}", names.join(", ")),
    }
}
