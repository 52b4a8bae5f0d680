//! The fields of changes of names and of their answers: numbers are little-endian, a text is its length and its bytes.

use bytes::{Buf, BufMut, Bytes};
use sennit_engine::{Command, Effect, Encoded, Origin, Refusal};
use sennit_model::{Offset, TopicId};

use super::codec_error::NameChangeError;
use crate::broker::stream_offset::IncarnationTag;

/// Appends fields.
pub(super) struct FieldWriter(pub(super) Vec<u8>);

impl FieldWriter {
    pub(super) fn u8(&mut self, number: u8) -> &mut Self {
        self.0.put_u8(number);
        self
    }

    pub(super) fn flag(&mut self, flag: bool) -> &mut Self {
        self.u8(u8::from(flag))
    }

    pub(super) fn u32(&mut self, number: u32) -> &mut Self {
        self.0.put_u32_le(number);
        self
    }

    pub(super) fn u64(&mut self, number: u64) -> &mut Self {
        self.0.put_u64_le(number);
        self
    }

    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        self.u32(text.len() as u32);
        self.0.put_slice(text.as_bytes());
        self
    }

    pub(super) fn optional<T>(
        &mut self,
        value: Option<T>,
        field: impl FnOnce(&mut Self, T),
    ) -> &mut Self {
        self.flag(value.is_some());
        if let Some(value) = value {
            field(self, value);
        }
        self
    }

    /// A command of the engine, which comes last: its settings have the layout of records.
    pub(super) fn command(&mut self, command: &Command) -> Result<(), Refusal> {
        let mut encoded = Encoded::default();
        command.encode(&mut encoded)?;
        encoded.pieces().for_each(|piece| self.0.put_slice(piece));
        Ok(())
    }

    /// An effect of the engine, which comes last.
    pub(super) fn effect(&mut self, effect: &Effect) -> Result<(), Refusal> {
        let mut encoded = Encoded::default();
        effect.encode(&mut encoded)?;
        encoded.pieces().for_each(|piece| self.0.put_slice(piece));
        Ok(())
    }
}

/// Takes fields off the front of bytes; every one may be missing or wrong.
pub(super) struct FieldReader(pub(super) Bytes);

impl FieldReader {
    fn needs(&self, bytes: usize) -> Result<(), NameChangeError> {
        if self.0.len() < bytes { Err(NameChangeError::Short) } else { Ok(()) }
    }

    pub(super) fn u8(&mut self) -> Result<u8, NameChangeError> {
        self.needs(1)?;
        Ok(self.0.get_u8())
    }

    pub(super) fn flag(&mut self, field: &'static str) -> Result<bool, NameChangeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(NameChangeError::Field { field, value: value.into() }),
        }
    }

    pub(super) fn u32(&mut self) -> Result<u32, NameChangeError> {
        self.needs(4)?;
        Ok(self.0.get_u32_le())
    }

    pub(super) fn u64(&mut self) -> Result<u64, NameChangeError> {
        self.needs(8)?;
        Ok(self.0.get_u64_le())
    }

    pub(super) fn bytes(&mut self, length: usize) -> Result<Bytes, NameChangeError> {
        self.needs(length)?;
        Ok(self.0.split_to(length))
    }

    /// Memory is taken for a text once its bytes are known to be there.
    pub(super) fn text(&mut self) -> Result<String, NameChangeError> {
        let length = self.u32()? as usize;
        let text = self.bytes(length)?;
        std::str::from_utf8(&text).map(str::to_owned).map_err(|_| NameChangeError::Text)
    }

    pub(super) fn name<N>(&mut self) -> Result<N, NameChangeError>
    where
        N: std::str::FromStr<Err = sennit_model::NameError>,
    {
        Ok(self.text()?.parse()?)
    }

    pub(super) fn optional<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, NameChangeError>,
    ) -> Result<Option<T>, NameChangeError> {
        if self.flag(field)? { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn topic(&mut self) -> Result<TopicId, NameChangeError> {
        Ok(TopicId(self.u32()?))
    }

    pub(super) fn offset(&mut self) -> Result<Offset, NameChangeError> {
        Ok(Offset(self.u64()?))
    }

    pub(super) fn tag(&mut self) -> Result<IncarnationTag, NameChangeError> {
        let value = self.u64()?;
        let field = "tag of a stream";
        IncarnationTag::of_number(value).ok_or(NameChangeError::Field { field, value })
    }

    pub(super) fn command(&mut self) -> Result<Command, NameChangeError> {
        Ok(Command::decode(&mut self.0)?)
    }

    pub(super) fn effect(&mut self) -> Result<Effect, NameChangeError> {
        Ok(Effect::decode(&mut self.0)?)
    }
}

/// Commands and effects in a change are asked by nobody.
pub(super) const NOBODY: Origin = Origin { session: sennit_engine::SessionId(0), request: 0 };
