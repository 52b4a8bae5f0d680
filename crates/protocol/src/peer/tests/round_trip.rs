//! Frames survive the way over a link, however their bytes arrive and whatever overtakes them.

use bytes::BytesMut;
use proptest::{collection::vec, prelude::*};

use super::any_peer_frame::{answer, bytes_of, first_frame, frame, greeted, greeting, read};
use crate::peer::{Class, Content, PeerFrame, PeerReader, Pieces};

/// Sends a piece of a frame of one class at a time, in the order of `turns`; the bytes, and the order in which the last
/// pieces went.
fn interleaved(frames: &[PeerFrame], turns: &[Class]) -> (BytesMut, Vec<PeerFrame>) {
    let mut waiting = Class::ALL.map(|class| {
        let of_class = frames.iter().rev().filter(|frame| frame.class == class);
        of_class.map(|frame| (frame.clone(), Pieces::new(frame.clone()))).collect::<Vec<_>>()
    });
    let (mut out, mut order) = (BytesMut::new(), Vec::new());
    let mut turns = turns.iter().chain(&Class::ALL).cycle();
    while waiting.iter().any(|frames| !frames.is_empty()) {
        let of_class = &mut waiting[turns.next().unwrap().index()];
        if let Some((_, pieces)) = of_class.last_mut() {
            let body = pieces.next_piece(&mut out);
            out.extend_from_slice(&body);
            if pieces.is_sent() {
                order.extend(of_class.pop().map(|(frame, _)| frame));
            }
        }
    }
    (out, order)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_greeting_is_read_as_it_was_sent(greeting in greeting(), part in 1..100_usize) {
        let sent = first_frame(Content::Greeting(greeting));
        let read = read(PeerReader::before_greeting(), &bytes_of(sent.clone()), part);
        prop_assert_eq!(read, Ok(vec![sent]));
    }

    #[test]
    fn an_answer_is_read_as_it_was_sent(answer in answer(), part in 1..100_usize) {
        let sent = first_frame(Content::GreetingAnswer(answer));
        let read = read(PeerReader::before_greeting(), &bytes_of(sent.clone()), part);
        prop_assert_eq!(read, Ok(vec![sent]));
    }

    #[test]
    fn frames_are_read_as_they_were_sent(
        frames in vec(frame(), 1..5),
        part in prop_oneof![1..200_usize, 1..1_000_000_usize],
    ) {
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| bytes_of(frame.clone())).collect();
        // Byte by byte only where there are few.
        let part = part.max(bytes.len() / 10_000);
        prop_assert_eq!(read(greeted(), &bytes, part), Ok(frames));
    }

    #[test]
    fn frames_of_other_classes_come_between_pieces_and_each_class_keeps_its_order(
        frames in vec(frame(), 1..6),
        turns in vec(prop::sample::select(&Class::ALL[..]), 0..12),
    ) {
        let (bytes, order) = interleaved(&frames, &turns);
        let read = read(greeted(), &bytes, 100_000).unwrap();
        prop_assert_eq!(&read, &order);
        for class in Class::ALL {
            let of_class = |frames: &[PeerFrame]| -> Vec<_> {
                frames.iter().filter(|frame| frame.class == class).cloned().collect()
            };
            prop_assert_eq!(of_class(&read), of_class(&frames));
        }
    }
}
