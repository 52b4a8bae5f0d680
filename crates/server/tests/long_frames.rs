//! What long frames of a publisher cost the broker that reads them: heap bytes asked for.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a step that fails ends the test")]

mod counting;
#[path = "server/stream.rs"]
#[expect(dead_code, reason = "most of it is for others")]
mod stream;
#[path = "server/world.rs"]
#[expect(dead_code, reason = "most of it is for others")]
mod world;

use std::sync::atomic::Ordering;

use counting::ASKED_BYTES;
use sennit_protocol::Request;
use world::{Broker, publish};

const FRAMES: u64 = 64;
const FRAME_BYTES: usize = 1 << 20;

#[test]
fn a_long_frame_is_read_into_one_place_that_was_made_for_it() {
    let (broker, _folder) = Broker::fresh();
    let mut publisher = broker.greeted();
    let topic = publisher.create_topic("long", 1);
    let text = "x".repeat(FRAME_BYTES);
    let frames: Vec<Vec<u8>> = (0..=FRAMES)
        .map(|sequence| {
            let mut bytes = Vec::new();
            Request::Publish(publish(topic, 0, sequence, &[&text])).encode(0, &mut bytes);
            bytes
        })
        .collect();
    // What room is made for one is known by then.
    publisher.send_bytes(&frames[0]);
    publisher.confirmed_up_to(1);
    let before = ASKED_BYTES.load(Ordering::Relaxed);
    for (sequence, frame) in (1..).zip(&frames[1..]) {
        publisher.send_bytes(frame);
        if sequence % 8 == 0 {
            publisher.confirmed_up_to(sequence + 1);
        }
    }
    let asked = ASKED_BYTES.load(Ordering::Relaxed) - before;
    let each = asked as f64 / (FRAMES as usize * FRAME_BYTES) as f64;
    eprintln!("{each:.2} bytes for each");
    broker.stop();
    // One for the frame, and one for the lane that writes it.
    assert!(each < 2.8, "{each:.2} bytes were asked for each that was sent");
}
