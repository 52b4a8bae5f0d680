//! A session: a connection from its first byte to the accepted greeting. The connection task handles all later
//! frames.

use std::{io, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use sennit_model::limits::{FRAME_BYTES_MAX, GREETING_BYTES_MAX};
use sennit_protocol::{
    DecodeError, Features, FrameHeader, FrameReader, Preface, Reply, Request, control,
};
use sennit_tls::{ClientConfig, Codec, ServerName, TlsFault};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{
    credential::Credential,
    error::Error,
    wire::{Wire, read_some},
};

/// The client's side of the greeting.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) address: Arc<str>,
    pub(crate) name: String,
    pub(crate) frame_bytes_max: usize,
    /// How TLS is spoken, and with whom; `None` on a plain connection.
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// The token of the session whose connection was lost.
    pub(crate) replaces: Option<u64>,
    pub(crate) credential: Option<Credential>,
}

/// A connection whose greeting was accepted.
pub(crate) struct Session {
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
    /// Time from the greeting to its answer. It is at least the line's round trip, and longer if
    /// the broker is busy.
    pub(crate) round_trip: Duration,
}

impl Session {
    /// Connects and greets, within `limit`.
    pub(crate) async fn open(greeting: &Greeting, limit: Duration) -> Result<Self, Error> {
        let late = || {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no greeting in time");
            Error::unreachable(&greeting.address, error)
        };
        timeout(limit, Self::greet(greeting)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn greet(greeting: &Greeting) -> Result<Self, Error> {
        let unreachable = |error| Error::unreachable(&greeting.address, error);
        // With TLS 1.3 the broker refuses a client's certificate behind the client's part of the handshake.
        let later = |error| no_handshake(&greeting.address, error);
        let tcp = TcpStream::connect(&*greeting.address).await.map_err(unreachable)?;
        tcp.set_nodelay(true).map_err(unreachable)?;
        let mut stream = match &greeting.tls {
            None => Wire::plain(tcp),
            Some((settings, name)) => {
                let codec = Codec::client(settings.clone(), name.clone());
                let codec = codec.map_err(|fault| Error::tls(&greeting.address, &fault))?;
                let shaken = Wire::secure(tcp, codec).await;
                shaken.map_err(|error| no_handshake(&greeting.address, error))?
            }
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
                    stream,
                    frames,
                    input,
                    server,
                    frame_bytes_max,
                    features,
                    token,
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
