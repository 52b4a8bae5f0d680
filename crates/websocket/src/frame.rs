//! Whole frames of a server. They have no mask, so one may be sent to many sockets.

use crate::{
    close_code::CloseCode, frame_head::FrameHead, limits::CLOSE_REASON_BYTES_MAX, opcode::Opcode,
};

/// Appends the head of a frame with a whole message, whose payload of `payload_len` bytes the caller appends.
pub fn put_header(opcode: Opcode, is_compressed: bool, payload_len: usize, out: &mut Vec<u8>) {
    FrameHead { is_compressed, ..FrameHead::whole(opcode, payload_len) }.put(out);
}

/// Appends a frame with a whole message that is not compressed. Control frames have at most
/// [`CONTROL_BYTES_MAX`](crate::limits::CONTROL_BYTES_MAX) bytes of payload.
pub fn put_frame(opcode: Opcode, payload: &[u8], out: &mut Vec<u8>) {
    put_header(opcode, false, payload.len(), out);
    out.extend_from_slice(payload);
}

/// Appends a close. A reason that is too long is cut where a character ends.
pub fn put_close(code: CloseCode, reason: &str, out: &mut Vec<u8>) {
    put_frame(Opcode::Close, &close_payload(code, reason), out);
}

/// The payload of a close.
pub(crate) fn close_payload(code: CloseCode, reason: &str) -> Vec<u8> {
    let reason = &reason[..reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX)];
    [&code.number().to_be_bytes(), reason.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::{put_close, put_frame};
    use crate::{CloseCode, Opcode};

    #[test]
    fn a_frame_is_head_and_payload() {
        let mut out = Vec::new();
        put_frame(Opcode::Text, b"Hello", &mut out);
        assert_eq!(out, [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    }

    #[test]
    fn a_close_has_a_code_and_a_reason_that_is_cut_between_characters() {
        let mut out = Vec::new();
        put_close(CloseCode::GOING_AWAY, "bye", &mut out);
        assert_eq!(out, [0x88, 0x05, 0x03, 0xe9, b'b', b'y', b'e']);
        out.clear();
        put_close(CloseCode::NORMAL, &"é".repeat(100), &mut out);
        assert_eq!(out[1], 2 + 122);
        assert_eq!(str::from_utf8(&out[4..]), Ok("é".repeat(61).as_str()));
    }
}
