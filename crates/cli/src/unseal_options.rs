//! The options by which a verb opens what it gets, and what becomes of a message that is not opened.

use std::{
    collections::{HashSet, VecDeque},
    path::PathBuf,
};

use sennit_seal::{KeyRing, MessageId, Opened};
use serde_json::{Value, json};

use crate::{
    exit::{Exit, Failure},
    key_files,
};

/// How many messages are remembered, so that none is taken twice.
const IDS_MAX: usize = 100_000;

/// With which keys to open.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct UnsealOptions {
    /// Open sealed payloads with the keys of this file (`sennit seal`); if it has keys that check
    /// signatures, messages have to be signed with one of them. May be given several times
    #[arg(long, value_name = "FILE")]
    unseal: Vec<PathBuf>,
    /// The topic for which the messages were sealed, if they were moved since
    #[arg(long, value_name = "TOPIC", requires = "unseal")]
    sealed_for: Option<String>,
}

/// Opens sealed messages.
pub struct Unsealer {
    ring: KeyRing,
    sealed_for: Option<String>,
    /// Of the last messages, if none may come twice.
    ids: Option<LastIds>,
    opened: u64,
    refused: u64,
}

/// Why a message was not opened.
#[derive(Clone, Debug)]
pub struct Unopened {
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub reason: String,
}

impl UnsealOptions {
    /// What opens messages, if they are to be opened. With `each_once`, a message that came before is refused.
    ///
    /// # Errors
    /// A file of keys cannot be used.
    pub fn unsealer(&self, each_once: bool) -> Result<Option<Unsealer>, Failure> {
        if self.unseal.is_empty() {
            return Ok(None);
        }
        Ok(Some(Unsealer {
            ring: key_files::read_all(&self.unseal)?,
            sealed_for: self.sealed_for.clone(),
            ids: each_once.then(LastIds::default),
            opened: 0,
            refused: 0,
        }))
    }
}

impl Unsealer {
    /// Opens the payload of a message of `topic`.
    ///
    /// # Errors
    /// It is not for these keys, was altered, or came before.
    pub fn open(&mut self, topic: &str, payload: &[u8]) -> Result<Opened, Unopened> {
        let topic = self.sealed_for.as_deref().unwrap_or(topic);
        let opened = self.ring.open(topic, payload);
        let opened =
            opened.map_err(|error| Unopened { code: error.code(), reason: error.to_string() });
        let opened = opened.and_then(|opened| {
            let is_new = self.ids.as_mut().is_none_or(|ids| ids.is_new(opened.id));
            let reason = || format!("the message {} came before", opened.id);
            if is_new { Ok(opened) } else { Err(Unopened { code: "replayed", reason: reason() }) }
        });
        match opened {
            Ok(_) => self.opened += 1,
            Err(_) => self.refused += 1,
        }
        opened
    }

    /// What is known of a message that was opened, for JSON.
    pub fn facts(&self, opened: &Opened) -> Value {
        let mut facts =
            json!({ "sealed_id": opened.id.to_string(), "sealed_at_ms": opened.sent_at_ms });
        if let Some(signer) = opened.signed_by {
            let label = self.ring.label_of(signer).map(str::to_owned);
            facts["signed_by"] = label.unwrap_or_else(|| signer.to_string()).into();
        }
        facts
    }

    /// Whether all were opened.
    ///
    /// # Errors
    /// Some were not: [`Exit::Partial`] if others were.
    pub fn all_opened(&self) -> Result<(), Failure> {
        let exit = if self.opened > 0 { Exit::Partial } else { Exit::Failed };
        match self.refused {
            0 => Ok(()),
            1 => Err(Failure::new(exit, "a message was not opened")),
            count => Err(Failure::new(exit, format!("{count} messages were not opened"))),
        }
    }
}

/// The ids of the last messages.
#[derive(Default)]
struct LastIds {
    ids: HashSet<MessageId>,
    in_order: VecDeque<MessageId>,
}

impl LastIds {
    fn is_new(&mut self, id: MessageId) -> bool {
        if !self.ids.insert(id) {
            return false;
        }
        self.in_order.push_back(id);
        if self.in_order.len() > IDS_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ids_are_remembered_and_no_more() {
        let mut ids = LastIds::default();
        let id = |number: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            MessageId(bytes)
        };
        assert!((0..=IDS_MAX as u64).all(|number| ids.is_new(id(number))));
        assert!(!ids.is_new(id(1)) && ids.is_new(id(0)), "the first one is forgotten");
        assert_eq!(ids.ids.len(), IDS_MAX);
    }
}
