//! Packs: files that are written once, never changed, and removed whole. They hold records that were moved out of
//! old segments.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader, PackHeader},
    lane_config::LaneConfig,
    position::Position,
};

/// The maximum length of a pack in bytes.
pub const PACK_BYTES_MAX: u64 = 256 << 20;

/// A pack on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// Its number, which positions in it contain.
    pub number: u32,
    /// The length of its file in bytes.
    pub bytes: u64,
    /// The class from its header, which its writer has set; 0 if it cannot be read.
    pub class: u64,
    /// Whether it has its header and its last frame, which is written after everything else is
    /// durable. A pack that is not whole was never referred to, or is damaged, or cannot be read.
    pub is_whole: bool,
}

/// The packs of a lane, by number. A pack without references is garbage: a crash interrupted its
/// creation or removal.
///
/// # Errors
/// [`Fault::NewerFormat`] or [`Fault::Foreign`] if one is not of this lane, else [`Fault::Io`].
pub fn packs<D: Disk>(disk: &D, config: &LaneConfig) -> Result<Vec<Pack>, Fault> {
    let directory = &config.directory;
    let mut packs = Vec::new();
    for name in disk.list(directory).map_err(Fault::io("list", directory))? {
        if let Some(number) = pack_number(&name) {
            packs.extend(inspect_pack(disk, config, number)?);
        }
    }
    Ok(packs)
}

/// The pack with this number; `None` if it does not exist, as packs of a served lane may be
/// removed.
pub(crate) fn inspect_pack<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    number: u32,
) -> Result<Option<Pack>, Fault> {
    let path = pack_path(config, number);
    match disk.open_to_read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::io("open", &path)(error)),
        Ok(file) => inspect(&file, &path, config, number).map(Some),
    }
}

fn inspect(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    number: u32,
) -> Result<Pack, Fault> {
    let bytes = file.length().map_err(Fault::io("measure", path))?;
    let mut pack = Pack { number, bytes, class: 0, is_whole: false };
    if bytes < BLOCK_BYTES as u64 {
        return Ok(pack);
    }
    let mut block = [0; BLOCK_BYTES];
    // It may be cut while it is looked at; and what the disk does not give is as good as damaged.
    if file.read_at(&mut block, 0).is_err() {
        return Ok(pack);
    }
    let Some(header) = PackHeader::decode(&block) else { return Ok(pack) };
    check_header(&header, config, path, number)?;
    pack.class = header.class;
    let last = bytes - BLOCK_BYTES as u64;
    if !last.is_multiple_of(BLOCK_BYTES as u64) {
        return Ok(pack);
    }
    let block = &mut block[..FRAME_HEADER_BYTES];
    if file.read_at(block, last).is_err() {
        return Ok(pack);
    }
    let Some((frame, _)) = FrameHeader::decode(block) else { return Ok(pack) };
    let is_here = u32::try_from(last)
        .is_ok_and(|last| frame.position == Position::of_pack(number, last))
        && frame.incarnation == config.incarnation;
    pack.is_whole = is_here && is_last(&frame);
    Ok(pack)
}

/// Returns whether a frame marks the pack as whole: it has no records, and everything before it was
/// durable when it was sealed.
pub(crate) fn is_last(frame: &FrameHeader) -> bool {
    frame.durable == frame.position && frame.body_len == 0 && frame.record_count == 0
}

/// Refuses a pack of another format, lane, directory or number.
pub(crate) fn check_header(
    header: &PackHeader,
    config: &LaneConfig,
    path: &Path,
    number: u32,
) -> Result<(), Fault> {
    let fields = [
        ("lane", u64::from(header.lane), u64::from(config.lane)),
        ("incarnation", header.incarnation, config.incarnation),
        ("pack", header.pack, u64::from(number)),
    ];
    Fault::check_origin(path, header.version, fields)
}

pub(crate) fn pack_path(config: &LaneConfig, number: u32) -> PathBuf {
    config.directory.join(pack_name(number))
}

pub(crate) fn pack_name(number: u32) -> String {
    format!("pack-{number:010}.pack")
}

/// The number in a pack's name.
pub(crate) fn pack_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("pack-")?.strip_suffix(".pack")?.parse().ok()?;
    (number <= Position::PACK_MAX && pack_name(number) == name).then_some(number)
}
