//! The connection of a subscriber: the WebSocket, the connect command and the subscription, one after the other, before
//! anything is published.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, ToSocketAddrs as _},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use http::StatusCode;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
use sennit_centrifuge::{
    Answer, Command, ConnectRequest, Encoding, FromServer, Limits, Reply, Request,
    SubscribeRequest, Token, decode_replies, put_command,
};
use sennit_websocket::{
    Opcode,
    client::{UpgradeRequest, put_frame},
};

use super::frames::{BINARY, Frames, TEXT};
use crate::link::{Link, Trust};

/// The path of live connections.
const TARGET: &str = "/connection/websocket";

/// Time within which the broker answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections from one address: each needs a port of its own.
const CONNECTIONS_OF_ADDRESS: u32 = 25_000;

/// What all subscribers have in common.
#[derive(Clone)]
pub struct Subscription {
    /// The address of the broker's HTTP port.
    pub http: String,
    /// The encoding.
    pub encoding: Encoding,
    /// Whom to trust with TLS; `None` without it.
    pub trust: Option<Trust>,
    /// The credentials.
    pub token: Option<String>,
    /// The channel; `None` for a connection that is not subscribed.
    pub channel: Option<String>,
}

/// A connection that is subscribed.
#[derive(Debug)]
pub struct Subscribed {
    /// The connection.
    pub link: Link,
    /// The offset of the first publication that it gets.
    pub first: u64,
    /// The epoch of the channel.
    pub epoch: String,
}

/// Opens connection `number`, connects and subscribes.
///
/// # Errors
/// The broker cannot be reached, or refuses.
pub fn subscribe(subscription: &Subscription, number: u32) -> Result<Subscribed> {
    let stream = open(&subscription.http, number / CONNECTIONS_OF_ADDRESS)
        .with_context(|| format!("connection {number} to {}", subscription.http))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut link = match &subscription.trust {
        None => Link::from(stream),
        Some(trust) => Link::secure(stream, &subscription.http, trust)?,
    };
    upgrade(&mut link, subscription, number)?;
    let token = Token(subscription.token.clone().unwrap_or_default());
    let connect = Request::Connect(ConnectRequest { token, ..ConnectRequest::default() });
    let subscribe = subscription.channel.as_ref().map(|channel| {
        Request::Subscribe(SubscribeRequest {
            channel: channel.clone(),
            ..SubscribeRequest::default()
        })
    });
    let mut out = Vec::new();
    let requests: Vec<_> = std::iter::once(connect).chain(subscribe).collect();
    let last = requests.len() as u32;
    for (id, request) in (1..).zip(requests) {
        let command = Command { id, request: Some(request) };
        put_message(subscription.encoding, &command, &mut out);
    }
    link.write_all(&out)?;
    link.flush()?;
    let (first, epoch) = answered(&mut link, subscription.encoding, last)?;
    Ok(Subscribed { link, first, epoch })
}

/// Appends a message with a command.
pub fn put_message(encoding: Encoding, command: &Command, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    put_command(encoding, command, &mut message);
    let opcode = match encoding {
        Encoding::Json => Opcode::Text,
        Encoding::Protobuf => Opcode::Binary,
    };
    // The mask protects proxies from pages; no page chooses these bytes.
    put_frame(opcode, &message, [0x5e, 0x11, 0x17, 0xf4], out);
}

/// What a message says that is no publication of the channel.
///
/// # Errors
/// The broker does not keep the protocol, or closes the connection.
pub fn read_message(encoding: Encoding, first: u8, message: &[u8]) -> Result<Vec<FromServer>> {
    let is_expected = first == if encoding == Encoding::Json { TEXT } else { BINARY };
    if !is_expected {
        let code = message.first_chunk().map(|code| u16::from_be_bytes(*code));
        let reason = String::from_utf8_lossy(message.get(2..).unwrap_or_default());
        bail!("the broker sends a frame {first:#x} with the code {code:?}: {reason}");
    }
    let replies = decode_replies(encoding, message, Limits::default());
    Ok(replies.collect::<Result<Vec<_>, _>>()?)
}

/// Connects from a loopback address of number `source`.
fn open(address: &str, source: u32) -> Result<TcpStream> {
    let to = address.to_socket_addrs()?.next().context("no address")?;
    if source == 0 || !to.is_ipv4() || !to.ip().is_loopback() {
        return Ok(TcpStream::connect(to)?);
    }
    let from = IpAddr::V4(Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + source));
    let (family, kind) = (AddressFamily::INET, SocketType::STREAM);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(from, 0))?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

fn upgrade(link: &mut Link, subscription: &Subscription, number: u32) -> Result<()> {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&number.to_le_bytes());
    let subprotocol = match subscription.encoding {
        Encoding::Json => Encoding::JSON_SUBPROTOCOL,
        Encoding::Protobuf => Encoding::PROTOBUF_SUBPROTOCOL,
    };
    let request = UpgradeRequest {
        host: &subscription.http,
        target: TARGET,
        key,
        subprotocols: &[subprotocol],
        offers_deflate: false,
        headers: &[],
    };
    let mut bytes = Vec::new();
    request.put(&mut bytes);
    link.write_all(&bytes)?;
    link.flush()?;
    bytes.clear();
    // The broker says nothing behind its answer before it is asked.
    while !bytes.ends_with(b"\r\n\r\n") {
        read_more(link, &mut bytes)?;
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut answer = httparse::Response::new(&mut headers);
    answer.parse(&bytes)?;
    let status = StatusCode::from_u16(answer.code.context("an answer has a status")?)?;
    let named = answer.headers.iter().map(|header| (header.name, header.value));
    let agreed = request.check(status, named)?;
    ensure!(agreed.subprotocol.as_deref() == Some(subprotocol), "another subprotocol: {agreed:?}");
    Ok(())
}

fn read_more(link: &mut Link, bytes: &mut Vec<u8>) -> Result<usize> {
    let mut room = [0; 2048];
    let count = link.read(&mut room).context("no answer")?;
    ensure!(count > 0, "the broker has closed a connection");
    bytes.extend_from_slice(&room[..count]);
    Ok(count)
}

/// Waits for the answer to command `last`: the offset of the first publication, and the epoch.
fn answered(link: &mut Link, encoding: Encoding, last: u32) -> Result<(u64, String)> {
    let (mut frames, mut bytes, mut first_offset) = (Frames::default(), Vec::new(), None);
    while first_offset.is_none() {
        bytes.clear();
        read_more(link, &mut bytes)?;
        frames.read(&bytes, |first, message| {
            for said in read_message(encoding, first, message)? {
                let FromServer::Reply(Reply { id, result }) = said else {
                    bail!("an answer was expected, this came: {said:?}")
                };
                let answer = result
                    .map_err(|refused| anyhow::anyhow!("{}: {}", refused.code, refused.message))?;
                if id == last {
                    first_offset = Some(match answer {
                        Answer::Subscribe(result) => (result.offset + 1, result.epoch),
                        _ => (0, String::new()),
                    });
                }
            }
            Ok(())
        })?;
    }
    first_offset.context("no answer")
}
