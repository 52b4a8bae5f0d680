//! Histories of real clients while a nemesis troubles their broker and the links to it: a checker judges what they were
//! told. `SENNIT_TORTURE_CYCLES` or `SENNIT_TORTURE_SECONDS` make it long, `SENNIT_TORTURE_SEED` repeats its choices. A
//! history that breaks a promise is written to a file, with the faults beside it.

mod consuming;
mod nemesis;
pub mod proxy;
mod publishing;
mod reading;
mod recorder;
mod three_nodes;
mod workload;

use std::{panic::resume_unwind, sync::mpsc, thread, time::Instant};

use tokio::sync::oneshot;

use self::{
    nemesis::{End, Line, Nemesis},
    proxy::Network,
    recorder::Diary,
    three_nodes::three,
    workload::work,
};
use crate::{
    bounds::within_bound,
    broker::Broker,
    torture::{Choices, kills, long, seed_of},
};

/// Faults of a history: one that is longer is judged in parts.
const FAULTS_OF_A_HISTORY: usize = 30;

/// Faults of a test that is not to be long.
const FAULTS: u32 = 12;

/// The same with three nodes.
const FAULTS_OF_THREE: u32 = 30;

/// So much of each has to happen in a history at least: in a hard one the nodes are seldom there.
const LEAST_OF_EACH: u64 = 30;

/// Links of clients to one broker, each troubled by itself.
const LINKS_OF_CLIENTS: usize = 2;

/// Works and troubles, history after history, until there were so many faults. A history that says too little is none.
fn rage(test: &str, few: u32, nemesis: &mut Nemesis) {
    let seed = seed_of(test);
    let mut faults = kills(few).peekable();
    let mut numbers = 0_u64..;
    while faults.peek().is_some() {
        let seed = seed.wrapping_add(numbers.next().expect("it has no end"));
        let diary = Diary::begin();
        nemesis.choices = Choices::new(seed);
        let clients = nemesis.lines.iter().filter(|line| line.from == End::Clients);
        let addresses = clients.map(|line| line.link.address.clone()).collect();
        let begun = Instant::now();
        let (begin, is_begun) = mpsc::channel();
        let (end, is_over) = oneshot::channel();
        let counts = thread::scope(|scope| {
            let (nemesis, noted) = (&mut *nemesis, diary.clone());
            let of_this = faults.by_ref().take(FAULTS_OF_A_HISTORY);
            let raging = scope.spawn(move || {
                // Where the work fails, nobody begins this or waits for its end.
                if is_begun.recv().is_ok() {
                    nemesis.rage(of_this, &noted);
                    let _ = end.send(());
                }
            });
            let faults = async move {
                begin.send(()).expect("the nemesis waits");
                is_over.await.expect("the nemesis does not fail");
            };
            let name = format!("{test}-{seed}");
            let work = work(&name, seed, addresses, diary.clone(), faults);
            let counts = within_bound(long(), "the work ends", work);
            raging.join().unwrap_or_else(|panic| resume_unwind(panic));
            counts
        });
        let made = nemesis.take_made();
        eprintln!("{test}: seed {seed}, {:?}, {counts:?}, {made:?}", begun.elapsed());
        let enough = [counts.confirmed, counts.read, counts.delivered, counts.settled, counts.ends];
        let is_enough = enough.iter().all(|&count| count >= LEAST_OF_EACH);
        assert!(is_enough, "too little happened: {counts:?}");
    }
}

#[test]
fn one_broker_keeps_its_promises_while_it_is_killed_and_stopped_and_its_links_break() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let network = Network::new();
    let links = (0..LINKS_OF_CLIENTS).map(|_| network.link(&broker.listen));
    let lines = links.map(|link| Line { from: End::Clients, to: 0, link }).collect();
    let mut nemesis = Nemesis::new(vec![broker], lines);
    rage("histories", FAULTS, &mut nemesis);
    assert_eq!(nemesis.brokers[0].terminate(), Some(0));
}

#[test]
fn three_nodes_keep_their_promises_while_they_are_killed_stopped_and_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let network = Network::new();
    let mut nemesis = three(&network, folder.path());
    rage("cluster-histories", FAULTS_OF_THREE, &mut nemesis);
}
