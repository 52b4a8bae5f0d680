//! The options for connecting to a broker: its address, the time limits, and the runtime of a verb.

use std::time::Duration;

use sennit_client::{Client, Error, Reconnect};

use crate::{
    address::{BrokerAddress, native_broker},
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
    /// The broker's address, host and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4438", env = "SENNIT_SERVER")]
    #[arg(global = true, value_parser = native_broker)]
    pub server: BrokerAddress,
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
        let address = &self.server.host_port;
        let mut builder = Client::builder(address).name("sennit").reconnect(RECONNECT);
        if let Some(options) = self.tls.options(self.server.is_tls) {
            builder = builder.tls(options);
        }
        if let Some(credential) = self.credential.credential()? {
            builder = builder.credential(credential);
        }
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, builder.connect()).await;
        let nobody = |why: &str| no_broker(address, why, "--server");
        let connected =
            connected.map_err(|_| nobody(&format!("nothing came for {CONNECT_TIMEOUT:?}")))?;
        connected.map_err(|error| match error {
            Error::Unreachable { source, .. } => nobody(&source.to_string()),
            error @ Error::Tls { .. } => Failure::from(error),
            error => Failure::from(error).about(address),
        })
    }
}

/// No broker answers at `address`, which `option` sets.
pub fn no_broker(address: &str, why: &str, option: &str) -> Failure {
    let hint = format!("`sennit serve` starts a broker, {option} says where one is");
    Failure::new(Exit::Unreachable, format!("no broker answers at {address}: {why}; {hint}"))
}

/// Runs `work` to its end on this thread.
///
/// # Errors
/// The error of `work`, or the system has no event queue.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}
