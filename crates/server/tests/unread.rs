//! What a client costs that takes part in much and does not read: heap bytes of a whole broker.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a step that fails ends the test")]

mod counting;
#[path = "server/stream.rs"]
#[expect(dead_code, reason = "most of it is for others")]
mod stream;
#[path = "server/world.rs"]
#[expect(dead_code, reason = "most of it is for others")]
mod world;

use std::sync::atomic::Ordering;

use sennit_model::{
    TopicId,
    limits::{CREDIT_BYTES_MAX, DELIVERIES_WAITING_BYTES_MAX},
};
use sennit_protocol::{Features, Reply, Request, SetCredit, Taken, control};

use counting::{HELD_BYTES, PEAK_BYTES};
use world::{Broker, Peer, publish, texts_of};

/// Streams, and messages in each: six times as much as may wait for one socket.
const STREAMS: u32 = 6;
const MESSAGES: u64 = 16;
const MESSAGE_BYTES: usize = DELIVERIES_WAITING_BYTES_MAX / MESSAGES as usize;

/// A peer that may read.
fn reader(broker: &Broker) -> Peer {
    let hello = control::Hello { features: Features::ALL.names(), ..<_>::default() };
    broker.connect().greeted_with(hello).0
}

fn read(stream: u32, credit_bytes: u64) -> Request {
    let (topic, credit_messages) = (format!("stream-{stream}"), 1000);
    let subscription = stream;
    let read =
        control::Read { subscription, topic, credit_messages, credit_bytes, ..<_>::default() };
    Request::Read(read)
}

/// Reads everything, piece by piece: by then all was given to everybody else that they may have.
fn others_read_all(broker: &Broker) {
    for stream in 0..STREAMS {
        let mut other = reader(broker);
        assert!(matches!(other.ask(&read(stream, 1)), Reply::Subscribed(_)));
        for _ in 0..MESSAGES {
            let head = other.delivery().head;
            let (partition, messages) = (head.partition, head.count);
            let bytes = MESSAGE_BYTES as u64 + 1000;
            let taken = Taken { subscription: stream, partition, messages, bytes };
            other.send(&Request::Taken(taken));
        }
    }
}

#[test]
fn a_client_that_does_not_read_is_given_no_more_than_may_wait_and_all_of_it_once_it_reads() {
    let (broker, _folder) = Broker::fresh();
    let mut publisher = broker.greeted();
    let text = "x".repeat(MESSAGE_BYTES);
    for stream in 0..STREAMS {
        let topic: TopicId = publisher.create_topic(&format!("stream-{stream}"), 1);
        for sequence in 0..MESSAGES {
            publisher.send(&Request::Publish(publish(topic, 0, sequence, &[&text])));
            publisher.confirmed_up_to(sequence + 1);
        }
    }
    drop((publisher, text));
    let mut deaf = reader(&broker);
    PEAK_BYTES.store(0, Ordering::Relaxed);
    let before = HELD_BYTES.load(Ordering::Relaxed);
    for stream in 0..STREAMS {
        deaf.send(&read(stream, CREDIT_BYTES_MAX));
    }
    others_read_all(&broker);
    // Another window is for when there is room.
    for subscription in 0..STREAMS {
        let window = SetCredit { subscription, messages: 2000, bytes: CREDIT_BYTES_MAX };
        deaf.send(&Request::SetCredit(window));
    }
    others_read_all(&broker);
    let held = PEAK_BYTES.load(Ordering::Relaxed) - before;
    let (mut messages, all) = (0, STREAMS as usize * MESSAGES as usize);
    while messages < all {
        messages += texts_of(&deaf.delivery()).len();
    }
    broker.stop();
    eprintln!("{} MiB at the most", held >> 20);
    assert!(held < 3 * DELIVERIES_WAITING_BYTES_MAX, "{held} bytes were held");
}
