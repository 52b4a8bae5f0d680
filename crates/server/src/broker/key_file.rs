//! The file of the broker's own keys in its data directory: readable by its owner alone, there whole or
//! not at all. It does not know what they are for.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use ring::hmac;
use sennit_identity::{MasterSecret, SECRET_BYTES, Secret};

/// The file in the data directory.
pub(crate) const NAME: &str = "subscription-keys";

/// What the file begins with; the secrets follow.
const MAGIC: &[u8; 16] = b"sennit keys v1\n\0";

/// The seed of the signing key and the secret of the tokens, 32 bytes each.
pub(crate) type Secrets = [u8; 64];

/// How long the file is.
pub(crate) const BYTES: usize = MAGIC.len() + size_of::<Secrets>();

/// What lies in this data directory; `None` if there are none yet.
///
/// # Errors
/// The file cannot be read, or is not what it should be.
pub(crate) fn read(directory: &Path) -> io::Result<Option<Secrets>> {
    let path = directory.join(NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = file.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        let path = path.display();
        tracing::warn!(%path, mode = format!("{:o}", mode & 0o777), "others may read the broker's keys");
    }
    let mut bytes = Vec::with_capacity(BYTES);
    file.take(BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let secrets = parse(&bytes).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no keys", path.display()))
    })?;
    Ok(Some(secrets))
}

/// The secrets in this data directory; made if there are none yet.
///
/// # Errors
/// The file cannot be read or written, or is not what it should be.
pub(crate) fn read_or_create(directory: &Path) -> io::Result<Secrets> {
    if let Some(secrets) = read(directory)? {
        return Ok(secrets);
    }
    let mut secrets = [0; size_of::<Secrets>()];
    getrandom::fill(&mut secrets).map_err(|error| io::Error::other(error.to_string()))?;
    write(directory, &secrets)?;
    Ok(secrets)
}

/// The secret from which those of API keys are derived.
pub(crate) fn master(secrets: &Secrets) -> MasterSecret {
    let (_, tokens) = secrets.split_at(secrets.len() / 2);
    let key = hmac::Key::new(hmac::HMAC_SHA256, tokens);
    let mut master = [0; SECRET_BYTES];
    master.copy_from_slice(hmac::sign(&key, b"sennit api keys v1").as_ref());
    MasterSecret::new(&Secret::new(master))
}

/// Writes the file.
///
/// # Errors
/// It cannot be written.
pub(crate) fn write(directory: &Path, secrets: &Secrets) -> io::Result<()> {
    let path = directory.join(NAME);
    let half = path.with_extension("new");
    // What a crash has left was never used.
    match fs::remove_file(&half) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
    file.write_all(&encode(secrets))?;
    file.sync_all()?;
    fs::rename(&half, path)?;
    File::open(directory)?.sync_all()
}

/// The file's bytes.
pub(crate) fn encode(secrets: &Secrets) -> Vec<u8> {
    [&MAGIC[..], secrets].concat()
}

/// What these bytes of a file hold.
pub(crate) fn parse(bytes: &[u8]) -> Option<Secrets> {
    bytes.strip_prefix(MAGIC)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: Secrets = [7; 64];

    #[test]
    fn what_is_written_is_read_and_for_the_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read(directory.path()).unwrap(), None);
        write(directory.path(), &SECRETS).unwrap();
        assert_eq!(read(directory.path()).unwrap(), Some(SECRETS));
        let mode = fs::metadata(directory.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn what_is_damaged_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let bytes = encode(&SECRETS);
        assert_eq!(bytes.len(), BYTES);
        for wrong in [&bytes[..BYTES - 1], &[&bytes[..], b"x"].concat(), &[0; BYTES]] {
            fs::write(directory.path().join(NAME), wrong).unwrap();
            let error = read(directory.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
