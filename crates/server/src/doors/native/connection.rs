//! A connection of the native protocol: one task reads and one writes. They know bytes; the session knows frames.

use std::{cell::RefCell, rc::Rc, time::Duration};

use bytes::{BufMut as _, BytesMut};
use sennit_protocol::{ErrorCode, FrameHeader, Reply, control};
use sennit_tls::{ALERT_NOT_TLS, begins_tls};
use tokio::{
    task::spawn_local,
    time::{Instant, timeout, timeout_at},
};

use super::{
    arrival::{Arrival, Moved},
    flow_control::hold_back,
    native_wire::{NativeReader, NativeWriter, halves},
    outbox::Outbox,
    session::{Flow, Session},
};
use crate::identity::authority::Authority;
use crate::runtime::{
    core::{CoreHandle, EffectSink},
    handshake::{note_unexpected_tls, secured},
    inbox::Message,
    peer::Peer,
    reader_pacing::ReaderPacing,
    write_buffer::WriteBuffer,
};

/// Bytes of a read at low load, and the most.
const READ_BYTES: usize = 16 << 10;
const READ_BYTES_MAX: usize = 512 << 10;

/// A frame of which so much has come, or is missing, is long.
const LONG_BYTES: usize = 32 << 10;

/// Room of the scratch that stays between writes. Only a frame of more than that makes it larger.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// What readers are given may wait for more up to here.
const SMALL_BYTES_MAX: usize = 8 << 10;

/// A connection that has not said Hello by then is closed.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without a byte the client is asked whether it is there, and after as long again
/// it is taken for gone.
const SILENCE: Duration = Duration::from_secs(30);

/// After this long without a byte that the client takes of what waits for it, it is taken for gone as well,
/// whatever it sends: beyond some replies it is not read either.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long what waits in the outbox may take to go out once the session has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// The native protocol on a core.
#[derive(Debug)]
pub(crate) struct NativeDoor {
    pub(crate) core: CoreHandle,
    pub(crate) authority: Authority,
}

/// Has a core serve a connection.
pub(crate) fn arrives(arrival: Arrival) -> Message {
    Message::call(|door: &Rc<NativeDoor>| {
        let (core, authority) = (door.core.clone(), door.authority.clone());
        drop(spawn_local(serve(arrival, core, authority)));
    })
}

/// Serves a connection until it ends.
async fn serve(arrival: Arrival, core: CoreHandle, authority: Authority) {
    let Arrival { wire, websocket, moved } = arrival;
    let wire = match wire.register() {
        Ok(wire) => wire,
        Err(error) => {
            tracing::warn!(%error, "a connection could not be taken over");
            return;
        }
    };
    wire.set_nodelay();
    let metrics = &core.cores.metrics[core.index];
    let Some(wire) = secured(wire, metrics, tls_required).await else { return };
    let frame_bytes_max = sennit_model::limits::GREETING_BYTES_MAX;
    let outbox = Rc::new(Outbox::new(frame_bytes_max, &core.waiting_room));
    let id = core.with(|core| {
        let metrics = core.metrics();
        match moved {
            None => metrics.connections_opened.add(1),
            Some(_) => metrics.connections_moved.add(1),
        }
        if core.is_draining() {
            outbox.say_goodbye();
        }
        core.open_session(outbox.clone())
    });
    let (scratch, pace) = (core.write_scratch.clone(), core.pace.clone());
    let cores = core.cores.clone();
    let peer = if moved.is_none() { wire.peer() } else { Peer::default() };
    let (mut reading, writing) = halves(wire, websocket);
    let writer = spawn_local(write(writing, outbox.clone(), scratch, pace));
    let mut session = Session::new(id, core.clone(), outbox.clone(), authority, peer);
    let guard = session.guard();
    let mut input = BytesMut::new();
    let end = tokio::select! {
        biased;
        () = outbox.successor.came() => Flow::Broken,
        () = outbox.wait_until_deaf() => Flow::Broken,
        () = guard.wait_until_ended() => Flow::Broken,
        end = speak(moved, &mut reading, &mut session, &outbox, &mut input) => end,
        never = hold_back(id, &core, &outbox) => match never {},
    };
    session.end(end == Flow::Left);
    core.with(|core| core.carry_commands());
    outbox.successor.let_in(id);
    outbox.close();
    let abort = writer.abort_handle();
    match timeout(FAREWELL, writer).await {
        Err(_) => abort.abort(),
        Ok(Ok(Some(writing))) if let Flow::Moves(to) = end => {
            let parts = reading.reunite(writing);
            if let (Some((wire, websocket)), Some(moved)) = (parts, session.moves_out(input)) {
                let arrival = Arrival { wire, websocket, moved: Some(Box::new(moved)) };
                let _ = cores.inboxes[to].send(arrives(arrival));
            }
        }
        Ok(Ok(Some(writing))) => writing.say_goodbye(),
        Ok(_) => {}
    }
}

