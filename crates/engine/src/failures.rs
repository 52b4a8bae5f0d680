//! Failed attempts of watched topics: somebody above the engine is asked what becomes of each message, and decides within
//! a time. The group's policy has decided before, in a record; a decision is another record. A replay asks nobody.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_model::{
    Header, HeaderKind, Messages, Offset, OffsetRange, PartitionId, PartitionIndex, Timestamp,
    TopicId,
    limits::{FAILURE_DECISION_MAX, FAILURES_ASKED_MAX, REASON_BYTES_MAX},
};

use crate::{
    attempts::{FailedAttempt, FailedAttempts, FailureAnswer, FailureAnswers, FailureDecision},
    dead_letter::{HEADER_ATTEMPTS, HEADER_FAILED_AT_MS, HEADER_REASON},
    effect::Effect,
    engine::{Engine, Journal, Outbox, Payloads, RUNS_PER_RECORD_MAX, mark_ready},
    gather::byte_of,
    group::range,
    record::Record,
    requeue::{Fitting, Requeues, message},
    sessions::Part,
    timer::Timer,
    undecided::Question,
    walk::{Destination, Edit, MessageState, Requeue},
};

/// Bytes of messages that are asked about together, but for the first.
const ASKED_BYTES_MAX: usize = 1 << 20;

/// How long a message waits at least that somebody is asked about.
const ASKED: Duration = Duration::from_millis(1);

impl Engine {
    /// From now on somebody decides about the failed attempts of these topics, and of no others.
    pub(crate) fn watch_failures(&mut self, topics: Arc<[TopicId]>) {
        self.watched = topics;
    }

    /// Whether somebody decides about the failed attempts of a partition.
    pub(crate) fn is_watched(&self, id: PartitionId) -> bool {
        !self.watched.is_empty() && self.watched.contains(&id.topic)
    }

    /// Appends and applies what the policy says of a failed attempt, and has somebody decide who is asked.
    pub(crate) fn commit_failure(
        &mut self,
        mut record: Record,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let is_asked =
            matches!(&record, Record::Failed { partition, .. } if self.is_watched(*partition));
        if is_asked && let Record::Failed { failed_at, due, .. } = &mut record {
            // It is not ready before the answer.
            *due = (*due).max(failed_at.plus(ASKED));
        }
        self.commit(&record, journal);
        let Record::Failed { partition: id, group, failed_at, reason, runs, .. } = &record else {
            return;
        };
        if !is_asked {
            return;
        }
        let Some(partition) = self.partitions.get_mut(id) else { return };
        if partition.parks() {
            return;
        }
        let deadline = now.plus(FAILURE_DECISION_MAX);
        let reason: Arc<str> = reason.as_str().into();
        let Some(held) = partition.group(*group) else { return };
        for &(failed, attempts) in runs {
            let (start, end) = (failed.start.0, failed.end.0);
            let activity = held.activity_mut();
            let waiting = activity.waiting.within(start, end).into_iter();
            let dying = activity.dying.within(start, end).into_iter();
            let parts: Vec<_> = waiting
                .map(|(from, to, _)| from..to)
                .chain(dying.map(|(from, to, _)| from..to))
                .collect();
            if parts.is_empty() {
                continue;
            }
            let undecided = activity.undecided.get_or_insert_default();
            for part in parts {
                let question = Question::new(attempts, (*failed_at, deadline), reason.clone());
                undecided.insert(part.start, part.end, question);
            }
            let (partition, group, range) = (*id, *group, failed);
            self.wheel.set(deadline, Timer::Retry { partition, group, range });
        }
        mark_ready(&mut self.ready_list, partition);
    }

    /// Asks about the failed attempts of a partition, those of a group when it has no others to answer.
    pub(crate) fn ask_about_failures(
        &mut self,
        id: PartitionId,
        payloads: &mut impl Payloads,
        out: &mut Outbox,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        for held in &mut partition.groups {
            let group = held.id();
            let Some(undecided) = held.undecided_mut() else { continue };
            let (mut attempts, mut bytes, mut hint) = (Vec::new(), 0, None);
            for (offset, question) in undecided.next(FAILURES_ASKED_MAX) {
                let Some(entry) = partition.log.find(offset) else {
                    undecided.remove(offset, offset + 1);
                    continue;
                };
                let Some(batch) = payloads.batch(id, entry.place) else {
                    partition.awaits_batch |= attempts.is_empty();
                    break;
                };
                let from = byte_of(hint, entry, &batch, offset);
                let view = Messages::of_checked(&batch[from..]).next();
                let Some(length) = view.map(|view| view.encoded().len()) else { break };
                hint = Some((offset + 1, from + length));
                bytes += length;
                if !attempts.is_empty() && bytes > ASKED_BYTES_MAX {
                    break;
                }
                attempts.push(FailedAttempt {
                    offset: Offset(offset),
                    attempts: question.attempts,
                    appended_at: entry.appended_at,
                    failed_at: question.failed_at,
                    reason: question.reason.clone(),
                    message: batch.slice(from..from + length),
                });
                undecided.ask(offset, question);
            }
            if !attempts.is_empty() {
                let asked = FailedAttempts { partition: id, group, attempts };
                out.now.push(Effect::AttemptsFailed(Box::new(asked)));
            }
        }
    }

