//! Gathers the body of an HTTP/1 request as it arrives: with a length, or in chunks (RFC 9112, 7.1). It holds no
//! more than the bytes that came, and one step of growth. It knows no sockets.

use bytes::{BufMut as _, Bytes, BytesMut, buf::Limit};

use super::{
    bad_request::Refused,
    head_end::HeadEnd,
    http1_head::{Framing, too_long},
    limits::{
        BODY_BYTES_MAX, CHUNK_EXTENSION_BYTES_MAX, CHUNK_EXTENSIONS_BYTES_MAX, HEAD_BYTES_MAX,
        HEADERS_MAX,
    },
};

/// Of a body that is said to be longer, no more is made room for before so much of it has come.
const STEP_BYTES: usize = 256 << 10;

/// A body that comes.
#[derive(Debug)]
pub(crate) struct BodyDecoder {
    body: BytesMut,
    part: Part,
    /// Bytes of chunk extensions so far.
    extension_bytes: usize,
}

/// Which part of a body is next.
#[derive(Debug)]
enum Part {
    /// So many bytes, and nothing behind them.
    Length(usize),
    /// The length of a chunk, in hexadecimal, and how many digits of it have come.
    Size { size: usize, digits: usize },
    /// What may stand behind a length; so many bytes of it have come.
    Extension { size: usize, bytes: usize },
    /// The line feed behind a length.
    SizeEnd { size: usize },
    /// So many bytes of a chunk.
    Data(usize),
    /// The end of a chunk: a carriage return, then a line feed.
    DataEnd { has_return: bool },
    /// Header lines, and an empty one.
    Trailers { end: HeadEnd, lines: Vec<u8> },
    /// Nothing more.
    End,
}

const FIRST_CHUNK: Part = Part::Size { size: 0, digits: 0 };

impl BodyDecoder {
    pub(crate) fn new(framing: Framing) -> Self {
        let part = match framing {
            Framing::Length(0) => Part::End,
            Framing::Length(length) => Part::Length(length),
            Framing::Chunked => FIRST_CHUNK,
        };
        Self { body: BytesMut::new(), part, extension_bytes: 0 }
    }

    /// Takes what comes next, up to the end of the body; the body once it is whole.
    pub(crate) fn take(&mut self, input: &mut &[u8]) -> Result<Option<Bytes>, Refused> {
        loop {
            if matches!(self.part, Part::End) {
                return Ok(Some(std::mem::take(&mut self.body).freeze()));
            }
            if input.is_empty() {
                return Ok(None);
            }
            self.step(input)?;
        }
    }

    /// Bytes that have come.
    pub(crate) fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Room for what comes next of a body whose length is known; what was put there is counted by
    /// [`BodyDecoder::put`].
    pub(crate) fn room(&mut self) -> Option<Limit<&mut BytesMut>> {
        let Part::Length(left) = self.part else { return None };
        self.make_room(left, 1);
        let room = left.min(self.body.capacity() - self.body.len());
        Some((&mut self.body).limit(room))
    }

    /// So many bytes were put into the room.
    pub(crate) fn put(&mut self, bytes: usize) {
        if let Part::Length(left) = &mut self.part {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.part = Part::End;
            }
        }
    }

    /// Makes room for the `coming` bytes of `left`. Once a step has come it is made for all that is
    /// left: a page that was never written to costs nothing, a copy does.
    fn make_room(&mut self, left: usize, coming: usize) {
        if self.body.capacity() - self.body.len() < coming {
            let is_believed = self.body.len() + coming >= STEP_BYTES;
            self.body.reserve(if is_believed { left } else { left.min(STEP_BYTES) });
        }
    }

    fn step(&mut self, input: &mut &[u8]) -> Result<(), Refused> {
        match &mut self.part {
            Part::Length(left) => {
                let left = *left;
                let (now, rest) = input.split_at(input.len().min(left));
                self.make_room(left, now.len());
                self.body.extend_from_slice(now);
                self.put(now.len());
                *input = rest;
            }
            Part::Data(left) => {
                let (now, rest) = input.split_at(input.len().min(*left));
                *left -= now.len();
                if *left == 0 {
                    self.part = Part::DataEnd { has_return: false };
                }
                self.body.extend_from_slice(now);
                *input = rest;
            }
            Part::Trailers { end, lines } => {
                let room = HEAD_BYTES_MAX - lines.len();
                let window = &input[..input.len().min(room)];
                let found = end.find(window)?;
                let (now, rest) = input.split_at(found.unwrap_or(window.len()));
                lines.extend_from_slice(now);
                *input = rest;
                if found.is_some() {
                    check_trailers(lines)?;
                    self.part = Part::End;
                } else if lines.len() == HEAD_BYTES_MAX {
                    return Err(Refused::bad(
                        "the trailers are longer than HEAD_BYTES_MAX, 16 KiB",
                    ));
                }
            }
            _ => {
                let (&byte, rest) = input.split_first().expect("there is something");
                *input = rest;
                self.part = self.after(byte)?;
            }
        }
        Ok(())
    }

    /// What follows a byte between chunks.
    fn after(&mut self, byte: u8) -> Result<Part, Refused> {
        let wrong = Refused::bad("the length of a chunk is not a plain hexadecimal number");
        Ok(match self.part {
            Part::Size { size, digits } => match byte {
                _ if byte.is_ascii_hexdigit() => {
                    if digits == 8 {
                        return Err(wrong);
                    }
                    let digit = (byte as char).to_digit(16).expect("it is a digit") as usize;
                    let size = size << 4 | digit;
                    if size > BODY_BYTES_MAX - self.body.len() {
                        return Err(too_long());
                    }
                    Part::Size { size, digits: digits + 1 }
                }
                b'\r' if digits > 0 => Part::SizeEnd { size },
                b';' if digits > 0 => Part::Extension { size, bytes: 0 },
                _ => return Err(wrong),
            },
            Part::Extension { size, bytes } => {
                self.extension_bytes += 1;
                if bytes == CHUNK_EXTENSION_BYTES_MAX
                    || self.extension_bytes > CHUNK_EXTENSIONS_BYTES_MAX
                {
                    return Err(Refused::bad("the extensions of chunks are too long"));
                }
                match byte {
                    b'\r' => Part::SizeEnd { size },
                    b'\t' | b' '..=b'~' | 0x80.. => Part::Extension { size, bytes: bytes + 1 },
                    _ => return Err(Refused::bad("a control character in a chunk's extension")),
                }
            }
            Part::SizeEnd { size } => match (byte, size) {
                (b'\n', 0) => Part::Trailers { end: HeadEnd::of_section(), lines: Vec::new() },
                (b'\n', _) => Part::Data(size),
                _ => return Err(Refused::bad("a carriage return without a line feed")),
            },
            Part::DataEnd { has_return } => match (byte, has_return) {
                (b'\r', false) => Part::DataEnd { has_return: true },
                (b'\n', true) => FIRST_CHUNK,
                _ => return Err(Refused::bad("a chunk does not end where its length says")),
            },
            Part::Length(_) | Part::Data(_) | Part::Trailers { .. } | Part::End => {
                unreachable!("these take more than a byte")
            }
        })
    }
}

/// Trailers are of no use here, but they are to be header lines.
fn check_trailers(lines: &[u8]) -> Result<(), Refused> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    match httparse::parse_headers(lines, &mut headers) {
        Ok(httparse::Status::Complete(_)) => Ok(()),
        _ => Err(Refused::bad("the trailers are no header lines")),
    }
}
