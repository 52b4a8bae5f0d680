//! The simulated disk: the disk with faults, a trace of all calls, a power cut at a given call, and one injected
//! fault at a given call.

use std::{
    cell::{Cell, RefCell},
    io,
    path::{Path, PathBuf},
    rc::Rc,
};

use sennit_journal::{
    BLOCK_BYTES, Disk, DiskFile,
    disk::{FaultPlan, FaultyDisk},
};
use xxhash_rust::xxh3::xxh3_64;

use crate::trace::Trace;

/// The effect of a call on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Changes nothing.
    Look,
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes a file's bytes durable.
    Sync,
    /// Creates a file.
    Create,
    /// Removes or cuts a file, or syncs a directory.
    Change,
}

/// A fault that is injected into a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// The power fails before the call.
    PowerGoes,
    /// The power fails after the front part of a write, with noise behind it.
    PowerTearsFront,
    /// The power fails after the back part of a write.
    PowerTearsBack,
    /// The power fails after the call, and of all unsynced writes only this one is kept.
    PowerKeepsOnlyThis,
    /// The process dies before the call.
    ProcessGoes,
    /// The call fails; the cache then forgets an unsynced write.
    Fails,
    /// The call fails because the disk is full.
    IsFull,
    /// A part is written, then the call fails.
    IsShort,
    /// A part is written, then the call fails because the disk is full.
    IsShortAndFull,
}

impl InjectedFault {
    /// Returns whether the fault applies to such a call.
    #[must_use]
    pub fn fits(self, call: Call) -> bool {
        match self {
            Self::PowerGoes => !matches!(call, Call::Look | Call::Read),
            // Before other calls there are no new unsynced bytes.
            Self::ProcessGoes => call == Call::Sync,
            Self::Fails => true,
            Self::IsFull => matches!(call, Call::Write | Call::Create),
            _ => call == Call::Write,
        }
    }

    /// Returns whether the run ends with the fault.
    fn is_end(self) -> bool {
        match self {
            Self::PowerGoes
            | Self::PowerTearsFront
            | Self::PowerTearsBack
            | Self::PowerKeepsOnlyThis
            | Self::ProcessGoes => true,
            Self::Fails | Self::IsFull | Self::IsShort | Self::IsShortAndFull => false,
        }
    }
}

/// A bit that flipped.
#[derive(Clone, Debug)]
pub struct FlippedBit {
    path: PathBuf,
    byte: usize,
    bit: u8,
    /// The contents of its block after the flip.
    around: Vec<u8>,
}

/// The number of calls, and the fault to inject.
#[derive(Debug, Default)]
struct CallLog {
    count: Cell<u64>,
    injected_fault: Cell<Option<(u64, InjectedFault)>>,
    /// The calls since [`SimulatedDisk::watch`], if it was called.
    seen: RefCell<Option<Vec<Call>>>,
}

/// The state of the power.
#[derive(Debug, Default)]
struct Power {
    is_off: Cell<bool>,
    /// Whether only the process died, and not the power.
    is_process_alone: Cell<bool>,
    /// A write that reaches the platter although earlier ones do not: file, offset, bytes.
    late: RefCell<Option<(PathBuf, u64, Vec<u8>)>>,
    /// The call at which the power fails; 0 for none.
    off_at: Cell<u64>,
}

