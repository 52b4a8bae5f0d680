//! PEM files: chains of certificates and private keys. A file is read whole and has a limit.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{Error as PemError, PemObject as _},
};

use crate::fault::TlsFault;

/// Most bytes of a PEM file: those of all authorities that a machine trusts are a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a certificate chain and of its key, written `CERT,KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain: the certificate itself first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl FromStr for CertificateFiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(',') {
            Some((certificate, key)) if !certificate.is_empty() && !key.is_empty() => {
                Ok(Self { certificate: certificate.into(), key: key.into() })
            }
            _ => Err("name two PEM files with a comma between: cert.pem,key.pem".into()),
        }
    }
}

impl CertificateFiles {
    /// Reads both files.
    ///
    /// # Errors
    /// A file cannot be read, or does not have what it should.
    pub fn read(&self) -> Result<Identity, TlsFault> {
        let chain = certificates_of_file(&self.certificate)?;
        let name = self.key.display().to_string();
        let key =
            PrivateKeyDer::from_pem_slice(&read(&self.key)?).map_err(|error| match error {
                PemError::NoItemsFound => TlsFault::NoKey { source_name: name.clone() },
                error => TlsFault::Pem { source_name: name.clone(), reason: reason(&error) },
            })?;
        Ok(Identity { chain, key, key_source: name })
    }
}

/// A certificate chain with its private key.
pub struct Identity {
    /// The chain: the certificate itself first; not empty.
    pub chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    /// Where the key is from.
    pub(crate) key_source: String,
}

impl std::fmt::Debug for Identity {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("key_source", &self.key_source).finish_non_exhaustive()
    }
}

/// All certificates of a file.
///
/// # Errors
/// The file cannot be read, is not PEM, or has no certificate.
pub fn certificates_of_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    certificates(&read(path)?, &path.display().to_string())
}

/// All certificates of a PEM text; `source_name` says in errors where it is from.
///
/// # Errors
/// The text is not PEM, or has no certificate.
pub fn certificates(
    text: &[u8],
    source_name: &str,
) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let found = found.map_err(|error| TlsFault::Pem {
        source_name: source_name.to_owned(),
        reason: reason(&error),
    })?;
    match found.is_empty() {
        true => Err(TlsFault::NoCertificate { source_name: source_name.to_owned() }),
        false => Ok(found),
    }
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, TlsFault> {
    let failed = |error| TlsFault::File { path: path.to_owned(), error };
    let mut text = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(TlsFault::Long { path: path.to_owned(), limit: FILE_BYTES_MAX });
    }
    Ok(text)
}

/// What is wrong with a PEM text, without any of its bytes: they may be a key's.
fn reason(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "a section has no END line".into(),
        PemError::IllegalSectionStart { .. } => "a BEGIN line is broken".into(),
        PemError::Base64Decode(_) => "a section is not base64".into(),
        PemError::NoItemsFound => "there is no section".into(),
        _ => "it cannot be read".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_files_are_named_with_a_comma_between() {
        let files: CertificateFiles = "a.pem,b.pem".parse().unwrap();
        assert_eq!((files.certificate, files.key), ("a.pem".into(), "b.pem".into()));
        for text in ["", "a.pem", ",b.pem", "a.pem,"] {
            assert!(text.parse::<CertificateFiles>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_chain_is_refused_and_none_of_it_is_shown() {
        for text in [
            "",
            "hello",
            "-----BEGIN CERTIFICATE-----\nc2VjcmV0\n",
            "-----BEGIN CERTIFICATE-----\n??secret??\n-----END CERTIFICATE-----\n",
        ] {
            let fault = certificates(text.as_bytes(), "a.pem").unwrap_err().to_string();
            assert!(fault.starts_with("a.pem ") && !fault.contains("secret"), "{fault}");
        }
    }
}
