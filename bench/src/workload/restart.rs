//! `restart`: the time from kill -9 to ready and to the first delivery, with pending messages, and with many
//! topics.

use super::{Measurement, Method, show_count};
use crate::{backlog::Backlog, many_topics::ManyTopics};

/// Options of `restart`.
#[derive(Clone, Debug, clap::Args)]
pub struct Restart {
    /// Messages that lie in a queue when the broker is killed; may be a list; 0 for no such row
    #[arg(long, value_name = "N", default_value = "1000000", value_delimiter = ',')]
    messages: Vec<u64>,
    /// Topics with a message each; may be a list; 0 for no such row
    #[arg(long, value_name = "N", default_value = "500000", value_delimiter = ',')]
    topics: Vec<u64>,
    /// Streams with an append each, made and read over HTTP; may be a list; 0 for no such row
    #[arg(long, value_name = "N", default_value = "0", value_delimiter = ',')]
    streams: Vec<u64>,
    /// Bytes of a payload
    #[arg(long, value_name = "BYTES", default_value_t = 1024)]
    size: usize,
    /// Messages that are read and compared afterwards
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    sample: u64,
}

impl Restart {
    /// A row for each number of messages, and for each number of topics.
    #[must_use]
    pub fn rows(&self, partitions: u32) -> Vec<Measurement> {
        let (size, sample) = (self.size, self.sample);
        let messages = self.messages.iter().filter(|&&messages| messages > 0).map(|&messages| {
            let row = format!("{} pending, {size} B", show_count(messages));
            let backlog = Backlog { messages, partitions, size, sample };
            Measurement { row, method: Method::Backlog(backlog) }
        });
        let topics = self.topics.iter().filter(|&&topics| topics > 0).map(|&topics| {
            let row = format!("{} topics, {size} B", show_count(topics));
            let topics = ManyTopics { topics, size, sample, over_http: false };
            Measurement { row, method: Method::ManyTopics(topics) }
        });
        let streams = self.streams.iter().filter(|&&streams| streams > 0).map(|&streams| {
            let row = format!("{} streams over HTTP, {size} B", show_count(streams));
            let topics = ManyTopics { topics: streams, size, sample, over_http: true };
            Measurement { row, method: Method::ManyTopics(topics) }
        });
        messages.chain(topics).chain(streams).collect()
    }
}
