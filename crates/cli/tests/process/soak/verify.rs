//! The checks at the end of a soak: every message of a ledger exists, and no other.

use std::rc::Rc;

use sennit_client::GroupName;
use tokio::time::timeout;

use super::{BATCH_MAX, PATIENCE, RETAINED_BYTES, World};

/// What a stream says of itself, and for some of them what it delivers.
pub async fn stream(world: Rc<World>, index: usize) {
    let held = &world.streams[index];
    let ledger = held.ledger.lock().await;
    let client = world.client(index as u64);
    let described = client.describe_topic(&held.name).await.unwrap();
    let partition = described.partitions[0];
    assert_eq!(partition.end.0, ledger.end(), "{} has other messages", held.name);
    let most = BATCH_MAX * (2 << 10);
    assert!(
        partition.bytes <= RETAINED_BYTES + most,
        "{} keeps too much: {partition:?}",
        held.name
    );
    let is_whole = partition.start.0 == 0 || partition.bytes + most >= RETAINED_BYTES;
    assert!(is_whole, "{} keeps too little: {partition:?}", held.name);
    if !(index as u32).is_multiple_of(world.scale.sampled) || partition.start == partition.end {
        return;
    }
    let group = "verify".parse().unwrap();
    let mut consumer = world.subscribe(held, &group, index as u64).await;
    let mut next = partition.start.0;
    while next < partition.end.0 {
        let run = timeout(PATIENCE, consumer.next_run()).await;
        let run = run.unwrap_or_else(|_| panic!("{} lost {next} and on", held.name));
        let run = run.expect("the subscription goes on").unwrap();
        for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
            assert_eq!(offset, next, "{} skipped messages", held.name);
            assert_eq!(ledger.judge(offset, message.payload()), None, "{}", held.name);
            next += 1;
        }
        run.ack();
    }
    consumer.close().await.unwrap();
}

/// Empties a queue: all that the ledger says must come, and nothing else.
pub async fn queue(world: Rc<World>, index: usize) {
    let held = &world.queues[index];
    let mut ledger = held.ledger.lock().await;
    let client = world.client(index as u64);
    let before = client.describe_group(&held.name, &GroupName::default_group()).await.unwrap();
    let counted = before.ready + before.leased + before.delayed + before.dying;
    assert_eq!(counted, ledger.unsettled(), "{}: {before:?}", held.name);
    world.consume((held, &mut ledger), u64::MAX, (index as u64, None)).await;
    let after = client.describe_group(&held.name, &GroupName::default_group()).await.unwrap();
    let left = after.ready + after.leased + after.delayed + after.dying;
    assert_eq!(left, 0, "{}: {after:?}", held.name);
}
