//! Cuts a message of a connection into its commands or replies, and reads the fields of each.

use crate::{
    context::Context,
    decode_error::{DecodeError, Problem},
    encoding::Encoding,
    field::Message,
    limits::Limits,
    message, protobuf,
};

/// Goes through the commands, or replies, of a message.
pub(crate) struct Parts<'m> {
    encoding: Encoding,
    rest: &'m [u8],
    limits: Limits,
    count: usize,
    is_over: bool,
}

impl<'m> Parts<'m> {
    pub fn new(encoding: Encoding, message: &'m [u8], limits: Limits) -> Self {
        Self { encoding, rest: message, limits, count: 0, is_over: false }
    }

    /// The next one, made by `make` of its fields.
    pub fn next<M: Message, T>(
        &mut self,
        make: impl FnOnce(M) -> Option<T>,
    ) -> Option<Result<T, DecodeError>> {
        if self.is_over {
            return None;
        }
        let read = self.read().transpose()?;
        let made = read.and_then(|fields| make(fields).ok_or_else(|| self.error(Problem::Several)));
        self.count += 1;
        self.is_over = made.is_err();
        Some(made)
    }

    fn read<M: Message>(&mut self) -> Result<Option<M>, DecodeError> {
        let (bytes, bytes_max) = (self.rest.len(), self.limits.message_bytes_max);
        if self.count == 0 && bytes > bytes_max {
            return Err(self.error(Problem::MessageTooLong { bytes, bytes_max }));
        }
        let part = match self.encoding {
            Encoding::Json => self.line(),
            Encoding::Protobuf => self.delimited()?,
        };
        let Some(part) = part else { return Ok(None) };
        if self.count == self.limits.commands_max {
            let commands_max = self.limits.commands_max;
            return Err(self.error(Problem::TooManyCommands { commands_max }));
        }
        let mut fields = M::default();
        let context = Context::new(self.limits);
        match self.encoding {
            Encoding::Json => {
                message::read_json_text(&mut fields, part, &context)
                    .map_err(|error| context.json_error(self.count, &error))?;
            }
            Encoding::Protobuf => message::read_protobuf(&mut fields, part, &context)
                .map_err(|_| context.error(self.count))?,
        }
        Ok(Some(fields))
    }

    /// The next line that is not empty.
    fn line(&mut self) -> Option<&'m [u8]> {
        while !self.rest.is_empty() {
            let end = memchr::memchr(b'\n', self.rest);
            let line = &self.rest[..end.unwrap_or(self.rest.len())];
            self.rest = end.map_or(&[], |end| &self.rest[end + 1..]);
            if !line.trim_ascii().is_empty() {
                return Some(line);
            }
        }
        None
    }

    /// What follows the next length.
    fn delimited(&mut self) -> Result<Option<&'m [u8]>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let context = Context::new(self.limits);
        let part = protobuf::delimited(&mut self.rest, &context);
        part.map(Some).map_err(|_| context.error(self.count))
    }

    fn error(&self, problem: Problem) -> DecodeError {
        DecodeError { command: self.count, field: String::new(), problem }
    }
}
