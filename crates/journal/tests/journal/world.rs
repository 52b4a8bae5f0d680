//! A lane with its surroundings, as a shard would hold it. The only place where the journal's tests use its
//! interface.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use sennit_journal::{
    Container, Damage, Disk, Fault, Frame, FrameBuilder, Lane, LaneConfig, Pack, PackPushError,
    PackWriter, Position, PushError, Reader, RecoveredLane, ReplayFrom, SlotMaker, WalkItem,
    recover,
};

pub const SEGMENT_BYTES: u64 = 16 << 10;

/// A record as it was pushed or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub kind: u8,
    pub position: Position,
    pub body: Bytes,
}

/// One life of a lane.
pub struct World<D: Disk> {
    pub builder: FrameBuilder,
    pub lane: Lane<D>,
    pub reader: Reader<D>,
    pub slots: SlotMaker<D>,
    /// What the recovery gave, in order.
    pub found: Vec<Entry>,
    /// The damage that was skipped, each with the number of records that were found before.
    pub damage: Vec<(usize, Damage)>,
    pub end: Position,
    pub replay_from: Position,
    pub torn_bytes: u64,
    /// Slots that could not be read.
    pub unreadable: Vec<PathBuf>,
    /// Segments that were found by their frames, and their slots.
    pub headless: BTreeMap<u64, PathBuf>,
    sealed: Vec<Frame>,
}

pub fn directory() -> PathBuf {
    PathBuf::from("data/lane-0")
}

pub fn config() -> LaneConfig {
    LaneConfig { directory: directory(), lane: 0, segment_bytes: SEGMENT_BYTES, incarnation: 42 }
}

impl<D: Disk> World<D> {
    pub fn open(disk: &D) -> Result<Self, Fault> {
        Self::open_as(disk, config())
    }

    pub fn open_as(disk: &D, config: LaneConfig) -> Result<Self, Fault> {
        let mut found = Vec::new();
        let recovered = recover(disk, config, ReplayFrom::Newest, |walked| match walked {
            WalkItem::Record { kind, position, body, .. } => {
                found.push(Entry { kind, position, body });
                Ok(())
            }
            WalkItem::Damage(damage) => Err(damage.into_fault()),
        })?;
        Ok(Self::of(recovered, found, Vec::new()))
    }

    /// Opens past damage; [`World::open`] stops there.
    pub fn open_past_rot(disk: &D) -> Result<Self, Fault> {
        let (mut found, mut damage) = (Vec::new(), Vec::new());
        let recovered = recover(disk, config(), ReplayFrom::Newest, |walked| {
            match walked {
                WalkItem::Record { kind, position, body, .. } => {
                    found.push(Entry { kind, position, body });
                }
                WalkItem::Damage(hole) => damage.push((found.len(), hole)),
            }
            Ok::<(), Fault>(())
        })?;
        Ok(Self::of(recovered, found, damage))
    }

    fn of(recovered: RecoveredLane<D>, found: Vec<Entry>, damage: Vec<(usize, Damage)>) -> Self {
        Self {
            builder: recovered.builder,
            lane: recovered.lane,
            reader: recovered.reader,
            slots: recovered.slots,
            found,
            end: recovered.end,
            replay_from: recovered.replay_from,
            torn_bytes: recovered.torn_bytes,
            unreadable: recovered.unreadable.into_iter().map(|(path, _)| path).collect(),
            headless: recovered.headless,
            damage,
            sealed: Vec::new(),
        }
    }

