//! What a script is made of for a verb: its file, and the configuration that it reads when it is tried.

use std::{collections::HashMap, fs, io::Read as _, path::Path};

use bytes::Bytes;
use sennit_client::Client;
use sennit_model::limits::HOOK_SCRIPT_BYTES_MAX;

use crate::exit::Failure;

/// The script in a file, or on standard input for `-`.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn script_of(file: &Path) -> Result<String, Failure> {
    let about = |error: std::io::Error| Failure::from(error).about(file.display());
    if file.as_os_str() == "-" {
        let mut script = String::new();
        // One byte more is enough for the refusal.
        let most = HOOK_SCRIPT_BYTES_MAX as u64 + 1;
        std::io::stdin().lock().take(most).read_to_string(&mut script).map_err(about)?;
        return Ok(script);
    }
    fs::read_to_string(file).map_err(about)
}

/// All entries of a broker's configuration, by key.
///
/// # Errors
/// They cannot be listed.
pub async fn configuration_of(client: &Client) -> Result<HashMap<String, Bytes>, Failure> {
    let entries = client.configuration().list("").await?;
    Ok(entries.into_iter().map(|entry| (entry.key.to_string(), entry.value)).collect())
}
