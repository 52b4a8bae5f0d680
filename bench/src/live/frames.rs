//! The frames of a WebSocket, as a subscriber reads them: where each ends, and nothing of its meaning. Frames of a
//! broker are not masked and hold a message each. Costs a copy only for a frame that a read has cut.

use anyhow::{Result, ensure};

/// A text message, of a frame by itself.
pub const TEXT: u8 = 0x81;

/// A binary message, of a frame by itself.
pub const BINARY: u8 = 0x82;

/// The received part of a frame.
#[derive(Debug, Default)]
pub struct Frames {
    part: Vec<u8>,
}

/// The lengths of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    head: usize,
    whole: usize,
}

/// The lengths of the frame that `bytes` begin with; `None` if its head is not complete.
fn lengths(bytes: &[u8]) -> Result<Option<Lengths>> {
    let [_, second, rest @ ..] = bytes else { return Ok(None) };
    ensure!(second & 0x80 == 0, "the broker sends a frame with a mask");
    let (head, payload) = match (second, rest) {
        (126, [a, b, ..]) => (4, u64::from(u16::from_be_bytes([*a, *b]))),
        (127, [a, b, c, d, e, f, g, h, ..]) => {
            (10, u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]))
        }
        (126 | 127, _) => return Ok(None),
        (length, _) => (2, u64::from(*length)),
    };
    ensure!(payload <= 64 << 20, "the broker sends a frame of {payload} bytes");
    Ok(Some(Lengths { head, whole: head + payload as usize }))
}

impl Frames {
    /// Passes the first byte and the payload of each whole frame to `take`. Keeps the rest.
    ///
    /// # Errors
    /// No broker sends these bytes, or `take` fails.
    pub fn read(
        &mut self,
        mut bytes: &[u8],
        mut take: impl FnMut(u8, &[u8]) -> Result<()>,
    ) -> Result<()> {
        while !self.part.is_empty() {
            // A byte at a time until the length is known, which is rare; then the rest of the frame.
            let missing = match lengths(&self.part)? {
                Some(Lengths { head, whole }) if whole == self.part.len() => {
                    take(self.part[0], &self.part[head..])?;
                    self.part.clear();
                    break;
                }
                Some(Lengths { whole, .. }) => whole - self.part.len(),
                None => 1,
            };
            if bytes.is_empty() {
                return Ok(());
            }
            let (more, rest) = bytes.split_at(missing.min(bytes.len()));
            self.part.extend_from_slice(more);
            bytes = rest;
        }
        while let Some(Lengths { head, whole }) = lengths(bytes)?
            && whole <= bytes.len()
        {
            take(bytes[0], &bytes[head..whole])?;
            bytes = &bytes[whole..];
        }
        self.part.extend_from_slice(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sennit_websocket::{Opcode, frame};

    use super::*;

    #[test]
    fn frames_are_whole_wherever_reads_cut_them() {
        let payloads: Vec<Vec<u8>> =
            [0, 1, 125, 126, 300, 70_000, 3].map(|length| vec![length as u8; length]).into();
        let mut bytes = Vec::new();
        payloads.iter().for_each(|payload| frame::put_frame(Opcode::Text, payload, &mut bytes));
        for step in [1, 2, 3, 7, 128, 1000, bytes.len()] {
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(step) {
                let take = |first: u8, payload: &[u8]| {
                    assert_eq!(first, TEXT);
                    read.push(payload.to_vec());
                    Ok(())
                };
                frames.read(piece, take).unwrap();
            }
            assert!(read == payloads, "reads of {step} bytes");
        }
    }

    #[test]
    fn what_no_broker_sends_is_an_error() {
        let mut frames = Frames::default();
        let masked = [TEXT, 0x80 | 1, 1, 2, 3, 4, 5];
        assert!(frames.read(&masked, |_, _| Ok(())).is_err());
        let endless = [BINARY, 127, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(Frames::default().read(&endless, |_, _| Ok(())).is_err());
    }
}
