//! The verdicts for printed messages and for messages whose command failed.

use std::time::Duration;

use crate::{
    exit::{Exit, Failure},
    quantity::duration,
};

/// The default delay before a message whose command failed is ready again, because it would most
/// likely fail again at once.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The options for verdicts.
#[derive(Debug, clap::Args)]
pub struct VerdictArgs {
    /// The verdict for each printed message
    #[arg(long, value_enum, value_name = "VERDICT", default_value = "ack")]
    #[arg(conflicts_with_all = ["no_ack", "exec"])]
    verdict: PrintedVerdict,
    /// With --exec: the verdict for each message whose command failed
    #[arg(long, value_enum, value_name = "VERDICT", default_value = "retry", requires = "exec")]
    on_failure: FailureVerdict,
    /// With a verdict of retry: the delay before the message is ready again [default: that of the
    /// group's retry policy; without one 0s, with --exec 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    retry_after: Option<Duration>,
    /// With a verdict of dead-letter: the reason, which is a header of the dead letter
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Default for VerdictArgs {
    fn default() -> Self {
        let (verdict, on_failure) = (PrintedVerdict::Ack, FailureVerdict::Retry);
        Self { verdict, on_failure, retry_after: None, reason: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum PrintedVerdict {
    /// The message is processed
    Ack,
    /// The attempt failed; the message is ready again after this command has ended
    Retry,
    /// The message failed for good, and goes to the dead-letter topic
    DeadLetter,
}

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
enum FailureVerdict {
    /// The message is ready again after --retry-after
    Retry,
    /// The message goes to the dead-letter topic
    DeadLetter,
}

/// The verdict for a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Acked.
    Ack,
    /// Failed; ready again after this delay, or that of the group's retry policy.
    Retry(Option<Duration>),
    /// Failed for good; the reason, if one was given.
    DeadLetter(Option<String>),
    /// Not settled: the message returns to the group.
    Nothing,
}

/// The verdicts.
#[derive(Clone, Debug)]
pub struct Verdicts {
    /// For printed messages.
    pub printed: Verdict,
    /// For messages whose command failed.
    pub failed: Verdict,
}

impl Verdicts {
    /// Returns whether printed messages are kept until the command ends: if they were settled
    /// earlier, they would come again and again.
    #[must_use]
    pub fn hold_printed(&self) -> bool {
        matches!(self.printed, Verdict::Nothing | Verdict::Retry(_))
    }
}

impl VerdictArgs {
    /// Leaves the delay of a retry to the group's policy, unless an option has it.
    pub fn leave_delay_to_group(&self, verdicts: &mut Verdicts) {
        if self.retry_after.is_none()
            && let Verdict::Retry(delay) = &mut verdicts.failed
        {
            *delay = None;
        }
    }

    /// The chosen verdicts.
    ///
    /// # Errors
    /// An option has no meaning here.
    pub fn verdicts(&self, has_exec: bool, no_ack: bool) -> Result<Verdicts, Failure> {
        let is_retry = match has_exec {
            true => self.on_failure == FailureVerdict::Retry,
            false => !no_ack && self.verdict == PrintedVerdict::Retry,
        };
        let is_dead_letter = match has_exec {
            true => self.on_failure == FailureVerdict::DeadLetter,
            false => !no_ack && self.verdict == PrintedVerdict::DeadLetter,
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
        let retry = |default| Verdict::Retry(self.retry_after.or(default));
        let dead_letter = || Verdict::DeadLetter(self.reason.clone());
        Ok(Verdicts {
            printed: match self.verdict {
                _ if no_ack => Verdict::Nothing,
                PrintedVerdict::Ack => Verdict::Ack,
                PrintedVerdict::Retry => retry(None),
                PrintedVerdict::DeadLetter => dead_letter(),
            },
            failed: match self.on_failure {
                FailureVerdict::Retry => retry(Some(RETRY_AFTER)),
                FailureVerdict::DeadLetter => dead_letter(),
            },
        })
    }
}
