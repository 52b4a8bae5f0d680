//! Reads the sources of settings: the settings file, the environment, files with secrets. A start reads them once, each
//! reload again.

use std::{fs::File, io::Read, os::unix::fs::PermissionsExt, path::Path};

use sennit_server::Config;
use sennit_settings::{
    Assignments, FILE_BYTES_MAX, Problems, Resolved, SecretText, Source,
    assignments_of_environment, assignments_of_file, resolve,
};

use super::{
    flags::SettingFlags,
    table::{SETTINGS, Start},
};
use crate::exit::{Exit, Failure};

/// The longest secret in a file, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// The sources of a start.
#[derive(Clone, Debug)]
pub struct SettingSources {
    flags: SettingFlags,
    defaults: Start,
}

impl SettingSources {
    /// Flags over the environment over the file that they name over `defaults`.
    pub fn new(flags: SettingFlags, defaults: Start) -> Self {
        Self { flags, defaults }
    }

    /// Reads all sources.
    ///
    /// # Errors
    /// All problems of all sources; the last is what the broker itself says of the whole.
    pub fn load(&self) -> Result<Resolved<Start>, Problems> {
        let file = self.flags.config.as_deref().map(of_file).unwrap_or_default();
        let environment = assignments_of_environment(&SETTINGS, std::env::vars_os());
        let layers = vec![file, environment, self.flags.assignments.clone()];
        let mut resolved = resolve(&SETTINGS, self.defaults.clone(), layers, &read_secret)?;
        let start = &mut resolved.values;
        start.broker.init_admin =
            start.init_admin.unwrap_or_else(|| begins_in_container(&start.broker));
        if let Err(error) = resolved.values.broker.check() {
            let row = SETTINGS.iter().position(|row| Some(&*row.name()) == error.setting());
            let source = row.map(|row| resolved.sources[row].clone()).unwrap_or_default();
            // The text names the flag already.
            let source = if let Source::Flag(_) = source { Source::Default } else { source };
            let mut problems = Problems::default();
            problems.add(&source, || error.to_string());
            return Err(problems);
        }
        Ok(resolved)
    }
}

/// Whether the broker listens beyond a container that it runs in, and nobody has said that this is meant.
fn begins_in_container(broker: &Config) -> bool {
    let is_beyond = !(broker.listen.ip().is_loopback() && broker.http.ip().is_loopback());
    let variables = ["container", "KUBERNETES_SERVICE_HOST"];
    let is_container = variables.iter().any(|name| std::env::var_os(name).is_some())
        || ["/.dockerenv", "/run/.containerenv"]
            .iter()
            .any(|file| std::fs::exists(file).unwrap_or(false));
    is_beyond && is_container && !broker.insecure_no_auth
}

/// The values of the settings file.
fn of_file(path: &Path) -> Assignments {
    let shown = path.display().to_string();
    let mut bytes = Vec::new();
    let most = FILE_BYTES_MAX as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    match read {
        Ok(_) => assignments_of_file(&SETTINGS, &shown, &bytes),
        Err(error) => {
            let mut found = Assignments::default();
            let source = Source::Flag("--config".to_owned());
            found.problems.add(&source, || format!("{shown} cannot be read: {error}"));
            found
        }
    }
}

/// Reads a file with a secret.
fn read_secret(path: &Path) -> Result<SecretText, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode();
    let mut text = String::new();
    let read = file.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > SECRET_BYTES_MAX {
        return Err(format!("it is too long: SECRET_BYTES_MAX is {SECRET_BYTES_MAX}"));
    }
    let warning = (mode & 0o007 != 0).then(|| {
        format!("all users of this machine may use it (mode {:o}); chmod 600 it", mode & 0o777)
    });
    Ok(SecretText { text: text.trim_end_matches(['\r', '\n']).to_owned(), warning })
}

/// The failure of a verb that finds these problems, one on each line.
pub fn failure_of(problems: &Problems) -> Failure {
    let lines = problems.lines();
    let text = match &lines[..] {
        [line] => line.clone(),
        lines => format!("the settings have problems\n  {}", lines.join("\n  ")),
    };
    Failure::new(Exit::Usage, text)
}
