//! Scenarios of a broker. Each runs with a fault in its nth call of the disk, and with a crash at it, for every n.

use sennit_journal::BLOCK_BYTES;

use crate::{
    act::Act::{self, *},
    disk::InjectedFault,
    script::Ending,
    sequences::{FailedCourse, RunCounts, crashes_at, rot_course, run_course, run_each},
};

/// The scenarios: each has a name and acts.
pub const SCENARIOS: [(&str, &[Act]); 59] = [
    (
        "a checkpoint begins behind the first batch of a segment",
        &[Checkpoint, Restart, Small, Checkpoint, Gather, Checkpoint],
    ),
    ("a batch is published", &[Small]),
    ("a long message begins a segment", &[Long]),
    ("two topics share a commit", &[Both]),
    ("a batch gathers behind another", &[Gather, Gather, Small]),
    ("what was published is settled in part", &[Small, Settle]),
    ("what was published is settled whole", &[Small, Settle, Settle]),
    ("one batch after the other is settled", &[Small, Settle, Small, Settle, Small, Settle]),
    ("a delivery is handed back", &[Small, Retry, Settle, Settle]),
    ("a delivery is handed back again and again", &[Small, Retry, Retry, Retry, Retry, Retry]),
    ("messages go to the dead letters", &[Small, Bury]),
    ("dead letters are settled", &[Small, Bury, Settle, Settle]),
    ("long messages go to the dead letters", &[Long, Long, Bury, Checkpoint, Long]),
    ("leases end", &[Small, Later, Settle, Settle]),
    ("leases end over a restart", &[Small, Restart, Later, Settle, Settle]),
    ("a topic is deleted", &[Small, Delete]),
    ("a topic is deleted and another made", &[Small, Delete, Delete, Small]),
    ("a topic is deleted with its messages held", &[Small, Small, Delete, Settle, Settle]),
    ("a topic is deleted behind a checkpoint", &[Small, Checkpoint, Delete, Long, Long]),
    ("a topic is deleted before a checkpoint", &[Small, Delete, Checkpoint, Long]),
    ("a topic is deleted while a checkpoint is written", &[Small, Long, Piece, Delete, Small]),
    ("a topic is deleted while a move is under way", &[Both, Long, Long, MoveSteps, Delete, Move]),
    ("a group comes and goes", &[Small, Group, Small, Group]),
    ("a group comes late and reads from packs", &[Both, Long, Long, Long, Move, Group, Settle]),
    ("a checkpoint is written of nothing", &[Checkpoint]),
    ("a checkpoint is written of what is settled in part", &[Small, Settle, Checkpoint, Restart]),
    ("two checkpoints follow each other", &[Small, Checkpoint, Small, Checkpoint, Long, Restart]),
    ("a checkpoint is cut short by a restart", &[Small, Long, Piece, Restart, Settle]),
    ("a batch comes while a checkpoint is written", &[Small, Long, Piece, Small, Settle]),
    ("a checkpoint comes due by itself", &[Long, Long, Long, Settle, Settle, Long]),
    ("a mark is written", &[Small, Mark]),
    ("marks follow each other", &[Small, Mark, Small, Mark, Settle, Mark]),
    ("a restart with nothing in between", &[Restart, Restart, Restart]),
    ("a restart after each batch", &[Small, Restart, Small, Restart, Small, Restart]),
    ("a restart after each settlement", &[Small, Small, Settle, Restart, Settle, Restart]),
    ("a restart after a long message", &[Long, Restart, Long, Restart]),
    ("segments are released and used again", &[Long, Long, Settle, Settle, Long, Long, Long]),
    ("a segment is emptied", &[Both, Long, Long, Move]),
    (
        "a segment of which little is wanted is emptied",
        &[Both, Settle, Settle, Small, Long, Long, Move],
    ),
    ("segments are emptied one after the other", &[Long, Long, Long, Long, Long, Move, Long, Move]),
    (
        "a pack grows thin and is emptied",
        &[Both, Long, Long, Long, Move, Settle, Settle, Long, Move],
    ),
    ("packs are removed", &[Both, Long, Long, Move, Settle, Settle, Settle, Move]),
    ("a pack is read after a restart", &[Both, Long, Long, Move, Restart, Settle, Settle]),
    ("a move is cut short by a restart", &[Both, Long, Long, MoveSteps, Restart, Move]),
    ("a batch comes while a move is under way", &[Both, Long, Long, MoveSteps, Small, Move]),
    (
        "a batch is settled while its move is under way",
        &[Both, Long, Long, MoveSteps, Settle, Settle, Move],
    ),
    (
        "the disk runs full and has room again",
        &[Both, Full, Long, Long, Long, Settle, Settle, Room, Long],
    ),
    (
        "the disk runs full while a segment is emptied",
        &[Both, Long, Long, Full, Move, Room, Long, Move],
    ),
    (
        "a broker that is full is started again",
        &[Both, Long, Full, Long, Long, Restart, Settle, Room, Small],
    ),
    (
        "a broker on a full disk is started again and again",
        &[Both, Full, Long, Long, Restart, Settle, Restart, Restart, Settle, Restart, Room, Long],
    ),
    ("streams of a group are appended to together", &[Together, Together, Together]),
    (
        "a segment ends in the midst of what is appended together",
        &[GatherTogether, Gather, GatherTogether, GatherTogether, Together],
    ),
    (
        "what is appended together follows what fills a segment",
        &[Small, Together, Long, Together, Gather, Together],
    ),
    (
        "what is appended together lies before and behind a checkpoint",
        &[Together, Checkpoint, GatherTogether, Piece, GatherTogether, Restart, Together],
    ),
    (
        "what was appended together is moved to packs",
        &[GatherTogether, Long, Together, Long, Move, Restart, GatherTogether, Move],
    ),
    (
        "a segment ends in the midst of an append of several batches",
        &[GatherSeveral, Gather, GatherSeveral, GatherSeveral, Several],
    ),
    (
        "an append of several batches lies before and behind a checkpoint",
        &[Several, Checkpoint, GatherSeveral, Piece, GatherSeveral, Restart, Several],
    ),
    (
        "streams of a group are appended to while the disk is full",
        &[Together, Full, GatherTogether, Together, Room, GatherTogether],
    ),
    (
        "a long life",
        &[
            Both, Settle, Group, Long, Checkpoint, Long, Move, Delete, Both, Settle, Restart, Long,
            Move, Mark,
        ],
    ),
];

