//! Reads the variables of the environment: `SENNIT_SECTION__FIELD`. The two underscores tell them from the variables of
//! clients (`SENNIT_SERVER`) and from those that Kubernetes makes for a service named sennit (`SENNIT_PORT`).

use std::ffi::OsString;

use crate::{
    assignment::{Assignment, Assignments},
    problem::{Problems, Source},
    setting::{Kind, PREFIX, Setting},
    settings_file::{unknown_field, unknown_section},
};

/// Variables of messages, which `consume --exec` gives its commands.
const HEADERS: &str = "SENNIT_HEADER_";

/// Whether a variable of this name is one of a setting, or would be.
#[must_use]
pub fn is_setting_variable(name: &str) -> bool {
    split(name).is_some()
}

/// The section and the field that a variable names, in lower case.
fn split(name: &str) -> Option<(String, String)> {
    let rest = name.strip_prefix(PREFIX).filter(|_| !name.starts_with(HEADERS))?;
    let (section, field) = rest.split_once("__")?;
    let is_section = !section.is_empty() && !section.contains('_');
    is_section.then(|| (section.to_ascii_lowercase(), field.to_ascii_lowercase()))
}

/// What the variables of an environment say. An empty one says nothing.
#[must_use]
pub fn assignments_of_environment<T>(
    table: &[Setting<T>],
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Assignments {
    let mut found = Assignments::default();
    // In their order by name: an environment has none of its own.
    let mut variables: Vec<_> = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    variables.sort();
    for (name, value) in &variables {
        if let Some(at) = table.iter().position(|row| row.variable == Some(name)) {
            add(&mut found, at, table, name, value, false);
        }
    }
    for (name, value) in &variables {
        let Some((section, field)) = split(name) else { continue };
        let matches = |row: &Setting<T>| {
            row.section == section
                && (row.field == field || row.file_field().as_deref() == Some(&*field))
        };
        match table.iter().position(matches) {
            Some(at) => add(&mut found, at, table, name, value, table[at].field != field),
            None => found
                .problems
                .add(&Source::Variable(name.clone()), || unknown_variable(table, &section, &field)),
        }
    }
    found
}

fn add<T>(
    found: &mut Assignments,
    at: usize,
    table: &[Setting<T>],
    name: &str,
    value: &OsString,
    is_secret_path: bool,
) {
    let source = Source::Variable(name.to_owned());
    let problems: &mut Problems = &mut found.problems;
    let Some(value) = value.to_str() else {
        return problems.add(&source, || "this is not UTF-8".to_owned());
    };
    let texts = match table[at].kind {
        Kind::List => value.split(',').map(|text| text.trim().to_owned()).collect(),
        _ => vec![value.to_owned()],
    };
    let is_other = |(other, assignment): &(usize, Assignment)| {
        *other == at && assignment.is_secret_path != is_secret_path
    };
    if found.list.iter().any(is_other) {
        problems
            .add(&source, || format!("{} and its file are both given: give one", table[at].name()));
    }
    found.list.push((at, Assignment { texts, source, is_secret_path }));
}

/// There is no such variable: what is wrong with it, in the spelling of variables.
fn unknown_variable<T>(table: &[Setting<T>], section: &str, field: &str) -> String {
    let is_section = table.iter().any(|row| row.section == section);
    if is_section { unknown_field(table, section, field) } else { unknown_section(table, section) }
}
