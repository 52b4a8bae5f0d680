//! Frames of a class keep their order, urgent ones wait for no more than a write, and budgets are kept.

use bytes::Bytes;
use proptest::{collection::vec, prelude::*};
use sennit_protocol::peer::{Content, PeerReader};

use super::*;

fn append(class: Class, number: u64, length: usize) -> PeerFrame {
    let content = Content::Raft { table: Box::new([7; 96]), body: Bytes::from(vec![1; length]) };
    PeerFrame { class, group: 1, number, content }
}

fn commands(number: u64, length: usize) -> PeerFrame {
    let content = Content::Commands { count: 1, body: Bytes::from(vec![1; length]) };
    PeerFrame { class: Class::Ordinary, group: 1, number, content }
}

/// The next write, as bytes.
fn write(queue: &mut SendQueue) -> Option<Bytes> {
    queue.next_write().map(|mut write| write.copy_to_bytes(write.remaining()))
}

/// The frames of what was written.
fn read(writes: &[Bytes]) -> Vec<PeerFrame> {
    let mut reader = PeerReader::before_greeting();
    reader.set_greeted();
    let mut input = BytesMut::from(&writes.concat()[..]);
    std::iter::from_fn(|| reader.next_frame(&mut input).unwrap()).collect()
}

#[test]
fn small_frames_share_a_write() {
    let mut queue = SendQueue::default();
    for number in 0..100 {
        queue.push(append(Class::Urgent, number, 0)).unwrap();
    }
    let written = write(&mut queue).unwrap();
    assert_eq!(written.len(), 100 * (PeerHeader::BYTES + RAFT_MESSAGE_BYTES));
    assert_eq!(write(&mut queue), None);
    assert_eq!(read(&[written]).len(), 100);
}

#[test]
fn an_urgent_frame_goes_before_the_next_piece_of_a_long_body() {
    let mut queue = SendQueue::default();
    queue.push(commands(1, 3 * PIECE_BYTES_MAX)).unwrap();
    let first = write(&mut queue).unwrap();
    queue.push(append(Class::Urgent, 2, 0)).unwrap();
    let second = write(&mut queue).unwrap();
    assert_eq!(read(&[first, second])[0].number, 2);
}

#[test]
fn appends_are_dropped_when_too_much_waits_and_commands_are_taken_until_the_account_is_full() {
    let mut queue = SendQueue::default();
    queue.push(append(Class::Ordinary, 0, APPEND_BYTES_MAX)).unwrap();
    assert_eq!(queue.push(append(Class::Ordinary, 1, 0)), Err(NotSent::Unreachable));
    queue.push(commands(2, APPEND_BYTES_MAX)).unwrap();
    assert_eq!(queue.push(commands(3, 0)), Err(NotSent::Full));
    assert_eq!(queue.push(append(Class::Ordinary, 4, 0)), Err(NotSent::Full));
    assert_eq!(queue.push(append(Class::Urgent, 5, 0)), Ok(()));
    // What is sent makes room.
    while write(&mut queue).is_some() {}
    assert_eq!(queue.unsent_bytes(), 0);
    assert_eq!(queue.push(append(Class::Ordinary, 6, 0)), Ok(()));
}

#[test]
fn a_node_that_reads_nothing_gets_no_urgent_frames_without_end() {
    let mut queue = SendQueue::default();
    let taken = (0..).take_while(|&number| queue.push(append(Class::Urgent, number, 0)).is_ok());
    assert_eq!(taken.count(), URGENT_BYTES_MAX.div_ceil(PeerHeader::BYTES + RAFT_MESSAGE_BYTES));
    assert_eq!(queue.push(append(Class::Urgent, 0, 0)), Err(NotSent::Unreachable));
}

/// A frame that is pushed, or a write.
fn step() -> impl Strategy<Value = Option<(Class, usize)>> {
    let length = prop_oneof![0..200_usize, 0..20_000_usize, 0..3 * PIECE_BYTES_MAX];
    let frame = (any::<bool>(), length).prop_map(|(is_urgent, length)| match is_urgent {
        true => (Class::Urgent, length.min(PIECE_BYTES_MAX)),
        false => (Class::Ordinary, length),
    });
    prop_oneof![2 => frame.prop_map(Some), 3 => Just(None)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_class_keeps_its_order_and_an_urgent_frame_waits_for_one_write_at_most(
        steps in vec(step(), 0..30),
    ) {
        let (mut queue, mut pushed) = (SendQueue::default(), Vec::new());
        let mut writes = Vec::new();
        for (number, step) in steps.iter().chain(&vec![None; 200]).enumerate() {
            match step {
                Some((class, length)) => {
                    let frame = append(*class, number as u64, *length);
                    queue.push(frame.clone()).unwrap();
                    pushed.push(frame);
                }
                None => {
                    let urgent_before = queue.unsent_bytes[0];
                    let ordinary_before = queue.unsent_bytes[1];
                    let Some(written) = write(&mut queue) else { continue };
                    prop_assert!(written.len() <= WRITE_BYTES_MAX, "{} bytes", written.len());
                    // Nothing else is in a write while an urgent frame waits.
                    let has_urgent_left = queue.unsent_bytes[0] > 0;
                    prop_assert!(!has_urgent_left || queue.unsent_bytes[1] == ordinary_before);
                    prop_assert!(urgent_before == 0 || queue.unsent_bytes[0] < urgent_before);
                    writes.push(written);
                }
            }
        }
        prop_assert_eq!(queue.unsent_bytes(), 0);
        let read = read(&writes);
        for class in Class::ALL {
            let of_class = |frames: &[PeerFrame]| -> Vec<_> {
                frames.iter().filter(|frame| frame.class == class).cloned().collect()
            };
            prop_assert_eq!(of_class(&read), of_class(&pushed));
        }
    }
}
