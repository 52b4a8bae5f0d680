//! Wires with TLS: they move with what their codec holds, are read in halves, and end for bytes that are no TLS.

use std::{io::Read as _, thread};

use sennit_tls::{Authority, ClientCertificates, TlsOptions, server_settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{super::*, connected};
use crate::runtime::{
    handshake::secured,
    metrics::CoreMetrics,
    tls_port::{Handshakes, TlsPort},
    write_buffer::WriteBuffer,
};

/// The client's end of a connection: it blocks, so it has a thread of its own.
type Client = rustls::StreamOwned<rustls::ClientConnection, net::TcpStream>;

/// A port with TLS, and the settings of a client that trusts it.
fn port() -> (TlsPort, Arc<rustls::ClientConfig>) {
    let (authority, _) = Authority::create("test authority", 10).unwrap();
    let identity = authority.issue_server(&["localhost".into()], 5).unwrap().into_identity();
    let settings = server_settings(identity, ClientCertificates::Off, None, &[]).unwrap();
    let trust = TlsOptions { fingerprint: Some(authority.fingerprint()), ..TlsOptions::default() };
    (TlsPort::new(settings, Arc::new(Handshakes::new())), trust.client_settings(&[]).unwrap())
}

/// A client that has shaken hands, and the wire of its connection.
async fn secure() -> (Client, Wire) {
    let (port, trust) = port();
    let (tcp, _hold, at_rest) = connected();
    let at_rest = WireAtRest { due: Some(port.due()), ..at_rest };
    let shaking = thread::spawn(move || {
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(trust, name).unwrap();
        let mut client = Client::new(connection, tcp);
        while client.conn.is_handshaking() {
            client.conn.complete_io(&mut client.sock).unwrap();
        }
        client
    });
    let wire = at_rest.register().unwrap();
    let wire = secured(wire, &CoreMetrics::default(), || panic!("it speaks TLS")).await.unwrap();
    (shaking.join().unwrap(), wire)
}

/// Has the client do something on a thread of its own; it is given back.
fn aside<T: Send + 'static>(
    mut client: Client,
    what: impl FnOnce(&mut Client) -> T + Send + 'static,
) -> thread::JoinHandle<(Client, T)> {
    thread::spawn(move || {
        let done = what(&mut client);
        (client, done)
    })
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 5) as u8).collect()
}

#[tokio::test(flavor = "current_thread")]
async fn a_wire_moves_with_bytes_that_its_codec_holds_and_they_are_read_there() {
    let (mut client, mut wire) = secure().await;
    io::Write::write_all(&mut client, b"asked and more").unwrap();
    let mut first = [0; 5];
    wire.read_exact(&mut first).await.unwrap();
    let mut at_rest = wire.deregister().unwrap();
    assert!(at_rest.holds_unread(), "the rest of the record is in the codec");
    assert_eq!(at_rest.take(b"told").unwrap(), 4);
    let mut told = [0; 4];
    client.read_exact(&mut told).unwrap();
    assert_eq!((&first, &told), (b"asked", b"told"));
    let mut wire = thread::spawn(move || at_rest).join().unwrap().register().unwrap();
    let mut rest = [0; 9];
    wire.read_exact(&mut rest).await.unwrap();
    assert_eq!(&rest, b" and more");
    assert!(!wire.deregister().unwrap().holds_unread());
}

#[tokio::test(flavor = "current_thread")]
async fn a_slow_reader_gets_everything_once_through_a_half_that_is_written() {
    let (client, wire) = secure().await;
    let (reading, mut writing) = wire.into_split();
    let said = pattern(4 << 20);
    let expected = said.clone();
    let listening = aside(client, move |client| {
        let mut heard = vec![0; expected.len()];
        client.read_exact(&mut heard).unwrap();
        heard == expected
    });
    let mut outgoing = WriteBuffer::default();
    outgoing.own().extend_from_slice(&said[..100]);
    outgoing.push(&bytes::Bytes::from(said[100..].to_vec()));
    let mut taken = 0;
    while taken < said.len() {
        writing.writable().await.unwrap();
        taken = outgoing.write_now(&mut writing, taken).unwrap();
    }
    let (_client, is_same) = listening.join().unwrap();
    assert!(is_same);
    assert!(reading.reunite(writing).unwrap().deregister().is_ok());
}

#[tokio::test(flavor = "current_thread")]
async fn a_half_that_is_read_gives_nothing_before_a_record_is_whole() {
    let (mut client, wire) = secure().await;
    let (mut reading, _writing) = wire.into_split();
    client.conn.writer().write_all(b"whole").unwrap();
    let mut record = Vec::new();
    client.conn.write_tls(&mut record).unwrap();
    let mut heard = Vec::new();
    for (at, byte) in record.iter().enumerate() {
        client.sock.write_all(&[*byte]).unwrap();
        reading.readable().await.unwrap();
        let read = reading.read_now(&mut heard).await.unwrap();
        assert_eq!(read.is_some(), at + 1 == record.len());
    }
    assert_eq!(heard, b"whole");
    client.conn.send_close_notify();
    client.conn.complete_io(&mut client.sock).unwrap();
    reading.readable().await.unwrap();
    assert_eq!(reading.read_now(&mut heard).await.unwrap(), Some(0), "it has said goodbye");
}

#[tokio::test(flavor = "current_thread")]
async fn the_end_of_a_wire_is_said_so_that_the_client_knows_that_nothing_is_missing() {
    let (client, mut wire) = secure().await;
    let listening = aside(client, |client| {
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).map(|_| heard)
    });
    wire.write_all(b"all").await.unwrap();
    wire.shutdown().await.unwrap();
    assert_eq!(listening.join().unwrap().1.unwrap(), b"all");
    let (client, wire) = secure().await;
    let listening = aside(client, |client| client.read_to_end(&mut Vec::new()).map(drop));
    wire.into_split().1.say_goodbye();
    listening.join().unwrap().1.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn hostile_bytes_end_a_wire_and_are_answered_by_an_alert() {
    let (mut client, mut wire) = secure().await;
    client.sock.write_all(&[0x17, 3, 3, 0, 3, 1, 2, 3]).unwrap();
    let error = wire.read(&mut [0; 10]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    drop(wire);
    let error = client.read(&mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("alert"), "{error}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_client_without_tls_gets_an_answer_in_its_own_protocol_and_is_counted() {
    let (port, _) = port();
    let (mut client, _hold, at_rest) = connected();
    let at_rest = WireAtRest { due: Some(port.due()), ..at_rest };
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let listening = thread::spawn(move || {
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).map(|_| heard)
    });
    let metrics = CoreMetrics::default();
    let wire = at_rest.register().unwrap();
    assert!(secured(wire, &metrics, || b"it is TLS here".to_vec()).await.is_none());
    assert_eq!(metrics.tls_handshakes_failed.value(), 1);
    drop(_hold);
    assert_eq!(listening.join().unwrap().unwrap(), b"it is TLS here");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_client_that_begins_a_handshake_and_does_not_go_on_is_given_up() {
    let (port, _) = port();
    let (mut client, _hold, at_rest) = connected();
    let at_rest = WireAtRest { due: Some(port.due()), ..at_rest };
    client.write_all(&[0x16, 3, 1, 0, 100]).unwrap();
    let metrics = CoreMetrics::default();
    let wire = at_rest.register().unwrap();
    assert!(secured(wire, &metrics, Vec::new).await.is_none());
    assert_eq!(metrics.tls_handshakes_failed.value(), 1);
}
