//! The options for the credentials that a verb shows to a broker. Secrets come from files or the environment: arguments
//! can be read by everybody on the machine.

use std::{
    fs,
    io::{self, IsTerminal as _, Read as _},
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sennit_client::Credential;

use crate::{
    context_defaults,
    exit::{Exit, Failure},
    output::print_to_stderr,
};

/// The environment variable of the API key.
const KEY_VARIABLE: &str = "SENNIT_KEY";
/// The environment variable of the password.
const PASSWORD_VARIABLE: &str = "SENNIT_PASSWORD";

/// The longest secret in a file, in bytes.
const SECRET_BYTES_MAX: u64 = 8 << 10;

/// The credentials to show.
#[derive(Clone, Debug, clap::Args)]
pub struct CredentialOptions {
    /// The file with the API key to show; - for standard input [default: the API key in the
    /// environment variable SENNIT_KEY, or of the context in use]
    #[arg(long, value_name = "FILE", global = true, env = "SENNIT_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// The user to log in as, instead of an API key; the password is that of --password-file, or of the
    /// environment variable SENNIT_PASSWORD, or is asked for
    #[arg(
        long,
        value_name = "NAME",
        global = true,
        env = "SENNIT_USER",
        conflicts_with = "key_file"
    )]
    user: Option<String>,
    /// The file with the password; - for standard input
    #[arg(long, value_name = "FILE", global = true, requires = "user")]
    password_file: Option<PathBuf>,
}

impl CredentialOptions {
    /// The credentials, if there are any.
    ///
    /// # Errors
    /// A file cannot be read, or no password can be asked for.
    pub fn credential(&self) -> Result<Option<Credential>, Failure> {
        if let Some(user) = self.user.clone() {
            let password = match &self.password_file {
                Some(file) => secret_of(file)?,
                None => match variable(PASSWORD_VARIABLE) {
                    Some(password) => password,
                    None => ask_password(&format!("password of {user}: "))?,
                },
            };
            return Ok(Some(Credential::Password { user, password }));
        }
        let key = match &self.key_file {
            Some(file) => Some(secret_of(file)?),
            None => variable(KEY_VARIABLE).or_else(of_context),
        };
        Ok(key.map(Credential::Key))
    }

    /// The value of the header `Authorization` with them.
    ///
    /// # Errors
    /// As [`CredentialOptions::credential`].
    pub fn authorization(&self) -> Result<Option<String>, Failure> {
        Ok(self.credential()?.map(|credential| match credential {
            Credential::Key(key) => format!("Bearer {key}"),
            Credential::Password { user, password } => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
            _ => String::new(),
        }))
    }
}

/// The credential of the context in use.
fn of_context() -> Option<String> {
    context_defaults::credential().map(|credential| credential.secret().to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The secret in a file, without the line's end.
///
/// # Errors
/// The file cannot be read, is empty, or is too long.
pub fn secret_of(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let mut text = String::new();
    let read = if file == Path::new("-") {
        io::stdin().take(SECRET_BYTES_MAX + 1).read_to_string(&mut text)
    } else {
        let opened =
            fs::File::open(file).map_err(|error| Failure::from(error).about(shown.to_string()))?;
        opened.take(SECRET_BYTES_MAX + 1).read_to_string(&mut text)
    };
    read.map_err(|error| Failure::from(error).about(shown.to_string()))?;
    let secret = text.trim_end_matches(['\r', '\n']);
    match secret.len() as u64 {
        0 => Err(Failure::new(Exit::Usage, format!("{shown}: the file is empty"))),
        1..=SECRET_BYTES_MAX => Ok(secret.to_owned()),
        _ => Err(Failure::new(
            Exit::Usage,
            format!("{shown}: a secret has at most {SECRET_BYTES_MAX} bytes"),
        )),
    }
}

/// A line that the user types, which is not shown.
///
/// # Errors
/// There is no terminal.
pub fn ask_password(question: &str) -> Result<String, Failure> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let hint =
            "no password: give --password-file FILE (- for standard input), or SENNIT_PASSWORD";
        return Err(Failure::new(Exit::Usage, hint));
    }
    let system = |error: rustix::io::Errno| Failure::from(io::Error::from(error));
    let before = tcgetattr(&stdin).map_err(system)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    silent.local_modes.insert(LocalModes::ECHONL);
    let _ = io::Write::write_all(&mut io::stderr(), question.as_bytes());
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(system)?;
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &before);
    read?;
    let password = line.trim_end_matches(['\r', '\n']).to_owned();
    if password.is_empty() {
        print_to_stderr("");
        return Err(Failure::new(Exit::Usage, "no password was typed"));
    }
    Ok(password)
}
