//! What differs between two starts: the one that runs and the one that its sources would give now.

use crate::{
    assignment::Assignment,
    problem::Source,
    setting::{Reload, Setting},
    value::Value,
};

/// A setting that has another value now.
#[derive(Clone, Debug)]
pub struct SettingChange<'t, T: 'static> {
    /// The setting.
    pub setting: &'t Setting<T>,
    /// Its value in the start that runs; never a secret.
    pub old: Value,
    /// Its value now; never a secret.
    pub new: Value,
}

/// The settings whose values differ, in the order of the table.
pub fn changes<'t, T>(table: &'t [Setting<T>], old: &T, new: &T) -> Vec<SettingChange<'t, T>> {
    let differs = |row: &&Setting<T>| (row.get)(old) != (row.get)(new);
    let change = |row: &'t Setting<T>| SettingChange {
        setting: row,
        old: row.shown(old),
        new: row.shown(new),
    };
    table.iter().filter(differs).map(change).collect()
}

/// Puts those values of `new` into `running` that a reload applies; the others stay as they are.
pub fn take_over<T>(table: &[Setting<T>], running: &mut T, new: &T) {
    for row in table.iter().filter(|row| row.reload == Reload::Applied) {
        let texts = (row.get)(new).texts();
        // A value that was shown is read as the same.
        let _ = (row.set)(running, &Assignment::new(texts, Source::Default));
    }
}
