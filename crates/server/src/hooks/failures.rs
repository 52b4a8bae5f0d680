//! What hooks make of failed attempts. The shards of a core ask about those of topics whose script names `on_failure`;
//! the script runs here, on the core of the shard, and the decisions go back as a command.

use std::{
    cell::RefCell,
    collections::VecDeque,
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_engine::{
    Command, FailedAttempt, FailedAttempts, FailureAnswer, FailureAnswers, FailureDecision,
};
use sennit_hooks::{Failure, FailureDecision as Decided, Settings};
use sennit_model::{PartitionId, PartitionIndex, TopicName};
use tokio::{sync::Notify, task::spawn_local};

use super::{
    breaker::BreakerState,
    core_hooks::CoreHooks,
    topic_hook::TopicHook,
    topic_settings::{self, TopicSettings, Topics},
};
use crate::{
    broker::configuration::ChangeListener,
    identity::authority::Authority,
    runtime::{
        clock::now,
        core::{CoreHandle, Cores, FailureDecider},
        index::ShardIndex,
    },
};

/// How long a hook may compute before others have their turn.
const TURN: Duration = Duration::from_millis(1);

/// Failed attempts of a core's shards that wait for their hooks.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    waiting: RefCell<VecDeque<(ShardIndex, FailedAttempts)>>,
    added: Notify,
}

impl FailureDecider for Failures {
    fn failed(&self, shard: ShardIndex, attempts: FailedAttempts) {
        self.waiting.borrow_mut().push_back((shard, attempts));
        self.added.notify_one();
    }
}

impl Failures {
    /// Has hooks decide, as long as the core's thread lives. Hooks of several topics take turns.
    pub(crate) async fn serve(
        self: Rc<Self>,
        core: CoreHandle,
        authority: Authority,
        hooks: Rc<CoreHooks>,
    ) {
        loop {
            self.added.notified().await;
            while let Some((shard, failed)) = self.next() {
                let (core, authority, hooks) = (core.clone(), authority.clone(), hooks.clone());
                spawn_local(async move {
                    let answers = hooks.on_failures(&core.cores, &authority, shard, failed).await;
                    core.with(|core| {
                        core.command(shard, Command::DecideFailures(answers));
                        core.handle();
                    });
                });
            }
        }
    }

    fn next(&self) -> Option<(ShardIndex, FailedAttempts)> {
        self.waiting.borrow_mut().pop_front()
    }
}

/// Has the shards of a core ask about the topics whose hooks decide about failed attempts.
#[derive(Debug)]
pub(crate) struct FailureWatch(pub(crate) CoreHandle);

impl ChangeListener for FailureWatch {
    fn changed(&self) {
        let Self(core) = self;
        let Some(hooks) = core.services.find::<CoreHooks>() else { return };
        let topics = hooks.topics_with_on_failure();
        core.with(|own| {
            for shard in core.cores.placement.shards_of(core.index) {
                own.command(shard, Command::WatchFailures(topics.clone()));
            }
            own.handle();
        });
    }
}

impl CoreHooks {
    async fn on_failures(
        &self,
        cores: &Cores,
        authority: &Authority,
        shard: ShardIndex,
        failed: FailedAttempts,
    ) -> FailureAnswers {
        let FailedAttempts { partition, group, attempts } = failed;
        let hook = self.find(partition.topic);
        let topic = match &hook {
            Some(hook) => hook.settings(cores).await.ok().flatten(),
            None => None,
        };
        let configuration = self.settings();
        let mut answers = Vec::with_capacity(attempts.len());
        let mut turn = Instant::now();
        for attempt in attempts {
            let (offset, count) = (attempt.offset, attempt.attempts);
            let decision = match (&hook, &topic) {
                (Some(hook), Some(topic)) => {
                    let place = (shard, partition);
                    hook.decide_failure(topic, cores, &configuration, place, attempt).await
                }
                // The hook is gone, or its topic.
                _ => FailureDecision::Policy,
            };
            answers.push(FailureAnswer { offset, attempts: count, decision });
            if turn.elapsed() >= TURN {
                tokio::task::yield_now().await;
                turn = Instant::now();
            }
        }
        if let Some(topic) = &topic {
            charge_routed(authority, topic, &answers);
        }
        FailureAnswers { partition, group, answers }
    }
}

/// Has the tenant of a topic pay for the messages that its hook publishes elsewhere. They are published all the same: a
/// message that has failed has to go somewhere.
fn charge_routed(authority: &Authority, topic: &TopicSettings, answers: &[FailureAnswer]) {
    let bytes = answers.iter().filter_map(|answer| match &answer.decision {
        FailureDecision::Route { message, .. } => Some(message.len() as u64),
        _ => None,
    });
    let batch = bytes.fold((0, 0), |(count, sum), bytes| (count + 1, sum + bytes));
    if batch.0 > 0
        && let Some(meter) = authority.meter_of_topic(topic.name.as_str())
    {
        meter.charge(batch, now());
    }
}

impl TopicHook {
    /// A hook that fails or rests leaves the policy.
    async fn decide_failure(
        &self,
        topic: &TopicSettings,
        cores: &Cores,
        configuration: &Rc<dyn Settings>,
        place: (ShardIndex, PartitionId),
        attempt: FailedAttempt,
    ) -> FailureDecision {
        if matches!(self.state(), BreakerState::Open(_)) {
            return FailureDecision::Policy;
        }
        let FailedAttempt { attempts, appended_at, failed_at, reason, message, .. } = attempt;
        let age = failed_at.since(appended_at);
        let failure = Failure { attempts, age, reason: reason.to_string() };
        let decided = match self.on_failure(topic, configuration, message.clone(), failure) {
            Ok(Decided::Default) => Ok(FailureDecision::Policy),
            Ok(Decided::RetryAfter(delay)) => Ok(FailureDecision::RetryAfter(delay)),
            Ok(Decided::DeadLetter(reason)) => Ok(FailureDecision::DeadLetter { reason }),
            Ok(Decided::Route(name)) => route(&name, cores, place).await.map(|target| {
                let (topic, partitions) = (target.id, target.partitions);
                FailureDecision::Route { topic, partitions, message }
            }),
            Err(error) => Err(error),
        };
        match decided {
            Ok(decision) => {
                self.decided_failure();
                decision
            }
            Err(reason) => {
                self.failed(&reason, now());
                FailureDecision::Policy
            }
        }
    }
}

/// The topic of this name, if a message of a partition can be published there in the record that settles it.
async fn route(
    name: &str,
    cores: &Cores,
    (shard, partition): (ShardIndex, PartitionId),
) -> Result<TopicSettings, String> {
    let wrong = |error: sennit_model::NameError| format!("route: {name:?} is no topic: {error}");
    let topic: TopicName = name.parse().map_err(wrong)?;
    let found = topic_settings::ask(cores, Topics::Named(topic)).await;
    let found = found.map_err(|refusal| refusal.to_string())?.into_iter().next();
    let target = found.ok_or_else(|| format!("route: there is no topic {name}"))?;
    if target.id == partition.topic {
        return Err(format!("route: {name} is the topic that the message is in"));
    }
    let index = PartitionIndex(partition.index.0 % target.partitions.max(1));
    if cores.placement.shard_of(target.home, index) != shard {
        return Err(format!(
            "route: {name} lies on another shard: create it with `sennit topic create {name} --beside TOPIC`"
        ));
    }
    Ok(target)
}
