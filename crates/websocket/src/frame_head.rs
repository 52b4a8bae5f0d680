//! The head of a frame (RFC 6455, section 5.2): two bytes, the length if it is longer than 125, the mask if there is one.

use crate::{fault::Fault, limits::CONTROL_BYTES_MAX, opcode::Opcode};

const FINAL: u8 = 0x80;
const COMPRESSED: u8 = 0x40;
const RESERVED: u8 = 0x30;
const MASKED: u8 = 0x80;

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It asked for the connection, and masks its frames.
    Client,
    /// It was asked, and does not.
    Server,
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Whether it is the last frame of its message.
    pub is_final: bool,
    /// Whether the message is compressed; set in the first frame of a message only.
    pub is_compressed: bool,
    /// What the frame is.
    pub opcode: Opcode,
    /// The mask over the payload, of a client's frame.
    pub mask: Option<[u8; 4]>,
    /// How many bytes follow the head.
    pub payload_len: u64,
}

impl FrameHead {
    /// The head of a server's frame with a whole message, uncompressed.
    #[must_use]
    pub const fn whole(opcode: Opcode, payload_len: usize) -> Self {
        let payload_len = payload_len as u64;
        Self { is_final: true, is_compressed: false, opcode, mask: None, payload_len }
    }

    /// Appends the head to `out`: 2 to 14 bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let set = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        let mask_bit = set(self.mask.is_some(), MASKED);
        let first = set(self.is_final, FINAL) | set(self.is_compressed, COMPRESSED);
        out.push(first | self.opcode as u8);
        if let Ok(len) = u8::try_from(self.payload_len)
            && usize::from(len) <= CONTROL_BYTES_MAX
        {
            out.push(mask_bit | len);
        } else if let Ok(len) = u16::try_from(self.payload_len) {
            out.push(mask_bit | 126);
            out.extend_from_slice(&len.to_be_bytes());
        } else {
            out.push(mask_bit | 127);
            out.extend_from_slice(&self.payload_len.to_be_bytes());
        }
        if let Some(mask) = self.mask {
            out.extend_from_slice(&mask);
        }
    }

    /// Reads a head that `sender` wrote, and how many bytes it has. `None` says that more bytes have to come. Only the
    /// first frame of a message may be compressed, and only if that `may_be_compressed`.
    pub(crate) fn read(
        bytes: &[u8],
        sender: End,
        may_be_compressed: bool,
    ) -> Result<Option<(Self, usize)>, Fault> {
        let Some((&[first, second], rest)) = bytes.split_first_chunk() else { return Ok(None) };
        let opcode = Opcode::of(first & 0x0f).ok_or(Fault::ReservedOpcode(first & 0x0f))?;
        let is_final = first & FINAL != 0;
        let is_compressed = first & COMPRESSED != 0;
        let begins_message = matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & RESERVED != 0 || is_compressed && !(may_be_compressed && begins_message) {
            return Err(Fault::ReservedBit);
        }
        let is_masked = second & MASKED != 0;
        match sender {
            End::Client if !is_masked => return Err(Fault::NotMasked),
            End::Server if is_masked => return Err(Fault::Masked),
            _ => {}
        }
        let short = second & !MASKED;
        if opcode.is_control() {
            if !is_final {
                return Err(Fault::FragmentedControl);
            }
            if usize::from(short) > CONTROL_BYTES_MAX {
                return Err(Fault::ControlTooLong);
            }
        }
        let Some((payload_len, rest)) = length(short, rest)? else { return Ok(None) };
        let (mask, rest) = match (is_masked, rest.split_first_chunk()) {
            (true, Some((mask, rest))) => (Some(*mask), rest),
            (true, None) => return Ok(None),
            (false, _) => (None, rest),
        };
        let head = Self { is_final, is_compressed, opcode, mask, payload_len };
        Ok(Some((head, bytes.len() - rest.len())))
    }
}

