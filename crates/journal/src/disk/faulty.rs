//! A disk with faults, as a seed decides: it loses, tears and reorders unsynced writes, fails syncs and then
//! forgets them, runs full, and rots.
//!
//! It keeps two images of each file, by sector: the system's cache and the platter. A sync copies the cache to the
//! platter; a crash decides for each unsynced sector separately. Source of the model: Pillai et al., "All File
//! Systems Are Not Created Equal", OSDI 2014, and Rebello et al., "Can Applications Recover from fsync Failures?",
//! ATC 2020.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use super::{Disk, DiskFile};

const SECTOR_BYTES: usize = 512;

/// The probability of each fault, in parts of a thousand; all 0 by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// A sync fails, and the cache forgets that its sectors are dirty: the next sync succeeds
    /// without them.
    pub sync_fails: u32,
    /// A write fails after a part of it was done.
    pub write_fails: u32,
    /// A read fails.
    pub read_fails: u32,
    /// A crash keeps an unsynced change: a sector, a length, the creation or the removal of a file.
    pub crash_keeps: u32,
    /// A crash replaces an unsynced sector by noise.
    pub crash_tears: u32,
    /// The capacity of the disk in bytes; 0 for no limit.
    pub capacity_bytes: u64,
    /// The number of the call that fails (writes, syncs, reads, removals and changes of length
    /// count); 0 for none.
    pub failing_call: u64,
}

#[derive(Clone, Debug, Default)]
struct Image {
    cached: Vec<u8>,
    platter: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Whether its directory entry is durable.
    is_linked: bool,
}

#[derive(Debug)]
struct State {
    random: u64,
    plan: FaultPlan,
    directories: BTreeSet<PathBuf>,
    files: BTreeMap<PathBuf, Image>,
    /// Files that were removed since the last sync of their directory.
    removed: BTreeMap<PathBuf, Image>,
    /// Unreadable sectors, by file.
    unreadable: BTreeMap<PathBuf, BTreeSet<usize>>,
    calls: u64,
    /// The number of crashes. File handles from before the last crash are invalid.
    crash_count: u64,
}

impl State {
    /// SplitMix64 (Steele, Lea & Flood, OOPSLA 2014).
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.next_random() % 1000 < u64::from(per_mille)
    }

    fn fails(&mut self, per_mille: u32) -> bool {
        self.calls += 1;
        self.chance(per_mille) || self.calls == self.plan.failing_call
    }

    /// Applies a crash to an image.
    fn apply_crash(&mut self, image: &mut Image) {
        let plan = self.plan;
        // A length that was not synced is lost like any other write.
        let grown = image.cached.len().saturating_sub(image.platter.len());
        if grown > 0 && !self.chance(plan.crash_keeps) {
            let kept = self.next_random() as usize % grown;
            image.cached.truncate(image.platter.len() + kept);
        }
        let is_truncated = image.cached.len() < image.platter.len();
        if is_truncated && !self.chance(plan.crash_keeps) {
            let lost = image.platter[image.cached.len()..].to_vec();
            image.cached.extend(lost);
        }
        image.platter.resize(image.cached.len(), 0);
        for sector in std::mem::take(&mut image.dirty) {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(image.platter.len());
            if start >= end {
                continue;
            }
            if self.chance(plan.crash_keeps) {
                image.platter[start..end].copy_from_slice(&image.cached[start..end]);
            } else if self.chance(plan.crash_tears) {
                for byte in &mut image.platter[start..end] {
                    *byte = self.next_random() as u8;
                }
            }
        }
        image.cached.clone_from(&image.platter);
        image.is_linked = true;
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().map(|image| image.cached.len() as u64).sum()
    }
}

/// A disk with faults, shared by its clones.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    state: Rc<RefCell<State>>,
}

/// A file of a [`FaultyDisk`]. After a crash it only returns errors.
#[derive(Debug)]
pub struct FaultyFile {
    state: Rc<RefCell<State>>,
    path: PathBuf,
    crash_count: u64,
}

