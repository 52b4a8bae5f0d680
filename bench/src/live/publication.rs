//! Publications as a subscriber reads them: the offset and the data of each, found without a decoder of the whole
//! protocol, which would measure itself. What is no such publication is left to that decoder.

use sennit_centrifuge::Encoding;

/// Finds the parts of publications of one channel whose data have one length.
#[derive(Clone, Debug)]
pub struct PublicationReader {
    encoding: Encoding,
    channel: String,
    /// The start of a publication in JSON.
    head: Vec<u8>,
    /// The length of the data.
    size: usize,
}

impl PublicationReader {
    /// Reads publications of `channel` with data of `size` bytes.
    #[must_use]
    pub fn new(encoding: Encoding, channel: &str, size: usize) -> Self {
        let head = format!("{{\"push\":{{\"channel\":\"{channel}\",\"pub\":{{\"data\":");
        Self { encoding, channel: channel.to_owned(), head: head.into_bytes(), size }
    }

    /// The offset and the data of a publication; `None` if the message is something else.
    #[must_use]
    pub fn read<'m>(&self, message: &'m [u8]) -> Option<(u64, &'m [u8])> {
        match self.encoding {
            Encoding::Json => self.read_json(message),
            Encoding::Protobuf => self.read_protobuf(message),
        }
    }

    fn read_json<'m>(&self, message: &'m [u8]) -> Option<(u64, &'m [u8])> {
        let rest = message.strip_prefix(&self.head[..])?;
        let (data, rest) = rest.split_at_checked(self.size)?;
        let digits = rest.strip_prefix(b",\"offset\":")?.strip_suffix(b"}}}")?;
        let mut offset = 0_u64;
        for digit in digits {
            let digit = digit.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            offset = offset.checked_mul(10)?.checked_add(digit.into())?;
        }
        (!digits.is_empty()).then_some((offset, data))
    }

    fn read_protobuf<'m>(&self, mut message: &'m [u8]) -> Option<(u64, &'m [u8])> {
        const CHANNEL: u8 = 2 << 3 | 2;
        // The same number names the push in its reply, the publication in its push, and the data in that.
        const NESTED: u8 = 4 << 3 | 2;
        const OFFSET: u8 = 6 << 3;
        let whole = varint(&mut message)?;
        (whole == message.len() as u64).then_some(())?;
        let mut push = part(NESTED, &mut message)?;
        (part(CHANNEL, &mut push)? == self.channel.as_bytes()).then_some(())?;
        let mut publication = part(NESTED, &mut push)?;
        let data = part(NESTED, &mut publication)?;
        let offset = publication.strip_prefix(&[OFFSET])?;
        let mut rest = offset;
        let offset = varint(&mut rest)?;
        let is_whole =
            data.len() == self.size && rest.is_empty() && push.is_empty() && message.is_empty();
        is_whole.then_some((offset, data))
    }
}

/// The field with this key and its length, at the start of `from`.
fn part<'m>(key: u8, from: &mut &'m [u8]) -> Option<&'m [u8]> {
    *from = from.strip_prefix(&[key])?;
    let length = usize::try_from(varint(from)?).ok()?;
    let (part, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(part)
}

fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = from.split_first()?;
        *from = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use sennit_centrifuge::{DataView, PublicationView, put_ping, put_publication};

    use super::*;

    const DATA: &[u8] = b"{\"a\":[1,2]}";

    fn message(encoding: Encoding, channel: &str, offset: u64) -> Vec<u8> {
        let view = PublicationView {
            data: DataView::of_payload(DATA),
            info: None,
            offset,
            tags: &[],
            time_ms: 0,
        };
        let mut message = Vec::new();
        put_publication(encoding, channel, &view, &mut message);
        if encoding == Encoding::Json && message.last() == Some(&b'\n') {
            message.pop();
        }
        message
    }

    #[test]
    fn offsets_and_data_are_what_the_brokers_encoder_wrote() {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let channel = "bench.live-fan-out.77";
            let reader = PublicationReader::new(encoding, channel, DATA.len());
            for offset in [1, 9, 10, 127, 128, 300, 1 << 21, 1 << 40, u64::MAX] {
                let message = message(encoding, channel, offset);
                assert_eq!(reader.read(&message), Some((offset, DATA)), "{encoding:?}");
            }
        }
    }

    #[test]
    fn what_is_no_publication_of_the_channel_is_not_read() {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let reader = PublicationReader::new(encoding, "a", DATA.len());
            assert_eq!(reader.read(&message(encoding, "b", 1)), None);
            let mut ping = Vec::new();
            put_ping(encoding, &mut ping);
            assert_eq!(reader.read(&ping), None);
            let whole = message(encoding, "a", 77);
            for length in 0..whole.len() {
                assert_eq!(reader.read(&whole[..length]), None, "{encoding:?}, {length} bytes");
            }
            let shorter = PublicationReader::new(encoding, "a", DATA.len() - 1);
            assert_eq!(shorter.read(&whole), None);
        }
    }
}
