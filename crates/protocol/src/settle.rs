//! The settle frame: a consumer's verdict on many deliveries.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use sennit_model::{
    Generation, GroupId, Offset, PartitionIndex, TopicId,
    limits::{DURATION_MAX, REASON_BYTES_MAX, SETTLE_RUNS_MAX},
};

use crate::{
    decode_error::DecodeError,
    frame_header::FrameHeader,
    kind::Kind,
    runs::{Run, Runs, count_field},
};

const KIND: Kind = Kind::Settle;
const FLAG_CONFIRM: u8 = 1;

/// A consumer's verdict on its deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// The message is processed.
    #[default]
    Ack,
    /// The attempt failed; the message is ready again at once.
    Retry,
    /// The attempt failed; the message is ready again after this time, in whole milliseconds.
    RetryAfter(Duration),
    /// The message failed for good and goes to the dead-letter topic.
    DeadLetter {
        /// The reason; beyond [`REASON_BYTES_MAX`] bytes it is cut after the last whole character.
        reason: String,
    },
    /// The consumer needs more time: the lease ends this long from now, in whole milliseconds.
    Extend(Duration),
    /// The consumer has started to work: if the lease ends without another verdict, the attempt
    /// counts as failed. Needs the feature `started`.
    Started,
}

impl Verdict {
    /// The number, duration and reason on the wire.
    fn fields(&self) -> (u8, u64, &str) {
        let ms = |duration: &Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Ack => (1, 0, ""),
            Self::Retry => (2, 0, ""),
            Self::RetryAfter(duration) => (3, ms(duration), ""),
            Self::DeadLetter { reason } => {
                (4, 0, &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)])
            }
            Self::Extend(duration) => (5, ms(duration), ""),
            Self::Started => (6, 0, ""),
        }
    }

    fn of_fields(number: u8, duration_ms: u64, reason: &[u8]) -> Result<Self, DecodeError> {
        let duration = Duration::from_millis(duration_ms);
        if duration > DURATION_MAX {
            let (field, allowed) = ("duration_ms", "at most a hundred years");
            return Err(DecodeError::Field { kind: KIND, field, value: duration_ms, allowed });
        }
        if !matches!(number, 3 | 5) {
            DecodeError::require_zero(KIND, "duration_ms", duration_ms)?;
        }
        if number != 4 {
            DecodeError::require_zero(KIND, "reason_len", reason.len() as u64)?;
        }
        match number {
            1 => Ok(Self::Ack),
            2 => Ok(Self::Retry),
            3 => Ok(Self::RetryAfter(duration)),
            4 => std::str::from_utf8(reason)
                .map(|reason| Self::DeadLetter { reason: reason.into() })
                .map_err(|_| DecodeError::NotText { kind: KIND, field: "reason" }),
            5 => Ok(Self::Extend(duration)),
            6 => Ok(Self::Started),
            _ => Err(DecodeError::Field {
                kind: KIND,
                field: "verdict",
                value: number.into(),
                allowed: "1 ack, 2 retry, 3 retry after, 4 dead-letter, 5 extend or 6 started",
            }),
        }
    }
}

/// The verdict, without the runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettleHead {
    /// The topic of the messages.
    pub topic: TopicId,
    /// The group that received them.
    pub group: GroupId,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the server answers once the settlement is committed. Otherwise it answers only stale
    /// runs.
    pub confirm: bool,
}

impl SettleHead {
    /// The encoded length without the reason, in bytes.
    pub const BYTES: usize = 24;

