//! The fields that several commands and effects have. Both directions stand here, so that they agree.

use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

use bytes::Bytes;
use sennit_model::{
    Batch, Durability, Filter, GroupId, HeaderName, Offset, OffsetRange, ProducerStamp, ReadFrom,
    Timestamp,
};

use super::decode_error::DecodeError;
use crate::{
    codec::{Reader, Writer},
    command::{Credit, CursorClaim, DeliveryRun, Origin, SessionId},
    content::Content,
};

/// A list with more elements grows as they arrive, since an element may take more memory than bytes.
const ELEMENTS_AT_ONCE: usize = 64;

/// Bytes of a run of deliveries.
const RUN_BYTES: usize = 20;

/// Appends fields, and puts payloads aside.
pub(super) struct FieldWriter<'a> {
    fields: Writer<'a>,
    payloads: &'a mut Vec<(usize, Bytes)>,
    pub(super) payload_bytes: usize,
}

impl<'a> Deref for FieldWriter<'a> {
    type Target = Writer<'a>;

    fn deref(&self) -> &Writer<'a> {
        &self.fields
    }
}

impl DerefMut for FieldWriter<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fields
    }
}

impl<'a> FieldWriter<'a> {
    pub(super) fn new(fields: &'a mut Vec<u8>, payloads: &'a mut Vec<(usize, Bytes)>) -> Self {
        Self { fields: Writer(fields), payloads, payload_bytes: 0 }
    }

    /// A payload: its length, and the bytes behind all fields.
    pub(super) fn payload(&mut self, payload: &Bytes) {
        self.count(payload.len());
        self.payload_bytes += payload.len();
        self.payloads.push((0, payload.clone()));
    }

    pub(super) fn batch(&mut self, batch: &Batch) {
        self.payload(batch.bytes());
    }

    pub(super) fn batches(&mut self, content: &Content) {
        self.count(content.batches().count());
        content.batches().for_each(|batch| self.batch(batch));
    }

    /// A list of what is more than fields.
    pub(super) fn each<T>(&mut self, list: &[T], element: impl Fn(&mut Self, &T)) {
        self.count(list.len());
        list.iter().for_each(|one| element(self, one));
    }

    /// Whether there is one, and the one.
    pub(super) fn optional<T>(&mut self, value: Option<&T>, element: impl Fn(&mut Self, &T)) {
        self.u8(u8::from(value.is_some()));
        if let Some(value) = value {
            element(self, value);
        }
    }
}

impl Writer<'_> {
    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.u8(u8::from(flag))
    }

    pub(super) fn number(&mut self, number: usize) -> &mut Self {
        self.u64(number as u64)
    }

    pub(super) fn optional_u64(&mut self, value: Option<u64>) -> &mut Self {
        match value {
            Some(value) => self.u8(1).u64(value),
            None => self.u8(0),
        }
    }

    pub(super) fn optional_time(&mut self, time: Option<Timestamp>) -> &mut Self {
        self.optional_u64(time.map(|time| time.0))
    }

    /// Bytes, and their number.
    pub(super) fn counted(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len()).bytes(bytes)
    }

    pub(super) fn session(&mut self, session: SessionId) -> &mut Self {
        self.u64(session.0)
    }

    pub(super) fn optional_session(&mut self, session: Option<SessionId>) -> &mut Self {
        self.optional_u64(session.map(|session| session.0))
    }

    pub(super) fn origin(&mut self, origin: Origin) -> &mut Self {
        self.session(origin.session).u64(origin.request)
    }

    pub(super) fn group(&mut self, group: GroupId) -> &mut Self {
        self.u32(group.0)
    }

    pub(super) fn credit(&mut self, credit: Credit) -> &mut Self {
        self.u32(credit.messages).u64(credit.bytes)
    }

    pub(super) fn producer(&mut self, producer: ProducerStamp) -> &mut Self {
        let ProducerStamp { id, epoch, first_sequence } = producer;
        self.u64(id.0).u32(epoch).u64(first_sequence)
    }

    /// To the nanosecond.
    pub(super) fn span(&mut self, span: Duration) -> &mut Self {
        self.u64(span.as_secs()).u32(span.subsec_nanos())
    }

    pub(super) fn durability(&mut self, durability: Durability) -> &mut Self {
        self.u8(durability.number())
    }

    pub(super) fn run(&mut self, run: &DeliveryRun) -> &mut Self {
        let DeliveryRun { first, count, attempt, generation } = run;
        self.u64(first.0).u32(*count).u32(*attempt).u32(generation.0)
    }

    pub(super) fn runs(&mut self, runs: &[DeliveryRun]) -> &mut Self {
        self.list(runs, |w, run| w.run(run))
    }

    pub(super) fn claim(&mut self, claim: Option<&CursorClaim>) -> &mut Self {
        match claim {
            None => self.u8(0),
            Some(CursorClaim { name, take_over, number }) => {
                self.u8(1).text(name.as_str()).flag(*take_over).u64(*number)
            }
        }
    }

    pub(super) fn read_from(&mut self, from: ReadFrom) -> &mut Self {
        match from {
            ReadFrom::Earliest => self.u8(0),
            ReadFrom::Latest => self.u8(1),
            ReadFrom::Offset(offset) => self.u8(2).u64(offset.0),
            ReadFrom::Last(count) => self.u8(3).u64(count),
            ReadFrom::Time(time) => self.u8(4).u64(time.0),
        }
    }

    pub(super) fn filter(&mut self, filter: Option<&Filter>) -> &mut Self {
        self.optional_text(filter.map(Filter::as_str))
    }
}

