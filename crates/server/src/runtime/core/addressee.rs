//! Whom an effect is for.

use sennit_engine::{Effect, SessionId};

/// The session that an effect is for; none if it is for the control of topics, or about what nobody has asked.
pub(super) fn session_of(effect: &Effect) -> Option<SessionId> {
    Some(match effect {
        Effect::Confirmed(confirmed) => confirmed.origin.session,
        Effect::PublishNoted(note) => note.origin.session,
        Effect::Deliver(delivery) => delivery.session,
        Effect::Settled(settled) => settled.origin.session,
        Effect::SubscriptionEnded { session, .. }
        | Effect::SubscriptionInterrupted { session, .. }
        | Effect::CursorTaken { session, .. }
        | Effect::ReaderTooSlow { session, .. }
        | Effect::Gap { session, .. } => *session,
        Effect::Subscribed { origin, .. }
        | Effect::Done { origin, .. }
        | Effect::PublishedAt { origin, .. }
        | Effect::PublishedAtomic { origin, .. }
        | Effect::Described { origin, .. }
        | Effect::Located { origin, .. }
        | Effect::Cursors { origin, .. }
        | Effect::Delayed { origin, .. }
        | Effect::DelaysChanged { origin, .. }
        | Effect::Explained { origin, .. }
        | Effect::Keys { origin, .. }
        | Effect::Unparked { origin, .. }
        | Effect::Walked { origin, .. }
        | Effect::Refused { origin, .. }
        | Effect::Stream(origin, _) => origin.session,
        Effect::AttemptsFailed(_)
        | Effect::DeadLetterTopicNeeded { .. }
        | Effect::StreamEnded { .. } => return None,
    })
}
