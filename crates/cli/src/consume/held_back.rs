//! What holds back all ready messages of a group, while a consumer gets none.

use sennit_client::{Client, Error, ErrorCode, FairKey, GroupDescription, WaitReason};
use sennit_model::limits::FAIR_KEYS_LISTED_MAX;

use crate::{exit::Failure, explain::predicate};

/// Most keys that a text names.
const NAMED_MAX: usize = 5;

/// What holds back all ready messages.
#[derive(Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// A pause, which somebody has to end. The text is for people.
    Paused(String),
    /// A throttle or a limit, which time or other consumers end. The text is for people.
    Limited(String),
}

/// Asks the broker what holds back all ready messages of the group; `None` if some are not held back, or it is not
/// known.
///
/// # Errors
/// The broker's final refusal.
pub async fn held_back(
    client: &Client,
    group: &GroupDescription,
) -> Result<Option<HeldBack>, Failure> {
    let most = FAIR_KEYS_LISTED_MAX as u32;
    match client.list_fair_keys(&group.topic, &group.name, most).await {
        Ok(keys) => Ok(holds(group, &keys)),
        // An older broker does not know the question, and one that starts does not answer now.
        Err(Error::Refused { code: ErrorCode::UnknownKind, .. }) => Ok(None),
        Err(Error::Refused { retryable: true, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn holds(group: &GroupDescription, keys: &[FairKey]) -> Option<HeldBack> {
    let ready: Vec<_> = keys.iter().filter_map(|key| Some((key, key.reason.as_ref()?))).collect();
    let (topic, name, count) = (&group.topic, &group.name, group.ready);
    let stay = |how: String| Some(HeldBack::Paused(format!("{topic} {name}: {how}")));
    match ready.first()?.1 {
        WaitReason::TopicPaused => {
            return stay(format!(
                "the topic is paused, {count} ready messages wait; sennit topic resume {topic}"
            ));
        }
        WaitReason::GroupPaused => {
            return stay(format!(
                "the group is paused, {count} ready messages wait; sennit group resume {topic} {name}"
            ));
        }
        _ => {}
    }
    let is_paused = |reason: &WaitReason| *reason == WaitReason::KeyPaused;
    let paused: Vec<_> =
        ready.iter().filter(|(_, reason)| is_paused(reason)).map(|(key, _)| *key).collect();
    if paused.iter().map(|key| key.ready).sum::<u64>() >= count {
        let mut names: Vec<_> =
            paused.iter().take(NAMED_MAX).map(|key| key.fair_key.as_str()).collect();
        if paused.len() > NAMED_MAX {
            names.push("others");
        }
        return stay(format!(
            "rules pause the keys of all {count} ready messages, {}; sennit group key list {topic} {name}",
            names.join(", ")
        ));
    }
    let is_held = |reason: &WaitReason| {
        matches!(
            reason,
            WaitReason::KeyPaused
                | WaitReason::Concurrency { .. }
                | WaitReason::GroupThrottled { .. }
                | WaitReason::Throttled { .. }
        )
    };
    let (key, reason) = ready.iter().find(|(_, reason)| !is_paused(reason))?;
    let all_held = ready.iter().all(|(_, reason)| is_held(reason));
    let text = match key.fair_key.as_str() {
        "" => format!("{topic} {name}: the next message {}", predicate(reason)),
        key => format!("{topic} {name}: the next message of key {key} {}", predicate(reason)),
    };
    all_held.then_some(HeldBack::Limited(text))
}

#[cfg(test)]
mod tests {
    use sennit_client::{GroupConfig, GroupId, Timestamp};

    use super::*;

    fn group(ready: u64) -> GroupDescription {
        GroupDescription {
            name: "default".parse().expect("it is a name"),
            id: GroupId(1),
            topic: "jobs".parse().expect("it is a name"),
            config: GroupConfig::default(),
            ready,
            leased: 0,
            delayed: 0,
            dying: 0,
            parked: 0,
            parked_runs: Vec::new(),
            holds_since: None,
            consumers: 1,
            settled_before: Vec::new(),
            active_sessions: Vec::new(),
        }
    }

    fn key(name: &str, ready: u64, reason: WaitReason) -> FairKey {
        let (fair_key, reason) = (name.into(), Some(reason));
        FairKey {
            fair_key,
            ready,
            in_flight: 0,
            oldest_at: None,
            reason,
            session: None,
            served: None,
        }
    }

    fn is_paused(held: Option<HeldBack>) -> bool {
        matches!(held, Some(HeldBack::Paused(_)))
    }

    #[test]
    fn a_pause_of_all_that_is_ready_is_told_from_limits_that_pass() {
        let throttled = || WaitReason::Throttled { until: Timestamp(1) };
        let behind = || WaitReason::Behind { messages: 0, keys: 1 };
        assert!(is_paused(holds(&group(3), &[key("", 3, WaitReason::TopicPaused)])));
        assert!(is_paused(holds(&group(3), &[key("a", 3, WaitReason::KeyPaused)])));
        // One message is of a key that the listing leaves out.
        assert_eq!(holds(&group(4), &[key("a", 3, WaitReason::KeyPaused)]), None);
        let some = [key("a", 3, WaitReason::KeyPaused), key("b", 1, throttled())];
        assert!(matches!(holds(&group(4), &some), Some(HeldBack::Limited(_))));
        let some = [key("a", 3, WaitReason::KeyPaused), key("b", 1, behind())];
        assert_eq!(holds(&group(4), &some), None);
        assert_eq!(holds(&group(1), &[]), None);
    }
}