/// What a client without TLS is told on a port with TLS: an error in the plain form of the protocol.
fn tls_required() -> Vec<u8> {
    let error = control::Error::new(ErrorCode::TlsRequired, ErrorCode::TlsRequired.meaning());
    let mut bytes = Vec::new();
    Reply::Error(error).encode(0, &mut bytes);
    bytes
}

/// Does what the client asks until the connection ends, or moves; says which.
async fn speak(
    moved: Option<Box<Moved>>,
    wire: &mut NativeReader,
    session: &mut Session,
    outbox: &Outbox,
    input: &mut BytesMut,
) -> Flow {
    let flow = match moved {
        Some(moved) => session.moved_in(*moved, input).await,
        None => Flow::GoOn,
    };
    match flow {
        Flow::GoOn => read(wire, session, outbox, input).await,
        ended => ended,
    }
}

/// Reads until the connection ends, or moves; says which.
async fn read(
    wire: &mut NativeReader,
    session: &mut Session,
    outbox: &Outbox,
    input: &mut BytesMut,
) -> Flow {
    let mut room = READ_BYTES;
    let greeting_ends = Instant::now() + GREETING_TIMEOUT;
    loop {
        // While it waits, a connection without half a frame holds no memory for one.
        let is_readable = if session.is_greeted() {
            readable(wire, outbox).await
        } else {
            matches!(timeout_at(greeting_ends, wire.readable()).await, Ok(Ok(())))
        };
        if !is_readable {
            return Flow::Broken;
        }
        let missing = session.missing(input);
        let is_long = missing > 0 && missing.max(input.len()) >= LONG_BYTES;
        // Of a long frame no more is read than it lacks, and the next header: what begins behind it has
        // room of its own, and nothing is moved.
        let wanted = if is_long { missing + FrameHeader::BYTES } else { room };
        input.reserve(wanted.min(room));
        let spare = input.capacity() - input.len();
        let given = if is_long { spare.min(wanted) } else { spare };
        // A read that does not fill its room has emptied the socket, and tokio knows it: the next
        // one waits for the kernel's word instead of asking in vain.
        let read = wire.read_now(&mut (&mut *input).limit(given)).await;
        if wire.owes_control() {
            // The writer sends that.
            outbox.alert(&[]);
        }
        let count = match read {
            Ok(Some(count @ 1..)) => count,
            // Less than a record of TLS has come, or than a message. Others have their turn, and the task's share of tokio's
            // is renewed: without one a wire says that it is readable, and gives nothing.
            Ok(None) => {
                tokio::task::yield_now().await;
                continue;
            }
            Ok(Some(0)) | Err(_) => return Flow::Broken,
        };
        if !session.is_greeted() && begins_tls(input) == Some(true) {
            note_unexpected_tls("native");
            outbox.alert(&ALERT_NOT_TLS);
            return Flow::Broken;
        }
        let is_full = count >= given.min(wanted);
        room = if is_full && !is_long { (2 * room).min(READ_BYTES_MAX) } else { room };
        match session.take(input).await {
            Flow::GoOn => {}
            ended => return ended,
        }
        for shard in std::mem::take(&mut session.published_to) {
            session.wait_for_room(shard).await;
        }
        outbox.wait_for_room().await;
        if is_full {
            // Others have their turn, and the core carries what this one has brought.
            tokio::task::yield_now().await;
        } else if input.is_empty() {
            *input = BytesMut::new();
            room = READ_BYTES;
        }
    }
}

