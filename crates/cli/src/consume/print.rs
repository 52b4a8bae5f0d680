//! Messages that are printed, each settled once whoever reads standard output has taken it.

use std::pin::pin;

use sennit_client::{DeliveryRun, Received};
use sennit_model::limits::CREDIT_MESSAGES_MAX;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    exit::Failure,
    interrupt::interrupted,
    output::unless_reader_left,
    printer::{GRACE, Printer, WINDOW_BYTES},
    reader_left::reader_left,
    shown::Shown,
};

use super::{
    Args,
    intake::Intake,
    settlements::Settlements,
    verdict::{Verdict, Verdicts},
};

/// How many messages are held unsettled unless fewer are asked for.
const CREDIT_MESSAGES: u32 = 4096;

/// How many messages may be here at first.
pub fn credit_at_first(args: &Args, verdicts: &Verdicts) -> u32 {
    let most = if verdicts.hold_printed() { CREDIT_MESSAGES_MAX } else { CREDIT_MESSAGES };
    let count = u32::try_from(args.count()).unwrap_or(u32::MAX).min(most);
    // A pipe takes them one by one at first: the others are for somebody else until then.
    let window = Printer::standard(true).map_or(usize::MAX, |printer| printer.window());
    if verdicts.hold_printed() { count } else { count.min(credit_for(window)) }
}

/// How many messages may be here for so many that are printed at once. No more are fetched: while a reader
/// rests, the others of the group can have them.
fn credit_for(window: usize) -> u32 {
    u32::try_from(window).unwrap_or(u32::MAX).min(CREDIT_MESSAGES)
}

/// Prints what comes and settles it.
///
/// # Errors
/// What the broker refuses, or that standard output takes nothing.
pub async fn run(
    args: &Args,
    intake: &mut Intake<'_>,
    verdicts: &Verdicts,
    settlements: &mut Settlements,
) -> Result<(), Failure> {
    let shown = args.format.shown();
    let holds = verdicts.hold_printed();
    let mut held = Vec::new();
    let mut printer = Printer::standard(!holds || verdicts.printed != Verdict::Nothing)?;
    let (mut interrupted, mut reader_left) = (pin!(interrupted()), pin!(reader_left()));
    let mut left = args.count();
    // Without a count it has all there is from the beginning.
    let mut is_wide = args.count.is_none();
    let mut ended = Ok(());
    while left > 0 {
        if intake.waiting.is_empty() {
            let is_quiet = tokio::select! {
                is_quiet = intake.is_quiet() => is_quiet,
                () = &mut interrupted => break,
                () = &mut reader_left => break,
            };
            if let Some(end) = intake.end() {
                ended = end;
                break;
            }
            if !is_quiet {
                continue;
            }
            // Nothing makes room, and the window is shared out among the partitions: one may have all
            // that is ready.
            if holds && !is_wide {
                if let Some((_, partitions)) = intake.ready().await? {
                    let wide = credit_at_first(args, verdicts).saturating_mul(partitions as u32);
                    intake.set_credit(wide);
                    is_wide = true;
                }
                continue;
            }
            if args.follow {
                continue;
            }
            // What is printed and kept stays leased: what else is ready has come.
            if holds || intake.ready().await?.is_some_and(|(ready, _)| ready == 0) {
                break;
            }
            continue;
        }
        let pushed = push(args, &shown, intake, &mut printer, left);
        let mut is_stopped = false;
        let delivered = {
            let mut delivering = pin!(printer.deliver());
            loop {
                tokio::select! {
                    delivered = &mut delivering => break delivered,
                    () = intake.tend() => {}
                    () = &mut interrupted => {
                        is_stopped = true;
                        // What is not taken by then is handed back.
                        break timeout(GRACE, &mut delivering).await.unwrap_or(Ok(()));
                    }
                }
            }
        };
        let taken = taken(pushed, printer.settle(), intake);
        left = left.saturating_sub(taken.iter().map(|run| u64::from(run.count())).sum());
        if holds {
            held.extend(taken);
        } else {
            // Before the verdicts, which would make room for more than is wanted.
            let credit = u32::try_from(left).unwrap_or(u32::MAX).min(credit_for(printer.window()));
            intake.set_credit(credit);
            for run in taken {
                settlements.say(&verdicts.printed, run)?;
            }
        }
        if delivered.is_err() || is_stopped {
            ended = unless_reader_left(delivered);
            break;
        }
    }
    for run in held {
        settlements.say(&verdicts.printed, run)?;
    }
    ended
}

/// Prints what waits into the window; returns the messages in the order of what was printed, and `None`
/// for each gap.
fn push(
    args: &Args,
    shown: &Shown,
    intake: &mut Intake<'_>,
    printer: &mut Printer,
    left: u64,
) -> Vec<Option<DeliveryRun>> {
    let (mut pushed, mut messages) = (Vec::new(), 0_u64);
    while messages < left
        && printer.count() < printer.window()
        && printer.byte_count() < WINDOW_BYTES
        && let Some(received) = intake.waiting.pop_front()
    {
        let mut run = match received {
            Received::Delivered(run) => run,
            Received::Gap(gap) => {
                if let Some(line) = shown.gap(&args.topic, &gap) {
                    printer.push(|out| out.extend_from_slice(line.as_bytes()));
                    pushed.push(None);
                }
                continue;
            }
        };
        let room = (left - messages).min((printer.window() - printer.count()) as u64);
        let first = run.split_to(u32::try_from(room).unwrap_or(u32::MAX));
        if run.count() > 0 {
            intake.waiting.push_front(Received::Delivered(run));
        }
        for (index, message) in first.messages().enumerate() {
            printer.push(|out| shown.message(&message, || place(args, &first, index), out));
        }
        messages += u64::from(first.count());
        intake.begun.push(first.clone());
        pushed.push(Some(first));
    }
    pushed
}

/// What JSON says of a delivery beside its message.
fn place(args: &Args, run: &DeliveryRun, index: usize) -> Value {
    json!({
        "topic": args.topic.as_str(),
        "partition": run.partition().0,
        "offset": run.first_offset().0 + index as u64,
        "attempt": run.attempt(),
        "appended_at_ms": run.appended_at().0,
        "durability": run.durability().name(),
    })
}

/// The messages among the first `count` of the things that were `pushed`. Nobody works on the others.
fn taken(
    pushed: Vec<Option<DeliveryRun>>,
    mut count: usize,
    intake: &mut Intake<'_>,
) -> Vec<DeliveryRun> {
    intake.begun.clear();
    let mut taken = Vec::new();
    for part in pushed {
        let Some(mut run) = part else {
            count = count.saturating_sub(1);
            continue;
        };
        let first = run.split_to(u32::try_from(count).unwrap_or(u32::MAX));
        count -= first.count() as usize;
        if first.count() > 0 {
            taken.push(first);
        }
    }
    taken
}
