//! What an operator says about TLS, and the settings of the ports that are made of it.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::SystemTime,
};

use sennit_tls::{
    Authority, CertificateFiles, ClientCertificates, Fingerprint, HTTP_PROTOCOLS, ServerConfig,
    TlsFault, server_settings,
};

use super::clock::now;

/// The name of the authority that a broker makes for itself.
const OWN_AUTHORITY: &str = "sennit broker authority";

/// Its folder in the data directory.
const OWN_FOLDER: &str = "tls";

/// How long a certificate is valid that a broker makes for itself, and when it makes another.
const OWN_DAYS: u32 = 90;
const OWN_RENEWED_MS: u64 = 30 * 86_400_000;

/// The certificate under which a broker is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BrokerCertificate {
    /// That of two PEM files, which are read again when they change.
    Files(CertificateFiles),
    /// One that the broker makes, signed by an authority of its own in the data directory.
    Own,
}

/// `CERT,KEY` or `self`.
impl FromStr for BrokerCertificate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "self" => Ok(Self::Own),
            text => match text.parse() {
                Ok(files) => Ok(Self::Files(files)),
                Err(wrong) => Err(format!("{wrong}, or self")),
            },
        }
    }
}

impl fmt::Display for BrokerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("self"),
            Self::Files(CertificateFiles { certificate, key }) => {
                write!(f, "{},{}", certificate.display(), key.display())
            }
        }
    }
}

/// How the ports speak TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    /// The certificate of both ports.
    pub(crate) certificate: BrokerCertificate,
    /// Whether clients show certificates.
    pub(crate) clients: ClientCertificates,
    /// The authorities that client certificates are from.
    pub(crate) client_ca: Option<PathBuf>,
}

/// Where the settings of the ports come from, again and again.
#[derive(Debug)]
pub(crate) struct TlsSource {
    settings: TlsSettings,
    /// The folder of an own authority.
    own_folder: PathBuf,
    /// The names of an own certificate.
    names: Vec<String>,
}

/// The settings of the ports, as they were at one moment.
#[derive(Debug)]
pub(crate) struct TlsLoaded {
    pub(crate) native: Arc<ServerConfig>,
    pub(crate) http: Arc<ServerConfig>,
    /// What clients may pin: the certificate, or the authority of one that is made here.
    pub(crate) fingerprint: Fingerprint,
}

/// By what a change of the files is noticed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsStamps(Vec<(Option<SystemTime>, u64)>);

impl TlsSource {
    pub(crate) fn new(settings: TlsSettings, data: &Path, names: Vec<String>) -> Self {
        Self { settings, own_folder: data.join(OWN_FOLDER), names }
    }

    /// Whether the certificate is one of an own authority.
    pub(crate) fn is_own(&self) -> bool {
        self.settings.certificate == BrokerCertificate::Own
    }

    /// Reads the files.
    pub(crate) fn load(&self) -> Result<TlsLoaded, TlsFault> {
        let (identity, fingerprint) = match &self.settings.certificate {
            BrokerCertificate::Files(files) => {
                let identity = files.read()?;
                let fingerprint = identity.chain.first().map(Fingerprint::of);
                let none = || TlsFault::NoCertificate {
                    source_name: files.certificate.display().to_string(),
                };
                (identity, fingerprint.ok_or_else(none)?)
            }
            BrokerCertificate::Own => {
                let authority = Authority::of_folder(&self.own_folder, OWN_AUTHORITY)?;
                let issued = authority.issue_server(&self.names, OWN_DAYS)?;
                (issued.into_identity(), authority.fingerprint())
            }
        };
        let TlsSettings { clients, client_ca, .. } = &self.settings;
        if client_ca.is_some() && *clients == ClientCertificates::Off {
            return Err(TlsFault::Settings(
                "--tls-client-ca is of no use without --tls-client optional or required",
            ));
        }
        let native = server_settings(identity, *clients, client_ca.as_deref(), &[])?;
        let mut http = ServerConfig::clone(&native);
        http.alpn_protocols = HTTP_PROTOCOLS.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(TlsLoaded { native, http: Arc::new(http), fingerprint })
    }

    /// How the files are now; a file that is not there is another than one that is.
    pub(crate) fn stamps(&self) -> TlsStamps {
        let of_file = |path: &PathBuf| match fs::metadata(path) {
            Ok(found) => (found.modified().ok(), found.len()),
            Err(_) => (None, 0),
        };
        let mut files: Vec<_> = match &self.settings.certificate {
            BrokerCertificate::Files(files) => {
                [&files.certificate, &files.key].into_iter().map(of_file).collect()
            }
            BrokerCertificate::Own => vec![(None, now().0 / OWN_RENEWED_MS)],
        };
        files.extend(self.settings.client_ca.iter().map(of_file));
        TlsStamps(files)
    }
}
