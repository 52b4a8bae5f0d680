//! Two codecs that speak with each other over lines that are slow, cut records and take little.

use super::*;
use crate::{
    authority::Authority,
    broker_settings::{ClientCertificates, server_settings},
    client_settings::TlsOptions,
};

/// Both ends, before their handshake.
fn ends() -> (Codec, Codec) {
    let (authority, _) = Authority::create("test authority", 10).unwrap();
    let identity = authority.issue_server(&["localhost".into()], 5).unwrap().into_identity();
    let server = server_settings(identity, ClientCertificates::Off, None, &[b"h2"]).unwrap();
    let options =
        TlsOptions { fingerprint: Some(authority.fingerprint()), ..TlsOptions::default() };
    let client = options.client_settings(&[b"h2", b"http/1.1"]).unwrap();
    let name = options.name_of("localhost:1").unwrap();
    (Codec::server(server).unwrap(), Codec::client(client, name).unwrap())
}

/// Sends what waits at one end to the other, `step` bytes at a time; returns what is in it.
fn carry(from: &mut Codec, to: &mut Codec, step: usize) -> Result<Vec<u8>, TlsFault> {
    let mut records = Vec::new();
    from.flush(|bytes| {
        records.extend_from_slice(bytes);
        Ok(bytes.len())
    })
    .unwrap();
    let mut plain = Vec::new();
    for piece in records.chunks(step) {
        to.feed(piece, &mut plain)?;
    }
    Ok(plain)
}

fn shake(server: &mut Codec, client: &mut Codec, step: usize) {
    for _ in 0..10 {
        carry(client, server, step).unwrap();
        carry(server, client, step).unwrap();
    }
    assert!(!server.is_handshaking() && !client.is_handshaking());
}

#[test]
fn a_handshake_and_messages_get_through_a_byte_at_a_time() {
    let (mut server, mut client) = ends();
    shake(&mut server, &mut client, 1);
    assert_eq!((server.protocol(), client.protocol()), (Some(&b"h2"[..]), Some(&b"h2"[..])));
    let said = vec![7; 100_000];
    let mut heard = Vec::new();
    let mut told = 0;
    while told < said.len() {
        let mut records = Vec::new();
        told += client
            .take(&[IoSlice::new(&said[told..])], |bytes| {
                records.extend_from_slice(bytes);
                Ok(bytes.len())
            })
            .unwrap();
        for byte in records {
            server.feed(&[byte], &mut heard).unwrap();
        }
    }
    assert!(heard == said);
}

#[test]
fn bytes_are_told_to_be_taken_when_the_socket_has_them_and_go_out_once() {
    let (mut server, mut client) = ends();
    shake(&mut server, &mut client, 1000);
    let said: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
    let (mut told, mut heard, mut refusals) = (0, Vec::new(), 0);
    let mut room = 0;
    while told < said.len() {
        let mut records = Vec::new();
        let rest = &said[told..];
        let (first, second) = rest.split_at(rest.len() / 3);
        let taken = client.take(&[IoSlice::new(first), IoSlice::new(second)], |bytes| {
            let count = bytes.len().min(room);
            room -= count;
            records.extend_from_slice(&bytes[..count]);
            if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
        });
        match taken {
            Ok(count) => told += count,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                refusals += 1;
                room = 777;
            }
        }
        server.feed(&records, &mut heard).unwrap();
        assert!(heard.len() <= told + TAKEN_BYTES_MAX, "more goes out than was taken");
        assert!(client.pending.len() <= 2 * TAKEN_BYTES_MAX, "{}", client.pending.len());
    }
    assert!(refusals > 100);
    assert!(heard == said, "it came in another order, or more than once");
}

#[test]
fn what_there_is_no_room_for_is_kept_and_read_later() {
    let (mut server, mut client) = ends();
    shake(&mut server, &mut client, 1000);
    let said: Vec<u8> = (0..200_000_u32).map(|at| (at / 3) as u8).collect();
    let (mut told, mut heard) = (0, Vec::new());
    while told < said.len() {
        let mut records = Vec::new();
        told += client
            .take(&[IoSlice::new(&said[told..])], |bytes| {
                records.extend_from_slice(bytes);
                Ok(bytes.len())
            })
            .unwrap();
        let mut little = heard.limit(10);
        server.feed(&records, &mut little).unwrap();
        heard = little.into_inner();
        assert!(server.has_unread());
        while server.has_unread() {
            let mut some = heard.limit(1000);
            server.read(&mut some).unwrap();
            heard = some.into_inner();
        }
    }
    assert!(heard == said);
}

#[test]
fn a_goodbye_is_heard_behind_what_was_said() {
    let (mut server, mut client) = ends();
    shake(&mut server, &mut client, 1000);
    let mut records = Vec::new();
    let sink = |bytes: &[u8]| {
        records.extend_from_slice(bytes);
        Ok(bytes.len())
    };
    assert_eq!(client.take(&[IoSlice::new(b"last")], sink).unwrap(), 4);
    client.close();
    let mut heard = Vec::new();
    server.feed(&records, &mut heard).unwrap();
    assert!(!server.has_ended());
    heard.extend(carry(&mut client, &mut server, 5).unwrap());
    assert_eq!((&heard[..], server.has_ended()), (&b"last"[..], true));
}

#[test]
fn bytes_that_are_no_records_are_a_fault_and_an_alert_is_pending() {
    for hostile in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 40], &[0x17, 3, 3, 0, 5, 1, 2, 3, 4, 5]]
    {
        let (mut server, mut client) = ends();
        assert!(server.feed(hostile, &mut Vec::new()).is_err(), "{hostile:?}");
        assert!(server.has_pending());
        shake_fails(&mut server, &mut client);
        let (mut server, mut client) = ends();
        shake(&mut server, &mut client, 1000);
        assert!(server.feed(hostile, &mut Vec::new()).is_err(), "{hostile:?}");
        assert!(server.has_pending());
    }
}

fn shake_fails(server: &mut Codec, client: &mut Codec) {
    let fault = carry(server, client, 1000).unwrap_err();
    assert!(!fault.to_string().is_empty());
}

#[test]
fn another_certificate_than_the_pinned_one_is_refused_by_name() {
    let (_, mut client) = ends();
    let (mut other, _) = ends();
    carry(&mut client, &mut other, 1000).unwrap();
    let fault = carry(&mut other, &mut client, 1000).unwrap_err();
    assert!(fault.to_string().contains("which is not the pinned SHA256:"), "{fault}");
}
