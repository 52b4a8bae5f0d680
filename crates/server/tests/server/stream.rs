//! The stream of a test's connection: TCP, plain or with TLS on it, from an address of its own if that matters; and over
//! that a WebSocket, whose binary messages carry the bytes.

use std::{
    io::{Error, ErrorKind, IoSlice, Read, Result, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use sennit_tls::{ClientConfig, Codec, TlsOptions};
use sennit_websocket::{
    Close, Decoder, DecoderLimits, Incoming, Inflater, Opcode, client::put_frame,
};
use socket2::{Domain, Socket, Type};

use crate::world::SOON;

/// The stream of a connection.
pub struct Stream {
    tcp: TcpStream,
    tls: Option<Box<Codec>>,
    websocket: Option<Box<WebSocketEnd>>,
}

/// The client's end of a WebSocket.
struct WebSocketEnd {
    decoder: Decoder,
    /// What has come in messages and was not read.
    unread: Vec<u8>,
    /// How many pongs have come.
    pongs: usize,
    closed: Option<Close>,
}

/// How a client connects.
#[derive(Clone, Debug, Default)]
pub struct Dialing {
    /// The address that it comes from.
    pub from: Option<IpAddr>,
    /// Its side of TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

impl Dialing {
    /// From this address.
    pub fn from(address: [u8; 4]) -> Self {
        Self { from: Some(address.into()), tls: None }
    }

    /// By TLS with this authority of the broker's, showing a certificate if there is one.
    pub fn secure(ca: &Path, certificate: Option<&str>) -> Self {
        let certificate = certificate.map(|files| files.parse().unwrap());
        let options = TlsOptions { ca: Some(ca.to_owned()), certificate, ..TlsOptions::default() };
        Self { from: None, tls: Some(options.client_settings(&[]).unwrap()) }
    }

    /// A stream to this address.
    pub fn dial(&self, to: SocketAddr) -> Stream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        if let Some(from) = self.from {
            socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        }
        socket.connect(&to.into()).unwrap();
        let tcp = TcpStream::from(socket);
        tcp.set_read_timeout(Some(SOON)).unwrap();
        tcp.set_write_timeout(Some(SOON)).unwrap();
        tcp.set_nodelay(true).unwrap();
        let tls = self.tls.as_ref().map(|settings| {
            let name = TlsOptions::default().name_of(&to.to_string()).unwrap();
            Box::new(Codec::client(settings.clone(), name).unwrap())
        });
        let mut stream = Stream { tcp, tls, websocket: None };
        stream.shake_hands();
        stream
    }
}

impl Stream {
    fn shake_hands(&mut self) {
        while let Some(codec) = self.tls.as_mut().filter(|codec| codec.is_handshaking()) {
            codec.flush(|bytes| (&self.tcp).write(bytes)).unwrap();
            if !codec.is_handshaking() {
                break;
            }
            let mut records = [0; 16 << 10];
            let count = self.tcp.read(&mut records).unwrap();
            assert!(count > 0, "the broker ends the handshake");
            let mut none: &mut [u8] = &mut [];
            codec.feed(&records[..count], &mut none).unwrap();
        }
        if let Some(codec) = &mut self.tls {
            codec.flush(|bytes| (&self.tcp).write(bytes)).unwrap();
        }
    }

    /// Goes on in messages of a WebSocket, whose upgrade is done; `unread` came behind it.
    pub fn through_websocket(mut self, unread: &[u8]) -> Self {
        let limits = DecoderLimits { message_bytes_max: 1 << 20 };
        let decoder = Decoder::of_client(limits, false);
        let mut end = WebSocketEnd { decoder, unread: Vec::new(), pongs: 0, closed: None };
        end.decode(unread);
        self.websocket = Some(Box::new(end));
        self
    }

    /// Says a frame of the WebSocket.
    pub fn say_frame(&mut self, opcode: Opcode, payload: &[u8]) {
        let mut frame = Vec::new();
        put_frame(opcode, payload, [1, 2, 3, 4], &mut frame);
        while !frame.is_empty() {
            match self.write_plain(&frame) {
                Ok(count) => drop(frame.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("it takes nothing: {error}"),
            }
        }
    }

    /// How many pongs have come, and how the WebSocket was closed.
    pub fn websocket_end(&self) -> (usize, Option<Close>) {
        let end = self.websocket.as_ref().unwrap();
        (end.pongs, end.closed.clone())
    }

    fn read_plain(&mut self, out: &mut [u8]) -> Result<usize> {
        let Some(codec) = &mut self.tls else { return self.tcp.read(out) };
        let room = out.len();
        let mut left = out;
        loop {
            codec.read(&mut left).map_err(Error::other)?;
            if left.len() < room || codec.has_ended() {
                return Ok(room - left.len());
            }
            let mut records = [0; 16 << 10];
            match self.tcp.read(&mut records)? {
                0 => codec.end(),
                count => codec.feed(&records[..count], &mut left).map_err(Error::other)?,
            }
        }
    }

    fn write_plain(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(codec) = &mut self.tls else { return self.tcp.write(bytes) };
        match codec.take(&[IoSlice::new(bytes)], |records| (&self.tcp).write(records)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(ErrorKind::Interrupted.into())
            }
            taken => taken,
        }
    }

    /// Says that nothing more comes.
    pub fn end(&self) {
        self.tcp.shutdown(Shutdown::Write).unwrap();
    }
}

impl WebSocketEnd {
    fn decode(&mut self, mut input: &[u8]) {
        while let Some(incoming) = self.decoder.next(&mut input, &mut Inflater::new()).unwrap() {
            match incoming {
                Incoming::Binary(bytes) => self.unread.extend(bytes),
                Incoming::Pong(_) => self.pongs += 1,
                Incoming::Close(close) => self.closed = Some(close),
                other => panic!("{other:?}"),
            }
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        loop {
            if let Some(end) = &mut self.websocket {
                let count = end.unread.len().min(out.len());
                if count > 0 {
                    out[..count].copy_from_slice(&end.unread[..count]);
                    end.unread.drain(..count);
                    return Ok(count);
                }
            }
            let mut bytes = [0; 64 << 10];
            let Some(mut end) = self.websocket.take() else { return self.read_plain(out) };
            let read = self.read_plain(&mut bytes);
            let decoded = read.inspect(|count| end.decode(&bytes[..*count]));
            self.websocket = Some(end);
            if decoded? == 0 {
                return Ok(0);
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.websocket.is_none() {
            return self.write_plain(bytes);
        }
        // What belongs together comes in several messages, too.
        let part = &bytes[..bytes.len().min(60_000)];
        self.say_frame(Opcode::Binary, part);
        Ok(part.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
