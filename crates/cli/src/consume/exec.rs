//! Runs a shell command for each message and settles the message by the command's exit code. Commands run in
//! process groups of their own, which receive this program's signals.

use std::{
    fmt::Write as _,
    io,
    os::unix::process::ExitStatusExt,
    pin::pin,
    process::{ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rustix::process::{Pid, Signal, kill_process_group};
use sennit_client::{DeliveryRun, Received};
use sennit_model::{TopicName, limits::MESSAGE_BYTES_MAX};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    task::JoinSet,
    time::timeout,
};

use crate::{
    exit::{Exit, Failure},
    interrupt::{before_exit, interrupted},
    message_format::say_gap,
    output::print_to_stderr,
    quantity::show_duration,
    unseal_options::{Unopened, Unsealer},
};

use super::{
    Args,
    group_consumer::GroupConsumer,
    settlements::Settlements,
    verdict::{Verdict, Verdicts},
};

/// Most commands that run at once.
const JOBS_MAX: i64 = 1024;

/// How long commands may take to end after a signal, before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// The options for commands.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// Run this shell command for each message, instead of printing it: the payload is on its
    /// standard input, and its exit code settles the message (see below)
    #[arg(long, value_name = "COMMAND")]
    #[arg(conflicts_with_all = ["no_ack", "json", "delimiter", "null", "raw"])]
    exec: Option<String>,
    /// With --exec: the number of commands that run at once
    #[arg(long, short, value_name = "N", default_value_t = 1, requires = "exec")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=JOBS_MAX))]
    jobs: u32,
    /// With --exec: publish what the command prints to this topic, in the step that acks its message:
    /// both are done, or neither. A command that prints nothing publishes nothing. The topic must lie
    /// beside the one that is consumed (topic create --beside)
    #[arg(long, value_name = "TOPIC", requires = "exec")]
    publish_to: Option<TopicName>,
    /// Whether what a command prints is the reply to its message.
    #[arg(skip)]
    replies: bool,
}

impl ExecArgs {
    /// A command whose output is the reply to its message.
    pub fn replying(command: String, jobs: u32) -> Self {
        Self { exec: Some(command), jobs, publish_to: None, replies: true }
    }

    /// Whether the output of the command is published.
    fn publishes(&self) -> bool {
        self.publish_to.is_some() || self.replies
    }

    /// Returns whether to run commands.
    pub fn is_wanted(&self) -> bool {
        self.exec.is_some()
    }

    /// The initial number of messages to fetch, so that other members of the group can have those
    /// that no command works on.
    pub fn credit(&self, args: &Args) -> u32 {
        u32::try_from(args.count()).unwrap_or(u32::MAX).min(self.jobs)
    }
}

/// The running commands.
struct RunningCommands {
    /// Their process groups, which receive a signal when the program ends.
    running: Vec<Pid>,
    /// Whether the program ends: no more commands are started.
    are_ending: bool,
}

static RUNNING_COMMANDS: Mutex<RunningCommands> =
    Mutex::new(RunningCommands { running: Vec::new(), are_ending: false });

fn running_commands() -> MutexGuard<'static, RunningCommands> {
    RUNNING_COMMANDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to all commands, and prevents others from starting.
fn signal_all(signal: Signal) {
    let mut running_commands = running_commands();
    running_commands.are_ending = true;
    for group in &running_commands.running {
        // It may have ended by itself.
        let _ = kill_process_group(*group, signal);
    }
}

/// A command that has ended, and what it has printed, if that is to be published.
type Outcome = io::Result<(ExitStatus, Vec<u8>)>;

/// A message and the result of its command; `None` if the command was not started, because the
/// message has gone to another consumer or the program ends.
type Ended = (DeliveryRun, Option<Outcome>);

/// The numbers of messages whose commands succeeded and failed.
#[derive(Default)]
struct Counts {
    done: u64,
    failed: u64,
}

