//! Accepts connections of other nodes: reads the greeting, refuses it with the reason, or gives the connection to the core
//! that has the link.

use std::{rc::Rc, sync::Arc};

use bytes::BytesMut;
use sennit_protocol::peer::{Content, Greeting, PeerReader};
use tokio::{sync::Semaphore, task::spawn_local};

use super::{
    greeting::{Side, answer, judge},
    links::Links,
    peer_state::ClusterState,
    socket::{LinkFault, prepare, receive_first, send_first, wall_ms},
};
use crate::runtime::{
    inbox::{self, Message},
    index::{CoreIndex, IndexVec},
    listener::Listener,
    wire::WireAtRest,
};

/// Connections that may be without a greeting at a time; the next one waits to be accepted.
const UNGREETED_MAX: usize = 64;

/// Accepts connections for as long as the broker runs.
pub(crate) async fn accept(
    listener: Listener,
    state: Arc<ClusterState>,
    inboxes: IndexVec<CoreIndex, inbox::Sender>,
) {
    let room = Arc::new(Semaphore::new(UNGREETED_MAX));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let wire = listener.accept().await;
        let (state, inboxes) = (state.clone(), inboxes.clone());
        spawn_local(async move {
            if let Err(fault) = greet(wire, &state, &inboxes).await {
                tracing::debug!(%fault, "a connection of another node has ended early");
            }
            drop(place);
        });
    }
}

/// Reads the greeting of a connection and answers it.
async fn greet(
    wire: WireAtRest,
    state: &Arc<ClusterState>,
    inboxes: &IndexVec<CoreIndex, inbox::Sender>,
) -> Result<(), LinkFault> {
    let mut wire = wire.register()?;
    prepare(&wire);
    let (mut reader, mut input) = (PeerReader::before_greeting(), BytesMut::new());
    let first = receive_first(&mut wire, &mut reader, &mut input).await?;
    let Content::Greeting(theirs) = first.content else {
        return Err(LinkFault::Refused("the other end answers, and nothing was said".to_owned()));
    };
    match judge(state, Side::Accepts, &theirs) {
        Ok(version) => {
            let wire = wire.deregister()?;
            let core = CoreIndex(theirs.link);
            let serve = move |links: &Rc<Links>| {
                spawn_local(serve(links.clone(), wire, (reader, input), theirs, version));
            };
            // A core that has no links yet drops the connection, and the other node dials again.
            let _ = inboxes[core].send(Message::call(serve));
            Ok(())
        }
        Err((refusal, reason)) => {
            let known = state.peer(theirs.node);
            if known.is_none_or(|peer| peer.set_refusal(Some(&reason))) {
                tracing::warn!(peer = theirs.node, %reason, "a link of another node is refused");
            }
            let answer = answer(&state.own, &theirs, wall_ms(), Err((refusal, reason)));
            Ok(send_first(&mut wire, answer).await?)
        }
    }
}

/// Serves an accepted link on its core.
async fn serve(
    links: Rc<Links>,
    wire: WireAtRest,
    unread: (PeerReader, BytesMut),
    theirs: Greeting,
    version: u32,
) {
    match wire.register() {
        Ok(wire) => {
            let answer = answer(&links.state().own, &theirs, wall_ms(), Ok(version));
            links.serve(wire, unread, &theirs, Some(answer)).await;
        }
        Err(error) => tracing::warn!(%error, "a link cannot be served"),
    }
}
