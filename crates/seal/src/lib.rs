//! Sealed messages: payloads that only those with a key can read, and that say who sent them. The broker stores and
//! delivers them like any others; docs/reference/sealed-messages.md has the format, and what the broker still sees.
//!
//! In reading order: a [`Key`] is one line of a file of keys, a [`KeyRing`] all of them. A [`Sealer`] makes a sealed message
//! of a payload for a topic, [`KeyRing::open`] a payload of a sealed message, or an [`OpenError`]. A [`ReplayGuard`] refuses a
//! message that came before.
//!
//! This crate knows no broker, no socket and no file. Times are arguments; random numbers are the system's.

mod binding;
mod envelope;
mod key;
mod key_id;
mod key_kind;
mod key_ring;
pub mod limits;
mod message_id;
mod open_error;
mod opening;
mod recipient;
mod replay_guard;
mod sealer;
mod signature;
mod text_form;

pub use key::{Key, KeyTextError};
pub use key_id::KeyId;
pub use key_kind::KeyKind;
pub use key_ring::{KeyRing, KeyRingError, LabelledKey};
pub use message_id::MessageId;
pub use open_error::OpenError;
pub use opening::Opened;
pub use replay_guard::{ReplayGuard, ReplayRefusal};
pub use sealer::{SealError, Sealer};
pub use text_form::{is_sealed, text_of};

#[cfg(test)]
mod tests;
