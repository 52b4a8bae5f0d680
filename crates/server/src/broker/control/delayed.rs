//! Messages that their publisher has delayed: a page of them over all partitions, and changes of their delays. It knows
//! no protocol.

use sennit_engine::{DelayedRun, PartitionCommand};
use sennit_model::{Offset, PartitionIndex, Timestamp, TopicName};

use super::{Control, gather};
use crate::{
    broker::control_request::{
        ChangeDelayed, ControlAnswer, ControlRefusal, DelayedOfPartition, DelayedPage,
        DelayedPosition, ListDelayed,
    },
    runtime::shard_answers::Answer,
};

impl Control {
    pub(super) async fn list_delayed(
        &self,
        list: ListDelayed,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let ListDelayed { topic, partition, after, most } = list;
        let known = self.topic_named(&topic)?;
        let partitions = known.config().partitions;
        if let Some(partition) = partition {
            check_partition(topic, partitions, partition)?;
        }
        let is_asked = |index| partition.is_none_or(|partition| partition == index);
        let asked = self.ask_partitions_that(&known, |index| {
            let after = after.map(|after| behind(after, index));
            // One more than wanted says whether others follow.
            is_asked(index).then_some(PartitionCommand::ListDelayed(after, most + 1))
        });
        let indices = (0..partitions).map(PartitionIndex).filter(|&index| is_asked(index));
        let mut listed = Vec::new();
        for (partition, answer) in indices.zip(gather(asked).await?) {
            let Answer::Delayed(runs) = answer else { return Err(ControlRefusal::WrongAnswer) };
            listed.extend(runs.into_iter().map(|run| DelayedOfPartition { partition, run }));
        }
        Ok(ControlAnswer::Delayed(page(listed, most)))
    }

    pub(super) async fn change_delayed(
        &self,
        change: ChangeDelayed,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let ChangeDelayed { topic, partition, offsets, change } = change;
        let known = self.topic_named(&topic)?;
        check_partition(topic, known.config().partitions, partition)?;
        let command = PartitionCommand::ChangeDelayed(offsets, change);
        let asked =
            self.ask_partitions_that(&known, |index| (index == partition).then(|| command.clone()));
        let mut messages = 0;
        for answer in gather(asked).await? {
            let Answer::DelaysChanged(count) = answer else {
                return Err(ControlRefusal::WrongAnswer);
            };
            messages += count;
        }
        Ok(ControlAnswer::Done { topic: known.id(), group: None, created: false, messages })
    }
}

fn check_partition(
    topic: TopicName,
    partitions: u32,
    partition: PartitionIndex,
) -> Result<(), ControlRefusal> {
    if partition < PartitionIndex(partitions) {
        return Ok(());
    }
    Err(ControlRefusal::UnknownPartition { topic, partitions, partition })
}

/// The due time and offset behind which a partition goes on with a listing that came to `after`.
fn behind(after: DelayedPosition, partition: PartitionIndex) -> (Timestamp, Offset) {
    let DelayedPosition { due, partition: last, offset } = after;
    let all = Offset(u64::MAX);
    match partition.cmp(&last) {
        std::cmp::Ordering::Less => (due, all),
        std::cmp::Ordering::Equal => (due, offset),
        std::cmp::Ordering::Greater => (Timestamp(due.0.saturating_sub(1)), all),
    }
}

/// The first `most` runs, in their order.
fn page(mut listed: Vec<DelayedOfPartition>, most: usize) -> DelayedPage {
    let position = |of: &DelayedOfPartition| {
        let DelayedRun { range, due } = of.run;
        DelayedPosition { due, partition: of.partition, offset: range.start }
    };
    listed.sort_unstable_by_key(position);
    let others_follow = listed.len() > most;
    listed.truncate(most);
    let last = |of: &DelayedOfPartition| {
        let offset = Offset(of.run.range.end.0.saturating_sub(1));
        DelayedPosition { offset, ..position(of) }
    };
    let next_after = listed.last().filter(|_| others_follow).map(last);
    DelayedPage { runs: listed, next_after }
}

#[cfg(test)]
mod tests {
    use sennit_model::OffsetRange;

    use super::*;

    fn of(due: u64, partition: u32, start: u64, count: u64) -> DelayedOfPartition {
        let run = DelayedRun { range: OffsetRange::new(Offset(start), count), due: Timestamp(due) };
        DelayedOfPartition { partition: PartitionIndex(partition), run }
    }

    #[test]
    fn a_page_goes_on_where_the_one_before_ended_in_each_partition() {
        let listed = vec![of(9, 0, 4, 1), of(5, 1, 7, 3), of(5, 0, 8, 1), of(5, 2, 0, 1)];
        let DelayedPage { runs, next_after } = page(listed, 2);
        assert_eq!(runs, [of(5, 0, 8, 1), of(5, 1, 7, 3)]);
        let after = next_after.expect("others follow");
        let goes_on = |partition| behind(after, PartitionIndex(partition));
        assert_eq!(goes_on(0), (Timestamp(5), Offset(u64::MAX)));
        assert_eq!(goes_on(1), (Timestamp(5), Offset(9)));
        assert_eq!(goes_on(2), (Timestamp(4), Offset(u64::MAX)));
    }

    #[test]
    fn the_last_page_says_that_nothing_follows() {
        assert_eq!(page(vec![of(5, 0, 8, 1)], 1).next_after, None);
        assert_eq!(page(Vec::new(), 1).next_after, None);
    }
}