/// Takes fields and payloads off the front of theirs; every one may be missing or wrong.
pub(super) struct FieldReader {
    fields: Reader,
    payloads: Bytes,
}

impl Deref for FieldReader {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.fields
    }
}

impl DerefMut for FieldReader {
    fn deref_mut(&mut self) -> &mut Reader {
        &mut self.fields
    }
}

impl FieldReader {
    pub(super) fn new(kind: u8, fields: Bytes, payloads: Bytes) -> Self {
        Self { fields: Reader { kind, rest: fields }, payloads }
    }

    pub(super) fn wrong(&self, field: &'static str, value: impl Into<u64>) -> DecodeError {
        self.field(field, value).into()
    }

    fn length(&self) -> DecodeError {
        DecodeError::Length { kind: self.kind }
    }

    pub(super) fn payload(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()? as usize;
        if length > self.payloads.len() {
            return Err(self.length());
        }
        Ok(self.payloads.split_to(length))
    }

    /// A batch, checked as one that was kept: with the checksums of its messages, as nothing else on a link covers them.
    pub(super) fn batch(&mut self) -> Result<Batch, DecodeError> {
        let bytes = self.payload()?;
        let kind = self.kind;
        Batch::check_kept(bytes).map_err(|error| DecodeError::Batch { kind, error })
    }

    pub(super) fn content(&mut self) -> Result<Content, DecodeError> {
        let batches = self.each(4, Self::batch)?;
        Content::of(batches).ok_or_else(|| self.wrong("number of batches", 0_u8))
    }

    /// A list whose elements have so many bytes of fields at least: no memory is taken for more than can be there.
    pub(super) fn each<T>(
        &mut self,
        element_bytes: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / element_bytes {
            return Err(self.length());
        }
        let mut list = Vec::with_capacity(count.min(ELEMENTS_AT_ONCE));
        for _ in 0..count {
            list.push(element(self)?);
        }
        Ok(list)
    }

