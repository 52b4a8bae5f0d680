//! An authority of one's own: its certificate and key, and the certificates that it issues for servers and clients.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use ::pem::{EncodeConfig, LineEnding, Pem, encode_config};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData as _,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

use crate::{
    fault::TlsFault,
    fingerprint::Fingerprint,
    pem::{CertificateFiles, Identity, certificates, read},
};

/// The files of an authority in its folder.
const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca.key";

/// How long before its making a certificate is valid: clocks differ.
const SKEW: Duration = Duration::days(1);

/// How long the certificate of an authority in a folder is valid, in days.
const AUTHORITY_DAYS: u32 = 3650;

/// An authority: it signs certificates.
pub struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority")
            .field("fingerprint", &self.fingerprint())
            .finish_non_exhaustive()
    }
}

/// A certificate and its key, just made.
pub struct IssuedCertificate {
    /// The chain: the certificate itself first, then its authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// The chain in PEM.
    pub chain_pem: String,
    /// The private key in PEM.
    pub key_pem: String,
    key: PrivatePkcs8KeyDer<'static>,
}

impl std::fmt::Debug for IssuedCertificate {
    /// Does not show the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedCertificate")
            .field("chain", &self.chain.len())
            .finish_non_exhaustive()
    }
}

impl IssuedCertificate {
    /// The same for a server or client of this process.
    #[must_use]
    pub fn into_identity(self) -> Identity {
        let key = PrivateKeyDer::Pkcs8(self.key);
        Identity { chain: self.chain, key, key_source: "a certificate made here".into() }
    }
}

impl Authority {
    /// Makes an authority of that name, valid for so many days. Returns it with its key in PEM.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn create(name: &str, days: u32) -> Result<(Self, String), TlsFault> {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = params(name, days);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        let key_pem = key.serialize_pem();
        let issuer = Issuer::new(params, key);
        Ok((Self { certificate, issuer }, key_pem))
    }

    /// Reads the authority of two PEM files.
    ///
    /// # Errors
    /// They are not those of an authority.
    pub fn read(files: &CertificateFiles) -> Result<Self, TlsFault> {
        let source_name = files.certificate.display().to_string();
        let no_authority = |reason: &str| TlsFault::Authority {
            source_name: source_name.clone(),
            reason: reason.to_owned(),
        };
        let found = certificates(&read(&files.certificate)?, &source_name)?;
        let certificate = found.into_iter().next().ok_or_else(|| no_authority("it is empty"))?;
        let key_name = files.key.display().to_string();
        let no_key = |reason: String| TlsFault::Key { source_name: key_name.clone(), reason };
        let key = String::from_utf8(read(&files.key)?)
            .map_err(|_| TlsFault::NoKey { source_name: key_name.clone() })?;
        let key = KeyPair::from_pem(&key)
            .map_err(|_| no_key("it is no private key of ECDSA or Ed25519 in PEM".into()))?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate)
            .map_err(|_| no_authority("its first certificate cannot be read"))?;
        if !parsed.is_ca() {
            return Err(no_authority(
                "its certificate may not sign others; `sennit cert create` makes one that may",
            ));
        }
        if parsed.public_key().raw != key.subject_public_key_info() {
            return Err(no_key(format!("it is not the key of {source_name}")));
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(failed)?;
        Ok(Self { certificate, issuer })
    }

    /// The authority of a folder, which is made if it is not there. The key is readable by its owner alone.
    ///
    /// # Errors
    /// The folder cannot be used, or what is in it is no authority.
    pub fn of_folder(folder: &Path, name: &str) -> Result<Self, TlsFault> {
        let files = CertificateFiles {
            certificate: folder.join(CERTIFICATE_FILE),
            key: folder.join(KEY_FILE),
        };
        if files.certificate.exists() {
            return Self::read(&files);
        }
        let (made, key) = Self::create(name, AUTHORITY_DAYS)?;
        let file = |path: &Path| {
            let path = path.to_owned();
            move |error| TlsFault::File { path, error }
        };
        std::fs::create_dir_all(folder).map_err(file(folder))?;
        // A key without its certificate is what a start leaves that was cut off: it signed nothing.
        let _ = std::fs::remove_file(&files.key);
        write_secret_file(&files.key, key.as_bytes()).map_err(file(&files.key))?;
        let temporary = folder.join("ca.pem.new");
        let written = File::create(&temporary).and_then(|mut created| {
            created.write_all(made.certificate_pem().as_bytes())?;
            created.sync_all()
        });
        written.map_err(file(&temporary))?;
        std::fs::rename(&temporary, &files.certificate).map_err(file(&files.certificate))?;
        Ok(made)
    }

    /// The authority's certificate in PEM.
    #[must_use]
    pub fn certificate_pem(&self) -> String {
        pem_of(&self.certificate)
    }

    /// The fingerprint of the authority's certificate.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Issues the certificate of a server with these host names and addresses.
    ///
    /// # Errors
    /// A name is none.
    pub fn issue_server(&self, names: &[String], days: u32) -> Result<IssuedCertificate, TlsFault> {
        let common = names.first().map_or("sennit", String::as_str);
        let mut params = params(common, days);
        params.subject_alt_names = subject_names(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// Issues the certificate of a client of that name.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn issue_client(&self, name: &str, days: u32) -> Result<IssuedCertificate, TlsFault> {
        let mut params = params(name, days);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<IssuedCertificate, TlsFault> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(failed)?.der().clone();
        Ok(IssuedCertificate {
            chain_pem: pem_of(&certificate) + &self.certificate_pem(),
            chain: vec![certificate, self.certificate.clone()],
            key_pem: key.serialize_pem(),
            key: PrivatePkcs8KeyDer::from(key.serialize_der()),
        })
    }
}

fn params(name: &str, days: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = OffsetDateTime::now_utc();
    params.not_before = now - SKEW;
    params.not_after = now + Duration::days(i64::from(days));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn subject_names(names: &[String]) -> Result<Vec<rcgen::SanType>, TlsFault> {
    let wrong = |name: &String| TlsFault::Name { name: name.clone() };
    if names.is_empty() {
        return Err(TlsFault::Settings(
            "a server's certificate needs a name: give a host name or an address",
        ));
    }
    let subject_name = |name: &String| match name.parse::<IpAddr>() {
        Ok(address) => Ok(rcgen::SanType::IpAddress(address)),
        // Wildcards are for one label, as servers of web pages have them.
        Err(_) => match rustls::pki_types::DnsName::try_from(name.trim_start_matches("*.")) {
            Ok(_) => name.as_str().try_into().map(rcgen::SanType::DnsName).map_err(|_| wrong(name)),
            Err(_) => Err(wrong(name)),
        },
    };
    names.iter().map(subject_name).collect()
}

fn pem_of(certificate: &CertificateDer<'_>) -> String {
    let lines = EncodeConfig::new().set_line_ending(LineEnding::LF);
    encode_config(&Pem::new("CERTIFICATE", certificate.to_vec()), lines)
}

fn failed(error: rcgen::Error) -> TlsFault {
    TlsFault::Issue { reason: error.to_string() }
}

/// Writes a new file that its owner alone may read.
///
/// # Errors
/// There is one already, or it cannot be written.
pub fn write_secret_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests;
