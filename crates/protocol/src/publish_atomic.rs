//! The atomic publish frame: batches for several partitions and acks of deliveries, all of which are done or none.

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{
    GroupId, PartitionId, PartitionIndex, ProducerId, ProducerStamp, TopicId,
    limits::{ATOMIC_ACKS_MAX, ATOMIC_PARTS_MAX, SETTLE_RUNS_MAX},
};

use crate::{
    decode_error::DecodeError,
    frame_header::FrameHeader,
    kind::Kind,
    publish::{Publish, PublishHead},
    runs::{Run, Runs, count_field},
    settle::SettleRun,
};

const KIND: Kind = Kind::PublishAtomic;

/// Deliveries of one topic and group that are acked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtomicAck {
    /// The topic of the messages.
    pub topic: TopicId,
    /// The group that received them.
    pub group: GroupId,
    /// The deliveries.
    pub runs: Runs<SettleRun>,
}

/// A request to publish batches and to ack deliveries in one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishAtomic {
    /// The batches: 1 to [`ATOMIC_PARTS_MAX`], each for a partition of its own.
    pub parts: Vec<Publish>,
    /// The acks: at most [`ATOMIC_ACKS_MAX`], with [`SETTLE_RUNS_MAX`] runs in all.
    pub acks: Vec<AtomicAck>,
}

impl PublishAtomic {
    /// Length of the part before the heads, in bytes.
    pub const HEAD_BYTES: usize = 8;
    /// Length of the head of a batch, in bytes.
    pub const PART_BYTES: usize = PublishHead::BYTES + 8;
    /// Length of the head of an ack, in bytes.
    pub const ACK_BYTES: usize = 16;

    /// The encoded length of the body, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| Self::PART_BYTES + part.batch.len());
        let acks = self.acks.iter().map(|ack| Self::ACK_BYTES + ack.runs.len() * SettleRun::BYTES);
        Self::HEAD_BYTES + parts.chain(acks).sum::<usize>()
    }

    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        FrameHeader::new(KIND, self.bytes(), request).encode(out);
        out.put_u32_le(count_field(self.parts.len()));
        out.put_u32_le(count_field(self.acks.len()));
        for part in &self.parts {
            part.head.encode_body(out);
            out.put_u32_le(count_field(part.batch.len()));
            out.put_u32_le(0);
        }
        for ack in &self.acks {
            out.put_u32_le(ack.topic.0);
            out.put_u32_le(ack.group.0);
            out.put_u32_le(count_field(ack.runs.len()));
            out.put_u32_le(0);
        }
        self.acks.iter().flat_map(|ack| ack.runs.iter()).for_each(|run| run.encode(out));
        self.parts.iter().for_each(|part| out.put_slice(&part.batch));
    }

    /// Reads the body. Batches and runs share its memory; the batches are not checked.
    ///
    /// # Errors
    /// [`DecodeError::Length`], or [`DecodeError::Field`] for the first field that is out of bounds.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        let received = body.len();
        DecodeError::require(KIND, received, Self::HEAD_BYTES)?;
        let (part_count, ack_count) = (body.get_u32_le(), body.get_u32_le());
        if !(1..=ATOMIC_PARTS_MAX).contains(&(part_count as usize)) {
            let (field, allowed) = ("part_count", "1 to 64");
            return Err(DecodeError::Field {
                kind: KIND,
                field,
                value: part_count.into(),
                allowed,
            });
        }
        if ack_count as usize > ATOMIC_ACKS_MAX {
            let (field, allowed) = ("ack_count", "at most 64");
            return Err(DecodeError::Field { kind: KIND, field, value: ack_count.into(), allowed });
        }
        let heads = part_count as usize * Self::PART_BYTES + ack_count as usize * Self::ACK_BYTES;
        DecodeError::require(KIND, body.len(), heads)?;
        let heads_of_parts: Vec<(PublishHead, u32)> =
            (0..part_count).map(|_| part_head(&mut body)).collect::<Result<_, _>>()?;
        let heads_of_acks: Vec<(TopicId, GroupId, u32)> =
            (0..ack_count).map(|_| ack_head(&mut body)).collect::<Result<_, _>>()?;
        let runs: u64 = heads_of_acks.iter().map(|(.., runs)| u64::from(*runs)).sum();
        if runs > SETTLE_RUNS_MAX as u64 {
            let (field, allowed) = ("run_count", "at most 8192 of all acks");
            return Err(DecodeError::Field { kind: KIND, field, value: runs, allowed });
        }
        let acks = heads_of_acks.into_iter().map(|(topic, group, count)| {
            Ok(AtomicAck { topic, group, runs: Runs::take(KIND, count, &mut body)? })
        });
        let acks = acks.collect::<Result<_, DecodeError>>()?;
        let needed: u64 = heads_of_parts.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        if body.len() as u64 != needed {
            let needed = (received - body.len()) as u64 + needed;
            return Err(DecodeError::Length { kind: KIND, needed, received });
        }
        let parts = heads_of_parts
            .into_iter()
            .map(|(head, bytes)| Publish { head, batch: body.split_to(bytes as usize) });
        Ok(Self { parts: parts.collect(), acks })
    }
}

/// Reads the head of a batch, and the length of the batch.
fn part_head(body: &mut Bytes) -> Result<(PublishHead, u32), DecodeError> {
    let partition =
        PartitionId { topic: TopicId(body.get_u32_le()), index: PartitionIndex(body.get_u32_le()) };
    let producer = ProducerStamp {
        id: ProducerId(body.get_u64_le()),
        first_sequence: body.get_u64_le(),
        epoch: body.get_u32_le(),
    };
    let (count, bytes) = (body.get_u32_le(), body.get_u32_le());
    DecodeError::require_zero(KIND, "padding", body.get_u32_le().into())?;
    DecodeError::require_range(KIND, "first_sequence", producer.first_sequence, count)?;
    Ok((PublishHead { partition, producer, count }, bytes))
}

/// Reads the head of an ack.
fn ack_head(body: &mut Bytes) -> Result<(TopicId, GroupId, u32), DecodeError> {
    let (topic, group) = (TopicId(body.get_u32_le()), GroupId(body.get_u32_le()));
    let count = body.get_u32_le();
    DecodeError::require_zero(KIND, "padding", body.get_u32_le().into())?;
    if count == 0 {
        let (field, allowed) = ("run_count", "1 or more");
        return Err(DecodeError::Field { kind: KIND, field, value: 0, allowed });
    }
    Ok((topic, group, count))
}
