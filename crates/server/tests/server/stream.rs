//! The stream of a test's connection: TCP, plain or with TLS on it, from an address of its own if that matters.

use std::{
    io::{Error, ErrorKind, IoSlice, Read, Result, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};

use sennit_tls::{ClientConfig, Codec, TlsOptions};
use socket2::{Domain, Socket, Type};

use crate::world::SOON;

/// The stream of a connection.
pub struct Stream {
    tcp: TcpStream,
    tls: Option<Box<Codec>>,
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
        let mut stream = Stream { tcp, tls };
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

    /// Says that nothing more comes.
    pub fn end(&self) {
        self.tcp.shutdown(Shutdown::Write).unwrap();
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
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
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(codec) = &mut self.tls else { return self.tcp.write(bytes) };
        match codec.take(&[IoSlice::new(bytes)], |records| (&self.tcp).write(records)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(ErrorKind::Interrupted.into())
            }
            taken => taken,
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