/// A disk with a trace of its calls, whose power can fail. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    faulty: FaultyDisk,
    power: Rc<Power>,
    plan: Rc<Cell<FaultPlan>>,
    watch: Rc<CallLog>,
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
    /// An empty disk. `seed` determines its faults.
    #[must_use]
    pub fn new(seed: u64, trace: Trace) -> Self {
        Self {
            faulty: FaultyDisk::new(seed, FaultPlan::default()),
            power: Rc::default(),
            plan: Rc::default(),
            watch: Rc::default(),
            trace,
        }
    }

    /// Changes the plan of random faults.
    pub fn set_plan(&self, plan: FaultPlan) {
        self.plan.set(plan);
        let failing_call = self.power.off_at.get();
        self.faulty.set_plan(FaultPlan { failing_call, ..plan });
    }

    /// The plan of random faults.
    #[must_use]
    pub fn plan(&self) -> FaultPlan {
        self.plan.get()
    }

    /// Makes the power fail at the `distance`th call from now on that writes, syncs or reads. That call is done in
    /// part.
    pub fn power_off_after(&self, distance: u64) {
        self.power.off_at.set(self.faulty.calls() + distance);
        self.set_plan(self.plan.get());
    }

    /// Cancels a planned power failure.
    pub fn power_on(&self) {
        self.power.off_at.set(0);
        self.set_plan(self.plan.get());
    }

    /// Injects the fault at the `nth` call from now; 1 is the next.
    pub fn inject_at(&self, nth: u64, injected_fault: InjectedFault) {
        self.watch.injected_fault.set(Some((self.watch.count.get() + nth, injected_fault)));
    }

    /// Removes the injected fault. Returns whether it was still to come.
    pub fn clear_injected_fault(&self) -> bool {
        self.watch.injected_fault.take().is_some()
    }

    /// Starts to record the calls.
    pub fn watch(&self) {
        *self.watch.seen.borrow_mut() = Some(Vec::new());
    }

    /// The calls since [`SimulatedDisk::watch`].
    #[must_use]
    pub fn seen(&self) -> Vec<Call> {
        self.watch.seen.borrow_mut().take().unwrap_or_default()
    }

    /// Whether the power is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.power.is_off.get()
    }

    /// Cuts the power if it is on, and restores it.
    pub fn crash(&self) {
        self.faulty.crash();
        if let Some((path, offset, bytes)) = self.power.late.take()
            && let Ok(file) = self.faulty.open_to_write(&path)
        {
            self.set_plan(FaultPlan::default());
            let written = file.write_at(&bytes, offset).and_then(|()| file.sync());
            written.expect("a calm disk writes");
        }
        self.restore();
    }

    /// Kills the process; counts as a power cut if the power was off.
    pub fn kill(&self) {
        if self.is_off() && !self.power.is_process_alone.get() {
            return self.crash();
        }
        self.faulty.kill();
        self.restore();
    }

    fn restore(&self) {
        self.power.is_off.set(false);
        self.power.is_process_alone.set(false);
        self.power.off_at.set(0);
        self.set_plan(self.plan.get());
    }

    /// Syncs a file and flips a bit of it; `None` if that fails.
    pub fn rot(&self, path: &Path, byte: usize, bit: u8) -> Option<FlippedBit> {
        self.faulty.open_to_write(path).and_then(|file| file.sync()).ok()?;
        self.faulty.rot(path, byte, bit);
        let around = self.around(path, byte)?;
        Some(FlippedBit { path: path.to_owned(), byte, bit, around })
    }

    /// Flips a bit back, unless its block was written since. Returns whether it did.
    pub fn mend(&self, rotten: &FlippedBit) -> bool {
        let FlippedBit { path, byte, bit, around } = rotten;
        let is_as_it_was = self.around(path, *byte).as_ref() == Some(around);
        if is_as_it_was {
            self.faulty.rot(path, *byte, *bit);
        }
        is_as_it_was
    }

    /// The block of a byte of a file, up to the file's end.
    fn around(&self, path: &Path, byte: usize) -> Option<Vec<u8>> {
        let file = self.faulty.open_to_read(path).ok()?;
        let from = byte / BLOCK_BYTES * BLOCK_BYTES;
        let length = (file.length().ok()? as usize).saturating_sub(from).min(BLOCK_BYTES);
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, from as u64).ok()?;
        Some(bytes)
    }

    /// Whether a file holds `bytes` at this place.
    #[must_use]
    pub fn holds(&self, path: &Path, at: usize, bytes: &[u8]) -> bool {
        let mut held = vec![0; bytes.len()];
        let file = self.faulty.open_to_read(path);
        file.and_then(|file| file.read_at(&mut held, at as u64)).is_ok() && held == bytes
    }

    /// The names and lengths of all files.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, usize)> {
        self.faulty.files()
    }

    /// Makes a call and traces it. `offset` and `value`, a length or a hash, are for the trace.
    fn call<T>(
        &self,
        kind: Call,
        what: &str,
        path: &Path,
        offset: u64,
        value: u64,
        call: impl FnOnce(Option<InjectedFault>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_off() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let injected_fault = self.next_call(kind);
        let result = match injected_fault {
            Some(InjectedFault::PowerGoes | InjectedFault::ProcessGoes) => {
                Err(io::ErrorKind::NotConnected.into())
            }
            Some(InjectedFault::IsFull) => Err(io::ErrorKind::StorageFull.into()),
            Some(InjectedFault::Fails) if kind != Call::Sync => {
                Err(io::Error::other("the disk was told to fail"))
            }
            injected_fault => call(injected_fault),
        };
        if injected_fault.is_some_and(InjectedFault::is_end) {
            self.power.is_off.set(true);
            self.power.is_process_alone.set(injected_fault == Some(InjectedFault::ProcessGoes));
        }
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
        self.trace.step(format_args!("    disk {what} {name:?} {offset} {value:x}{outcome}"));
        result
    }

    /// Counts a call. Returns its injected fault.
    fn next_call(&self, kind: Call) -> Option<InjectedFault> {
        let count = self.watch.count.get() + 1;
        self.watch.count.set(count);
        if let Some(seen) = self.watch.seen.borrow_mut().as_mut() {
            seen.push(kind);
        }
        let (at, injected_fault) = self.watch.injected_fault.get()?;
        if at != count {
            return None;
        }
        self.watch.injected_fault.take();
        Some(injected_fault)
    }

    /// Makes the next call of the faulty disk fail.
    fn failing<T>(&self, call: impl FnOnce() -> T) -> T {
        let plan = self.plan.get();
        self.faulty.set_plan(FaultPlan { failing_call: self.faulty.calls() + 1, ..plan });
        let result = call();
        self.set_plan(plan);
        result
    }

    fn open(&self, path: &Path, file: <FaultyDisk as Disk>::File) -> SimulatedFile {
        SimulatedFile { file, path: path.to_owned(), disk: self.clone() }
    }
}

