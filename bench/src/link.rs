//! A connection over TCP, plain or with TLS. Reads and writes block if those of its stream do. It knows bytes only.

use std::{
    cell::RefCell,
    io::{self, IoSlice, Read, Write},
    net::TcpStream,
    sync::Arc,
};

use sennit_tls::{ClientConfig, Codec, TlsOptions};

/// Bytes of records that are read at once.
const RECORD_BYTES: usize = 64 << 10;

thread_local! {
    /// Where records are read to, for all connections of a thread.
    static RECORDS: RefCell<Vec<u8>> = RefCell::new(vec![0; RECORD_BYTES]);
}

/// Whom a client trusts with TLS.
#[derive(Clone)]
pub struct Trust {
    options: TlsOptions,
    settings: Arc<ClientConfig>,
}

/// A connection.
#[derive(Debug)]
pub struct Link {
    /// What carries it.
    pub stream: TcpStream,
    codec: Option<Box<Codec>>,
}

impl Trust {
    /// Trusts the broker with this fingerprint, and speaks HTTP/1.1 with it.
    ///
    /// # Errors
    /// The text is no fingerprint.
    pub fn in_fingerprint(text: &str) -> anyhow::Result<Self> {
        let options = TlsOptions { fingerprint: Some(text.parse()?), ..TlsOptions::default() };
        let settings = options.client_settings(&[b"http/1.1"])?;
        Ok(Self { options, settings })
    }
}

impl From<TcpStream> for Link {
    fn from(stream: TcpStream) -> Self {
        Self { stream, codec: None }
    }
}

impl Link {
    /// Begins TLS on a connection with the broker at `address`, with reads that block.
    ///
    /// # Errors
    /// The broker does not speak TLS, or is another one.
    pub fn secure(stream: TcpStream, address: &str, trust: &Trust) -> anyhow::Result<Self> {
        let name = trust.options.name_of(address)?;
        let mut codec = Codec::client(trust.settings.clone(), name)?;
        let mut records = [0; 16 << 10];
        while codec.is_handshaking() {
            codec.flush(|bytes| (&stream).write(bytes))?;
            if !codec.is_handshaking() {
                break;
            }
            let count = (&stream).read(&mut records)?;
            anyhow::ensure!(count > 0, "the broker has ended the handshake");
            let mut none: &mut [u8] = &mut [];
            codec.feed(&records[..count], &mut none)?;
        }
        codec.flush(|bytes| (&stream).write(bytes))?;
        Ok(Self { stream, codec: Some(Box::new(codec)) })
    }

    /// Whether a read that is not full has emptied the socket.
    #[must_use]
    pub fn reads_all(&self) -> bool {
        self.codec.is_none()
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(codec) = &mut self.codec else { return self.stream.read(buffer) };
        let length = buffer.len();
        let mut room = buffer;
        codec.read(&mut room).map_err(io::Error::other)?;
        while room.len() == length {
            let taken = RECORDS.with_borrow_mut(|records| {
                let count = self.stream.read(records)?;
                codec.feed(&records[..count], &mut room).map_err(io::Error::other)?;
                Ok::<_, io::Error>(count)
            });
            if taken? == 0 || (codec.has_ended() && room.len() == length) {
                return Ok(0);
            }
        }
        Ok(length - room.len())
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.codec {
            None => self.stream.write(bytes),
            Some(codec) => codec.take(&[IoSlice::new(bytes)], |records| self.stream.write(records)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.codec {
            None => Ok(()),
            Some(codec) => codec.flush(|records| self.stream.write(records)),
        }
    }
}
