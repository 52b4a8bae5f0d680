//! Atomic publishes as bytes, and the parts of their answers.

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
    publish,
};
use crate::{
    command::{AtomicAck, PublishAtomic},
    effect::{AtomicPart, ConfirmedPart},
};

/// Bytes of a publish, at least: origin, partition, producer, length of the batch.
const PUBLISH_BYTES: usize = 48;

/// Bytes of a part of a batch that is committed.
const CONFIRMED_PART_BYTES: usize = 13;

pub(super) fn encode(step: &PublishAtomic, w: &mut FieldWriter<'_>) {
    let PublishAtomic { origin, parts, acks } = step;
    w.origin(*origin);
    w.each(parts, |w, part| publish::encode(part, w));
    w.list(acks, |w, AtomicAck { partition, group, runs }| {
        w.partition(*partition).group(*group).runs(runs)
    });
}

pub(super) fn decode(r: &mut FieldReader) -> Result<PublishAtomic, DecodeError> {
    let (origin, parts) = (r.origin()?, r.each(PUBLISH_BYTES, publish::decode)?);
    let acks = r.each(16, |r| {
        Ok(AtomicAck { partition: r.partition()?, group: r.group()?, runs: r.runs()? })
    })?;
    Ok(PublishAtomic { origin, parts, acks })
}

pub(super) fn encode_confirmed(parts: &[ConfirmedPart], w: &mut FieldWriter<'_>) {
    w.list(parts, |w, ConfirmedPart { count, first_offset, duplicate }| {
        w.u32(*count).u64(first_offset.0).flag(*duplicate)
    });
}

pub(super) fn decode_confirmed(r: &mut FieldReader) -> Result<Box<[ConfirmedPart]>, DecodeError> {
    let parts = r.each(CONFIRMED_PART_BYTES, |r| {
        let (count, first_offset) = (r.u32()?, r.offset()?);
        Ok(ConfirmedPart { count, first_offset, duplicate: r.flag("duplicate")? })
    })?;
    Ok(parts.into())
}

pub(super) fn encode_parts(parts: &[AtomicPart], w: &mut FieldWriter<'_>) {
    w.each(parts, |w, AtomicPart { partition, count, durability, runs, dropped, replaced }| {
        w.partition(*partition).u32(*count).durability(*durability);
        encode_confirmed(runs, w);
        w.u64(*dropped).u64(*replaced);
    });
}

pub(super) fn decode_parts(r: &mut FieldReader) -> Result<Box<[AtomicPart]>, DecodeError> {
    let parts = r.each(33, |r| {
        Ok(AtomicPart {
            partition: r.partition()?,
            count: r.u32()?,
            durability: r.durability()?,
            runs: decode_confirmed(r)?,
            dropped: r.u64()?,
            replaced: r.u64()?,
        })
    })?;
    Ok(parts.into())
}