impl FaultyDisk {
    /// An empty disk. `seed` and `plan` determine all its faults.
    #[must_use]
    pub fn new(seed: u64, plan: FaultPlan) -> Self {
        let state = State {
            random: seed,
            plan,
            directories: BTreeSet::new(),
            files: BTreeMap::new(),
            removed: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            calls: 0,
            crash_count: 0,
        };
        Self { state: Rc::new(RefCell::new(state)) }
    }

    /// Replaces the plan.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.state.borrow_mut().plan = plan;
    }

    /// The number of writes, syncs, reads, removals and changes of length.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state.borrow().calls
    }

    /// Power loss: each unsynced sector is kept, torn or lost separately; the creation or removal
    /// of a file since the last sync of its directory may be undone; open files are invalid.
    pub fn crash(&self) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        state.crash_count += 1;
        let plan = state.plan;
        let mut files = std::mem::take(&mut state.files);
        files.retain(|_, image| image.is_linked || state.chance(plan.crash_keeps));
        for (path, image) in std::mem::take(&mut state.removed) {
            let was_there = image.is_linked || state.chance(plan.crash_keeps);
            if was_there && !files.contains_key(&path) && !state.chance(plan.crash_keeps) {
                files.insert(path, image);
            }
        }
        for image in files.values_mut() {
            state.apply_crash(image);
        }
        state.files = files;
    }

    /// The process dies and the system does not: open files are invalid, and the cache keeps its
    /// contents.
    pub fn kill(&self) {
        self.state.borrow_mut().crash_count += 1;
    }

    /// Flips a bit of a file, on the platter and in the cache.
    ///
    /// # Panics
    /// If there is no such byte.
    pub fn rot(&self, path: &Path, byte: usize, bit: u8) {
        let mut state = self.state.borrow_mut();
        let image = state.files.get_mut(path).expect("the file is there");
        image.cached[byte] ^= 1 << (bit % 8);
        image.platter[byte] ^= 1 << (bit % 8);
    }

    /// Makes the sector with this byte of a file unreadable.
    pub fn make_unreadable(&self, path: &Path, byte: usize) {
        let mut state = self.state.borrow_mut();
        state.unreadable.entry(path.to_owned()).or_default().insert(byte / SECTOR_BYTES);
    }

    /// Makes all sectors readable again.
    pub fn make_readable(&self) {
        self.state.borrow_mut().unreadable.clear();
    }

    /// The names and lengths of all files.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, usize)> {
        let state = self.state.borrow();
        state.files.iter().map(|(path, image)| (path.clone(), image.cached.len())).collect()
    }

    fn file(&self, path: &Path) -> io::Result<FaultyFile> {
        let state = self.state.borrow();
        if !state.files.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(FaultyFile {
            state: self.state.clone(),
            path: path.to_owned(),
            crash_count: state.crash_count,
        })
    }
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

