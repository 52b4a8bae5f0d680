//! A session: a connection from its first byte to the accepted greeting. The connection task handles all later
//! frames.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use sennit_model::limits::{FRAME_BYTES_MAX, GREETING_BYTES_MAX};
use sennit_protocol::{
    DecodeError, Features, FrameHeader, FrameReader, Preface, Reply, Request, control,
};
use sennit_tls::{ClientConfig, Codec, TlsFault};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::{
    addresses::{Address, Addresses},
    credential::Credential,
    error::Error,
    wire::{Wire, read_some},
};

/// Silence of an address after which the next one is tried beside it.
const NEXT_AFTER: Duration = Duration::from_secs(1);

/// The longest grace of a session that a client reckons with, in milliseconds.
const GRACE_MS_MAX: u64 = 3_600_000;

/// The client's side of the greeting.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) name: String,
    pub(crate) frame_bytes_max: usize,
    /// How TLS is spoken; `None` on a plain connection.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The token of the session whose connection was lost.
    pub(crate) replaces: Option<u64>,
    pub(crate) credential: Option<Credential>,
}

/// A connection whose greeting was accepted.
pub(crate) struct Session {
    /// The number of its address.
    pub(crate) address: usize,
    pub(crate) stream: Wire,
    pub(crate) frames: FrameReader,
    pub(crate) input: BytesMut,
    /// The broker's name and version.
    pub(crate) server: String,
    /// The largest frame body, in bytes, both ways.
    pub(crate) frame_bytes_max: usize,
    /// The features that the broker has granted.
    pub(crate) features: Features,
    /// The token with which a later connection replaces this one.
    pub(crate) token: Option<u64>,
    /// How long this session lives on without its connection.
    pub(crate) grace: Duration,
    /// Time from the greeting to its answer. It is at least the line's round trip, and longer if
    /// the broker is busy.
    pub(crate) round_trip: Duration,
}

impl Session {
    /// Connects to the first address that answers, and greets, each within `limit`. An address that is silent for
    /// [`NEXT_AFTER`] keeps its chance beside the next one.
    ///
    /// # Errors
    /// The error of the one address, a refusal for good, or all errors as [`Error::NoneReachable`].
    pub(crate) async fn open(
        greeting: &Greeting,
        addresses: &Addresses,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut attempts = JoinSet::new();
        let mut failures = Vec::new();
        let mut rest = addresses.in_turn().peekable();
        loop {
            if let Some((number, address)) = rest.next() {
                let (greeting, address) = (greeting.clone(), address.clone());
                attempts.spawn(async move {
                    let opened = Self::open_at(&greeting, &address, limit).await;
                    (address, opened.map(|session| Self { address: number, ..session }))
                });
            }
            let ended = match rest.peek() {
                Some(_) => timeout(NEXT_AFTER, attempts.join_next()).await,
                None => Ok(attempts.join_next().await),
            };
            match ended {
                Ok(Some(Ok((_, Ok(session))))) => return Ok(session),
                Ok(Some(Ok((address, Err(error))))) => failures.push((address.host_port, error)),
                Ok(Some(Err(error))) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The runtime ends.
                    Err(_) => return Err(Error::Closed),
                },
                Ok(None) => return Err(Error::of_addresses(failures)),
                // It is silent, and another one is there.
                Err(_) => {}
            }
        }
    }

    async fn open_at(
        greeting: &Greeting,
        address: &Address,
        limit: Duration,
    ) -> Result<Self, Error> {
        let late = || {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no greeting in time");
            Error::unreachable(&address.host_port, error)
        };
        timeout(limit, Self::greet(greeting, address)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn greet(greeting: &Greeting, address: &Address) -> Result<Self, Error> {
        let Address { host_port, tls_name } = address;
        let unreachable = |error| Error::unreachable(host_port, error);
        // With TLS 1.3 the broker refuses a client's certificate behind the client's part of the handshake.
        let later = |error| no_handshake(host_port, error);
        let tcp = TcpStream::connect(&**host_port).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let mut stream = match (&greeting.tls, tls_name) {
            (Some(settings), Some(name)) => {
                let codec = Codec::client(settings.clone(), name.clone());
                let codec = codec.map_err(|fault| Error::tls(host_port, &fault))?;
                let shaken = Wire::secure(tcp, codec).await;
                shaken.map_err(|error| no_handshake(host_port, error))?
            }
            _ => Wire::plain(tcp),
        };
        let mut hello = BytesMut::new();
        hello.extend_from_slice(&Preface::BYTES);
        let (token, user, password) = match greeting.credential.clone() {
            None => (None, None, None),
            Some(Credential::Key(key)) => (Some(key), None, None),
            Some(Credential::Password { user, password }) => (None, Some(user), Some(password)),
        };
        let body = control::Hello {
            client_name: greeting.name.clone(),
            client_version: env!("CARGO_PKG_VERSION").into(),
            features: Features::ALL.names(),
            frame_bytes_max: u32::try_from(greeting.frame_bytes_max).unwrap_or(0),
            token,
            user,
            password,
            replaces: greeting.replaces,
        };
        Request::Hello(body).encode(1, &mut hello);
        let greeted_at = Instant::now();
        stream.write_all(&hello).await.map_err(unreachable)?;

        let mut frames = FrameReader::before_greeting();
        let mut input = BytesMut::new();
        loop {
            let (header, body) = loop {
                if let Some(frame) = frames.next_frame(&mut input)? {
                    break frame;
                }
                if read_some(&mut stream, &mut input).await.map_err(later)? == 0 {
                    return Err(unreachable(io::ErrorKind::UnexpectedEof.into()));
                }
            };
            if let Some(ok) = greeted(&header, body)? {
                let limits = ok.limits.ok_or_else(|| Error::Unexpected("no limits".into()))?;
                let frame_bytes_max = limits.frame_bytes_max as usize;
                if frame_bytes_max < GREETING_BYTES_MAX {
                    return Err(Error::Unexpected(format!("frames of {frame_bytes_max} bytes")));
                }
                frames.set_limit(frame_bytes_max.min(FRAME_BYTES_MAX));
                let server = format!("{} {}", ok.server_name, ok.server_version);
                let token = Some(ok.session_token).filter(|&token| token != 0);
                let features = Features::of_names(&ok.features);
                return Ok(Self {
                    address: 0,
                    stream,
                    frames,
                    input,
                    server,
                    frame_bytes_max,
                    features,
                    token,
                    grace: Duration::from_millis(ok.reconnect_grace_ms.min(GRACE_MS_MAX)),
                    round_trip: greeted_at.elapsed(),
                });
            }
        }
    }
}

/// Why there is no secure connection: the fault of TLS, if it is one.
fn no_handshake(address: &str, error: io::Error) -> Error {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsFault>()) {
        Some(fault) => Error::tls(address, fault),
        None => Error::unreachable(address, error),
    }
}

