//! Where a value comes from, and what is wrong with it.

use std::{fmt, sync::Arc};

use crate::limits::{PROBLEMS_MAX, VALUE_SHOWN_MAX};

/// Where a value comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// No source gives a value: the default.
    #[default]
    Default,
    /// A line of the settings file; `line` starts at 1.
    File {
        /// The file as it was named.
        path: Arc<str>,
        /// The line of the field.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command line, with its hyphens.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One thing that is wrong with the settings: where, what, and what would be right. It never contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub source: Source,
    /// What is wrong and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Default => f.write_str(&self.text),
            source => write!(f, "{source}: {}", self.text),
        }
    }
}

/// The problems of some sources, at most [`PROBLEMS_MAX`] of them, and the number of the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    list: Vec<Problem>,
    /// Problems beyond the limit.
    more: usize,
}

impl Problems {
    /// Adds one; beyond the limit it is counted only.
    pub fn add(&mut self, source: &Source, text: impl FnOnce() -> String) {
        if self.list.len() < PROBLEMS_MAX {
            self.list.push(Problem { source: source.clone(), text: text() });
        } else {
            self.more += 1;
        }
    }

    /// Adds the problems of another source.
    pub fn append(&mut self, others: Self) {
        self.more += others.more;
        others.list.into_iter().for_each(|problem| self.add(&problem.source, || problem.text));
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The problems that are told, those of a file in the order of its lines.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// Puts problems of a file in the order of its lines.
    pub(crate) fn sort(&mut self) {
        self.list.sort_by_key(|problem| match problem.source {
            Source::File { line, .. } => line,
            _ => 0,
        });
    }

    /// One line for each problem, and one for the number of those that are not told.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.list.iter().map(Problem::to_string).collect();
        if self.more > 0 {
            lines.push(format!("and {} more: PROBLEMS_MAX is {PROBLEMS_MAX}", self.more));
        }
        lines
    }
}

/// The beginning of a wrong value, between quotes and on one line.
pub(crate) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(VALUE_SHOWN_MAX).collect();
    let rest = if cut.len() < text.len() { "..." } else { "" };
    format!("{cut:?}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_beyond_the_limit_are_counted() {
        let mut problems = Problems::default();
        assert!(problems.is_empty());
        for n in 0..PROBLEMS_MAX + 3 {
            problems.add(&Source::Default, || n.to_string());
        }
        let mut both = Problems::default();
        both.append(problems.clone());
        assert_eq!(both, problems);
        let lines = both.lines();
        assert_eq!(lines.len(), PROBLEMS_MAX + 1);
        assert_eq!(lines[PROBLEMS_MAX], "and 3 more: PROBLEMS_MAX is 100");
    }

    #[test]
    fn a_long_value_is_cut_and_stays_on_one_line() {
        assert_eq!(shown("a\nb"), r#""a\nb""#);
        assert!(shown(&"x".repeat(1000)).ends_with(r#"x"..."#));
    }
}
