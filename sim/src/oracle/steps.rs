//! The oracle's rules for atomic steps: the messages that a step publishes exist if and only if those that it acks are
//! acked. What becomes of a step without an answer is learned from the first of its messages that is delivered.

use sennit_engine::{AtomicItem, AtomicPart, PublishAtomic, Refusal};
use sennit_model::{PartitionId, Timestamp};

use super::{
    Violation,
    copies::{Copies, Existence, Input, Outcome, Step, StepRequest},
};
use crate::workbench_topics;

/// The promise that a step is done whole or not at all.
const WHOLE: &str = "I1 an atomic step is done whole or not at all";

impl Copies {
    /// Notes a step, which is new or sent again.
    pub(super) fn begin_step(&mut self, step: &PublishAtomic, now: Timestamp) {
        let parts = step.parts.iter();
        let outputs: Vec<Vec<u64>> =
            parts.map(|part| self.publish(part.partition, part.batch.bytes())).collect();
        let Some(&first) = outputs.iter().flatten().next() else { return };
        let before = self.steps.by_first.get(&first).map(|step| step.outcome);
        let (is_new, was_not_done) = (before.is_none(), before == Some(Outcome::NotYet));
        let (mut inputs, mut is_stale) = (Vec::new(), false);
        for (ack, run) in
            step.acks.iter().flat_map(|ack| ack.runs.iter().map(move |run| (ack, run)))
        {
            let place = (ack.partition, Some(run.first.0));
            let Some((number, copy)) = self.find(place) else { continue };
            is_stale |= copy.is_leased_apart(run, now);
            if !is_new && !was_not_done {
                continue;
            }
            let was_live = copy.begin_settling(run, step.origin.session, now);
            copy.doubts.insert(first);
            inputs.push(Input { number, deliveries: copy.deliveries, was_live });
        }
        let turn = self.turn;
        let request = StepRequest { first, is_new, was_not_done, is_stale, turn };
        self.steps.requests.insert(step.origin.request, request);
        if was_not_done && let Some(step) = self.steps.by_first.get_mut(&first) {
            (step.outcome, step.inputs) = (Outcome::Unknown, inputs);
            for number in outputs.iter().flatten() {
                let copy = self.by_number.get_mut(number);
                copy.into_iter().for_each(|copy| copy.exists = Existence::Maybe);
            }
            return;
        }
        if !is_new {
            return;
        }
        let ids: Vec<PartitionId> = step.parts.iter().map(|part| part.partition).collect();
        let is_repeated = (1..ids.len()).any(|at| ids[..at].contains(&ids[at]));
        let is_wrong =
            is_repeated || ids.iter().any(|id| !workbench_topics::PARTITIONS.contains(id));
        for &number in outputs.iter().flatten() {
            self.steps.of_output.insert(number, first);
        }
        let outcome = Outcome::Unknown;
        let acks = step.acks.iter().map(|ack| ack.runs.len()).sum();
        let step = Step { outcome, inputs, acks, outputs, is_wrong, is_answered: false };
        self.steps.by_first.insert(first, step);
    }

    /// Checks the answer to a step that is done.
    pub(super) fn step_done(
        &mut self,
        request: u64,
        parts: &[AtomicPart],
    ) -> Result<(), Violation> {
        let Some(sent) = self.steps.requests.remove(&request) else { return Ok(()) };
        let first = sent.first;
        let Some(step) = self.steps.by_first.get(&first).cloned() else { return Ok(()) };
        let runs = || parts.iter().flat_map(|part| part.runs.iter());
        let duplicates = runs().filter(|run| run.duplicate).count();
        let is_mixed = duplicates > 0 && duplicates < runs().count();
        // What was done before is not done again.
        let is_fresh = duplicates == 0;
        let is_untrue = sent.was_not_done && !is_fresh || sent.is_stale && is_fresh;
        let is_again = step.is_answered && runs().count() > 0 && duplicates == 0;
        let is_over = step.outcome == Outcome::NotDone;
        if step.is_wrong || is_over || is_mixed || is_again || is_untrue {
            let detail = format!("{step:?}, {sent:?} is answered by {parts:?}");
            return Err(Violation::new(WHOLE, detail));
        }
        for (part, numbers) in parts.iter().zip(&step.outputs) {
            let mut numbers = numbers.iter();
            for run in &part.runs {
                let places = run.first_offset.0..run.first_offset.0 + u64::from(run.count);
                for (at, &number) in places.zip(numbers.by_ref()) {
                    self.note_published(number, (part.partition, at));
                }
            }
        }
        if is_fresh {
            self.must_be_durable(sent.turn, &step)?;
        }
        if let Some(step) = self.steps.by_first.get_mut(&first) {
            step.is_answered = true;
        }
        self.conclude(first, Outcome::Done)
    }