/// Waits for bytes; false if none came for too long.
async fn readable(wire: &NativeReader, outbox: &Outbox) -> bool {
    if let Ok(ready) = timeout(SILENCE, wire.readable()).await {
        return ready.is_ok();
    }
    outbox.reply(&Reply::Ping, 0);
    matches!(timeout(SILENCE, wire.readable()).await, Ok(Ok(())))
}

/// Writes what comes into the outbox until it is closed and empty; gives back the wire if that
/// still takes bytes.
async fn write(
    mut wire: NativeWriter,
    outbox: Rc<Outbox>,
    scratch: Rc<RefCell<WriteBuffer>>,
    pace: Rc<ReaderPacing>,
) -> Option<NativeWriter> {
    let place = pace.place();
    let mut not_before = None;
    while outbox.wait_for_output().await {
        if let Some(turn) = not_before.take() {
            outbox.pause(pace.wait_for_turn(turn), SMALL_BYTES_MAX).await;
        }
        let small = outbox.little_for_readers(SMALL_BYTES_MAX);
        outbox.begins_write();
        wire.send_control();
        // All writers of a core share one scratch, which stays hot; a connection keeps memory of
        // its own only for what its socket does not take at once.
        let rest = {
            let mut outgoing = scratch.borrow_mut();
            outbox.fill(&mut outgoing);
            let taken = outgoing.write_now(&mut wire, 0);
            let rest = outgoing.rest(*taken.as_ref().unwrap_or(&0));
            outgoing.clear(SCRATCH_BYTES_MAX);
            taken.ok()?;
            rest
        };
        let mut taken = 0;
        outbox.set_unwritten(rest.len());
        while taken < rest.len() {
            taken = match timeout(WRITE_TIMEOUT, wire.writable()).await {
                Ok(is_writable) => {
                    is_writable.ok()?;
                    rest.write_now(&mut wire, taken).ok()?
                }
                Err(_) => match rest.write_now(&mut wire.eager(), taken).ok()? {
                    still if still == taken => {
                        outbox.set_deaf();
                        return None;
                    }
                    more => more,
                },
            };
            outbox.set_unwritten(rest.len() - taken);
        }
        if let Some(deliveries) = small {
            not_before = pace.wrote(place, deliveries, Instant::now());
        }
        if !outbox.is_empty() {
            // Others have their turn: what waits here can be all of a session's credit.
            tokio::task::yield_now().await;
        }
    }
    Some(wire)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use sennit_model::limits::GREETING_BYTES_MAX;
    use tokio::time::sleep;

    use super::*;
    use crate::runtime::wire::tests::connected;

    /// A client, another hold on the socket that it is written to, and an outbox with as much for it as no
    /// socket takes, whose writer has begun.
    fn written_to() -> (impl Read, impl Write, Rc<Outbox>, impl Future) {
        let (client, hold, wire) = connected();
        let (_, writing) = halves(wire.register().unwrap(), None);
        let outbox = Rc::new(Outbox::new(GREETING_BYTES_MAX, &Rc::default()));
        for _ in 0..4 << 20 {
            outbox.reply(&Reply::Pong, 0);
        }
        let writer = write(writing, outbox.clone(), Rc::default(), Rc::default());
        (client, hold, outbox, writer)
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up_whatever_it_sends() {
        let (_client, _hold, outbox, writer) = written_to();
        let begin = Instant::now();
        assert!(timeout(10 * WRITE_TIMEOUT, writer).await.is_ok(), "it is written to for ever");
        let took = begin.elapsed();
        assert!(took >= WRITE_TIMEOUT && took < 2 * WRITE_TIMEOUT, "{took:?}");
        assert!(timeout(WRITE_TIMEOUT, outbox.wait_until_deaf()).await.is_ok());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_client_that_takes_a_little_now_and_then_is_not_given_up() {
        let (mut client, mut hold, outbox, writer) = written_to();
        let takes = async {
            for _ in 0..5 {
                sleep(WRITE_TIMEOUT - Duration::from_secs(1)).await;
                while hold.write(b"x").is_err() {
                    let _ = client.read(&mut [0; 16 << 10]).unwrap();
                }
            }
        };
        tokio::select! {
            _ = writer => panic!("it was given up"),
            () = outbox.wait_until_deaf() => panic!("it was given up"),
            () = takes => {}
        }
    }
}
