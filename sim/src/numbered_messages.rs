//! The messages of the simulation. Each carries a unique number.

use std::time::Duration;

use bytes::Bytes;
use sennit_model::{Batch, BatchBuilder, Header, HeaderKind, Message, MessageView};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    fair_settings,
    random::Random,
    swarm::{DEDUP_HEADER, Swarm},
};

/// A new batch of messages that carry the numbers from `first` on, short enough for two of them
/// to fit a segment.
pub fn batch(random: &mut Random, swarm: &Swarm, first: u64) -> Batch {
    let room = (swarm.segment_bytes as usize - 8192) / 2;
    let mut builder = BatchBuilder::new();
    let count = random.between(1, swarm.batch_messages_max);
    for number in first..first + count {
        let length = random.below(swarm.payload_bytes_max + 1) as usize;
        let mut payload = number.to_le_bytes().to_vec();
        payload.resize(8 + length, number as u8);
        let timed = |random: &mut Random, per_mille| {
            let longest = [50, 5_000, 3_600_000][random.below(3) as usize];
            let span = Duration::from_millis(random.below(longest));
            random.chance(per_mille).then_some(span)
        };
        // A topic that keeps the latest message of each key has few keys, and some tombstones.
        let is_latest = swarm.latest_per_key > 0;
        let key = match is_latest && random.chance(990) {
            true => Bytes::copy_from_slice(&[random.below(7) as u8]),
            false => Bytes::copy_from_slice(&number.to_le_bytes()[..random.below(9) as usize]),
        };
        if is_latest && random.chance(150) {
            payload.clear();
        }
        let has_value = random.chance(swarm.dedup_values);
        let value = has_value.then(|| Bytes::copy_from_slice(&[random.below(12) as u8]));
        let header =
            |value| Header { name: DEDUP_HEADER.to_owned(), kind: HeaderKind::Binary, value };
        let mut headers = if swarm.fair > 0 { fair_settings::headers(random) } else { Vec::new() };
        headers.extend(value.map(header));
        let message = Message {
            headers,
            key,
            payload: payload.into(),
            delay: timed(random, swarm.timed.0),
            time_to_live: timed(random, swarm.timed.1),
        };
        if !builder.is_empty() && builder.byte_count() + BatchBuilder::encoded_len(&message) > room
        {
            break;
        }
        builder.push(&message).expect("within all limits");
    }
    builder.take().expect("it holds a message")
}

/// A new batch of messages that carry the numbers from `next` on and nothing else, of no more than `room` bytes.
pub fn plain(random: &mut Random, swarm: &Swarm, next: &mut u64, room: usize) -> Batch {
    let mut builder = BatchBuilder::new();
    for _ in 0..random.between(1, swarm.batch_messages_max) {
        let length = random.below(swarm.payload_bytes_max + 1) as usize;
        let mut payload = next.to_le_bytes().to_vec();
        payload.resize(8 + length.min(room - 200), *next as u8);
        let message = Message::new(payload);
        if !builder.is_empty() && builder.byte_count() + BatchBuilder::encoded_len(&message) > room
        {
            break;
        }
        *next += 1;
        builder.push(&message).expect("within all limits");
    }
    builder.take().expect("it holds a message")
}

/// The maximum length of a batch for a stream: its record also has room for settings.
pub fn plain_room(swarm: &Swarm) -> usize {
    (swarm.segment_bytes as usize - 8192) / 2 - 1024
}

/// The number that a message carries; `None` if it is not one of the simulation.
#[must_use]
pub fn number(message: &MessageView<'_>) -> Option<u64> {
    message.payload().first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// A hash of the key and the payload of a message, which a dead letter keeps.
#[must_use]
pub fn content_hash(message: &MessageView<'_>) -> u64 {
    xxh3_64_with_seed(message.payload(), xxh3_64_with_seed(message.key(), 0))
}
