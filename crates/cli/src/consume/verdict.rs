//! What is said of messages: of those that were printed, and of those whose command failed. Knows no
//! message.

use std::time::Duration;

use crate::{
    exit::{Exit, Failure},
    quantity::duration,
};

/// How long a message rests whose command failed, unless something else is said: what has just failed
/// would fail at once again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What can be said on the command line.
#[derive(Debug, clap::Args)]
pub struct VerdictArgs {
    /// What to say of each message that was printed
    #[arg(long, value_enum, value_name = "VERDICT", default_value = "ack")]
    #[arg(conflicts_with_all = ["no_ack", "exec"])]
    verdict: OfPrinted,
    /// With --exec: what to say of each message whose command failed
    #[arg(long, value_enum, value_name = "VERDICT", default_value = "retry", requires = "exec")]
    on_failure: OfFailed,
    /// With a verdict of retry: how long the message rests before it is ready again [default: 0s, with
    /// --exec 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retry_after: Option<Duration>,
    /// With a verdict of dead-letter: why, which is a header of the dead letter
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum OfPrinted {
    /// It is done
    Ack,
    /// It failed, and is ready again once this command has ended
    Retry,
    /// It failed for good, and goes to the dead-letter topic
    DeadLetter,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum OfFailed {
    /// It is ready again after --retry-after
    Retry,
    /// It goes to the dead-letter topic
    DeadLetter,
}

/// What is said of one message.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is done.
    Ack,
    /// It failed, and is ready again after so long.
    Retry(Duration),
    /// It failed for good; the reason, if one was given.
    DeadLetter(Option<String>),
    /// Nothing: it returns to the group.
    Nothing,
}

/// What is said of messages.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// Of those that were printed.
    pub printed: Verdict,
    /// Of those whose command failed.
    pub failed: Verdict,
}

impl Verdicts {
    /// Whether messages that were printed are kept until the command ends: said earlier, the same ones
    /// would come again and again.
    #[must_use]
    pub fn hold_printed(&self) -> bool {
        matches!(self.printed, Verdict::Nothing | Verdict::Retry(_))
    }
}

impl VerdictArgs {
    /// What is to be said.
    ///
    /// # Errors
    /// A part of the command line means nothing here.
    pub fn verdicts(&self, has_exec: bool, no_ack: bool) -> Result<Verdicts, Failure> {
        let is_retry = match has_exec {
            true => self.on_failure == OfFailed::Retry,
            false => !no_ack && self.verdict == OfPrinted::Retry,
        };
        let is_dead_letter = match has_exec {
            true => self.on_failure == OfFailed::DeadLetter,
            false => !no_ack && self.verdict == OfPrinted::DeadLetter,
        };
        let option = if has_exec { "--on-failure" } else { "--verdict" };
        if self.retry_after.is_some() && !is_retry {
            return Err(Failure::new(
                Exit::Usage,
                format!("--retry-after goes with {option} retry"),
            ));
        }
        if self.reason.is_some() && !is_dead_letter {
            return Err(Failure::new(
                Exit::Usage,
                format!("--reason goes with {option} dead-letter"),
            ));
        }
        let retry = |unless_said| Verdict::Retry(self.retry_after.unwrap_or(unless_said));
        let dead_letter = || Verdict::DeadLetter(self.reason.clone());
        Ok(Verdicts {
            printed: match self.verdict {
                _ if no_ack => Verdict::Nothing,
                OfPrinted::Ack => Verdict::Ack,
                OfPrinted::Retry => retry(Duration::ZERO),
                OfPrinted::DeadLetter => dead_letter(),
            },
            failed: match self.on_failure {
                OfFailed::Retry => retry(RETRY_AFTER),
                OfFailed::DeadLetter => dead_letter(),
            },
        })
    }
}
