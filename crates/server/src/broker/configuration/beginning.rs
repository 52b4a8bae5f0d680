//! The configuration as far as it was read, before it is in force. It knows no stream.

use super::{change::KeptConfiguration, entries::Entries, history::History, store::Found};

/// Entries that were read before the configuration is in force for the first time, or once more from the beginning.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    pub(super) entries: Entries,
    pub(super) history: History,
}

impl Beginning {
    /// Takes what was read next.
    pub(super) fn take(&mut self, found: Found) {
        let Self { entries, history } = self;
        match found {
            Found::Kept(KeptConfiguration::Change(change)) => {
                entries.apply(&change);
                history.push(&change);
            }
            Found::Kept(KeptConfiguration::WrittenAgain { revision }) => {
                entries.skip_to(revision);
                if history.revision() < revision {
                    history.restart(revision);
                }
            }
            Found::Missing(count) => {
                let revision = entries.revision().saturating_add(count);
                entries.skip_to(revision);
                history.restart(revision);
            }
        }
    }
}
