//! The simulated disk as the journal sees it: the faulty one, with each call in the trace, and a
//! power switch that goes off at a given call. It knows no journal.

use std::{
    cell::Cell,
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use sennit_journal::{
    Disk, DiskFile,
    disk::{FaultPlan, FaultyDisk},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::trace::Trace;

/// When the power goes.
#[derive(Debug, Default)]
struct Power {
    is_off: Cell<bool>,
    /// The call at which it goes; 0 for none.
    off_at: Cell<u64>,
}

/// A disk whose calls are traced and whose power can go. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    faulty: FaultyDisk,
    power: Rc<Power>,
    plan: Rc<Cell<FaultPlan>>,
    trace: Trace,
}

/// A file of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedFile {
    file: <FaultyDisk as Disk>::File,
    path: PathBuf,
    disk: SimulatedDisk,
}

impl SimulatedDisk {
    /// An empty disk whose accidents follow from `seed`.
    #[must_use]
    pub fn new(seed: u64, trace: Trace) -> Self {
        Self {
            faulty: FaultyDisk::new(seed, FaultPlan::default()),
            power: Rc::default(),
            plan: Rc::default(),
            trace,
        }
    }

    /// Changes what goes wrong from now on.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.plan.set(plan);
        let failing_call = self.power.off_at.get();
        self.faulty.set_plan(FaultPlan { failing_call, ..plan });
    }

    /// What goes wrong now.
    #[must_use]
    pub fn plan(&self) -> FaultPlan {
        self.plan.get()
    }

    /// Has the power go at the `distance`th call from now on that writes, syncs or reads; the call
    /// is done in part.
    pub fn power_off_after(&self, distance: u64) {
        self.power.off_at.set(self.faulty.calls() + distance);
        self.set_plan(self.plan.get());
    }

    /// The power will not go any more.
    pub fn power_on(&self) {
        self.power.off_at.set(0);
        self.set_plan(self.plan.get());
    }

    /// Whether the power has gone.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.power.is_off.get()
    }

    /// The power goes now if it has not yet, and comes back.
    pub fn crash(&self) {
        self.faulty.crash();
        self.restore();
    }

    /// The process goes, the system stays; if the power went before, that counts.
    pub fn kill(&self) {
        if self.is_off() {
            return self.crash();
        }
        self.faulty.kill();
        self.restore();
    }

    fn restore(&self) {
        self.power.is_off.set(false);
        self.power.off_at.set(0);
        self.set_plan(self.plan.get());
    }

    /// Flips a bit of a file, all of which is put on the platter first.
    pub fn rot(&self, path: &Path, byte: usize, bit: u8) {
        if self.faulty.open_to_write(path).and_then(|file| file.sync()).is_err() {
            return;
        }
        self.faulty.rot(path, byte, bit);
    }

    /// The names and lengths of all files.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, usize)> {
        self.faulty.files()
    }

    fn call<T>(
        &self,
        what: &str,
        path: &Path,
        (at, bytes): (u64, u64),
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_off() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let result = call();
        let off_at = self.power.off_at.get();
        if off_at > 0 && self.faulty.calls() >= off_at {
            self.power.is_off.set(true);
        }
        let name = path.file_name().unwrap_or_default();
        let outcome = match &result {
            Ok(_) => "",
            Err(_) if self.is_off() => " power off",
            Err(_) => " failed",
        };
        self.trace.step(format_args!("    disk {what} {name:?} {at} {bytes:x}{outcome}"));
        result
    }

    fn open(&self, path: &Path, file: <FaultyDisk as Disk>::File) -> SimulatedFile {
        SimulatedFile { file, path: path.to_owned(), disk: self.clone() }
    }
}

const NOTHING: (u64, u64) = (0, 0);

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.call("create directory", path, NOTHING, || self.faulty.create_directory(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.call("list", directory, NOTHING, || self.faulty.list(directory))
    }

    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        let file = self.call("create", path, NOTHING, || self.faulty.create(path))?;
        Ok(self.open(path, file))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<SimulatedFile> {
        let file = self.call("open", path, NOTHING, || self.faulty.open_to_read(path))?;
        Ok(self.open(path, file))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<SimulatedFile> {
        let file = self.call("open to write", path, NOTHING, || self.faulty.open_to_write(path))?;
        Ok(self.open(path, file))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call("remove", path, NOTHING, || self.faulty.remove(path))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.call("sync", directory, NOTHING, || self.faulty.sync_directory(directory))
    }

    fn available_bytes(&self, directory: &Path) -> io::Result<u64> {
        self.call("measure", directory, NOTHING, || self.faulty.available_bytes(directory))
    }
}

impl SimulatedFile {
    fn call<T>(
        &self,
        what: &str,
        numbers: (u64, u64),
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.call(what, &self.path, numbers, call)
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.call("write", (offset, xxh3_64(bytes)), || self.file.write_at(bytes, offset))
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.call("read", (offset, length), || self.file.read_at(bytes, offset))
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.call("forget", NOTHING, || self.file.forget_cached())
    }

    fn sync(&self) -> io::Result<()> {
        self.call("sync", NOTHING, || self.file.sync())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.call("set length", (length, 0), || self.file.set_length(length))
    }

    fn length(&self) -> io::Result<u64> {
        self.call("length", NOTHING, || self.file.length())
    }
}
