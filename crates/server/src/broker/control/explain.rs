//! Why messages and fair keys of a group wait: asked of the partitions, and brought together over them. It changes
//! nothing, and knows no protocol.

use std::{cmp::Reverse, collections::HashMap};

use foldhash::fast::FixedState;
use sennit_engine::{ExplainSubject, Explanation, KeyDescription, PartitionCommand, WaitReason};
use sennit_model::{
    GroupName, PartitionIndex, Timestamp, TopicName, limits::FAIR_KEYS_GATHERED_MAX,
};

use super::{Control, gather, group_named};
use crate::{
    broker::control_request::{ControlAnswer, ControlRefusal, Explain, ExplainedPartition},
    runtime::shard_answers::Answer,
};

impl Control {
    pub(super) async fn explain(&self, explain: Explain) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(&explain.topic)?;
        let group = group_named(&topic, &explain.group)?.id;
        let partitions = topic.config().partitions;
        if let Some(partition) = explain.partition
            && partition >= PartitionIndex(partitions)
        {
            let topic = explain.topic;
            return Err(ControlRefusal::UnknownPartition { topic, partitions, partition });
        }
        let is_asked = |index| explain.partition.is_none_or(|partition| partition == index);
        let asked = self.ask_partitions_that(&topic, |index| {
            let subject = explain.subject.clone();
            is_asked(index).then_some(PartitionCommand::Explain(group, subject))
        });
        let indices = (0..partitions).map(PartitionIndex).filter(|&index| is_asked(index));
        let mut explained = Vec::new();
        for (partition, answer) in indices.zip(gather(asked).await?) {
            let Answer::Explained(explanation) = answer else {
                return Err(ControlRefusal::WrongAnswer);
            };
            explained.push(ExplainedPartition { partition, explanation });
        }
        Ok(ControlAnswer::Explanations(worth_telling(explained, &explain.subject)))
    }

    pub(super) async fn list_fair_keys(
        &self,
        topic: &TopicName,
        group: &GroupName,
        most: usize,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(topic)?;
        let group = group_named(&topic, group)?.id;
        let of_each = most.min(FAIR_KEYS_GATHERED_MAX / topic.config().partitions.max(1) as usize);
        let asked = self.ask_partitions(&topic, |_| PartitionCommand::ListKeys(group, of_each));
        let mut listed = Vec::new();
        for answer in gather(asked).await? {
            let Answer::Keys(keys) = answer else { return Err(ControlRefusal::WrongAnswer) };
            listed.push(keys);
        }
        Ok(ControlAnswer::FairKeys(merged(listed, most)))
    }
}

/// Leaves out the partitions that have no such message, unless none has: then one says so.
fn worth_telling(
    mut explained: Vec<ExplainedPartition>,
    subject: &ExplainSubject,
) -> Vec<ExplainedPartition> {
    let nothing = explained.first().map(|first| first.partition);
    explained.retain(|one| one.explanation.reason != WaitReason::NoMessage);
    if explained.is_empty()
        && let Some(partition) = nothing
    {
        let (offset, fair_key) = match subject {
            ExplainSubject::Offset(offset) => (Some(*offset), String::new()),
            ExplainSubject::FairKey(key) => (None, key.clone()),
        };
        let explanation = Explanation { offset, fair_key, reason: WaitReason::NoMessage };
        explained.push(ExplainedPartition { partition, explanation });
    }
    explained
}

/// Adds up the keys of all partitions by name; the `most` with the most ready messages, then by name. The oldest
/// message of a key has the reason.
fn merged(listed: Vec<Vec<KeyDescription>>, most: usize) -> Vec<KeyDescription> {
    let mut by_name = HashMap::<String, KeyDescription, FixedState>::default();
    for key in listed.into_iter().flatten() {
        let Some(held) = by_name.get_mut(&key.fair_key) else {
            by_name.insert(key.fair_key.clone(), key);
            continue;
        };
        held.ready += key.ready;
        held.in_flight += key.in_flight;
        held.session = held.session.or(key.session);
        match (&mut held.served, &key.served) {
            (Some(held), Some(more)) => held.add(more),
            (held, more) => *held = held.take().or_else(|| more.clone()),
        }
        let age = |key: &KeyDescription| {
            (key.reason.is_none(), key.oldest_appended_at.unwrap_or(Timestamp(u64::MAX)))
        };
        if age(&key) < age(held) {
            held.oldest_appended_at = key.oldest_appended_at;
            held.reason = key.reason;
        }
    }
    let mut keys: Vec<_> = by_name.into_values().collect();
    keys.sort_unstable_by(|a, b| {
        let rank = |key: &KeyDescription| Reverse((key.ready, key.in_flight));
        rank(a).cmp(&rank(b)).then_with(|| a.fair_key.cmp(&b.fair_key))
    });
    keys.truncate(most);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str, ready: u64, oldest: Option<u64>) -> KeyDescription {
        KeyDescription {
            fair_key: name.into(),
            ready,
            in_flight: 1,
            session: None,
            served: None,
            oldest_appended_at: oldest.map(Timestamp),
            reason: oldest.map(|at| WaitReason::Delayed { until: Timestamp(at) }),
        }
    }

    #[test]
    fn a_key_of_several_partitions_is_listed_once_with_the_reason_of_its_oldest_message() {
        let listed = vec![
            vec![key("a", 3, Some(20)), key("c", 5, Some(1))],
            vec![key("b", 4, Some(2)), key("a", 0, None)],
            vec![key("a", 2, Some(10))],
        ];
        let keys = merged(listed, 2);
        assert_eq!(keys.len(), 2);
        assert_eq!((keys[0].fair_key.as_str(), keys[0].ready, keys[0].in_flight), ("a", 5, 3));
        assert_eq!(keys[0].oldest_appended_at, Some(Timestamp(10)));
        assert_eq!(keys[0].reason, Some(WaitReason::Delayed { until: Timestamp(10) }));
        assert_eq!(keys[1].fair_key, "c");
    }

    #[test]
    fn keys_with_as_many_messages_are_listed_by_name() {
        let keys = merged(vec![vec![key("b", 1, None)], vec![key("a", 1, None)]], 9);
        assert_eq!(keys.iter().map(|key| &*key.fair_key).collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn partitions_without_the_message_say_nothing_unless_none_has_it() {
        let subject = ExplainSubject::FairKey("a".into());
        let of = |partition, reason| ExplainedPartition {
            partition: PartitionIndex(partition),
            explanation: Explanation { offset: None, fair_key: "a".into(), reason },
        };
        let some = vec![of(0, WaitReason::NoMessage), of(1, WaitReason::KeyPaused)];
        assert_eq!(worth_telling(some, &subject), [of(1, WaitReason::KeyPaused)]);
        let none = vec![of(0, WaitReason::NoMessage), of(1, WaitReason::NoMessage)];
        assert_eq!(worth_telling(none, &subject), [of(0, WaitReason::NoMessage)]);
    }
}
