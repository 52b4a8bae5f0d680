//! Prints messages, and settles each once the reader of standard output has taken it.

use std::{
    io,
    pin::{Pin, pin},
};

use sennit_client::{DeliveryRun, Received};
use sennit_model::limits::CREDIT_MESSAGES_MAX;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    exit::{Exit, Failure},
    interrupt::interrupted,
    message_format::MessageFormat,
    output::ignore_broken_pipe,
    printer::{GRACE, Printer, WINDOW_BYTES},
    stdout_closed::stdout_closed,
    unseal_options::Unsealer,
};

use super::{
    Args,
    group_consumer::GroupConsumer,
    settlements::Settlements,
    verdict::{Verdict, Verdicts},
};

/// The default limit for unsettled messages.
const CREDIT_MESSAGES: u32 = 4096;

/// The initial number of messages to fetch.
pub fn credit_at_first(args: &Args, verdicts: &Verdicts) -> u32 {
    let most = if verdicts.hold_printed() { CREDIT_MESSAGES_MAX } else { CREDIT_MESSAGES };
    let count = u32::try_from(args.count()).unwrap_or(u32::MAX).min(most);
    // A pipe takes them one by one at first: the others are for somebody else until then.
    let window = Printer::standard(true).map_or(usize::MAX, |printer| printer.window());
    if verdicts.hold_printed() { count } else { count.min(credit_for(window)) }
}

/// The number of messages to fetch for this printer window. No more are fetched, so that other
/// members of the group can have them while the reader pauses.
fn credit_for(window: usize) -> u32 {
    u32::try_from(window).unwrap_or(u32::MAX).min(CREDIT_MESSAGES)
}

/// Prints messages and settles them.
///
/// # Errors
/// The broker's refusal, or standard output fails.
pub async fn run(
    args: &Args,
    group_consumer: &mut GroupConsumer<'_>,
    verdicts: &Verdicts,
    settlements: &mut Settlements,
) -> Result<(), Failure> {
    let message_format = args.format.message_format();
    let holds = verdicts.hold_printed();
    let mut held = Vec::new();
    let mut printer = Printer::standard(!holds || verdicts.printed != Verdict::Nothing)?;
    let (mut interrupted, mut stdout_closed) = (pin!(interrupted()), pin!(stdout_closed()));
    let mut left = args.count();
    // Without a count it has all there is from the beginning.
    let mut is_wide = args.count.is_none();
    let mut ended = Ok(());
    let mut unsealer = args.unseal.unsealer(false)?;
    while left > 0 {
        if group_consumer.waiting.is_empty() {
            let is_idle = tokio::select! {
                is_idle = group_consumer.is_idle() => is_idle,
                () = &mut interrupted => break,
                () = &mut stdout_closed => break,
            };
            if let Some(end) = group_consumer.end() {
                ended = end;
                break;
            }
            if !is_idle {
                continue;
            }
            // Nothing makes room, and the window is shared out among the partitions: one may have all
            // that is ready.
            if holds && !is_wide {
                if let Some(partitions) = group_consumer.partition_count().await? {
                    let wide = credit_at_first(args, verdicts).saturating_mul(partitions);
                    group_consumer.set_credit(wide);
                    is_wide = true;
                }
                continue;
            }
            // Printed messages that are held stay leased: all other ready messages have come.
            if !args.follow && (holds || group_consumer.is_drained().await?) {
                break;
            }
            continue;
        }
        let (pushed, unopened) =
            push(args, &message_format, group_consumer, &mut printer, unsealer.as_mut(), left);
        let (delivered, is_stopped) =
            deliver(&mut printer, group_consumer, interrupted.as_mut()).await;
        let taken = taken(pushed, printer.settle(), group_consumer);
        left = left.saturating_sub(taken.iter().map(|run| u64::from(run.count())).sum());
        if holds {
            held.extend(taken);
        } else {
            // Before the verdicts, which would make room for more than is wanted.
            let credit = u32::try_from(left).unwrap_or(u32::MAX).min(credit_for(printer.window()));
            group_consumer.set_credit(credit);
            for run in taken {
                settlements.settle(&verdicts.printed, run)?;
            }
        }
        if delivered.is_err() || is_stopped {
            ended = ignore_broken_pipe(delivered);
            break;
        }
        if let Some(unopened) = unopened {
            ended = Err(unopened);
            break;
        }
    }
    for run in held {
        settlements.settle(&verdicts.printed, run)?;
    }
    ended
}

