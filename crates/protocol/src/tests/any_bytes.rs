//! Arbitrary bytes never cause a panic, never take more memory than their size justifies, and a body of the data
//! path has exactly one encoding.

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, prelude::*};
use sennit_model::{Offset, OffsetRange, PartitionIndex, limits::GREETING_BYTES_MAX};

use super::any_frame::{reply, request};
use crate::*;

fn header_and_body() -> impl Strategy<Value = (FrameHeader, Bytes)> {
    let kind =
        prop_oneof![prop::sample::select(Kind::ALL).prop_map(|kind| kind as u8), any::<u8>(),];
    // Small numbers are likely to be counts, kinds and field tags that mean something.
    let byte = prop_oneof![any::<u8>(), 0..6u8, Just(0)];
    (kind, vec(byte, 0..200)).prop_map(|(kind, body)| {
        let size = u32::try_from(body.len()).unwrap();
        (FrameHeader { size, kind, flags: 0, request: 7 }, Bytes::from(body))
    })
}

fn is_hot(kind: Kind) -> bool {
    (Kind::Publish..=Kind::PublishedAt).contains(&kind) || kind == Kind::PublishAtomic
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_body_is_read_or_refused_with_a_reason((header, body) in header_and_body()) {
        let mut out = Vec::new();
        let hot = match (
            Request::decode(&header, body.clone()),
            Reply::decode(&header, body.clone()),
        ) {
            (Ok(request), _) => {
                request.encode(header.request, &mut out);
                is_hot(request.kind())
            }
            (_, Ok(reply)) => {
                reply.encode(header.request, &mut out);
                is_hot(reply.kind())
            }
            (Err(refused), Err(other)) => {
                prop_assert!(!refused.to_string().is_empty() && !other.to_string().is_empty());
                prop_assert!(!control::Error::from(&refused).hint.is_empty());
                return Ok(());
            }
        };
        if hot {
            prop_assert_eq!(&out[FrameHeader::BYTES..], &body[..]);
        }
    }

    #[test]
    fn a_hot_body_with_another_byte_is_read_as_it_is_or_refused(
        (request, reply) in (request(), reply()),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), 0..6u8],
    ) {
        let hot = [
            is_hot(request.kind()).then(|| encoded(|out| request.encode(7, out))),
            is_hot(reply.kind()).then(|| encoded(|out| reply.encode(7, out))),
        ];
        for frame in hot.into_iter().flatten() {
            let (mut frame, mut out) = (frame, Vec::new());
            let body = &mut frame[FrameHeader::BYTES..];
            body[at.index(body.len())] = byte;
            let header = FrameHeader::decode(frame.first_chunk().unwrap()).unwrap();
            let body = Bytes::copy_from_slice(&frame[FrameHeader::BYTES..]);
            if let Ok(request) = Request::decode(&header, body.clone()) {
                request.encode(7, &mut out);
            } else if let Ok(reply) = Reply::decode(&header, body) {
                reply.encode(7, &mut out);
            } else {
                continue;
            }
            prop_assert_eq!(out, frame);
        }
    }

    #[test]
    fn any_stream_is_cut_or_refused_without_more_memory_than_it_sent(
        stream in vec(any::<u8>(), 0..400),
        small in any::<bool>(),
        piece in 1..64usize,
    ) {
        let mut stream = stream;
        if small && stream.len() > 8 {
            // Make the first frame one that passes the checks of its header.
            stream[1..4].fill(0);
            stream[6..8].fill(0);
        }
        let _ = Preface::take(&mut BytesMut::from(&stream[..]));
        let mut reader = FrameReader::before_greeting();
        let mut input = BytesMut::new();
        'stream: for piece in stream.chunks(piece) {
            input.extend_from_slice(piece);
            loop {
                match reader.next_frame(&mut input) {
                    Ok(Some((header, body))) => {
                        prop_assert_eq!(header.size as usize, body.len());
                    }
                    Ok(None) => break,
                    Err(_) => break 'stream,
                }
            }
            prop_assert!(input.capacity() <= 4 * GREETING_BYTES_MAX);
        }
    }

    #[test]
    fn a_cut_hot_frame_is_refused(cut in 0..1000usize, kind in prop::sample::select(vec![
        Kind::Confirm, Kind::Settle, Kind::Settled, Kind::SetCredit, Kind::Gap, Kind::Taken,
    ])) {
        let run = SettleRun { count: 1, attempt: 1, ..SettleRun::default() };
        let mut frame = Vec::new();
        match kind {
            Kind::Confirm => {
                let runs = [ConfirmRun::default(); 3].into_iter().collect();
                Confirm { runs, ..Confirm::default() }.encode(1, &mut frame);
            }
            Kind::Settle => {
                let runs = [run; 3].into_iter().collect();
                Settle { runs, ..Settle::default() }.encode(1, &mut frame);
            }
            Kind::Settled => {
                Settled { applied: 1, stale: [run; 3].into_iter().collect() }.encode(1, &mut frame);
            }
            Kind::Gap => {
                let offsets = OffsetRange::new(Offset(1), 1);
                let (partition, reason) = (PartitionIndex(0), GapReason::Lost);
                Gap { subscription: 1, partition, offsets, reason }.encode(1, &mut frame);
            }
            Kind::Taken => Taken::default().encode(1, &mut frame),
            _ => SetCredit::default().encode(1, &mut frame),
        }
        let body = frame.split_off(FrameHeader::BYTES);
        let cut = cut % body.len();
        let body = Bytes::from(body).slice(..cut);
        let header = FrameHeader::new(kind, body.len(), 1);
        prop_assert!(Request::decode(&header, body.clone()).is_err());
        prop_assert!(Reply::decode(&header, body).is_err());
    }
}