impl Disk for FaultyDisk {
    type File = FaultyFile;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.state.borrow_mut().directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let state = self.state.borrow();
        if !state.directories.contains(directory) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inside = state.files.keys().filter(|path| path.parent() == Some(directory));
        Ok(inside.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn create(&self, path: &Path) -> io::Result<FaultyFile> {
        {
            let mut state = self.state.borrow_mut();
            if !path.parent().is_some_and(|parent| state.directories.contains(parent)) {
                return Err(io::ErrorKind::NotFound.into());
            }
            if state.files.contains_key(path) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            state.files.insert(path.to_owned(), Image::default());
        }
        self.file(path)
    }

    fn open_to_read(&self, path: &Path) -> io::Result<FaultyFile> {
        self.file(path)
    }

    fn open_to_write(&self, path: &Path) -> io::Result<FaultyFile> {
        self.file(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.fails(0) {
            return Err(broken());
        }
        let image = state.files.remove(path).ok_or(io::ErrorKind::NotFound)?;
        // Of several files that had the name, the first is what the platter's directory holds.
        state.removed.entry(path.to_owned()).or_insert(image);
        Ok(())
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let plan = state.plan;
        if state.fails(plan.sync_fails) {
            return Err(broken());
        }
        for (path, image) in &mut state.files {
            if path.parent() == Some(directory) {
                image.is_linked = true;
            }
        }
        state.removed.retain(|path, _| path.parent() != Some(directory));
        Ok(())
    }

    fn available_bytes(&self, _: &Path) -> io::Result<u64> {
        let state = self.state.borrow();
        match state.plan.capacity_bytes {
            0 => Ok(u64::MAX),
            capacity => Ok(capacity.saturating_sub(state.used_bytes())),
        }
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.crash_count != self.crash_count {
            return Err(broken());
        }
        let plan = state.plan;
        let fails = state.fails(plan.write_fails);
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let written =
            if fails { state.next_random() as usize % (bytes.len() + 1) } else { bytes.len() };
        let end = offset + written;
        let used = state.used_bytes();
        let image = state.files.get_mut(&self.path).ok_or(io::ErrorKind::NotFound)?;
        let grows = end.saturating_sub(image.cached.len()) as u64;
        if plan.capacity_bytes > 0 && grows > 0 && used + grows > plan.capacity_bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if image.cached.len() < end {
            image.cached.resize(end, 0);
        }
        image.cached[offset..end].copy_from_slice(&bytes[..written]);
        if written > 0 {
            image.dirty.extend(offset / SECTOR_BYTES..=(end - 1) / SECTOR_BYTES);
        }
        if fails { Err(broken()) } else { Ok(()) }
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let plan = state.plan;
        if state.crash_count != self.crash_count || state.fails(plan.read_fails) {
            return Err(broken());
        }
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let sectors = offset / SECTOR_BYTES..(offset + bytes.len()).div_ceil(SECTOR_BYTES);
        if state.unreadable.get(&self.path).is_some_and(|bad| bad.range(sectors).next().is_some()) {
            return Err(broken());
        }
        let image = state.files.get(&self.path).ok_or(io::ErrorKind::NotFound)?;
        let from = image.cached.get(offset..offset + bytes.len());
        bytes.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn forget_cached(&self) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let image = state.files.get_mut(&self.path).ok_or(io::ErrorKind::NotFound)?;
        let mut seen = image.platter.clone();
        seen.resize(image.cached.len(), 0);
        for sector in &image.dirty {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(seen.len());
            seen[start..end].copy_from_slice(&image.cached[start..end]);
        }
        image.cached = seen;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.crash_count != self.crash_count {
            return Err(broken());
        }
        let plan = state.plan;
        let fails = state.fails(plan.sync_fails);
        let image = state.files.get_mut(&self.path).ok_or(io::ErrorKind::NotFound)?;
        let dirty = std::mem::take(&mut image.dirty);
        if fails {
            // The books say clean, the platter says otherwise.
            return Err(broken());
        }
        image.platter.resize(image.cached.len(), 0);
        for sector in dirty {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(image.cached.len());
            image.platter[start..end].copy_from_slice(&image.cached[start..end]);
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        if state.crash_count != self.crash_count || state.fails(0) {
            return Err(broken());
        }
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let image = state.files.get_mut(&self.path).ok_or(io::ErrorKind::NotFound)?;
        let before = image.cached.len();
        image.cached.resize(length, 0);
        if before < length {
            image.dirty.extend(before / SECTOR_BYTES..=(length - 1) / SECTOR_BYTES);
        }
        // What lay behind a cut is gone; it does not come back with what is written there later.
        image.dirty.retain(|sector| sector * SECTOR_BYTES < length);
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        {
            let state = self.state.borrow();
            let image = state.files.get(&self.path).ok_or(io::ErrorKind::NotFound)?;
            let grows = length.saturating_sub(image.cached.len() as u64);
            let capacity = state.plan.capacity_bytes;
            if capacity > 0 && state.used_bytes() + grows > capacity {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        self.set_length(length).map(|()| true)
    }

    fn length(&self) -> io::Result<u64> {
        let state = self.state.borrow();
        let image = state.files.get(&self.path).ok_or(io::ErrorKind::NotFound)?;
        Ok(image.cached.len() as u64)
    }
}
