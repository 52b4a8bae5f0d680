//! The file of contexts: brokers by name, with how to reach them and a credential. Only its owner may read it.

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::exit::{Exit, Failure};

/// Most bytes of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Most bytes of a credential: longer than any token that an HTTP header takes.
pub const CREDENTIAL_BYTES_MAX: usize = 16 << 10;

/// A key or a token. Debug output does not show it.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Credential(String);

impl Credential {
    /// Takes the text of a file or of the environment, without the line's end.
    ///
    /// # Errors
    /// A text for people, which does not show it.
    pub fn new(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.is_empty() || text.len() > CREDENTIAL_BYTES_MAX {
            return Err(format!("a credential has 1 to {CREDENTIAL_BYTES_MAX} bytes"));
        }
        match text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self(text.to_owned())),
            false => Err("a credential is one line of visible ASCII characters".into()),
        }
    }

    /// The secret itself.
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential(..)")
    }
}

/// A broker, and how to reach it. What is missing is as without a context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// The addresses of the native protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The addresses of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Whether TLS is spoken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tls: bool,
    /// The file of the authorities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_ca: Option<String>,
    /// The fingerprint that is pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_fingerprint: Option<String>,
    /// The files of the client's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<String>,
    /// The name that the broker's certificate is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// The key or token to show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
}

/// All contexts, and which one is used.
#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The one that is used unless another is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// By name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// Where the file lies; `None` if the environment names no home.
pub fn path() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty());
    let config = folder("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.filter(|folder| folder.is_absolute());
    let config = config.or_else(|| Some(PathBuf::from(folder("HOME")?).join(".config")))?;
    Some(config.join("sennit/contexts.toml"))
}

impl Contexts {
    /// Reads the file; there are none if it does not exist.
    ///
    /// # Errors
    /// It cannot be read, is not what this program writes, or others may read its secrets.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let about = |error| Failure::from(error).about(path.display());
        let found = match fs::metadata(path) {
            Ok(found) => found,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(Self::default());
            }
            Err(error) => return Err(about(error)),
        };
        let wrong = |why: &str| Failure::new(Exit::Usage, format!("{}: {why}", path.display()));
        if found.len() > FILE_BYTES_MAX {
            return Err(wrong("it is too long to be a file of contexts"));
        }
        let text = fs::read_to_string(path).map_err(about)?;
        let read: Self = toml::from_str(&text).map_err(|error| {
            // The text of the error would show the line, which may have a secret.
            let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(""));
            let line = before.matches('\n').count() + 1;
            wrong(&format!("line {line} is not what `sennit context add` writes"))
        })?;
        let is_secret = read.contexts.values().any(|context| context.credential.is_some());
        if is_secret && found.permissions().mode() & 0o077 != 0 {
            let text = format!("others may read its credentials; chmod 600 {}", path.display());
            return Err(wrong(&text));
        }
        Ok(read)
    }

    /// Writes the file in place of the one that is there. Its owner alone may read it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        let about = |error| Failure::from(error).about(path.display());
        let text =
            toml::to_string(self).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(about)?;
        }
        let temporary = path.with_extension("toml.new");
        // What a run has left that was ended may be readable by others.
        let _ = fs::remove_file(&temporary);
        let written = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        };
        written().map_err(about)
    }

    /// The context of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn named(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let names: Vec<_> = self.contexts.keys().map(String::as_str).collect();
            let there = match names.is_empty() {
                true => "there are none; `sennit context add` makes one".to_owned(),
                false => format!("there are {}", names.join(", ")),
            };
            Failure::new(Exit::NotFound, format!("there is no context {name:?}: {there}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Contexts {
        let context = Context {
            server: Some("broker.example:4438".into()),
            http: Some("https://broker.example".into()),
            tls: true,
            tls_fingerprint: Some(format!("SHA256:{}", "ab".repeat(32))),
            credential: Credential::new("sennit_id_secret\n").ok(),
            ..Context::default()
        };
        let contexts = [("prod".to_owned(), context), ("dev".to_owned(), Context::default())];
        Contexts { current: Some("prod".into()), contexts: contexts.into() }
    }

    #[test]
    fn what_is_written_is_read_and_its_owner_alone_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sennit/contexts.toml");
        assert_eq!(Contexts::read(&path).unwrap(), Contexts::default());
        for _ in 0..2 {
            full().write(&path).unwrap();
            assert_eq!(Contexts::read(&path).unwrap(), full());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn secrets_that_others_may_read_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        full().write(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let failure = Contexts::read(&path).unwrap_err().to_string();
        assert!(failure.contains("chmod 600"), "{failure}");
    }

    #[test]
    fn a_file_that_is_none_is_refused_by_line_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts.toml");
        for text in [
            "current = \"a\"\n[contexts.a]\ncredentail = \"secret\"\n",
            "current = \"a\"\n[contexts.a]\ncredential = secret\n",
        ] {
            fs::write(&path, text).unwrap();
            let failure = Contexts::read(&path).unwrap_err().to_string();
            assert!(failure.contains("line 3") && !failure.contains("secret"), "{failure}");
        }
    }

    #[test]
    fn a_credential_is_one_line_and_not_shown() {
        assert!(!format!("{:?}", full()).contains("secret"));
        for text in ["", "\n", "two lines\nof it", &"x".repeat(CREDENTIAL_BYTES_MAX + 1)] {
            assert!(Credential::new(text).is_err());
        }
    }
}