/// Writes what is in the window, while new messages are received. After an interrupt it waits no longer than
/// [`GRACE`]: unwritten messages return to the group. Returns also whether it was interrupted.
async fn deliver(
    printer: &mut Printer,
    group_consumer: &mut GroupConsumer<'_>,
    mut interrupted: Pin<&mut impl Future<Output = ()>>,
) -> (io::Result<()>, bool) {
    let mut delivering = pin!(printer.deliver());
    loop {
        tokio::select! {
            delivered = &mut delivering => return (delivered, false),
            () = group_consumer.poll() => {}
            () = &mut interrupted => {
                return (timeout(GRACE, &mut delivering).await.unwrap_or(Ok(())), true);
            }
        }
    }
}

/// Prints waiting messages into the window; returns them in order, with `None` for each gap. A message that is not opened
/// is the end: it returns to the group with all behind it.
fn push(
    args: &Args,
    message_format: &MessageFormat,
    group_consumer: &mut GroupConsumer<'_>,
    printer: &mut Printer,
    mut unsealer: Option<&mut Unsealer>,
    left: u64,
) -> (Vec<Option<DeliveryRun>>, Option<Failure>) {
    let (mut pushed, mut messages, mut unopened) = (Vec::new(), 0_u64, None);
    while messages < left
        && unopened.is_none()
        && printer.count() < printer.window()
        && printer.byte_count() < WINDOW_BYTES
        && let Some(received) = group_consumer.waiting.pop_front()
    {
        let mut run = match received {
            Received::Delivered(run) => run,
            Received::Gap(gap) => {
                if let Some(line) = message_format.gap(&args.topic, &gap) {
                    printer.push(|out| out.extend_from_slice(line.as_bytes()));
                    pushed.push(None);
                }
                continue;
            }
        };
        let room = (left - messages).min((printer.window() - printer.count()) as u64);
        let mut first = run.split_to(u32::try_from(room).unwrap_or(u32::MAX));
        if run.count() > 0 {
            group_consumer.waiting.push_front(Received::Delivered(run));
        }
        let mut count = 0;
        for (index, message) in first.messages().enumerate() {
            let place = || place(args, &first, index);
            let opened = match &mut unsealer {
                None => None,
                Some(unsealer) => match unsealer.open(args.topic.as_str(), message.payload()) {
                    Ok(opened) => {
                        let facts = unsealer.facts(&opened);
                        Some((opened.payload, facts))
                    }
                    Err(refused) => {
                        let offset = first.first_offset().0 + index as u64;
                        let said =
                            format!("{} {offset}: not opened: {}", args.topic, refused.reason);
                        unopened = Some(Failure::new(Exit::Failed, said));
                        break;
                    }
                },
            };
            printer.push(|out| match &opened {
                None => message_format.message(&message, place, out),
                Some((payload, facts)) => {
                    message_format.opened(&message, payload, facts, place, out);
                }
            });
            count += 1;
        }
        let first = first.split_to(count);
        if first.count() == 0 {
            continue;
        }
        messages += u64::from(first.count());
        group_consumer.in_progress.push(first.clone());
        pushed.push(Some(first));
    }
    (pushed, unopened)
}

/// The location of a delivery for JSON.
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

/// The messages among the first `count` `pushed` items. The others are no longer in progress.
fn taken(
    pushed: Vec<Option<DeliveryRun>>,
    mut count: usize,
    group_consumer: &mut GroupConsumer<'_>,
) -> Vec<DeliveryRun> {
    group_consumer.in_progress.clear();
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
