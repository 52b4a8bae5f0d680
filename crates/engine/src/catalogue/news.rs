//! News of the catalogue for whoever reports topics that come and go: kept once somebody asks for them, from then on. A state that was
//! made anew keeps none before it is asked, so that whoever asks hears that something is missing.

use sennit_model::TopicId;

use super::Topic;

/// Something that a record has changed in the catalogue. It may not be committed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogueNews {
    /// A topic is there.
    Created(TopicId),
    /// A topic has other settings.
    Altered(TopicId),
    /// A topic is gone.
    Deleted(Box<Topic>),
}

/// The news that wait, and how much has changed.
#[derive(Debug, Default)]
pub(crate) struct WaitingNews {
    changes: u64,
    waiting: Option<Vec<CatalogueNews>>,
}

impl WaitingNews {
    /// Something has changed; `news` says what, if somebody wants to know.
    pub(crate) fn note(&mut self, news: impl FnOnce() -> Option<CatalogueNews>) {
        self.changes += 1;
        if let Some(waiting) = &mut self.waiting {
            waiting.extend(news());
        }
    }

    /// The number of changes since the state was made.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Takes what waits; `None` if nothing was kept so far.
    pub(crate) fn take(&mut self) -> Option<Vec<CatalogueNews>> {
        self.waiting.replace(Vec::new())
    }
}
