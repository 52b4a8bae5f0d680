//! Parses answers from a socket, in pieces of any size: the end of each, and the few fields that the load needs.
//! Knows HTTP/1.1 and the name of one header of streams.

use anyhow::{Context, Result, bail, ensure};

/// The greatest number of headers of an answer.
const HEADERS_MAX: usize = 64;

/// The greatest length of a head, or of the line with a chunk's size, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A complete answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The length of its body in bytes, without the framing of chunks.
    pub body_bytes: u64,
}

/// A parser of answers.
#[derive(Debug, Default)]
pub struct AnswerReader {
    stage: Stage,
    /// The received part of a head or a line.
    line: Vec<u8>,
    answer: Option<Answer>,
    /// The end of the stream, from the last answer that has one.
    next_offset: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Head,
    /// The number of bytes of a body that are missing.
    Body(u64),
    ChunkSize,
    /// The number of bytes of a chunk that are missing, with the end of its line.
    Chunk(u64),
    /// Trailers, until an empty line.
    Trailers,
}

impl AnswerReader {
    /// Parses received bytes. Returns the number of bytes that belong to the answer, and the answer if it is
    /// complete. An answer to `HEAD` has no body, whatever its head says.
    ///
    /// # Errors
    /// The bytes are not an HTTP answer.
    pub fn take(&mut self, bytes: &[u8], after_head: bool) -> Result<(usize, Option<Answer>)> {
        let mut taken = 0;
        while taken < bytes.len() {
            taken += match self.stage {
                Stage::Head => self.take_head(&bytes[taken..], after_head)?,
                Stage::Body(left) => self.take_body(&bytes[taken..], left),
                Stage::ChunkSize => self.take_chunk_size(&bytes[taken..])?,
                Stage::Chunk(left) => self.take_chunk(&bytes[taken..], left),
                Stage::Trailers => self.take_trailers(&bytes[taken..])?,
            };
            if self.stage == Stage::Head && self.answer.is_some() {
                return Ok((taken, self.answer.take()));
            }
        }
        Ok((taken, None))
    }

    /// The end of the stream, from the last answer that has one.
    #[must_use]
    pub fn next_offset(&self) -> &str {
        &self.next_offset
    }

    /// Whether the head of an answer is complete, and the answer is not.
    #[must_use]
    pub fn is_within_body(&self) -> bool {
        self.stage != Stage::Head
    }

    fn take_head(&mut self, bytes: &[u8], after_head: bool) -> Result<usize> {
        if self.line.is_empty() {
            // A line that arrives in one piece, as nearly always, is not copied.
            return match self.parse_head(bytes, after_head)? {
                Some(length) => Ok(length),
                None => self.keep(bytes),
            };
        }
        let before = self.line.len();
        self.keep(bytes)?;
        let line = std::mem::take(&mut self.line);
        match self.parse_head(&line, after_head)? {
            Some(length) => Ok(length - before),
            None => {
                self.line = line;
                Ok(bytes.len())
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<usize> {
        ensure!(
            self.line.len() + bytes.len() <= LINE_BYTES_MAX,
            "an answer has no end of its head"
        );
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn parse_head(&mut self, bytes: &[u8], after_head: bool) -> Result<Option<usize>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(length) = head.parse(bytes).context("this is no HTTP")?
        else {
            return Ok(None);
        };
        let status = head.code.context("an answer has no status")?;
        let (mut content_length, mut is_chunked) = (None, false);
        for header in head.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                let text = std::str::from_utf8(header.value)?;
                content_length = Some(text.trim().parse::<u64>().context("Content-Length")?);
            } else if is("transfer-encoding") {
                is_chunked = header.value.eq_ignore_ascii_case(b"chunked");
            } else if is("stream-next-offset") {
                self.next_offset.clear();
                self.next_offset.push_str(std::str::from_utf8(header.value)?);
            }
        }
        self.answer = Some(Answer { status, body_bytes: 0 });
        self.stage = match content_length {
            _ if after_head || status == 204 || status == 304 => Stage::Head,
            _ if is_chunked => Stage::ChunkSize,
            Some(0) => Stage::Head,
            Some(left) => Stage::Body(left),
            None => bail!("an answer of {status} does not say where it ends"),
        };
        Ok(Some(length))
    }

    fn count(&mut self, bytes: u64) {
        if let Some(answer) = &mut self.answer {
            answer.body_bytes += bytes;
        }
    }

    fn take_body(&mut self, bytes: &[u8], left: u64) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.count(taken);
        self.stage = if taken == left { Stage::Head } else { Stage::Body(left - taken) };
        taken as usize
    }

    fn take_chunk_size(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(taken) = self.take_line(bytes)? else { return Ok(bytes.len()) };
        let size = match httparse::parse_chunk_size(&self.line) {
            Ok(httparse::Status::Complete((_, size))) => size,
            _ => bail!("a chunk has no size"),
        };
        self.line.clear();
        self.count(size);
        self.stage = if size == 0 { Stage::Trailers } else { Stage::Chunk(size + 2) };
        Ok(taken)
    }

    fn take_chunk(&mut self, bytes: &[u8], left: u64) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.stage = if taken == left { Stage::ChunkSize } else { Stage::Chunk(left - taken) };
        taken as usize
    }

    fn take_trailers(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(taken) = self.take_line(bytes)? else { return Ok(bytes.len()) };
        if self.line == b"\r\n" {
            self.stage = Stage::Head;
        }
        self.line.clear();
        Ok(taken)
    }

    /// Collects a line. Returns the number of bytes that belong to it, once it is complete.
    fn take_line(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        let end = bytes.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        self.keep(&bytes[..end.unwrap_or(bytes.len())])?;
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nstream-next-offset: 7_8\r\n\r\nhello";
    const EMPTY: &[u8] = b"HTTP/1.1 204 No Content\r\nStream-Next-Offset: 9_9\r\n\r\n";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nyou\r\n0\r\nA: b\r\n\r\n";

    fn whole(reader: &mut AnswerReader, pieces: &[&[u8]]) -> Vec<Answer> {
        let mut answers = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                let (taken, answer) = reader.take(piece, false).unwrap();
                piece = &piece[taken..];
                answers.extend(answer);
            }
        }
        answers
    }

    #[test]
    fn an_answer_is_the_same_wherever_it_is_cut() {
        for (bytes, status, body_bytes) in [(FULL, 200, 5), (EMPTY, 204, 0), (CHUNKED, 200, 8)] {
            for at in 0..=bytes.len() {
                let (left, right) = bytes.split_at(at);
                let answers = whole(&mut AnswerReader::default(), &[left, right]);
                assert_eq!(answers, [Answer { status, body_bytes }], "cut at {at}");
            }
        }
    }

    #[test]
    fn answers_that_follow_one_another_are_told_apart() {
        let mut reader = AnswerReader::default();
        let answers = whole(&mut reader, &[[FULL, CHUNKED, EMPTY].concat().as_slice()]);
        assert_eq!(answers.iter().map(|a| a.status).collect::<Vec<_>>(), [200, 200, 204]);
        assert_eq!(reader.next_offset(), "9_9");
    }

    #[test]
    fn no_body_comes_after_head() {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        let (taken, answer) = AnswerReader::default().take(head, true).unwrap();
        assert_eq!((taken, answer), (head.len(), Some(Answer { status: 200, body_bytes: 0 })));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for bytes in [&b"SSH-2.0-x\r\n\r\n"[..], b"HTTP/1.1 200 OK\r\n\r\n"] {
            assert!(AnswerReader::default().take(bytes, false).is_err());
        }
    }
}