    /// Appends the whole frame to `out`, which must have room or grow. `runs` are 1 to
    /// [`SETTLE_RUNS_MAX`]; other frames are refused by the server.
    pub fn encode(
        &self,
        runs: impl ExactSizeIterator<Item = SettleRun>,
        request: u64,
        out: &mut impl BufMut,
    ) {
        let (verdict, duration_ms, reason) = self.verdict.fields();
        let size = Self::BYTES + runs.len() * SettleRun::BYTES + reason.len();
        FrameHeader::new(KIND, size, request).encode(out);
        out.put_u32_le(self.topic.0);
        out.put_u32_le(self.group.0);
        out.put_u8(verdict);
        out.put_u8(if self.confirm { FLAG_CONFIRM } else { 0 });
        out.put_u16_le(u16::try_from(reason.len()).expect("a reason has at most 1024 bytes"));
        out.put_u32_le(count_field(runs.len()));
        out.put_u64_le(duration_ms);
        for run in runs {
            run.encode(out);
        }
        out.put_slice(reason.as_bytes());
    }
}

/// Deliveries of one partition with the same attempt: `count` offsets from `first`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SettleRun {
    /// The partition.
    pub partition: PartitionIndex,
    /// The first offset.
    pub first: Offset,
    /// The number of messages, at least 1.
    pub count: u32,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The generation of the shard that delivered them.
    pub generation: Generation,
}

impl Run for SettleRun {
    const BYTES: usize = 24;

    fn encode(&self, out: &mut impl BufMut) {
        out.put_u32_le(self.partition.0);
        out.put_u32_le(self.count);
        out.put_u64_le(self.first.0);
        out.put_u32_le(self.attempt);
        out.put_u32_le(self.generation.0);
    }

    fn decode(mut bytes: &[u8]) -> Self {
        Self {
            partition: PartitionIndex(bytes.get_u32_le()),
            count: bytes.get_u32_le(),
            first: Offset(bytes.get_u64_le()),
            attempt: bytes.get_u32_le(),
            generation: Generation(bytes.get_u32_le()),
        }
    }

    fn check(bytes: &[u8], kind: Kind) -> Result<(), DecodeError> {
        let run = Self::decode(bytes);
        for (field, value) in [("count", run.count), ("attempt", run.attempt)] {
            if value == 0 {
                return Err(DecodeError::Field { kind, field, value: 0, allowed: "1 or more" });
            }
        }
        DecodeError::require_range(kind, "first_offset", run.first.0, run.count)
    }
}

/// A consumer's verdict on its deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settle {
    /// The verdict.
    pub head: SettleHead,
    /// The deliveries.
    pub runs: Runs<SettleRun>,
}

impl Settle {
    /// Appends the frame to `out`, which must have room or grow.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        self.head.encode(self.runs.iter(), request, out);
    }

    /// Reads the body. The runs share its memory.
    ///
    /// # Errors
    /// [`DecodeError::Length`], [`DecodeError::NotText`], or [`DecodeError::Field`] for the first
    /// field that is out of bounds.
    pub fn decode(mut body: Bytes) -> Result<Self, DecodeError> {
        DecodeError::require(KIND, body.len(), SettleHead::BYTES)?;
        let topic = TopicId(body.get_u32_le());
        let group = GroupId(body.get_u32_le());
        let verdict = body.get_u8();
        let flags = body.get_u8();
        DecodeError::require_zero(KIND, "unknown flags", u64::from(flags & !FLAG_CONFIRM))?;
        let reason_len = usize::from(body.get_u16_le());
        let count = body.get_u32_le();
        let duration_ms = body.get_u64_le();
        if !(1..=SETTLE_RUNS_MAX).contains(&(count as usize)) {
            let (field, allowed) = ("run_count", "1 to 8192");
            return Err(DecodeError::Field { kind: KIND, field, value: count.into(), allowed });
        }
        if reason_len > REASON_BYTES_MAX {
            let (field, value, allowed) = ("reason_len", reason_len as u64, "at most 1024");
            return Err(DecodeError::Field { kind: KIND, field, value, allowed });
        }
        let runs = Runs::take(KIND, count, &mut body)?;
        if body.len() != reason_len {
            let needed = reason_len as u64;
            return Err(DecodeError::Length { kind: KIND, needed, received: body.len() });
        }
        let verdict = Verdict::of_fields(verdict, duration_ms, &body)?;
        let confirm = flags & FLAG_CONFIRM != 0;
        Ok(Self { head: SettleHead { topic, group, verdict, confirm }, runs })
    }
}