/// The length of the payload, and what follows it.
fn length(short: u8, rest: &[u8]) -> Result<Option<(u64, &[u8])>, Fault> {
    let (len, rest, least) = match short {
        126 => match rest.split_first_chunk() {
            Some((len, rest)) => (u64::from(u16::from_be_bytes(*len)), rest, 126),
            None => return Ok(None),
        },
        127 => match rest.split_first_chunk() {
            Some((len, rest)) => (u64::from_be_bytes(*len), rest, 1 << 16),
            None => return Ok(None),
        },
        short => (u64::from(short), rest, 0),
    };
    if len >> 63 != 0 {
        return Err(Fault::LengthTooLarge);
    }
    if len < least {
        return Err(Fault::LengthNotMinimal);
    }
    Ok(Some((len, rest)))
}

#[cfg(test)]
mod tests {
    use super::{End, FrameHead};
    use crate::{Fault, Opcode};

    fn put(head: FrameHead) -> Vec<u8> {
        let mut out = Vec::new();
        head.put(&mut out);
        out
    }

    /// What a server makes of a client's head.
    fn read(bytes: &[u8]) -> Result<Option<(FrameHead, usize)>, Fault> {
        FrameHead::read(bytes, End::Client, true)
    }

    #[test]
    fn a_head_is_read_as_it_was_put_whatever_its_length() {
        for payload_len in [0, 1, 125, 126, 127, 65_535, 65_536, (1 << 63) - 1] {
            for (sender, mask) in [(End::Client, Some([1, 2, 3, 4])), (End::Server, None)] {
                let is_compressed = payload_len % 2 == 0;
                let head = FrameHead {
                    is_final: payload_len != 1,
                    is_compressed,
                    opcode: Opcode::Text,
                    mask,
                    payload_len,
                };
                let bytes = put(head);
                for end in 0..bytes.len() {
                    assert_eq!(FrameHead::read(&bytes[..end], sender, true), Ok(None));
                }
                let read = FrameHead::read(&bytes, sender, true);
                assert_eq!(read, Ok(Some((head, bytes.len()))));
            }
        }
    }

    #[test]
    fn the_examples_of_the_rfc_are_written_as_there() {
        assert_eq!(put(FrameHead::whole(Opcode::Text, 5)), [0x81, 0x05]);
        assert_eq!(put(FrameHead::whole(Opcode::Binary, 256)), [0x82, 0x7e, 0x01, 0x00]);
        let long = [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0];
        assert_eq!(put(FrameHead::whole(Opcode::Binary, 65_536)), long);
    }

    #[test]
    fn reserved_opcodes_are_refused() {
        for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
            assert_eq!(read(&[0x80 | opcode, 0x80]), Err(Fault::ReservedOpcode(opcode)));
        }
    }

    #[test]
    fn reserved_bits_are_refused_but_the_one_of_a_compressed_message() {
        assert_eq!(read(&[0xa1, 0x80]), Err(Fault::ReservedBit));
        assert_eq!(read(&[0x91, 0x80]), Err(Fault::ReservedBit));
        assert_eq!(read(&[0xc0, 0x80]), Err(Fault::ReservedBit), "not the first frame");
        assert_eq!(read(&[0xc9, 0x80]), Err(Fault::ReservedBit), "a ping");
        assert_eq!(read(&[0xc1, 0x80]), Ok(None));
        let unasked = FrameHead::read(&[0xc1, 0x80], End::Client, false);
        assert_eq!(unasked, Err(Fault::ReservedBit));
    }

    #[test]
    fn a_control_frame_is_whole_and_short() {
        assert_eq!(read(&[0x09, 0x80]), Err(Fault::FragmentedControl));
        assert_eq!(read(&[0x89, 0xfe]), Err(Fault::ControlTooLong));
        assert_eq!(read(&[0x88, 0xff]), Err(Fault::ControlTooLong));
    }

    #[test]
    fn clients_mask_and_servers_do_not() {
        assert_eq!(read(&[0x81, 0x05]), Err(Fault::NotMasked));
        assert_eq!(FrameHead::read(&[0x81, 0x85], End::Server, true), Err(Fault::Masked));
    }

    #[test]
    fn a_length_is_minimal_and_has_63_bits() {
        assert_eq!(read(&[0x82, 0xfe, 0, 125]), Err(Fault::LengthNotMinimal));
        let long = |len: u64| [&[0x82, 0xff][..], &len.to_be_bytes()].concat();
        assert_eq!(read(&long(65_535)), Err(Fault::LengthNotMinimal));
        assert_eq!(read(&long(1 << 63)), Err(Fault::LengthTooLarge));
    }
}