/// The answer to the greeting; `None` for an unknown frame, which a newer broker may send before
/// it.
fn greeted(header: &FrameHeader, body: Bytes) -> Result<Option<control::HelloOk>, Error> {
    match Reply::decode(header, body) {
        Ok(Reply::HelloOk(ok)) => Ok(Some(ok)),
        Ok(Reply::Error(error)) => Err(error.into()),
        Ok(other) => Err(Error::Unexpected(format!("{} before the greeting", other.kind()))),
        Err(DecodeError::UnknownKind { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_address_that_is_silent_does_not_hold_up_the_next_one() {
        // The system accepts for it, and nothing is ever said.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let broker = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = [&silent, &broker].map(|listener| listener.local_addr().unwrap());
        let address =
            |at: std::net::SocketAddr| Address { host_port: at.to_string().into(), tls_name: None };
        let mut addresses = Addresses::shuffled(listeners.map(address).into());
        let is_silent =
            |(_, address): &(usize, &Address)| *address.host_port == listeners[0].to_string();
        let number = addresses.in_turn().find(is_silent).map(|(number, _)| number).unwrap();
        addresses.choose(number);
        let greeting = Greeting {
            name: "test".into(),
            frame_bytes_max: FRAME_BYTES_MAX,
            tls: None,
            replaces: None,
            credential: None,
        };
        let limits = Some(control::Limits::new(FRAME_BYTES_MAX));
        let greet = async {
            let (mut stream, _) = broker.accept().await.unwrap();
            let mut out = Vec::new();
            let ok = control::HelloOk { limits, ..<_>::default() };
            Reply::HelloOk(ok).encode(1, &mut out);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &out).await.unwrap();
            stream
        };
        let limit = Duration::from_secs(3600);
        let (session, _stream) = tokio::join!(Session::open(&greeting, &addresses, limit), greet);
        assert_ne!(session.unwrap().address, number);
    }
}
