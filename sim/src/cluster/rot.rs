//! A bit of a replica's log that flips while the node is down. A start that finds it knows less than the replica has
//! acknowledged: from then on the replica neither votes nor acknowledges.

use std::path::PathBuf;

use sennit_journal::Position;
use sennit_replication::{Message, MessageKind};

use crate::{
    disk::{FlippedBit, SimulatedDisk},
    oracle::Violation,
    random::Random,
    trace::Trace,
};

/// The promise that a replica does not speak for what it has lost.
const SILENT: &str = "I5 a replica whose log has rotted neither votes nor acknowledges";

/// What has become of the bit.
#[derive(Debug, Default)]
enum Bit {
    #[default]
    None,
    /// It flips when the process ends: the file, and the byte and the bit of that.
    Chosen(PathBuf, usize, u8),
    Flipped(FlippedBit),
    /// The last start has found it, or knows of it.
    Found(FlippedBit),
}

/// The rot of one node's disk.
#[derive(Debug, Default)]
pub struct Rot {
    bit: Bit,
    /// The ends of the last three syncs. Frames of a sync know the end of the one before the last.
    ends: [Position; 3],
}

impl Rot {
    /// The lane has synced everything before `end`.
    pub fn synced(&mut self, end: Position) {
        self.ends = [self.ends[1], self.ends[2], end];
    }

    /// Whether a synced frame says that all before this position is synced. Damage there is not taken for a torn write.
    pub fn is_marked(&self, end: Position) -> bool {
        end <= self.ends[0]
    }

    /// Chooses a bit of these bytes, which lie at this place of some file. Returns whether there is such a file.
    pub fn prepare(
        &mut self,
        disk: &SimulatedDisk,
        (at, bytes): (usize, &[u8]),
        random: &mut Random,
    ) -> bool {
        let holds = |path: &PathBuf| disk.holds(path, at, bytes);
        let Some(path) = disk.files().into_iter().map(|(path, _)| path).find(holds) else {
            return false;
        };
        let byte = at + random.below(bytes.len() as u64) as usize;
        self.bit = Bit::Chosen(path, byte, random.below(8) as u8);
        true
    }

    /// The process has ended.
    pub fn happens(&mut self, disk: &SimulatedDisk, trace: &Trace) {
        self.ends = [Position(0); 3];
        let Bit::Chosen(path, byte, bit) = &self.bit else { return };
        trace.step(format_args!("  bit {bit} of byte {byte} of {path:?} rots"));
        self.bit = disk.rot(path, *byte, *bit).map_or(Bit::None, Bit::Flipped);
    }

    /// A start has read the log. A bit that is not in what it has read flips back: a checkpoint behind it is whole. Returns
    /// whether the log has rotted.
    pub fn started(&mut self, disk: &SimulatedDisk, is_found: bool) -> bool {
        match std::mem::take(&mut self.bit) {
            Bit::Flipped(bit) | Bit::Found(bit) if is_found => self.bit = Bit::Found(bit),
            Bit::Flipped(bit) | Bit::Found(bit) => _ = disk.mend(&bit),
            other => self.bit = other,
        }
        self.is_found()
    }

    /// Whether a start has found that the log has rotted.
    pub fn is_found(&self) -> bool {
        matches!(self.bit, Bit::Found(_))
    }
}

/// Checks a message that leaves a replica whose log has rotted.
///
/// # Errors
/// The promise that was broken.
pub fn check_silent(message: &Message) -> Result<(), Violation> {
    match message.kind {
        MessageKind::Appended { .. }
        | MessageKind::Vote { granted: true, .. }
        | MessageKind::RequestVote { .. } => Err(Violation::new(SILENT, format!("{message:?}"))),
        _ => Ok(()),
    }
}
