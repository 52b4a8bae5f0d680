//! Consumers of a history: they ack, with and without a confirm, fail some attempts, and come and go.

use std::{rc::Rc, time::Duration};

use sennit_client::{DeliveryRun, Error, Received};
use sennit_history::{Delivered, Settlement, What};
use tokio::time::timeout;

use super::{
    recorder::content_of,
    workload::{LOOKS_UP, World},
};
use crate::torture::Choices;

/// After so many runs at most a consumer ends, and another begins.
const RUNS_MAX: u64 = 400;

const CREDIT_MESSAGES: u32 = 128;

/// Consumes as a member of the group of this number until no more is wanted, by one consumer behind another.
pub async fn consume(world: Rc<World>, group: usize, mut choices: Choices) {
    while world.is_consuming() {
        let (process, number) = (world.recorder.number(), world.recorder.number());
        let client = world.client().await;
        let subscribe = || {
            let builder = client.consumer(&world.topic, &world.groups[group]);
            builder.credit_messages(CREDIT_MESSAGES).subscribe()
        };
        let mut consumer = world.again("a consumer subscribes", subscribe).await;
        for _ in 0..1 + choices.below(RUNS_MAX) {
            if !world.is_consuming() {
                break;
            }
            let begun_ns = world.recorder.now_ns();
            let received = match timeout(LOOKS_UP, consumer.receive_run()).await {
                Ok(received) => received,
                Err(_elapsed) => continue,
            };
            let run = match received {
                Some(Ok(Received::Delivered(run))) => run,
                Some(Ok(Received::Gap(gap))) => world.fail(&format!("consumer {number}: {gap}")),
                Some(Err(error)) => world.fail(&format!("consumer {number} ended: {error}")),
                None => world.fail(&format!("consumer {number} ended")),
            };
            delivered(&world, process, number, group, begun_ns, &run);
            verdict(&world, process, group, &run, &mut choices).await;
        }
        drop(consumer);
        client.close().await;
    }
}

fn delivered(
    world: &World,
    process: u32,
    consumer: u32,
    group: usize,
    begun_ns: u64,
    run: &DeliveryRun,
) {
    let what = What::Delivered(Delivered {
        consumer,
        group: u32::try_from(group).unwrap(),
        partition: run.partition().0,
        first: run.first_offset().0,
        contents: run.messages().map(|message| content_of(message.payload())).collect(),
        generation: run.generation().0.into(),
        attempt: run.attempt(),
    });
    world.recorder.add(process, begun_ns, what);
}

/// Settles a run, and records what was confirmed.
async fn verdict(
    world: &World,
    process: u32,
    group: usize,
    run: &DeliveryRun,
    choices: &mut Choices,
) {
    match choices.below(20) {
        0 => return run.retry(),
        1 => return run.retry_after(Duration::from_millis(choices.below(50))),
        2 => return run.ack(),
        _ => {}
    }
    let begun_ns = world.recorder.now_ns();
    let is_confirmed = match run.ack_confirmed().await {
        // Where some of them are stale, it is not said which ones are.
        Ok(settled) => settled.stale == 0,
        Err(Error::OutcomeUnknown | Error::Closed) => false,
        Err(error) => world.fail(&format!("an ack ended with {error}")),
    };
    let settlement = Settlement {
        group: u32::try_from(group).unwrap(),
        partition: run.partition().0,
        first: run.first_offset().0,
        count: run.count(),
        generation: run.generation().0.into(),
        attempt: run.attempt(),
        is_confirmed,
    };
    world.recorder.add(process, begun_ns, What::Settlement(settlement));
}
