//! The messages of one append: one batch, or several if they do not fit into one. It does not know where they go.

use sennit_model::{Batch, MessageView};

/// Messages that are appended at once: all of them are there, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    first: Batch,
    /// What the first has no room for; as a rule nothing.
    further: Vec<Batch>,
}

impl Content {
    /// These batches, one after the other; `None` if there are none.
    #[must_use]
    pub fn of(batches: impl IntoIterator<Item = Batch>) -> Option<Self> {
        let mut batches = batches.into_iter();
        Some(Self { first: batches.next()?, further: batches.collect() })
    }

    /// Its batches, in their order.
    pub fn batches(&self) -> impl Iterator<Item = &Batch> {
        std::iter::once(&self.first).chain(&self.further)
    }

    /// Its batches, in their order, to keep.
    pub(crate) fn into_batches(self) -> impl Iterator<Item = Batch> {
        std::iter::once(self.first).chain(self.further)
    }

    /// The first batch, and those behind it.
    #[must_use]
    pub fn into_parts(self) -> (Batch, Vec<Batch>) {
        (self.first, self.further)
    }

    /// The number of messages in it.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.batches().map(Batch::count).sum()
    }

    /// The bytes of the encoded messages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.batches().map(|batch| batch.bytes().len()).sum()
    }

    /// Whether each message has a key.
    #[must_use]
    pub fn is_keyed(&self) -> bool {
        self.batches().all(Batch::is_keyed)
    }

    /// Its messages, in their order.
    pub fn messages(&self) -> impl Iterator<Item = MessageView<'_>> {
        self.batches().flat_map(Batch::messages)
    }
}

impl From<Batch> for Content {
    fn from(first: Batch) -> Self {
        Self { first, further: Vec::new() }
    }
}