#[test]
fn a_frame_beyond_the_limit_is_refused_before_anything_is_allocated() {
    let mut input = BytesMut::new();
    FrameHeader { size: u32::MAX, kind: 64, flags: 0, request: 1 }.encode(&mut input);
    let before = input.capacity();
    let mut reader = FrameReader::before_greeting();
    let refused = reader.next_frame(&mut input);
    let limit = GREETING_BYTES_MAX;
    assert_eq!(refused, Err(DecodeError::FrameTooLarge { kind: 64, size: u32::MAX, limit }));
    assert_eq!(input.capacity(), before);
}

#[test]
fn a_frame_of_exactly_the_limit_is_read_and_one_byte_more_is_not() {
    for (size, fits) in [(100, true), (101, false)] {
        let mut reader = FrameReader::before_greeting();
        reader.set_limit(100);
        let mut input = BytesMut::new();
        FrameHeader::new(Kind::Publish, size, 1).encode(&mut input);
        input.extend_from_slice(&[0; 101][..size]);
        let frame = reader.next_frame(&mut input);
        assert_eq!(frame.is_ok_and(|frame| frame.is_some()), fits, "{size}");
    }
}

#[test]
fn memory_for_a_body_follows_what_was_sent_and_not_what_was_announced() {
    let mut reader = FrameReader::before_greeting();
    reader.set_limit(8 << 20);
    let mut input = BytesMut::new();
    FrameHeader::new(Kind::Publish, 8 << 20, 1).encode(&mut input);
    assert_eq!(reader.next_frame(&mut input), Ok(None));
    assert!(input.capacity() <= 256 << 10, "{}", input.capacity());
}

#[test]
fn a_frame_as_long_as_one_before_has_all_its_room_at_once_and_that_of_the_next_header() {
    let mut reader = FrameReader::before_greeting();
    reader.set_limit(8 << 20);
    let header = |size| {
        let mut bytes = BytesMut::new();
        FrameHeader::new(Kind::Publish, size, 1).encode(&mut bytes);
        bytes
    };
    let mut input = header(300_000);
    input.resize(FrameHeader::BYTES + 300_000, 0);
    assert!(reader.next_frame(&mut input).unwrap().is_some());
    let mut input = header(300_000);
    assert!(reader.next_frame(&mut input).unwrap().is_none());
    assert!(input.capacity() >= 300_000 + FrameHeader::BYTES, "{}", input.capacity());
    // No more for one that is longer.
    reader.next_frame(&mut BytesMut::zeroed(300_000)).unwrap().unwrap();
    let mut input = header(8 << 20);
    assert!(reader.next_frame(&mut input).unwrap().is_none());
    assert!(input.capacity() < 1 << 20, "{}", input.capacity());
}

