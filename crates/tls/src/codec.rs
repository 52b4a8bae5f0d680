//! The codec of a connection: plain bytes on one side, TLS records on the other. It knows no sockets: records come as
//! slices, and go to a closure that takes what it can.

use std::{
    cell::Cell,
    fmt,
    io::{self, BufRead as _, IoSlice, Write as _},
    sync::Arc,
};

use bytes::BufMut;
use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, ServerName},
};

use crate::fault::TlsFault;

/// Most plain bytes that become records at once: records wait for the socket no longer than this.
const TAKEN_BYTES_MAX: usize = 64 << 10;

/// Most slices of one call that are looked at.
const SLICES_MAX: usize = 64;

thread_local! {
    /// The records of one write, which all connections of a thread share. They are a little more than what is in them.
    static RECORDS: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// One end of a TLS connection.
pub struct Codec {
    connection: Connection,
    /// Records that came while nobody had room for what is in them.
    held: Vec<u8>,
    /// Records that the socket has not taken, and how much of them it has.
    pending: Vec<u8>,
    sent: usize,
    /// Plain bytes that are in `pending`, or went out of it, and are not told to be taken.
    untold: usize,
    has_ended: bool,
}

impl fmt::Debug for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Codec")
            .field("is_handshaking", &self.is_handshaking())
            .field("pending", &(self.pending.len() - self.sent))
            .finish_non_exhaustive()
    }
}

impl Codec {
    /// The server's end of a connection that begins.
    ///
    /// # Errors
    /// The settings are not good.
    pub fn server(settings: Arc<ServerConfig>) -> Result<Self, TlsFault> {
        Ok(Self::new(ServerConnection::new(settings)?.into()))
    }

    /// The client's end of a connection that begins, to a server of that name.
    ///
    /// # Errors
    /// The settings are not good.
    pub fn client(
        settings: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, TlsFault> {
        Ok(Self::new(ClientConnection::new(settings, name)?.into()))
    }

    fn new(mut connection: Connection) -> Self {
        // What is written becomes records at once, and those are taken out at once.
        connection.set_buffer_limit(None);
        Self {
            connection,
            held: Vec::new(),
            pending: Vec::new(),
            sent: 0,
            untold: 0,
            has_ended: false,
        }
    }

    /// Whether the handshake goes on.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The certificate that the peer has shown and that was verified.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.connection.peer_certificates()?.first()
    }

    /// The protocol that both ends have agreed on.
    #[must_use]
    pub fn protocol(&self) -> Option<&[u8]> {
        self.connection.alpn_protocol()
    }

    /// Whether plain bytes have come that nobody has read.
    #[must_use]
    pub fn has_unread(&mut self) -> bool {
        !self.held.is_empty()
            || self.connection.reader().fill_buf().is_ok_and(|some| !some.is_empty())
    }

    /// Whether the peer has said that nothing more comes, or cannot any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The peer sends nothing more, whatever it has said.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether records wait for the socket.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        self.sent < self.pending.len() || self.connection.wants_write()
    }

    /// Reads what has come into `out`, as far as there is room.
    ///
    /// # Errors
    /// What has come is not what TLS allows. The alert for it is pending.
    pub fn read(&mut self, out: &mut impl BufMut) -> Result<(), TlsFault> {
        self.drain(out);
        if !self.held.is_empty() && out.has_remaining_mut() {
            let held = std::mem::take(&mut self.held);
            self.feed(&held, out)?;
        }
        Ok(())
    }

    /// Takes records, or parts of them, and reads what is in them into `out`. Keeps what there is no room for.
    ///
    /// # Errors
    /// As [`Codec::read`].
    pub fn feed(&mut self, mut records: &[u8], out: &mut impl BufMut) -> Result<(), TlsFault> {
        while !records.is_empty() {
            let is_full = !out.has_remaining_mut();
            if (is_full && self.has_unread()) || !self.held.is_empty() {
                self.held.extend_from_slice(records);
                return Ok(());
            }
            // It refuses only when plain bytes wait, and none do.
            let taken = self.connection.read_tls(&mut records).unwrap_or(0);
            let state = self.connection.process_new_packets()?;
            if state.peer_has_closed() || taken == 0 {
                self.has_ended = true;
                self.drain(out);
                return Ok(());
            }
            if state.plaintext_bytes_to_read() > 0 {
                self.drain(out);
            }
        }
        Ok(())
    }

    fn drain(&mut self, out: &mut impl BufMut) {
        let mut reader = self.connection.reader();
        while out.has_remaining_mut()
            && let Ok(chunk) = reader.fill_buf()
            && !chunk.is_empty()
        {
            let count = chunk.len().min(out.remaining_mut());
            out.put_slice(&chunk[..count]);
            reader.consume(count);
        }
    }

    /// Takes the first of these bytes, and returns how many the socket has taken as records. The caller offers what
    /// is behind them next, and the same bytes again after an error of the kind `WouldBlock`.
    ///
    /// # Errors
    /// Those of `sink`, which is the socket.
    pub fn take(
        &mut self,
        slices: &[IoSlice<'_>],
        mut sink: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let offered: usize = slices.iter().map(|slice| slice.len()).sum();
        if offered == 0 {
            return Ok(0);
        }
        match self.flush(&mut sink) {
            Ok(()) if self.untold == 0 => {
                self.encrypt(slices)?;
                or_later(self.flush(&mut sink))?;
            }
            flushed => or_later(flushed)?,
        }
        // A record is longer than what is in it: of what has gone out at least so much was plain bytes.
        let told = self.untold.saturating_sub(self.pending.len() - self.sent).min(offered);
        if told == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.untold -= told;
        Ok(told)
    }

    /// Makes records of the first bytes.
    fn encrypt(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        let mut room = TAKEN_BYTES_MAX;
        let mut parts = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        for slice in slices.iter().filter(|slice| !slice.is_empty()).take(SLICES_MAX) {
            let length = slice.len().min(room);
            if length == 0 {
                break;
            }
            parts[count] = IoSlice::new(&slice[..length]);
            room -= length;
            count += 1;
        }
        self.untold = self.connection.writer().write_vectored(&parts[..count])?;
        Ok(())
    }

    /// Sends the records that wait.
    ///
    /// # Errors
    /// Those of `sink`; of the kind `WouldBlock` if some still wait.
    pub fn flush(&mut self, mut sink: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        if self.sent < self.pending.len() {
            send_all(&self.pending, &mut self.sent, &mut sink)?;
            self.sent = 0;
            self.pending = Vec::new();
        }
        if !self.connection.wants_write() {
            return Ok(());
        }
        // Most often the socket takes all of it, and a connection at rest keeps no memory for records.
        let mut records = RECORDS.take();
        records.clear();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records)?;
        }
        let mut sent = 0;
        let done = send_all(&records, &mut sent, &mut sink);
        if sent < records.len() {
            self.pending.extend_from_slice(&records[sent..]);
        }
        RECORDS.set(records);
        done
    }

    /// Says that nothing more comes from this end. It is pending until it is flushed.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

/// Sends what is behind the first `sent` bytes, and counts on.
fn send_all(
    records: &[u8],
    sent: &mut usize,
    sink: &mut impl FnMut(&[u8]) -> io::Result<usize>,
) -> io::Result<()> {
    while *sent < records.len() {
        match sink(&records[*sent..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *sent += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waiting is no failure.
fn or_later(flushed: io::Result<()>) -> io::Result<()> {
    match flushed {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        flushed => flushed,
    }
}

#[cfg(feature = "issuing")]
#[cfg(test)]
mod tests;
