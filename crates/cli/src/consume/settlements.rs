//! What was said of messages and is on its way to being confirmed. Knows no output.

use sennit_client::{DeliveryRun, Error, Settled};
use tokio::task::{JoinError, JoinSet};

use crate::{
    exit::{Exit, Failure},
    output::talk,
};

use super::verdict::Verdict;

/// What is written into a dead letter for which no reason was given.
const NO_REASON: &str = "sennit consume --verdict dead-letter";

/// Settlements on their way.
#[derive(Default)]
pub struct Settlements {
    waiting: JoinSet<Result<Settled, Error>>,
    stale: u64,
}

impl Settlements {
    /// Says `verdict` of all messages of `run`, and looks at the answers that have come.
    ///
    /// # Errors
    /// The broker has refused an earlier one.
    pub fn say(&mut self, verdict: &Verdict, run: DeliveryRun) -> Result<(), Failure> {
        match verdict.clone() {
            Verdict::Nothing => {}
            Verdict::Ack => drop(self.waiting.spawn(async move { run.ack_confirmed().await })),
            Verdict::Retry(rest) => {
                let said = async move { run.retry_after_confirmed(rest).await };
                self.waiting.spawn(said);
            }
            Verdict::DeadLetter(reason) => {
                let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
                self.waiting.spawn(async move { run.dead_letter_confirmed(reason).await });
            }
        }
        while let Some(answer) = self.waiting.try_join_next() {
            self.count(answer)?;
        }
        Ok(())
    }

    fn count(&mut self, answer: Result<Result<Settled, Error>, JoinError>) -> Result<(), Failure> {
        let answer = answer.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        self.stale += answer?.stale;
        Ok(())
    }

    /// Waits until the broker has committed all of them; says how many came too late.
    ///
    /// # Errors
    /// The broker has refused one.
    pub async fn all_confirmed(mut self) -> Result<(), Failure> {
        let mut ended = Ok(());
        while let Some(answer) = self.waiting.join_next().await {
            ended = ended.and(self.count(answer));
        }
        if self.stale > 0 {
            let stale = self.stale;
            talk(&format!(
                "{stale} messages were settled after their lease had ended: they come again"
            ));
        }
        ended
    }
}
