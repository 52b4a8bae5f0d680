//! The options for connecting to a broker: its address, the time limits, and the runtime of a verb.

use std::{io, time::Duration};

use sennit_client::{Client, Error, Reconnect};

use crate::{
    address::{BrokerAddresses, native_brokers},
    credential_options::CredentialOptions,
    exit::{Exit, Failure},
    tls_options::TlsArgs,
};

/// How long a verb tries to connect.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How a lost connection is made again: for about a minute, so that a broker can restart.
const RECONNECT: Reconnect = Reconnect {
    delay_min: Duration::from_millis(50),
    delay_max: Duration::from_secs(2),
    attempts_max: Some(50),
    attempt_timeout: CONNECT_TIMEOUT,
};

/// The broker to connect to.
#[derive(Clone, Debug, clap::Args)]
pub struct ConnectOptions {
    /// The broker's address, host and port; of a cluster several nodes' addresses with commas between
    #[arg(long, value_name = "ADDRESSES", default_value = "127.0.0.1:4438", env = "SENNIT_SERVER")]
    #[arg(global = true, value_parser = native_brokers)]
    pub server: BrokerAddresses,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    credential: CredentialOptions,
}

impl ConnectOptions {
    /// A connection to the broker.
    ///
    /// # Errors
    /// No broker listens there, or none answered in time.
    pub async fn client(&self) -> Result<Client, Failure> {
        let addresses = self.server.to_string();
        let mut builder = Client::builder(&addresses).name("sennit").reconnect(RECONNECT);
        if let Some(options) = self.tls.options(self.server.is_tls) {
            builder = builder.tls(options);
        }
        if let Some(credential) = self.credential.credential()? {
            builder = builder.credential(credential);
        }
        builder.connect().await.map_err(|error| {
            unreachable(&error).unwrap_or_else(|| match error {
                error @ Error::Tls { .. } => Failure::from(error),
                error => Failure::from(error).about(addresses),
            })
        })
    }
}

/// The failure that names each address with its reason, if the error is that no broker could be reached.
pub fn unreachable(error: &Error) -> Option<Failure> {
    let said = |error: &Error| match error {
        Error::Unreachable { source, .. } if source.kind() == io::ErrorKind::TimedOut => {
            format!("nothing came for {CONNECT_TIMEOUT:?}")
        }
        Error::Unreachable { source, .. } => source.to_string(),
        Error::Tls { message, .. } => message.clone(),
        error => error.to_string(),
    };
    let tried = match error {
        Error::Unreachable { address, .. } => vec![(address.clone(), said(error))],
        Error::NoneReachable { tried } => {
            tried.iter().map(|(address, error)| (address.to_string(), said(error))).collect()
        }
        _ => return None,
    };
    Some(no_broker(&tried, "--server"))
}

/// No broker answers at the addresses that `option` sets; each has a reason.
pub fn no_broker(tried: &[(String, String)], option: &str) -> Failure {
    let reasons: Vec<_> = tried.iter().map(|(address, why)| format!("{address}: {why}")).collect();
    let reasons = reasons.join("; ");
    let hint = format!("`sennit serve` starts a broker, {option} says where one is");
    Failure::new(Exit::Unreachable, format!("no broker answers at {reasons}; {hint}"))
}

/// Runs `work` to its end on this thread.
///
/// # Errors
/// The error of `work`, or the system has no event queue.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