/// Runs a command for each message, and settles the message by its exit code.
///
/// # Errors
/// The broker's refusal, or commands failed.
pub async fn run(
    args: &Args,
    group_consumer: &mut GroupConsumer<'_>,
    verdicts: &Verdicts,
    settlements: &mut Settlements,
) -> Result<(), Failure> {
    before_exit(|| signal_all(Signal::KILL));
    let command = args.exec.exec.as_deref().unwrap_or_default();
    let mut interrupted = pin!(interrupted());
    let mut running: JoinSet<Ended> = JoinSet::new();
    let (mut left, mut counts, mut is_stopped) = (args.count(), Counts::default(), false);
    let mut end = Ok(());
    let mut unsealer = args.unseal.unsealer(false)?;
    loop {
        while left > 0
            && running.len() < args.exec.jobs as usize
            && let Some(run) = next(group_consumer)
        {
            left -= 1;
            group_consumer.in_progress.push(run.clone());
            let payload = payload(args, &run, unsealer.as_mut());
            start(command, args, run, payload, &mut running);
        }
        if running.is_empty() && left == 0 {
            break;
        }
        if running.is_empty() {
            let is_idle = tokio::select! {
                is_idle = group_consumer.is_idle() => is_idle,
                () = &mut interrupted => {
                    is_stopped = true;
                    break;
                }
            };
            if let Some(said) = group_consumer.end() {
                end = said;
                break;
            }
            let is_over = is_idle && !args.follow;
            if is_over && group_consumer.is_drained().await? {
                break;
            }
            continue;
        }
        let ended = tokio::select! {
            Some(ended) = running.join_next() => ended,
            () = group_consumer.poll() => continue,
            () = &mut interrupted => {
                is_stopped = true;
                break;
            }
        };
        if matches!(ended, Ok((_, None))) {
            left = left.saturating_add(1);
        }
        let more = u32::try_from(left).unwrap_or(u32::MAX).saturating_add(running.len() as u32);
        group_consumer.set_credit(more.min(args.exec.jobs));
        settle_ended(args, ended, group_consumer, verdicts, settlements, &mut counts)?;
    }
    if is_stopped {
        stop(args, running, group_consumer, verdicts, settlements, &mut counts).await?;
    }
    end?;
    let Counts { done, failed } = counts;
    let text = format!("{failed} of {} commands failed", done + failed);
    match (failed, done) {
        // Whoever stops it has seen what failed, and asked for nothing more.
        _ if is_stopped => Ok(()),
        (0, _) => Ok(()),
        (_, 0) => Err(Failure::new(Exit::Failed, text)),
        _ => Err(Failure::new(Exit::Failed, text).in_part()),
    }
}

/// The next waiting message. Reports gaps before it.
fn next(group_consumer: &mut GroupConsumer<'_>) -> Option<DeliveryRun> {
    loop {
        match group_consumer.waiting.pop_front()? {
            Received::Gap(gap) => say_gap(&gap),
            Received::Delivered(mut run) => {
                let first = run.split_to(1);
                if run.count() > 0 {
                    group_consumer.waiting.push_front(Received::Delivered(run));
                }
                return Some(first);
            }
        }
    }
}

/// The opened payload, which goes to a command in place of the sealed one, or the reason why it is not opened.
type Payload = Result<Option<Vec<u8>>, Unopened>;

/// Opens a message, if messages are opened.
fn payload(args: &Args, run: &DeliveryRun, unsealer: Option<&mut Unsealer>) -> Payload {
    let (Some(unsealer), Some(message)) = (unsealer, run.messages().next()) else {
        return Ok(None);
    };
    unsealer.open(args.topic.as_str(), message.payload()).map(|opened| Some(opened.payload))
}

/// Starts the command for a message after the broker has noted the start of work: if the command
/// kills this program, the attempt counts as failed.
fn start(
    command: &str,
    args: &Args,
    run: DeliveryRun,
    payload: Payload,
    running: &mut JoinSet<Ended>,
) {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command).envs(environment(args, &run));
    shell.stdin(Stdio::piped()).process_group(0).kill_on_drop(true);
    if args.exec.publishes() {
        shell.stdout(Stdio::piped());
    }
    running.spawn(async move {
        let opened = match payload {
            Ok(opened) => opened,
            Err(unopened) => return (run, Some(Err(io::Error::other(unopened.reason)))),
        };
        // Why there is no answer, the intake learns as well.
        let is_ours = run.started_confirmed().await.is_ok_and(|settled| settled.stale == 0);
        let child = if is_ours { spawn(&mut shell) } else { None };
        let Some(child) = child else { return (run, None) };
        let group = child.as_ref().ok().and_then(process_group);
        let status = match child {
            Ok(child) => run_with_input(&run, opened, child).await,
            Err(error) => Err(error),
        };
        running_commands().running.retain(|running| Some(*running) != group);
        (run, Some(status))
    });
}

/// Starts a command, and notes its process group; `None` if the program ends.
fn spawn(shell: &mut Command) -> Option<io::Result<Child>> {
    let mut running_commands = running_commands();
    if running_commands.are_ending {
        return None;
    }
    let child = shell.spawn();
    running_commands.running.extend(child.as_ref().ok().and_then(process_group));
    Some(child)
}

fn process_group(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| Pid::from_raw(id as i32))
}

/// Writes the message to the command's standard input, and waits for its end.
async fn run_with_input(run: &DeliveryRun, opened: Option<Vec<u8>>, mut child: Child) -> Outcome {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async move {
        if let (Some(mut stdin), Some(message)) = (stdin, run.messages().next()) {
            // A command that does not want it closes its end.
            let _ = stdin.write_all(opened.as_deref().unwrap_or(message.payload())).await;
        }
    };
    let read = async move {
        let mut printed = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MESSAGE_BYTES_MAX as u64 + 1).read_to_end(&mut printed).await?;
        }
        Ok::<_, io::Error>(printed)
    };
    let ((), printed) = tokio::join!(write, read);
    let (status, printed) = (child.wait().await?, printed?);
    if printed.len() > MESSAGE_BYTES_MAX {
        return Err(io::Error::other("it prints more than a message holds"));
    }
    Ok((status, printed))
}

