//! Files of keys for sealed messages. Those with secrets may be read by their owner only.

use std::{
    fs::File,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sennit_seal::{KeyRing, limits::KEY_FILE_BYTES_MAX};

use crate::exit::{Exit, Failure};

/// The keys of all files, in their order.
///
/// # Errors
/// A file cannot be read, has a line that is no key, or shows secrets to others.
pub fn read_all(paths: &[PathBuf]) -> Result<KeyRing, Failure> {
    let mut ring = KeyRing::default();
    for path in paths {
        let wrong = |why: &dyn std::fmt::Display| {
            Failure::new(Exit::Usage, format!("{}: {why}", path.display()))
        };
        let of_file = KeyRing::from_text(&read(path)?).map_err(|error| wrong(&error))?;
        ring.extend(of_file).map_err(|error| wrong(&error))?;
    }
    Ok(ring)
}

/// The text of a file of keys.
///
/// # Errors
/// It cannot be read, is none, or shows secrets to others.
pub fn read(path: &Path) -> Result<zeroize::Zeroizing<String>, Failure> {
    let about = |error| Failure::from(error).about(path.display());
    let wrong = |why: &str| Failure::new(Exit::Usage, format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(about)?;
    let metadata = file.metadata().map_err(about)?;
    let mut bytes = zeroize::Zeroizing::new(Vec::new());
    file.take(KEY_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(about)?;
    let text =
        str::from_utf8(&bytes).map_err(|_| wrong("it is no file of keys: it is not UTF-8"))?;
    let ring = KeyRing::from_text(text).map_err(|error| wrong(&error.to_string()))?;
    if ring.has_secrets() && metadata.permissions().mode() & 0o077 != 0 {
        return Err(wrong(&format!("others may read its keys; chmod 600 {}", path.display())));
    }
    Ok(zeroize::Zeroizing::new(text.to_owned()))
}
