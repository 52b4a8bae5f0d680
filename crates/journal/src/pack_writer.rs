//! Writes a pack. It does not interpret its records.

use std::{io, path::PathBuf};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{
        BLOCK_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FrameHeader, PackHeader,
        RECORD_HEADER_BYTES, record_bytes,
    },
    frame_buffer::{FRAME_TARGET_BYTES, FrameBuffer},
    lane_config::LaneConfig,
    pack::{PACK_BYTES_MAX, Pack, pack_path},
    position::Position,
};

/// Size of the last frame.
const LAST_FRAME_BYTES: u64 = BLOCK_BYTES as u64;

/// The reason why a pack did not accept a record.
#[derive(Debug, thiserror::Error)]
pub enum PackPushError {
    /// The pack would be longer than [`PACK_BYTES_MAX`]. Finish it and begin another.
    #[error("the pack would be longer than {PACK_BYTES_MAX} bytes")]
    Full,
    /// No pack can hold it.
    #[error("a record of {length} bytes does not fit a pack, which takes {limit}")]
    TooLarge {
        /// The record's length in bytes.
        length: usize,
        /// The maximum for a pack.
        limit: usize,
    },
    /// The disk failed. The pack is garbage.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Writes one pack: records go into frames, which are written as they fill. Nothing may refer to
/// the pack before [`PackWriter::finish`] has returned. If the writer is dropped before, or a crash
/// stops it, its file is garbage.
pub struct PackWriter<D: Disk> {
    disk: D,
    config: LaneConfig,
    path: PathBuf,
    file: D::File,
    header: PackHeader,
    number: u32,
    buffer: FrameBuffer,
    chain: u64,
    /// The file offset of the next write.
    at: u64,
    is_broken: bool,
}

impl<D: Disk> std::fmt::Debug for PackWriter<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PackWriter").field("path", &self.path).field("at", &self.at).finish()
    }
}

