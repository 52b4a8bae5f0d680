//! What does not belong on the port is turned away with a reason, whoever sends it.

use sennit_model::limits::{FRAME_BYTES_MAX, GREETING_BYTES_MAX};
use sennit_protocol::{ErrorCode, FrameHeader, Kind, Preface, Reply, Request, control};

use crate::world::Broker;

fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    FrameHeader { size: body.len() as u32, kind, flags: 0, request: 5 }.encode(&mut bytes);
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn another_preface_is_turned_away() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.connect();
    peer.send_bytes(b"GET / HTTP/1.1\r\n\r\n");
    peer.hears_the_end_with(ErrorCode::BadPreface);
    broker.stop();
}

#[test]
fn another_version_is_turned_away() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.connect();
    let mut preface = Preface::BYTES;
    preface[7] = 9;
    peer.send_bytes(&preface);
    peer.hears_the_end_with(ErrorCode::UnsupportedVersion);
    broker.stop();
}

#[test]
fn whoever_does_not_begin_with_hello_is_turned_away() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.connect();
    peer.send_bytes(&Preface::BYTES);
    peer.send(&Request::Ping);
    peer.hears_the_end_with(ErrorCode::HelloExpected);
    broker.stop();
}

#[test]
fn a_second_hello_is_turned_away() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.send(&Request::Hello(control::Hello::default()));
    peer.hears_the_end_with(ErrorCode::HelloExpected);
    broker.stop();
}

#[test]
fn an_oversized_frame_is_turned_away_before_it_has_come() {
    let (broker, _folder) = Broker::fresh();
    let mut stranger = broker.connect();
    stranger.send_bytes(&Preface::BYTES);
    let announce = |size: usize, kind| {
        let mut bytes = Vec::new();
        FrameHeader { size: size as u32, kind, flags: 0, request: 0 }.encode(&mut bytes);
        bytes
    };
    stranger.send_bytes(&announce(GREETING_BYTES_MAX + 1, Kind::Hello as u8));
    stranger.hears_the_end_with(ErrorCode::FrameTooLarge);
    let mut known = broker.greeted();
    known.send_bytes(&announce(FRAME_BYTES_MAX + 1, Kind::Publish as u8));
    known.hears_the_end_with(ErrorCode::FrameTooLarge);
    broker.stop();
}

#[test]
fn garbage_in_a_frame_is_turned_away_and_others_go_on() {
    let (broker, _folder) = Broker::fresh();
    let mut other = broker.greeted();
    for kind in [Kind::Publish, Kind::Settle, Kind::SetCredit, Kind::Subscribe, Kind::Hello] {
        let mut peer = broker.greeted();
        peer.send_bytes(&frame(kind as u8, &[0xff; 11]));
        peer.hears_the_end_with(ErrorCode::BadFrame);
    }
    let mut peer = broker.greeted();
    peer.offer_bytes(&[0xff; 100_000]);
    let error = peer.error();
    assert!(error.closes_connection, "{error:?}");
    assert_eq!(other.ask(&Request::Ping), Reply::Pong);
    broker.stop();
}

#[test]
fn an_unknown_kind_is_refused_and_the_connection_stays() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    peer.send_bytes(&frame(200, b"of a later version"));
    assert_eq!(peer.error().error_code(), Some(ErrorCode::UnknownKind));
    assert_eq!(peer.ask(&Request::Ping), Reply::Pong);
    broker.stop();
}

#[test]
fn a_frame_cut_short_is_forgotten_with_its_connection() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let mut bytes = Vec::new();
    crate::world::publish(topic, 0, 0, &["a"]).encode(0, &mut bytes);
    peer.send_bytes(&bytes[..bytes.len() - 1]);
    drop(peer);
    let mut peer = broker.greeted();
    peer.send_bytes(&bytes);
    let run = peer.confirm().runs.iter().next().unwrap();
    assert!(!run.duplicate);
    broker.stop();
}

#[test]
fn frames_may_come_byte_by_byte() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.connect();
    let mut bytes = Preface::BYTES.to_vec();
    Request::Hello(control::Hello::default()).encode(1, &mut bytes);
    Request::Ping.encode(2, &mut bytes);
    for byte in bytes {
        peer.send_bytes(&[byte]);
    }
    assert_eq!(peer.answer_to(2), Reply::Pong);
    broker.stop();
}

#[test]
fn whoever_says_nothing_is_hung_up_on() {
    let (broker, _folder) = Broker::fresh();
    let mut silent = broker.connect();
    assert_eq!(silent.next(), None);
    broker.stop();
}
