//! A push for many connections: encoded once for each format that one of them speaks. It knows no connections.

use sennit_centrifuge::{Push, put_push};

use super::{
    dialect::{Dialect, put_centrifuge},
    format::Format,
    wse,
};

/// A push with the frames that were made of it so far.
#[derive(Debug)]
pub(crate) struct PushFrames {
    push: Push,
    frames: Vec<(Format, Vec<u8>)>,
}

impl PushFrames {
    pub(crate) fn new(push: Push) -> Self {
        Self { push, frames: Vec::new() }
    }

    /// The frame in a format.
    pub(crate) fn frame(&mut self, format: Format) -> &[u8] {
        let at = self.frames.iter().position(|(of, _)| *of == format).unwrap_or_else(|| {
            let (mut body, mut frame) = (Vec::new(), Vec::new());
            match format.dialect {
                Dialect::Centrifuge(encoding) => {
                    put_centrifuge(encoding, &mut body, |encoding, out| {
                        put_push(encoding, &self.push, out);
                    });
                    format.put(&body, &mut frame);
                }
                Dialect::Wse => wse::put_push(&self.push, &mut frame),
            }
            self.frames.push((format, frame));
            self.frames.len() - 1
        });
        &self.frames[at].1
    }
}
