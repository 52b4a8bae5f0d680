//! Publishes as bytes: alone, or as parts of an atomic one.

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
};
use crate::command::Publish;

pub(super) fn encode(publish: &Publish, w: &mut FieldWriter<'_>) {
    let Publish { origin, partition, producer, batch } = publish;
    w.origin(*origin).partition(*partition).producer(*producer);
    w.batch(batch);
}

pub(super) fn decode(r: &mut FieldReader) -> Result<Publish, DecodeError> {
    let (origin, partition) = (r.origin()?, r.partition()?);
    Ok(Publish { origin, partition, producer: r.producer_stamp()?, batch: r.batch()? })
}
