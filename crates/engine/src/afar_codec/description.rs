//! The description of a partition as bytes.

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
};
use crate::effect::{GroupDescription, Holding, ParkedRun, PartitionDescription};

/// Bytes of the description of a group, at least.
const GROUP_BYTES: usize = 65;

/// Bytes of a run of parked messages, at least.
const PARKED_BYTES: usize = 36;

pub(super) fn encode(description: &PartitionDescription, w: &mut FieldWriter<'_>) {
    let PartitionDescription {
        start,
        end,
        bytes,
        live_bytes,
        dead_bytes,
        damaged,
        lost,
        oldest_appended_at,
        groups,
        holding,
        parked,
    } = description;
    w.u64(start.0).u64(end.0).u64(*bytes).u64(*live_bytes).u64(*dead_bytes);
    w.u64(*damaged).u64(*lost).optional_time(*oldest_appended_at);
    w.each(groups, encode_group);
    w.optional(holding.as_ref(), |w, Holding { groups, since }| {
        w.list(groups, |w, group| w.group(*group)).u64(since.0);
    });
    w.list(parked, |w, ParkedRun { group, range, attempts, failed_at, reason }| {
        w.group(*group).range(*range).u32(*attempts).u64(failed_at.0).text(reason)
    });
}

pub(super) fn decode(r: &mut FieldReader) -> Result<PartitionDescription, DecodeError> {
    Ok(PartitionDescription {
        start: r.offset()?,
        end: r.offset()?,
        bytes: r.u64()?,
        live_bytes: r.u64()?,
        dead_bytes: r.u64()?,
        damaged: r.u64()?,
        lost: r.u64()?,
        oldest_appended_at: r.optional_time("has oldest")?,
        groups: r.each(GROUP_BYTES, decode_group)?,
        holding: r.optional("has holding", |r| {
            Ok(Holding { groups: r.each(4, FieldReader::group)?, since: r.time()? })
        })?,
        parked: r.each(PARKED_BYTES, |r| {
            Ok(ParkedRun {
                group: r.group()?,
                range: r.offsets()?,
                attempts: r.u32()?,
                failed_at: r.time()?,
                reason: r.text()?.into(),
            })
        })?,
    })
}

fn encode_group(w: &mut FieldWriter<'_>, description: &GroupDescription) {
    let GroupDescription {
        group,
        ready,
        leased,
        delayed,
        dying,
        parked,
        damaged,
        settled_before,
        consumers,
        active,
    } = description;
    w.group(*group);
    for number in [ready, leased, delayed, dying, parked, damaged, &settled_before.0] {
        w.u64(*number);
    }
    w.u32(*consumers).optional_session(*active);
}

fn decode_group(r: &mut FieldReader) -> Result<GroupDescription, DecodeError> {
    Ok(GroupDescription {
        group: r.group()?,
        ready: r.u64()?,
        leased: r.u64()?,
        delayed: r.u64()?,
        dying: r.u64()?,
        parked: r.u64()?,
        damaged: r.u64()?,
        settled_before: r.offset()?,
        consumers: r.u32()?,
        active: r.optional_session("has active")?,
    })
}