    pub(super) fn optional<T>(
        &mut self,
        field: &'static str,
        element: impl FnOnce(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.flag(field)? { element(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn number(&mut self, field: &'static str) -> Result<usize, DecodeError> {
        let number = self.u64()?;
        usize::try_from(number).map_err(|_| self.wrong(field, number))
    }

    pub(super) fn optional_u64(&mut self, field: &'static str) -> Result<Option<u64>, DecodeError> {
        self.optional(field, |r| Ok(r.u64()?))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, DecodeError> {
        Ok(Timestamp(self.u64()?))
    }

    pub(super) fn optional_time(
        &mut self,
        field: &'static str,
    ) -> Result<Option<Timestamp>, DecodeError> {
        self.optional(field, Self::time)
    }

    /// Bytes behind their number: a slice of the fields.
    pub(super) fn counted(&mut self) -> Result<Bytes, DecodeError> {
        let length = self.u32()? as usize;
        if length > self.rest.len() {
            return Err(self.length());
        }
        Ok(self.rest.split_to(length))
    }

    pub(super) fn some_text(&mut self, field: &'static str) -> Result<Option<String>, DecodeError> {
        self.optional(field, |r| Ok(r.text()?))
    }

    pub(super) fn offset(&mut self) -> Result<Offset, DecodeError> {
        Ok(Offset(self.u64()?))
    }

    pub(super) fn session(&mut self) -> Result<SessionId, DecodeError> {
        Ok(SessionId(self.u64()?))
    }

    pub(super) fn optional_session(
        &mut self,
        field: &'static str,
    ) -> Result<Option<SessionId>, DecodeError> {
        self.optional(field, Self::session)
    }

    pub(super) fn origin(&mut self) -> Result<Origin, DecodeError> {
        Ok(Origin { session: self.session()?, request: self.u64()? })
    }

    pub(super) fn group(&mut self) -> Result<GroupId, DecodeError> {
        Ok(GroupId(self.u32()?))
    }

    pub(super) fn credit(&mut self) -> Result<Credit, DecodeError> {
        Ok(Credit { messages: self.u32()?, bytes: self.u64()? })
    }

    pub(super) fn producer_stamp(&mut self) -> Result<ProducerStamp, DecodeError> {
        let (id, epoch) = (sennit_model::ProducerId(self.u64()?), self.u32()?);
        Ok(ProducerStamp { id, epoch, first_sequence: self.u64()? })
    }

    pub(super) fn span(&mut self) -> Result<Duration, DecodeError> {
        let (secs, nanos) = (self.u64()?, self.u32()?);
        if nanos >= 1_000_000_000 {
            return Err(self.wrong("nanoseconds", nanos));
        }
        Ok(Duration::new(secs, nanos))
    }

    pub(super) fn durability(&mut self) -> Result<Durability, DecodeError> {
        let number = self.u8()?;
        Durability::of_number(number).ok_or_else(|| self.wrong("durability", number))
    }

    pub(super) fn run(&mut self) -> Result<DeliveryRun, DecodeError> {
        let (first, count, attempt) = (self.offset()?, self.u32()?, self.u32()?);
        let generation = sennit_model::Generation(self.u32()?);
        Ok(DeliveryRun { first, count, attempt, generation })
    }

    pub(super) fn runs(&mut self) -> Result<Vec<DeliveryRun>, DecodeError> {
        self.each(RUN_BYTES, Self::run)
    }

    /// A range of offsets, which may be empty.
    pub(super) fn offsets(&mut self) -> Result<OffsetRange, DecodeError> {
        let (start, end) = (self.offset()?, self.offset()?);
        if start > end {
            return Err(self.wrong("end of a range", end.0));
        }
        Ok(OffsetRange { start, end })
    }

    pub(super) fn claim(&mut self) -> Result<Option<CursorClaim>, DecodeError> {
        self.optional("has cursor", |r| {
            let (name, take_over) = (r.cursor_name()?, r.flag("takes over")?);
            Ok(CursorClaim { name, take_over, number: r.u64()? })
        })
    }

    pub(super) fn read_from(&mut self) -> Result<ReadFrom, DecodeError> {
        Ok(match self.u8()? {
            0 => ReadFrom::Earliest,
            1 => ReadFrom::Latest,
            2 => ReadFrom::Offset(self.offset()?),
            3 => ReadFrom::Last(self.u64()?),
            4 => ReadFrom::Time(self.time()?),
            tag => return Err(self.wrong("begin of a read", tag)),
        })
    }

    pub(super) fn filter(&mut self) -> Result<Option<Filter>, DecodeError> {
        let kind = self.kind;
        self.optional("has filter", |r| {
            r.text()?.parse().map_err(|error| DecodeError::Filter { kind, error })
        })
    }

    pub(super) fn header_name(&mut self) -> Result<HeaderName, DecodeError> {
        let kind = self.kind;
        self.text()?.parse().map_err(|error| DecodeError::Config { kind, error })
    }
}
