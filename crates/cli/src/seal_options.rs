//! The options by which a verb seals what it publishes.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use sennit_seal::Sealer;

use crate::{
    exit::{Exit, Failure},
    key_files,
};

/// With which keys to seal.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SealOptions {
    /// Seal the payloads with the keys of this file (`sennit seal`): its first channel key, or for all
    /// recipients in it; signed with its first signing key, if it has one. May be given several times
    #[arg(long, value_name = "FILE")]
    seal: Vec<PathBuf>,
}

/// Seals payloads for the readers of one topic.
pub struct PayloadSealer {
    sealer: Sealer,
    topic: String,
}

impl SealOptions {
    /// The sealer of payloads for a topic, if they are to be sealed.
    ///
    /// # Errors
    /// A file of keys cannot be used, or says not for whom to seal.
    pub fn sealer(&self, topic: &str) -> Result<Option<PayloadSealer>, Failure> {
        if self.seal.is_empty() {
            return Ok(None);
        }
        let ring = key_files::read_all(&self.seal)?;
        let sealer = Sealer::new(&ring)
            .map_err(|error| Failure::new(Exit::Usage, format!("--seal: {error}")))?;
        Ok(Some(PayloadSealer { sealer, topic: topic.to_owned() }))
    }
}

impl PayloadSealer {
    /// Seals a payload.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn seal(&self, payload: &[u8]) -> Result<Bytes, Failure> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let sealed = self.sealer.seal(&self.topic, payload, now_ms);
        sealed.map(Bytes::from).map_err(|error| Failure::new(Exit::Failed, error.to_string()))
    }
}