impl<D: Disk> PackWriter<D> {
    /// Begins the pack with this number, which has no file yet. The number must not have been used
    /// for a pack to which something durable may still refer. `class` is the caller's, and is
    /// returned in [`Pack::class`].
    ///
    /// # Errors
    /// [`Fault::StorageFull`] if there is no room, else [`Fault::Io`]: also if the file exists, or
    /// if `number` is above [`Position::PACK_MAX`].
    pub fn create(disk: &D, config: &LaneConfig, number: u32, class: u64) -> Result<Self, Fault> {
        let path = pack_path(config, number);
        if number > Position::PACK_MAX {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "no number of a pack is left");
            return Err(Fault::Io { action: "create", path, error });
        }
        disk.create(&path).map_err(Fault::io("create", &path))?;
        let file = disk.open_to_write(&path).map_err(Fault::io("open", &path))?;
        let header = PackHeader {
            version: FORMAT_VERSION,
            lane: config.lane,
            pack: number.into(),
            class,
            incarnation: config.incarnation,
        };
        let mut writer = Self {
            disk: disk.clone(),
            config: config.clone(),
            path,
            file,
            chain: header.chain(),
            header,
            number,
            buffer: FrameBuffer::new(),
            at: 0,
            is_broken: false,
        };
        writer.begin();
        Ok(writer)
    }

    /// Its class.
    #[must_use]
    pub fn class(&self) -> u64 {
        self.header.class
    }

    /// The length of the pack in bytes if it were finished now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.buffer.record_count() == 0 {
            // The gathering frame is the last frame itself.
            return self.at + self.buffer.used().next_multiple_of(BLOCK_BYTES) as u64;
        }
        self.length_with(self.buffer.used())
    }

    /// The length of the pack if the gathering frame, with the part before it, had `used` bytes and
    /// were the last with records.
    fn length_with(&self, used: usize) -> u64 {
        self.at + used.next_multiple_of(BLOCK_BYTES) as u64 + LAST_FRAME_BYTES
    }

    /// Adds a record whose body is the concatenation of `parts`, and returns the position of the
    /// body.
    ///
    /// # Errors
    /// [`PackPushError::Full`] or [`PackPushError::TooLarge`] without any effect. After a
    /// [`PackPushError::Fault`] the pack is garbage and accepts no more records.
    pub fn push(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Position, PackPushError> {
        if self.is_broken {
            return Err(Fault::BrokenPack { path: self.path.clone() }.into());
        }
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let needed = record_bytes(length);
        let room = PACK_BYTES_MAX - BLOCK_BYTES as u64 - LAST_FRAME_BYTES;
        let limit = room as usize - FRAME_HEADER_BYTES - RECORD_HEADER_BYTES;
        let body_len = u32::try_from(length).ok().filter(|_| length <= limit);
        let Some(body_len) = body_len else {
            return Err(PackPushError::TooLarge { length, limit });
        };
        let begins_frame =
            self.buffer.record_count() > 0 && self.buffer.frame_len() + needed > FRAME_TARGET_BYTES;
        let used = self.buffer.used();
        let used_with = if begins_frame {
            used.next_multiple_of(BLOCK_BYTES) + FRAME_HEADER_BYTES + needed
        } else {
            used + needed
        };
        if self.length_with(used_with) > PACK_BYTES_MAX {
            return Err(PackPushError::Full);
        }
        if begins_frame {
            self.write_frame(Position::of_pack(self.number, 0))?;
            self.begin();
        }
        let start = self.frame_start();
        Ok(start.plus(self.buffer.push(kind, body_len, parts)))
    }

    /// Writes the rest, syncs it, writes the last frame, and syncs that and the file's name.
    ///
    /// # Errors
    /// [`Fault::StorageFull`] or [`Fault::Io`]: then the pack is garbage. [`Fault::BrokenPack`] if
    /// it was garbage before.
    pub fn finish(mut self) -> Result<Pack, Fault> {
        if self.is_broken {
            return Err(Fault::BrokenPack { path: self.path });
        }
        let length = self.bytes();
        if self.buffer.record_count() > 0 {
            self.write_frame(Position::of_pack(self.number, 0))?;
            self.file.sync().map_err(Fault::io("sync", &self.path))?;
            self.begin();
        }
        self.write_frame(self.frame_start())?;
        self.file.sync().map_err(Fault::io("sync", &self.path))?;
        let directory = &self.config.directory;
        self.disk.sync_directory(directory).map_err(Fault::io("sync", directory))?;
        // Recovery looks for the last frame in the last block.
        assert_eq!(self.at, length, "the pack is not as long as its writer said");
        let Self { number, at: bytes, header, .. } = self;
        Ok(Pack { number, bytes, class: header.class, is_whole: true })
    }

    /// Begins a frame. The pack's header comes before the first one.
    fn begin(&mut self) {
        if self.at == 0 {
            self.header.encode(self.buffer.begin(BLOCK_BYTES));
        } else {
            self.buffer.begin(0);
        }
    }

    /// The position of the gathering frame.
    fn frame_start(&self) -> Position {
        let byte = self.at + self.buffer.front() as u64;
        Position::of_pack(self.number, u32::try_from(byte).expect("a pack is below 4 GiB"))
    }

    fn write_frame(&mut self, durable: Position) -> Result<(), Fault> {
        let header = FrameHeader {
            position: self.frame_start(),
            incarnation: self.config.incarnation,
            durable,
            chain: self.chain,
            ..FrameHeader::default()
        };
        (self.chain, _) = self.buffer.seal(header, None);
        let written = self.file.write_at(self.buffer.sealed(), self.at);
        self.is_broken = written.is_err();
        written.map_err(Fault::io("write", &self.path))?;
        self.at += self.buffer.sealed().len() as u64;
        self.buffer.clear();
        Ok(())
    }
}
