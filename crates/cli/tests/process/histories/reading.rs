//! Readers of a history: they begin anywhere, follow what is published, come and go, and in the end read all back.

use std::rc::Rc;

use sennit_client::{Client, Gap, GapReason, Offset, ReadFrom, Reader, Received};
use sennit_history::{self as history, ReadStart, What};
use tokio::time::timeout;

use super::{
    recorder::content_of,
    workload::{LOOKS_UP, World},
};
use crate::torture::Choices;

/// After so many runs at most a reader ends, and another begins.
const RUNS_MAX: u64 = 400;

/// Starts a reader and records where it begins; returns it with its number.
pub async fn begin(
    world: &Rc<World>,
    process: u32,
    client: &Client,
    from: ReadFrom,
    reads_back: bool,
) -> (u32, Reader) {
    // Of the attempts only the one that is answered says something.
    let started = async || {
        let begun_ns = world.recorder.now_ns();
        let builder = client.reader(&world.topic).from(from).until_end(reads_back);
        builder.start().await.map(|reader| (begun_ns, reader))
    };
    let (begun_ns, reader) = world.again("a reader starts", started).await;
    let number = world.recorder.number();
    for (partition, range) in (0..).zip(reader.ranges()) {
        let from = match from {
            ReadFrom::Earliest => Some(0),
            ReadFrom::Offset(offset) => Some(offset.0.min(range.end.0)),
            ReadFrom::Latest | ReadFrom::Last(_) | ReadFrom::Time(_) => None,
        };
        let (first, end) = (range.first.0, range.end.0);
        let start = ReadStart { reader: number, partition, from, first, end, reads_back };
        world.recorder.add(process, begun_ns, What::ReadStart(start));
    }
    (number, reader)
}

/// The next that a reader receives, recorded; false once it has ended.
async fn receive(world: &World, process: u32, number: u32, reader: &mut Reader) -> bool {
    let begun_ns = world.recorder.now_ns();
    let what = match reader.receive_run().await {
        None => return false,
        Some(Ok(Received::Delivered(run))) => What::Read(history::Read {
            reader: number,
            partition: run.partition().0,
            first: run.first_offset().0,
            contents: run.messages().map(|message| content_of(message.payload())).collect(),
        }),
        Some(Ok(Received::Gap(gap))) => What::Gap(gap_of(number, &gap)),
        Some(Err(error)) => {
            world.fail(&format!("reader {number} ended: {error}"));
        }
    };
    world.recorder.add(process, begun_ns, what);
    true
}

fn gap_of(reader: u32, gap: &Gap) -> history::Gap {
    history::Gap {
        reader,
        partition: gap.partition.0,
        start: gap.offsets.start.0,
        end: gap.offsets.end.0,
        is_retention: gap.reason == GapReason::Retention,
    }
}

/// Reads until no more is wanted, by one reader behind another.
pub async fn read(world: Rc<World>, mut choices: Choices) {
    while world.is_consuming() {
        let process = world.recorder.number();
        let client = world.client().await;
        let from = match choices.below(3) {
            0 => ReadFrom::Latest,
            1 => ReadFrom::Last(choices.below(500)),
            _ => ReadFrom::Offset(Offset(choices.below(1000))),
        };
        let (number, mut reader) = begin(&world, process, &client, from, false).await;
        for _ in 0..1 + choices.below(RUNS_MAX) {
            if !world.is_consuming() {
                break;
            }
            let received = receive(&world, process, number, &mut reader);
            match timeout(LOOKS_UP, received).await {
                Ok(goes_on) => assert!(goes_on, "reader {number} ended"),
                Err(_elapsed) => {}
            }
        }
        drop(reader);
        client.close().await;
    }
}

/// Reads all partitions from their begin to their end, through the address of this number.
pub async fn read_back(world: &Rc<World>, address: usize) {
    let process = world.recorder.number();
    let client = world.client_at(address).await;
    let (number, mut reader) = begin(world, process, &client, ReadFrom::Earliest, true).await;
    while receive(world, process, number, &mut reader).await {}
    client.close().await;
}
