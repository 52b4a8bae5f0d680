//! Puts the sources over each other: defaults, the settings file, the environment, flags. Every value is read, also one
//! that a higher source replaces.

use std::path::Path;

use crate::{
    assignment::{Assignment, Assignments},
    problem::{Problem, Problems, Source, shown},
    secret::ReadSecret,
    setting::{Kind, Setting},
};

/// The values of a start, and where each is from.
#[derive(Clone, Debug)]
pub struct Resolved<T> {
    /// The values.
    pub values: T,
    /// The source of each row's value, in the order of the table.
    pub sources: Vec<Source>,
    /// What should be otherwise, though the values may be used.
    pub warnings: Vec<Problem>,
}

/// Applies `layers` to the defaults, the lowest first.
///
/// # Errors
/// All problems of all sources.
pub fn resolve<T: Clone>(
    table: &[Setting<T>],
    defaults: T,
    layers: Vec<Assignments>,
    read_secret: ReadSecret<'_>,
) -> Result<Resolved<T>, Problems> {
    let sources = vec![Source::Default; table.len()];
    let mut resolved = Resolved { values: defaults, sources, warnings: Vec::new() };
    let mut problems = Problems::default();
    for layer in layers {
        let mut of_layer = layer.problems;
        for (at, assignment) in layer.list {
            match apply(&table[at], &mut resolved, &assignment, read_secret) {
                Ok(()) => resolved.sources[at] = assignment.source,
                Err(text) => of_layer.add(&assignment.source, || text),
            }
        }
        of_layer.sort();
        problems.append(of_layer);
    }
    if problems.is_empty() { Ok(resolved) } else { Err(problems) }
}

/// Applies one assignment.
fn apply<T>(
    row: &Setting<T>,
    resolved: &mut Resolved<T>,
    assignment: &Assignment,
    read_secret: ReadSecret<'_>,
) -> Result<(), String> {
    let name = row.name();
    if row.kind != Kind::Secret {
        let done = (row.set)(&mut resolved.values, assignment);
        return done.map_err(|text| format!("{name}: {text}"));
    }
    let mut warn = |text| {
        resolved.warnings.push(Problem { source: assignment.source.clone(), text });
    };
    let mut secret = assignment.clone();
    if assignment.is_secret_path {
        let path = assignment.text()?;
        let read = read_secret(Path::new(path));
        let read = read.map_err(|why| format!("{name}_file: {}: {why}", shown(path)))?;
        if let Some(warning) = read.warning {
            warn(format!("{name}_file: {}: {warning}", shown(path)));
        }
        secret.texts = vec![read.text];
    } else if let Source::File { .. } = assignment.source {
        warn(format!("{name} stands here in the open; {name}_file can name a file with it"));
    }
    // What is wrong with a secret may repeat it.
    let done = (row.set)(&mut resolved.values, &secret);
    done.map_err(|_| format!("{name}: this is no {}", row.shape))
}