    /// Checks the refusal of a step.
    pub(super) fn step_refused(
        &mut self,
        request: u64,
        refusal: &Refusal,
    ) -> Result<(), Violation> {
        let Some(sent) = self.steps.requests.remove(&request) else { return Ok(()) };
        let StepRequest { first, is_new, .. } = sent;
        let Some(step) = self.steps.by_first.get(&first) else { return Ok(()) };
        let why = match refusal {
            Refusal::Atomic { why, .. } => why,
            other => other,
        };
        // A full disk is seen before a step that was done.
        let says_nothing = matches!(why, Refusal::OutcomeUnknown | Refusal::StorageFull);
        if says_nothing {
            return Ok(());
        }
        let is_ack = matches!(refusal, Refusal::Atomic { item: AtomicItem::Ack { .. }, .. });
        let are_live =
            step.inputs.len() == step.acks && step.inputs.iter().all(|input| input.was_live);
        if is_ack && is_new && are_live && !step.is_wrong {
            return Err(Violation::new(
                "I3 a settlement of a leased message applies",
                format!("{step:?} is refused: {refusal}"),
            ));
        }
        self.conclude(first, Outcome::NotDone)
    }

    /// A message was delivered, which says what became of its steps.
    pub(super) fn note_step_of(&mut self, number: u64) -> Result<(), Violation> {
        if let Some(&first) = self.steps.of_output.get(&number) {
            self.conclude(first, Outcome::Done)?;
        }
        let unknown = self.steps.by_first.iter().filter(|(_, step)| {
            step.outcome == Outcome::Unknown
                && step.inputs.iter().any(|input| input.number == number)
        });
        let unknown: Vec<u64> = unknown.map(|(&first, _)| first).collect();
        unknown.into_iter().try_for_each(|first| self.conclude(first, Outcome::NotYet))
    }

    /// A step is done or not.
    fn conclude(&mut self, first: u64, outcome: Outcome) -> Result<(), Violation> {
        let Some(step) = self.steps.by_first.get_mut(&first) else { return Ok(()) };
        if step.outcome == outcome {
            return Ok(());
        }
        if (step.outcome, outcome) == (Outcome::NotYet, Outcome::NotDone) {
            step.outcome = outcome;
            return Ok(());
        }
        if step.outcome != Outcome::Unknown {
            let detail = format!("it is {outcome:?}: {step:?}");
            return Err(Violation::new(WHOLE, detail));
        }
        step.outcome = outcome;
        let step = step.clone();
        for number in step.outputs.iter().flatten() {
            let Some(copy) = self.by_number.get_mut(number) else { continue };
            if outcome != Outcome::Done && copy.deliveries > 0 {
                let detail = format!("message {number} was delivered, it is not done: {step:?}");
                return Err(Violation::new(WHOLE, detail));
            }
            copy.exists = match outcome {
                Outcome::Done => Existence::Yes,
                _ => Existence::No,
            };
        }
        for input in &step.inputs {
            let Some(copy) = self.by_number.get_mut(&input.number) else { continue };
            match outcome {
                Outcome::Done if copy.deliveries > input.deliveries => {
                    let detail = format!("message {} came again: {step:?}", input.number);
                    return Err(Violation::new(WHOLE, detail));
                }
                Outcome::Done => {
                    copy.is_gone = true;
                    copy.end_lease();
                }
                _ => {
                    copy.doubts.remove(&first);
                    if input.was_live {
                        copy.settling_refused();
                    }
                }
            }
        }
        Ok(())
    }
}
