//! All short sequences of acts, with a crash at every call of the disk that changes anything: unsynced writes are
//! kept, lost or torn. The script checks the promises afterwards.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    act::{Act, Acts},
    disk::{Call, InjectedFault},
    oracle::Violation,
    script::{Ending, Script, to_violation},
    trace::Trace,
    world::Stop,
};

/// The acts of the sequences.
pub const ALPHABET: [Act; 8] = [
    Act::Small,
    Act::Long,
    Act::Settle,
    Act::Delete,
    Act::Checkpoint,
    Act::Move,
    Act::Mark,
    Act::Restart,
];

/// The acts before a sequence: none, or acts that leave segments to move, with some messages settled.
pub const BEGINNINGS: [&[Act]; 3] = [
    &[],
    &[Act::Small, Act::Long, Act::Settle, Act::Checkpoint, Act::Long],
    &[
        Act::Both,
        Act::Long,
        Act::Checkpoint,
        Act::Long,
        Act::Small,
        Act::Move,
        Act::Settle,
        Act::Checkpoint,
    ],
];

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Sequences or scenarios.
    pub courses: u64,
    /// Calls of the disk with a fault or a crash.
    pub points: u64,
    /// Runs.
    pub runs: u64,
}

impl RunCounts {
    pub(crate) fn add(&mut self, other: Self) {
        self.courses += other.courses;
        self.points += other.points;
        self.runs += other.runs;
    }
}

/// A course with a broken promise: acts, and a fault at a call of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCourse {
    /// Its name.
    pub name: String,
    /// Its acts.
    pub acts: Vec<Act>,
    /// The index of the act from which calls are counted.
    pub from: usize,
    /// The number of the call, and its fault.
    pub injected_fault: Option<(u64, InjectedFault)>,
    /// The end of the run.
    pub ending: Ending,
    /// The broken promise.
    pub violation: Violation,
}

impl fmt::Display for FailedCourse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, acts, from, injected_fault, ending, violation } = self;
        write!(f, "{name}: {}, ", Acts(acts))?;
        match injected_fault {
            Some((nth, injected_fault)) => {
                write!(f, "at call {nth} from act {from} on {injected_fault:?}")?
            }
            None => write!(f, "nothing happened")?,
        }
        write!(f, ", then {ending:?}: {violation}")
    }
}

/// Runs all sequences of `1..=length` acts after each beginning, on `threads` threads. The crash is always in the
/// last act: shorter sequences have the crashes of earlier acts. `progress` receives the number of finished
/// sequences and of all sequences.
///
/// # Errors
/// The first course in which a promise was broken.
pub fn run_sequences(
    length: usize,
    threads: usize,
    progress: impl Fn(u64, u64) + Sync,
) -> Result<RunCounts, Box<FailedCourse>> {
    let mut courses = Vec::new();
    for beginning in BEGINNINGS {
        let mut longest = vec![beginning.to_vec()];
        for _ in 0..length {
            let longer = |acts: &Vec<Act>| {
                let acts = acts.clone();
                ALPHABET.map(|act| [&acts[..], &[act]].concat())
            };
            longest = longest.iter().flat_map(longer).collect();
            courses.extend(longest.iter().cloned());
        }
    }
    run_each(&courses, threads, progress, |acts| crashes_in_last(acts))
}