/// The faults of a call, and the ends of the run.
const INJECTED_FAULTS: [InjectedFault; 4] = [
    InjectedFault::Fails,
    InjectedFault::IsFull,
    InjectedFault::IsShort,
    InjectedFault::IsShortAndFull,
];
const ENDINGS: [Ending; 3] = [Ending::Kill, Ending::Loses, Ending::Keeps];

/// Runs every scenario with every trouble at every call of the disk, on so many threads. `whole` says
/// whether the life then ends in each of three ways, or in one of them, by turns; and whether all
/// crashes come at each call, or one of them.
///
/// # Errors
/// The first course in which a promise was broken.
pub fn run_scenarios(
    whole: bool,
    threads: usize,
    progress: impl Fn(u64, u64) + Sync,
) -> Result<RunCounts, Box<FailedCourse>> {
    run_each(&SCENARIOS, threads, progress, |(name, acts)| nth_call(name, acts, whole))
}

fn nth_call(name: &str, acts: &[Act], whole: bool) -> Result<RunCounts, Box<FailedCourse>> {
    let mut counted = RunCounts { courses: 1, ..RunCounts::default() };
    let broken = |injected_fault, ending| {
        move |violation| {
            let (name, acts) = (name.to_owned(), acts.to_vec());
            Box::new(FailedCourse { name, acts, from: 0, injected_fault, ending, violation })
        }
    };
    let calls = run_course(acts, 0, None, Ending::Loses).map_err(broken(None, Ending::Loses))?;
    for (nth, call) in (1..).zip(calls) {
        counted.points += 1;
        let crashes: Vec<_> = crashes_at(call).collect();
        let turn = nth as usize % crashes.len().max(1);
        let by_turns = turn..(turn + 1).min(crashes.len());
        for &(injected_fault, ending) in if whole { &crashes[..] } else { &crashes[by_turns] } {
            let injected_fault = Some((nth, injected_fault));
            run_course(acts, 0, injected_fault, ending).map_err(broken(injected_fault, ending))?;
            counted.runs += 1;
        }
        for injected_fault in
            INJECTED_FAULTS.into_iter().filter(|injected_fault| injected_fault.fits(call))
        {
            let injected_fault = Some((nth, injected_fault));
            let turn = counted.runs as usize % ENDINGS.len();
            let endings = if whole { &ENDINGS[..] } else { &ENDINGS[turn..=turn] };
            for &ending in endings {
                run_course(acts, 0, injected_fault, ending)
                    .map_err(broken(injected_fault, ending))?;
                counted.runs += 1;
            }
        }
    }
    Ok(counted)
}

/// Runs every scenario on `threads` threads. At its end a bit rots in each block of each file: in the head, at the
/// front, and at one other place.
///
/// # Errors
/// The first course in which a promise was broken.
pub fn run_rot(
    threads: usize,
    progress: impl Fn(u64, u64) + Sync,
) -> Result<RunCounts, Box<FailedCourse>> {
    run_each(&SCENARIOS, threads, progress, |(name, acts)| each_block(name, acts))
}

fn each_block(name: &str, acts: &[Act]) -> Result<RunCounts, Box<FailedCourse>> {
    let mut counted = RunCounts { courses: 1, ..RunCounts::default() };
    let broken = |what: String| {
        move |violation| {
            let (name, acts) = (format!("{name}; {what}"), acts.to_vec());
            let (from, injected_fault, ending) = (0, None, Ending::Kill);
            Box::new(FailedCourse { name, acts, from, injected_fault, ending, violation })
        }
    };
    let files = rot_course(acts, None).map_err(broken("nothing rots".into()))?;
    // Another byte and bit in each block of each scenario.
    let mut turn = acts.len();
    for (file, length) in files.into_iter().enumerate() {
        for block in (0..length).step_by(BLOCK_BYTES) {
            turn += 1;
            let somewhere = turn * 1_009;
            let bytes = [somewhere % 64, 64 + somewhere % 192, somewhere % BLOCK_BYTES];
            for byte in bytes.map(|byte| block + byte).into_iter().filter(|byte| *byte < length) {
                let bit = (turn % 8) as u8;
                let what = || format!("bit {bit} of byte {byte} of file {file} rots");
                rot_course(acts, Some((file, byte, bit))).map_err(broken(what()))?;
                counted.runs += 1;
            }
            counted.points += 1;
        }
    }
    Ok(counted)
}