    /// Appends a record to the frame that gathers, or to the next.
    pub fn push(&mut self, kind: u8, body: &[u8]) -> Entry {
        loop {
            match self.builder.push(kind, &[body]) {
                Ok(position) => {
                    return Entry { kind, position, body: Bytes::copy_from_slice(body) };
                }
                Err(PushError::Full) => self.seal(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub fn seal(&mut self) {
        self.sealed.extend(self.builder.seal());
    }

    /// Takes the frames that were sealed and not yet written.
    pub fn take_sealed(&mut self) -> Vec<Frame> {
        self.seal();
        std::mem::take(&mut self.sealed)
    }

    /// Writes and syncs all that was pushed, in slots that are made as they are needed.
    pub fn commit(&mut self) -> Result<Position, Fault> {
        let frames = self.take_sealed();
        let begins = frames.iter().filter(|frame| frame.first_of_segment).count();
        while self.lane.spare_count() < begins {
            match self.slots.make() {
                Ok(slot) => self.lane.add_spare(slot),
                Err(fault) => {
                    // Nothing was written: the same frames can be committed later.
                    self.sealed = frames;
                    return Err(fault);
                }
            }
        }
        let end = self.lane.append(&frames)?;
        self.builder.set_durable(end);
        Ok(end)
    }

    /// Pushes a record and commits it.
    pub fn write(&mut self, kind: u8, body: &[u8]) -> Result<Entry, Fault> {
        let entry = self.push(kind, body);
        self.commit()?;
        Ok(entry)
    }

    /// Commits a frame that says what is durable.
    pub fn mark(&mut self) -> Result<(), Fault> {
        self.seal();
        self.sealed.push(self.builder.seal_mark());
        self.commit().map(drop)
    }

    /// Begins a segment whose header says that a replay begins there, and releases those before.
    pub fn begin_replay_here(&mut self) -> Result<(), Fault> {
        self.commit()?;
        self.builder.start_segment();
        let begin = self.next_segment();
        self.builder.set_replay_from(Position(begin * SEGMENT_BYTES));
        self.mark()?;
        let passed: Vec<u64> = self.lane.segments().filter(|&segment| segment < begin).collect();
        passed.into_iter().for_each(|segment| self.lane.release(segment));
        Ok(())
    }

    fn next_segment(&self) -> u64 {
        self.lane.segments().max().map_or(0, |segment| segment + 1)
    }
}

/// Makes a pack of records of kind 5 with these bodies, or leaves what it came to.
pub fn write_pack<D: Disk>(
    disk: &D,
    number: u32,
    bodies: &[Vec<u8>],
) -> Result<(Pack, Vec<Entry>), Fault> {
    let mut writer = PackWriter::create(disk, &config(), number, 3)?;
    let mut entries = Vec::new();
    for body in bodies {
        match writer.push(5, &[body]) {
            Ok(position) => {
                let body = Bytes::copy_from_slice(body);
                entries.push(Entry { kind: 5, position, body });
            }
            Err(PackPushError::Fault(fault)) => return Err(fault),
            Err(refused) => panic!("{refused}"),
        }
    }
    Ok((writer.finish()?, entries))
}

pub fn pack_path(number: u32) -> PathBuf {
    directory().join(format!("pack-{number:010}.pack"))
}

/// What a walk comes by: the records, and the damage.
pub fn walk<D: Disk>(
    reader: &mut Reader<D>,
    container: Container,
) -> Result<(Vec<Entry>, Vec<Damage>), Fault> {
    let (mut entries, mut damage) = (Vec::new(), Vec::new());
    reader.walk(container, &mut |_| true, |walked| {
        match walked {
            WalkItem::Record { kind, position, body, .. } => {
                entries.push(Entry { kind, position, body });
            }
            WalkItem::Damage(found) => damage.push(found),
        }
        Ok::<(), Fault>(())
    })?;
    Ok((entries, damage))
}

/// Sorted paths of the slots on a disk.
pub fn slot_paths(disk: &impl Disk) -> Vec<PathBuf> {
    let names = disk.list(&directory()).unwrap();
    let slots = names.iter().filter(|name| name.starts_with("slot-"));
    slots.map(|name| Path::new(&directory()).join(name)).collect()
}

/// A body of `length` bytes that no other number gives.
pub fn body(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(length.max(8), number as u8);
    bytes
}