/// Runs the courses on `threads` threads, until one fails.
pub(crate) fn run_each<C: Sync>(
    courses: &[C],
    threads: usize,
    progress: impl Fn(u64, u64) + Sync,
    run: impl Fn(&C) -> Result<RunCounts, Box<FailedCourse>> + Sync,
) -> Result<RunCounts, Box<FailedCourse>> {
    let next = AtomicU64::new(0);
    let outcome = Mutex::new(Ok(RunCounts::default()));
    let lock = || outcome.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while let Some(course) = courses.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
            let ran = run(course);
            let mut outcome = lock();
            match (&mut *outcome, ran) {
                (Ok(counted), Ok(ran)) => {
                    counted.add(ran);
                    progress(counted.courses, courses.len() as u64);
                }
                (Ok(_), Err(broken)) => *outcome = Err(broken),
                (Err(_), _) => return,
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn crashes_in_last(acts: &[Act]) -> Result<RunCounts, Box<FailedCourse>> {
    let from = acts.len() - 1;
    let mut counted = RunCounts { courses: 1, ..RunCounts::default() };
    let broken = |injected_fault, ending| {
        move |violation| {
            let (name, acts) = ("sequence".to_owned(), acts.to_vec());
            Box::new(FailedCourse { name, acts, from, injected_fault, ending, violation })
        }
    };
    let mut calls = Vec::new();
    for ending in [Ending::Kill, Ending::Loses] {
        calls = run_course(acts, from, None, ending).map_err(broken(None, ending))?;
        counted.runs += 1;
    }
    for (nth, call) in (1..).zip(calls) {
        for (injected_fault, ending) in crashes_at(call) {
            let injected_fault = Some((nth, injected_fault));
            run_course(acts, from, injected_fault, ending)
                .map_err(broken(injected_fault, ending))?;
            counted.runs += 1;
        }
        counted.points += u64::from(InjectedFault::PowerGoes.fits(call));
    }
    Ok(counted)
}

/// The possible crashes at a call.
pub(crate) fn crashes_at(call: Call) -> impl Iterator<Item = (InjectedFault, Ending)> {
    let all = [
        (InjectedFault::PowerGoes, Ending::Keeps),
        (InjectedFault::PowerGoes, Ending::Loses),
        (InjectedFault::PowerTearsFront, Ending::Keeps),
        (InjectedFault::PowerTearsBack, Ending::Keeps),
        (InjectedFault::PowerKeepsOnlyThis, Ending::Loses),
        (InjectedFault::ProcessGoes, Ending::Kill),
    ];
    all.into_iter().filter(move |(injected_fault, _)| injected_fault.fits(call))
}

/// Runs a course: the acts, with a fault at a call of the acts from `from` on, then a stop and all checks after it.
/// Returns the calls from act `from` on.
pub(crate) fn run_course(
    acts: &[Act],
    from: usize,
    injected_fault: Option<(u64, InjectedFault)>,
    ending: Ending,
) -> Result<Vec<Call>, Violation> {
    traced_course(acts, from, injected_fault, ending, false)
}

/// Runs a course, with its steps on standard error if `echo` is set.
///
/// # Errors
/// The promise that was broken.
pub fn traced_course(
    acts: &[Act],
    from: usize,
    injected_fault: Option<(u64, InjectedFault)>,
    ending: Ending,
    echo: bool,
) -> Result<Vec<Call>, Violation> {
    let trace = if echo { Trace::new(true) } else { Trace::silent() };
    caught(|| course(acts, from, injected_fault, ending, trace))
}

/// Runs the acts, writes a mark, and flips a bit for a while: `(file, byte, bit)`, the file by its index. Returns
/// the lengths of all files.
pub(crate) fn rot_course(
    acts: &[Act],
    bit: Option<(usize, usize, u8)>,
) -> Result<Vec<usize>, Violation> {
    caught(|| {
        let mut script = Script::begin(Trace::silent())?;
        for &act in acts.iter().chain(&[Act::Room, Act::Mark, Act::Mark]) {
            script.act(act).map_err(to_violation)?;
        }
        let files = script.world.disk.files();
        if let Some((file, byte, bit)) = bit {
            script.read_rotten(&files[file].0, byte, bit)?;
        }
        Ok(files.into_iter().map(|(_, length)| length).collect())
    })
}

fn caught<T>(course: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    catch_unwind(AssertUnwindSafe(course)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or(panic.downcast_ref::<&str>().copied());
        Err(Violation::new("no assertion fails", text.unwrap_or("it does not say which")))
    })
}

fn course(
    acts: &[Act],
    from: usize,
    injected_fault: Option<(u64, InjectedFault)>,
    ending: Ending,
    trace: Trace,
) -> Result<Vec<Call>, Violation> {
    let mut script = Script::begin(trace)?;
    // Some of them, the same in each run.
    if injected_fault.as_ref().is_some_and(|(nth, _)| nth % 4 != 0) {
        script.world.go_unfollowed();
    }
    let (before, after) = acts.split_at(from);
    for &act in before {
        script.act(act).map_err(to_violation)?;
    }
    let disk = script.world.disk.clone();
    match injected_fault {
        Some((nth, injected_fault)) => disk.inject_at(nth, injected_fault),
        None => disk.watch(),
    }
    let mut done = Ok(());
    for &act in after {
        done = script.act(act);
        if done.is_err() {
            break;
        }
    }
    let seen = disk.seen();
    if disk.clear_injected_fault() {
        return Err(Violation::new(
            "a course makes the same calls each time",
            "the call never came",
        ));
    }
    match done {
        Err(Stop::Violation(violation)) => return Err(violation),
        Err(Stop::PowerOff) => {}
        Ok(()) if script.world.is_fenced || injected_fault.is_none() => {}
        Ok(()) => script.drain()?,
    }
    script.stop_and_check(ending)?;
    Ok(seen)
}
