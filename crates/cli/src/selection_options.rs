//! The options by which verbs of the workbench select messages.

use sennit_client::{MessagePage, MessageSelection};
use sennit_model::{
    Filter, GroupName, Header, Offset, OffsetRange, PartitionIndex, Timestamp, TopicName,
};

use crate::{
    exit::{Exit, Failure},
    header_argument::header,
    offsets_argument::offsets,
    time_argument::past,
};

/// Which messages are meant: all that the group still has, or those for which all of these hold.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct SelectionOptions {
    /// The group; messages that it has settled are not there any more [default: default]
    #[arg(long, short, value_name = "NAME")]
    group: Option<GroupName>,
    /// Only this partition
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Only these offsets: one, or a first and an end; may be given several times, in order
    #[arg(long, value_name = "A..B", value_parser = offsets)]
    offsets: Vec<OffsetRange>,
    /// Only messages whose key and headers pass this filter, written as for `sennit read`
    #[arg(long, value_name = "FILTER")]
    filter: Option<Filter>,
    /// Only messages with this header, name=value; may be given several times
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<Header>,
    /// Only messages that failed for a reason that contains this
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only messages whose payload contains this
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only messages of this fair key; where the topic has no fair keys, of this key
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Only messages that were appended at this time or later: a date, or a time ago, as 15m
    #[arg(long, value_name = "TIME", value_parser = past)]
    since: Option<u64>,
    /// Only messages that were appended before this time: a date, or a time ago, as 15m
    #[arg(long, value_name = "TIME", value_parser = past)]
    before: Option<u64>,
}

impl SelectionOptions {
    /// Whether they select anything less than all messages.
    pub fn select_some(&self) -> bool {
        let Self { group: _, partition, offsets, filter, header, reason, text, key, since, before } =
            self;
        !offsets.is_empty()
            || !header.is_empty()
            || [partition.is_some(), filter.is_some(), reason.is_some(), text.is_some()]
                .contains(&true)
            || [key.is_some(), since.is_some(), before.is_some()].contains(&true)
    }

    /// One message of a group.
    pub fn one(group: Option<GroupName>, partition: u32, offset: u64) -> Self {
        let offsets = vec![OffsetRange::new(Offset(offset), 1)];
        Self { group, partition: Some(partition), offsets, ..Self::default() }
    }

    /// The first page of a partition.
    ///
    /// # Errors
    /// The filter and the headers together are no filter.
    pub fn page(&self, topic: &TopicName) -> Result<MessagePage, Failure> {
        let selection = MessageSelection {
            offsets: self.offsets.clone(),
            filter: self.filter()?,
            reason: self.reason.clone(),
            text: self.text.clone(),
            fair_key: self.key.clone(),
            since: self.since.map(Timestamp),
            before: self.before.map(Timestamp),
            redrive: None,
        };
        Ok(MessagePage {
            topic: topic.clone(),
            group: self.group.clone().unwrap_or_else(GroupName::default_group),
            partition: PartitionIndex(self.partition.unwrap_or(0)),
            from: Offset(0),
            selection,
            matched_max: 0,
        })
    }

    /// The partition behind one of a topic that has so many, if that is meant too.
    pub fn partition_after(&self, partition: PartitionIndex, count: u32) -> Option<PartitionIndex> {
        let next = partition.0 + 1;
        (self.partition.is_none() && next < count).then_some(PartitionIndex(next))
    }

    fn filter(&self) -> Result<Option<Filter>, Failure> {
        if self.header.is_empty() {
            return Ok(self.filter.clone());
        }
        let tests = self.header.iter().map(|header| {
            let value = String::from_utf8_lossy(&header.value);
            format!("header.{} = {}", quoted(&header.name), quoted(&value))
        });
        let given = self.filter.iter().map(|filter| format!("({filter})"));
        let all: Vec<_> = given.chain(tests).collect();
        let filter = all.join(" and ").parse();
        filter.map(Some).map_err(|error| Failure::new(Exit::Usage, format!("--header: {error}")))
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_a_filter_have_to_hold_together() {
        let options = SelectionOptions {
            filter: "key = \"a\" or key = \"b\"".parse().ok(),
            header: vec![Header::text("a \"b\"", "c\\d")],
            ..<_>::default()
        };
        let filter = options.filter().unwrap().unwrap();
        assert_eq!(filter.as_str(), r#"(key = "a" or key = "b") and header."a \"b\"" = "c\\d""#);
        assert!(options.select_some());
        assert!(!SelectionOptions::default().select_some());
    }
}