#[test]
fn reserved_bytes_that_are_not_0_are_refused_in_any_frame_and_flags_in_one_that_is_known() {
    for kind in [Kind::Ping as u8, 250] {
        for (at, reserved) in [(6, 0x0001), (7, 0x0100)] {
            let mut frame = [0; FrameHeader::BYTES];
            (frame[4], frame[at]) = (kind, 1);
            let refused =
                FrameReader::before_greeting().next_frame(&mut BytesMut::from(&frame[..]));
            assert_eq!(refused, Err(DecodeError::Reserved { value: reserved }));
        }
        let header = FrameHeader { size: 0, kind, flags: 1, request: 7 };
        let flags = DecodeError::Flags { kind: Kind::Ping, flags: 1 };
        let refused = if kind == 250 { DecodeError::UnknownKind { kind } } else { flags };
        assert_eq!(Request::decode(&header, Bytes::new()), Err(refused.clone()));
        assert_eq!(Reply::decode(&header, Bytes::new()), Err(refused));
    }
}

#[test]
fn a_settle_that_announces_more_runs_than_it_holds_is_refused_without_allocating_them() {
    let mut body = vec![0; 24];
    body[8] = 1;
    body[12..16].copy_from_slice(&8192u32.to_le_bytes());
    let needed = 8192 * 24;
    let refused = Settle::decode(Bytes::from(body));
    assert_eq!(refused, Err(DecodeError::Length { kind: Kind::Settle, needed, received: 0 }));
}

#[test]
fn a_gap_of_nothing_or_past_the_last_offset_or_without_reason_is_refused() {
    let body = |first: u64, count: u64, reason: u8| {
        let mut body = vec![0; 8];
        body.extend_from_slice(&first.to_le_bytes());
        body.extend_from_slice(&count.to_le_bytes());
        body.extend_from_slice(&[reason, 0, 0, 0, 0, 0, 0, 0]);
        Gap::decode(Bytes::from(body))
    };
    let field = |refused: Result<Gap, DecodeError>| match refused {
        Err(DecodeError::Field { kind: Kind::Gap, field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(body(7, 0, 1)), "count");
    assert_eq!(field(body(u64::MAX, 1, 1)), "first_offset");
    assert_eq!(field(body(7, 1, 0)), "reason");
    // A reason of later versions is one all the same.
    assert_eq!(body(7, 1, 9).map(|gap| gap.reason), Ok(GapReason::Unknown(9)));
}

#[test]
fn a_control_body_too_long_for_any_request_is_refused() {
    let body = Bytes::from(vec![0x1a; CONTROL_REQUEST_BYTES_MAX + 1]);
    let header = FrameHeader::new(Kind::Hello, body.len(), 1);
    let refused = Request::decode(&header, body).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::FrameTooLarge);
}

#[test]
fn a_hot_body_is_read_without_copying_it() {
    let mut frame = Vec::new();
    Publish { batch: Bytes::from_static(b"messages"), ..Publish::default() }.encode(1, &mut frame);
    let body = Bytes::from(frame.split_off(FrameHeader::BYTES));
    let publish = Publish::decode(body.clone()).unwrap();
    assert_eq!(publish.batch.as_ptr(), body[PublishHead::BYTES..].as_ptr());
}

#[test]
fn a_preface_is_taken_whole_and_a_wrong_byte_is_found_at_once() {
    let mut input = BytesMut::from(&Preface::BYTES[..5]);
    assert_eq!(Preface::take(&mut input), Ok(None));
    input.extend_from_slice(&Preface::BYTES[5..]);
    input.extend_from_slice(b"next");
    assert_eq!(Preface::take(&mut input), Ok(Some(Preface)));
    assert_eq!(&input[..], b"next");

    let http = Preface::take(&mut BytesMut::from(&b"GET "[..])).unwrap_err();
    assert_eq!(http.code(), ErrorCode::BadPreface);
    let newer = Preface::take(&mut BytesMut::from(&b"SENNIT\x00\x02"[..])).unwrap_err();
    assert_eq!(newer, DecodeError::Version { received: 2, known: 1 });
}
