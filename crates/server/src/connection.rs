//! One socket: a task that reads and a task that writes. They know bytes; frames are the
//! session's.

use std::{io, rc::Rc, time::Duration};

use bytes::BytesMut;
use sennit_protocol::Reply;
use tokio::net::TcpStream;

use crate::{
    core::CoreHandle,
    outbox::Outbox,
    session::{Flow, Session},
};

/// Bytes of a read at low load, and the most.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MAX: usize = 512 << 10;

/// A connection that has not said Hello by then is closed.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without a byte the client is asked whether it is there, and after as long again
/// it is taken for gone.
const SILENCE: Duration = Duration::from_secs(30);

/// How long what waits in the outbox may take to go out once the session has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: std::net::TcpStream, core: CoreHandle) {
    let stream = match TcpStream::from_std(stream) {
        Ok(stream) => Rc::new(stream),
        Err(error) => {
            tracing::warn!(%error, "a connection could not be taken over");
            return;
        }
    };
    let _ = stream.set_nodelay(true);
    let outbox = Rc::new(Outbox::new(sennit_model::limits::GREETING_BYTES_MAX));
    let id = core.with(|core| core.open_session(outbox.clone()));
    let writer = tokio::task::spawn_local(write(stream.clone(), outbox.clone()));
    let mut session = Session::new(id, core, outbox.clone());
    let left = read(&stream, &mut session, &outbox).await;
    session.end(left);
    outbox.close();
    let abort = writer.abort_handle();
    if tokio::time::timeout(FAREWELL, writer).await.is_err() {
        abort.abort();
    }
}

/// Reads until the connection ends; true if the client left on purpose.
async fn read(stream: &TcpStream, session: &mut Session, outbox: &Outbox) -> bool {
    let mut input = BytesMut::new();
    let mut room = READ_BYTES;
    loop {
        input.reserve(room);
        match stream.try_read_buf(&mut input) {
            Ok(0) => return false,
            Ok(count) => {
                // A read that fills its room finds more waiting; one that does not, less.
                room = if count >= room { (2 * room).min(READ_BYTES_MAX) } else { room };
                match session.take(&mut input).await {
                    Flow::GoOn => {}
                    Flow::Left => return true,
                    Flow::Broken => return false,
                }
                for shard in std::mem::take(&mut session.published_to) {
                    session.has_room(shard).await;
                }
                outbox.has_room().await;
                // Others have their turn, and the core carries what this one has brought.
                tokio::task::yield_now().await;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if input.is_empty() {
                    input = BytesMut::new();
                    room = READ_BYTES;
                }
                if !readable(stream, session, outbox).await {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

/// Waits for bytes; false if none came for too long.
async fn readable(stream: &TcpStream, session: &Session, outbox: &Outbox) -> bool {
    let patience = if session.is_greeted() { SILENCE } else { GREETING_TIMEOUT };
    if let Ok(ready) = tokio::time::timeout(patience, stream.readable()).await {
        return ready.is_ok();
    }
    if !session.is_greeted() {
        return false;
    }
    outbox.reply(&Reply::Ping, 0);
    matches!(tokio::time::timeout(SILENCE, stream.readable()).await, Ok(Ok(())))
}

/// Writes what comes into the outbox until it is closed and empty.
async fn write(stream: Rc<TcpStream>, outbox: Rc<Outbox>) {
    let mut bytes = Vec::new();
    while outbox.next(&mut bytes).await {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match stream.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if stream.writable().await.is_err() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
        bytes.clear();
        if bytes.capacity() > READ_BYTES_MAX {
            bytes = Vec::new();
        }
    }
}