    /// Does what was decided about failed attempts. A message that is not asked about any more, or has failed again
    /// since, is left alone.
    pub(crate) fn decide_failures(
        &mut self,
        answers: FailureAnswers,
        now: Timestamp,
        journal: &mut impl Journal,
    ) {
        let FailureAnswers { partition: id, group, answers } = answers;
        let mut by_fate: BTreeMap<_, Vec<(OffsetRange, u32)>> = BTreeMap::new();
        let (mut requeues, mut answered) = (Requeues::default(), Vec::new());
        for FailureAnswer { offset: Offset(offset), attempts, decision } in answers {
            let Some(partition) = self.partitions.get(&id) else { return };
            let Some(held) = partition.groups.iter().find(|held| held.id() == group) else {
                return;
            };
            let activity = held.activity();
            let asked = activity.undecided.as_ref().and_then(|held| held.asked_about(offset));
            let Some(question) = asked.filter(|question| question.attempts == attempts) else {
                continue;
            };
            answered.push(offset);
            let failed_at = question.failed_at;
            let run = (range(offset, offset + 1), attempts);
            match decision {
                FailureDecision::Policy => {}
                // A limit of the policy is a limit for whoever decides.
                FailureDecision::RetryAfter(_) if activity.dying.has_any(offset, offset + 1) => {}
                FailureDecision::RetryAfter(delay) => {
                    let fate = (failed_at, now.plus(delay), false, question.reason.to_string());
                    by_fate.entry(fate).or_default().push(run);
                }
                FailureDecision::DeadLetter { mut reason } => {
                    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
                    let fate = (failed_at, failed_at, true, reason);
                    by_fate.entry(fate).or_default().push(run);
                }
                FailureDecision::Route { topic, partitions, message } => {
                    let index = PartitionIndex(id.index.0 % partitions.max(1));
                    let target = PartitionId { topic, index };
                    if target != id && self.partitions.has(&target) {
                        let routed = routed(&message, question, now);
                        routed.map(|routed| requeues.push(Fitting::routed(offset, target, routed)));
                    }
                }
            }
        }
        for ((failed_at, due, dead, reason), runs) in by_fate {
            for runs in runs.chunks(RUNS_PER_RECORD_MAX) {
                let (partition, reason, runs) = (id, reason.clone(), runs.to_vec());
                let failed =
                    Record::Failed { partition, group, failed_at, due, dead, reason, runs };
                self.commit(&failed, journal);
            }
        }
        // What cannot be published there stays where it is, as the policy has it.
        let _ = self.requeue((id, group), requeues, now, journal);
        for offset in answered {
            self.end_question((id, group), range(offset, offset + 1), now);
        }
    }

    /// Ends the questions about these messages: the policy's decision stands.
    pub(crate) fn end_question(&mut self, part: Part, over: OffsetRange, now: Timestamp) {
        let (id, group) = part;
        let Some(partition) = self.partitions.get_mut(&id) else { return };
        let Some(held) = partition.group(group) else { return };
        held.end_questions(over.start.0, over.end.0);
        self.retry_due(id, group, over, now);
    }
}

/// A message as it is published to another topic, with headers that say how it has failed.
fn routed(encoded: &Bytes, question: &Question, now: Timestamp) -> Option<sennit_model::Message> {
    let view = Messages::of_checked(encoded).next()?;
    let number = |name: &str, value: u64| Header {
        name: name.to_owned(),
        kind: HeaderKind::Number,
        value: value.to_string().into(),
    };
    let set = vec![
        number(HEADER_ATTEMPTS, u64::from(question.attempts)),
        number(HEADER_FAILED_AT_MS, question.failed_at.0),
        Header::text(HEADER_REASON, &*question.reason),
    ];
    let edit = Some(Edit { payload: None, set, remove: Vec::new() });
    let requeue = Requeue { to: Destination::default(), redrive: 0, edit };
    Some(message(&view, &requeue, &MessageState::Ready, now))
}