/// The unit that the platter writes atomically.
const SECTOR_BYTES: usize = 512;

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        let create = |_| self.faulty.create_directory(path);
        self.call(Call::Look, "create directory", path, 0, 0, create)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.call(Call::Look, "list", directory, 0, 0, |_| self.faulty.list(directory))
    }

    fn create(&self, path: &Path) -> io::Result<SimulatedFile> {
        let file = self.call(Call::Create, "create", path, 0, 0, |_| self.faulty.create(path))?;
        Ok(self.open(path, file))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<SimulatedFile> {
        let open = |_| self.faulty.open_to_read(path);
        Ok(self.open(path, self.call(Call::Look, "open", path, 0, 0, open)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<SimulatedFile> {
        let open = |_| self.faulty.open_to_write(path);
        Ok(self.open(path, self.call(Call::Look, "open to write", path, 0, 0, open)?))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Change, "remove", path, 0, 0, |_| self.faulty.remove(path))
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        let sync = |_| self.faulty.sync_directory(directory);
        self.call(Call::Change, "sync", directory, 0, 0, sync)
    }

    fn available_bytes(&self, directory: &Path) -> io::Result<u64> {
        let measure = |_| self.faulty.available_bytes(directory);
        self.call(Call::Look, "measure", directory, 0, 0, measure)
    }
}

impl SimulatedFile {
    fn call<T>(
        &self,
        kind: Call,
        what: &str,
        offset: u64,
        value: u64,
        call: impl FnOnce(Option<InjectedFault>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.call(kind, what, &self.path, offset, value, call)
    }

    /// Writes a part, and fails.
    fn write_part(
        &self,
        bytes: &[u8],
        offset: u64,
        injected_fault: InjectedFault,
    ) -> io::Result<()> {
        let middle = bytes.len() / 2 / SECTOR_BYTES * SECTOR_BYTES;
        let (front, back) = bytes.split_at(middle);
        match injected_fault {
            InjectedFault::PowerKeepsOnlyThis => {
                let write = (self.path.clone(), offset, bytes.to_vec());
                self.disk.power.late.replace(Some(write));
            }
            InjectedFault::PowerTearsBack => {
                self.file.write_at(back, offset + middle as u64)?;
            }
            InjectedFault::PowerTearsFront => {
                let noise = xxh3_64(bytes).to_le_bytes().repeat(SECTOR_BYTES / 8);
                let noise = &noise[..SECTOR_BYTES.min(back.len())];
                self.file.write_at(&[front, noise].concat(), offset)?;
            }
            _ => self.file.write_at(front, offset)?,
        }
        match injected_fault {
            InjectedFault::IsShortAndFull => Err(io::ErrorKind::StorageFull.into()),
            _ => Err(io::Error::other("the disk was told to write a part")),
        }
    }
}

impl DiskFile for SimulatedFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let hash = if self.disk.trace.is_silent() { 0 } else { xxh3_64(bytes) };
        self.call(Call::Write, "write", offset, hash, |injected_fault| match injected_fault {
            Some(injected_fault) => self.write_part(bytes, offset, injected_fault),
            None => self.file.write_at(bytes, offset),
        })
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.call(Call::Read, "read", offset, length, |_| self.file.read_at(bytes, offset))
    }

    fn forget_cached(&self) -> io::Result<()> {
        self.call(Call::Look, "forget", 0, 0, |_| self.file.forget_cached())
    }

    fn sync(&self) -> io::Result<()> {
        self.call(Call::Sync, "sync", 0, 0, |injected_fault| match injected_fault {
            Some(_) => self.disk.failing(|| self.file.sync()),
            None => self.file.sync(),
        })
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.call(Call::Change, "set length", length, 0, |_| self.file.set_length(length))
    }

    fn allocate(&self, length: u64) -> io::Result<bool> {
        self.call(Call::Write, "allocate", 0, length, |injected_fault| match injected_fault {
            Some(InjectedFault::IsShort) => {
                Err(io::Error::other("the disk was told to write a part"))
            }
            Some(InjectedFault::IsShortAndFull) => Err(io::ErrorKind::StorageFull.into()),
            _ => self.file.allocate(length),
        })
    }

    fn length(&self) -> io::Result<u64> {
        self.call(Call::Look, "length", 0, 0, |_| self.file.length())
    }
}
