//! Splits a file or standard input at delimiters, on a thread of its own. A part is never copied, and a part that
//! is too long for a message is never read whole.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    thread,
};

use bytes::{Bytes, BytesMut};
use sennit_model::limits::MESSAGE_BYTES_MAX;
use tokio::sync::mpsc;

use crate::delimiter::Delimiter;

/// Bytes of one read.
const READ_BYTES: usize = 256 << 10;

/// Blocks of parts that may wait for the publisher.
const BLOCKS_WAITING_MAX: usize = 4;

/// An error of the source; all parts before it were passed on.
#[derive(Debug)]
pub enum LineError {
    /// The next part is longer than a message may be.
    TooLong,
    /// The source failed.
    Source(io::Error),
}

/// The parts of one read, without delimiters. An error is the last block.
pub type Block = Result<Vec<Bytes>, LineError>;

/// Opens `path`, or standard input for `-`, and starts to read parts that end with `delimiter`.
/// With an empty delimiter everything is one part, even if it is empty.
///
/// # Errors
/// The file cannot be opened.
pub fn read(path: &Path, delimiter: &Delimiter) -> io::Result<mpsc::Receiver<Block>> {
    let source: Box<dyn Read + Send> = match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(path)?),
    };
    let (blocks, receiver) = mpsc::channel(BLOCKS_WAITING_MAX);
    let delimiter = delimiter.clone();
    thread::Builder::new().name("lines".into()).spawn(move || {
        // A publisher that has stopped does not want the rest.
        cut(source, delimiter.bytes(), |block| blocks.blocking_send(block).is_ok());
    })?;
    Ok(receiver)
}

/// Splits `source` into blocks of parts until it ends or fails, or `take` returns false. The last
/// part needs no delimiter.
fn cut(mut source: impl Read, delimiter: &[u8], mut take: impl FnMut(Block) -> bool) {
    let mut rest = BytesMut::new();
    loop {
        let known = rest.len();
        rest.resize(known + READ_BYTES, 0);
        let read = source.read(&mut rest[known..]);
        rest.truncate(known + *read.as_ref().unwrap_or(&0));
        match read {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                take(Err(LineError::Source(error)));
                return;
            }
            Ok(0) => {
                if !rest.is_empty() || delimiter.is_empty() {
                    take(Ok(vec![rest.freeze()]));
                }
                return;
            }
            Ok(_) => {}
        }
        let lines = complete_parts(&mut rest, known, delimiter);
        let too_long = rest.len() > MESSAGE_BYTES_MAX;
        if !lines.is_empty() && !take(Ok(lines)) {
            return;
        }
        if too_long {
            take(Err(LineError::TooLong));
            return;
        }
    }
}

/// Removes the complete parts from `rest`; none ends before `searched`.
fn complete_parts(rest: &mut BytesMut, searched: usize, delimiter: &[u8]) -> Vec<Bytes> {
    let Some(&last) = delimiter.last() else { return Vec::new() };
    // The delimiter may have begun in what was searched.
    let from = searched.saturating_sub(delimiter.len() - 1);
    let (mut ends, mut start) = (Vec::new(), 0);
    for (at, _) in rest[from..].iter().enumerate().filter(|(_, byte)| **byte == last) {
        let end = from + at + 1;
        let begin = end.saturating_sub(delimiter.len());
        if begin >= start && rest[begin..end] == *delimiter {
            ends.push(begin);
            start = end;
        }
    }
    let block = rest.split_to(start).freeze();
    let mut from = 0;
    let cut = |end| {
        let part = block.slice(from..end);
        from = end + delimiter.len();
        part
    };
    ends.into_iter().map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(source: impl Read) -> (Vec<Bytes>, Option<LineError>) {
        all_between(b"\n", source)
    }

    fn all_between(delimiter: &[u8], source: impl Read) -> (Vec<Bytes>, Option<LineError>) {
        let (mut lines, mut broken) = (Vec::new(), None);
        cut(source, delimiter, |block| {
            match block {
                Ok(block) => lines.extend(block),
                Err(error) => broken = Some(error),
            }
            true
        });
        (lines, broken)
    }

    /// Gives one byte at a time.
    struct Drop<'a>(&'a [u8]);

    impl Read for Drop<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(1);
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn each_line_is_a_message_the_empty_and_the_last_too() {
        for text in ["a\n\nlong line\nlast", "a\n\nlong line\nlast\n"] {
            let (lines, broken) = all(text.as_bytes());
            assert_eq!(lines, ["a", "", "long line", "last"]);
            assert!(broken.is_none());
            assert_eq!(all(Drop(text.as_bytes())).0, lines);
        }
        assert!(all(&b""[..]).0.is_empty());
    }

    #[test]
    fn any_delimiter_ends_a_part_wherever_the_reads_cut_it() {
        for (delimiter, text, parts) in [
            (&b"\0"[..], &b"a\nb\0\0c"[..], &["a\nb", "", "c"][..]),
            (b"--\n", b"a--\n---\n--b--\n", &["a", "-", "--b"]),
            (b"aa", b"xaaay", &["x", "ay"]),
            (b"", b"all\nof it\n", &["all\nof it\n"]),
            (b"", b"", &[""]),
        ] {
            assert_eq!(all_between(delimiter, text).0, parts, "{delimiter:?}");
            assert_eq!(all_between(delimiter, Drop(text)).0, parts, "{delimiter:?}");
        }
        let (none, broken) = all_between(b"", io::repeat(b'x'));
        assert!(none.is_empty() && matches!(broken, Some(LineError::TooLong)));
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_is_read_whole() {
        let (lines, broken) = all(io::Cursor::new("fine\n").chain(io::repeat(b'x')));
        assert_eq!(lines, ["fine"]);
        assert!(matches!(broken, Some(LineError::TooLong)));
    }
}
