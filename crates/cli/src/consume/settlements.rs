//! Settlements that wait for their confirmation.

use bytes::Bytes;
use sennit_client::{Client, DeliveryRun, Error, ErrorCode, Settled};
use sennit_model::{Message, TopicName};
use tokio::task::{JoinError, JoinSet};

use crate::{
    exit::{Exit, Failure},
    output::print_to_stderr,
};

use super::verdict::Verdict;

/// The reason of a dead letter without a given reason.
const NO_REASON: &str = "sennit consume --verdict dead-letter";

/// Settlements under way.
#[derive(Default)]
pub struct Settlements {
    waiting: JoinSet<Result<Settled, Error>>,
    stale: u64,
}

impl Settlements {
    /// Settles all messages of `run`, and handles the answers that have come.
    ///
    /// # Errors
    /// The broker has refused an earlier settlement.
    pub fn settle(&mut self, verdict: &Verdict, run: DeliveryRun) -> Result<(), Failure> {
        match verdict.clone() {
            Verdict::Nothing => {}
            Verdict::Ack => drop(self.waiting.spawn(async move { run.ack_confirmed().await })),
            Verdict::Retry(delay) => {
                self.waiting.spawn(async move {
                    match delay {
                        Some(delay) => run.retry_after_confirmed(delay).await,
                        None => run.retry_confirmed().await,
                    }
                });
            }
            Verdict::DeadLetter(reason) => {
                let reason = reason.unwrap_or_else(|| NO_REASON.to_owned());
                self.waiting.spawn(async move { run.dead_letter_confirmed(reason).await });
            }
        }
        self.count_answers()
    }

    /// Publishes a message and acks all messages of `run`, both or neither.
    ///
    /// # Errors
    /// The broker has refused an earlier settlement.
    pub fn publish(
        &mut self,
        client: &Client,
        topic: &TopicName,
        payload: Vec<u8>,
        run: DeliveryRun,
    ) -> Result<(), Failure> {
        let key = run.messages().next().map(|message| Bytes::copy_from_slice(message.key()));
        let message = Message { key: key.unwrap_or_default(), ..Message::new(payload) };
        let index = run.partition();
        let step = client.atomic().publish_to(topic, index, [message]).ack_run(&run);
        self.waiting
            .spawn(async move { settled(step.commit().await.map(drop), run.count().into()) });
        self.count_answers()
    }

    /// Replies to a request and acks it.
    ///
    /// # Errors
    /// The broker has refused an earlier settlement.
    pub fn reply(
        &mut self,
        client: &Client,
        payload: Vec<u8>,
        run: DeliveryRun,
    ) -> Result<(), Failure> {
        let (client, reply) = (client.clone(), Message::new(payload));
        self.waiting.spawn(async move {
            settled(client.reply_to_run(&run, reply).await.map(drop), run.count().into())
        });
        self.count_answers()
    }

    fn count_answers(&mut self) -> Result<(), Failure> {
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

    /// Waits until the broker has committed all of them; reports the stale ones.
    ///
    /// # Errors
    /// The broker has refused a settlement.
    pub async fn all_confirmed(mut self) -> Result<(), Failure> {
        let mut ended = Ok(());
        while let Some(answer) = self.waiting.join_next().await {
            ended = ended.and(self.count(answer));
        }
        if self.stale > 0 {
            let stale = self.stale;
            print_to_stderr(&format!(
                "{stale} messages were settled after their lease had ended: they come again"
            ));
        }
        ended
    }
}

/// What became of the messages of a step.
fn settled(done: Result<(), Error>, count: u64) -> Result<Settled, Error> {
    match done {
        Ok(()) => Ok(Settled { applied: count, stale: 0 }),
        Err(error) if error.code() == Some(ErrorCode::StaleDelivery) => {
            Ok(Settled { applied: 0, stale: count })
        }
        Err(error) => Err(error),
    }
}