/// Settles a message by the result of its command.
fn settle_ended(
    args: &Args,
    ended: Result<Ended, tokio::task::JoinError>,
    group_consumer: &mut GroupConsumer<'_>,
    verdicts: &Verdicts,
    settlements: &mut Settlements,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let ended = ended.map_err(|error| Failure::new(Exit::Failed, error.to_string()));
    let (run, status) = ended?;
    let is_it = |in_progress: &DeliveryRun| {
        (in_progress.partition(), in_progress.first_offset(), in_progress.attempt())
            == (run.partition(), run.first_offset(), run.attempt())
    };
    group_consumer.in_progress.retain(|in_progress| !is_it(in_progress));
    let Some(status) = status else { return Ok(()) };
    let why = match status {
        Ok((status, printed)) if status.success() => {
            counts.done += 1;
            let client = group_consumer.client();
            return match &args.exec.publish_to {
                _ if args.exec.replies => settlements.reply(client, printed, run),
                Some(topic) if !printed.is_empty() => {
                    settlements.publish(client, topic, printed, run)
                }
                _ => settlements.settle(&Verdict::Ack, run),
            };
        }
        Ok((status, _)) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("the command ended with exit code {code}"),
            (_, signal) => format!("signal {} ended the command", signal.unwrap_or_default()),
        },
        Err(error) => format!("the command was not run: {error}"),
    };
    counts.failed += 1;
    let mut said = format!(
        "{} {}:{} attempt {}: {why}",
        args.topic,
        run.partition().0,
        run.first_offset(),
        run.attempt()
    );
    let verdict = match &verdicts.failed {
        Verdict::DeadLetter(None) => Verdict::DeadLetter(Some(why)),
        verdict => verdict.clone(),
    };
    // Writing to a text does not fail.
    let _ = match &verdict {
        Verdict::Retry(Some(delay)) => write!(said, "; again in {}", show_duration(*delay)),
        Verdict::Retry(None) => write!(said, "; again as the retry policy says"),
        _ => write!(said, "; it goes to the dead-letter topic"),
    };
    print_to_stderr(&said);
    settlements.settle(&verdict, run)
}

/// Ends the running commands. Messages whose commands finish in time are settled, the others return
/// to the group.
async fn stop(
    args: &Args,
    mut running: JoinSet<Ended>,
    group_consumer: &mut GroupConsumer<'_>,
    verdicts: &Verdicts,
    settlements: &mut Settlements,
    counts: &mut Counts,
) -> Result<(), Failure> {
    signal_all(Signal::TERM);
    let mut killed = 0;
    let mut ends = Vec::new();
    let all = async {
        while let Some(ended) = running.join_next().await {
            ends.push(ended);
        }
    };
    if timeout(GRACE, all).await.is_err() {
        signal_all(Signal::KILL);
        killed = running.len();
    }
    for ended in ends {
        match &ended {
            Ok((_, Some(Ok((status, _))))) if status.success() => {
                settle_ended(args, ended, group_consumer, verdicts, settlements, counts)?;
            }
            Ok((_, None)) => {}
            _ => killed += 1,
        }
    }
    if killed > 0 {
        print_to_stderr(&format!("{killed} commands were ended; their messages are handed back"));
    }
    Ok(())
}

/// The environment variables of a command.
fn environment(args: &Args, run: &DeliveryRun) -> Vec<(String, String)> {
    let mut told = vec![
        ("SENNIT_TOPIC".to_owned(), args.topic.to_string()),
        ("SENNIT_GROUP".to_owned(), args.group.to_string()),
        ("SENNIT_PARTITION".to_owned(), run.partition().0.to_string()),
        ("SENNIT_OFFSET".to_owned(), run.first_offset().to_string()),
        ("SENNIT_ATTEMPT".to_owned(), run.attempt().to_string()),
        ("SENNIT_APPENDED_AT_MS".to_owned(), run.appended_at().0.to_string()),
    ];
    if let Some(message) = run.messages().next() {
        told.push(variable("SENNIT_KEY", message.key()));
        for (name, _, value) in message.headers().flatten() {
            told.push(variable(&format!("SENNIT_HEADER_{}", variable_name(name)), value));
        }
    }
    told
}

/// A name in the form of a variable's.
fn variable_name(name: &str) -> String {
    let shout = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    name.chars().map(shout).collect()
}

/// A variable with bytes: as they are if they are text, otherwise as base64 under a name that says
/// so.
fn variable(name: &str, bytes: &[u8]) -> (String, String) {
    match std::str::from_utf8(bytes) {
        // No variable holds a zero byte.
        Ok(text) if !text.contains('\0') => (name.to_owned(), text.to_owned()),
        _ => (format!("{name}_BASE64"), BASE64_STANDARD.encode(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_comes_as_base64_under_a_name_that_says_so() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(variable("SENNIT_KEY", b"k 1"), pair("SENNIT_KEY", "k 1"));
        assert_eq!(variable("SENNIT_KEY", b"\xff\0"), pair("SENNIT_KEY_BASE64", "/wA="));
        assert_eq!(variable("SENNIT_KEY", b"a\0"), pair("SENNIT_KEY_BASE64", "YQA="));
        assert_eq!(variable_name("content-type.é2"), "CONTENT_TYPE__2");
    }
}
