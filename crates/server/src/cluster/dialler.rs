//! Dials a peer with a higher id, again and again: each core has a link of its own to it.

use std::{rc::Rc, time::Duration};

use bytes::BytesMut;
use sennit_protocol::peer::{Content, Greeting, GreetingAnswer, PeerReader, Refusal};
use tokio::time::{sleep, timeout};

use super::{
    greeting::{Side, first_frame, introduce, judge},
    links::Links,
    peer_state::PeerState,
    socket::{LinkFault, prepare, receive_first, send_first, wall_ms},
};
use crate::runtime::wire::Wire;

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest and the longest rest between two attempts.
const REST_MIN: Duration = Duration::from_millis(50);
const REST_MAX: Duration = Duration::from_secs(1);

/// Has a link to the peer with this id, as long as the core runs.
pub(crate) async fn keep_link(links: Rc<Links>, node: u16) {
    let state = links.state().clone();
    let Some(peer) = state.peer(node) else { return };
    let (core, mut cores) = (links.core().0, peer.watch_cores());
    let mut rest = REST_MIN;
    loop {
        // The first link tells how many others there are.
        if core > 0 && cores.wait_for(|&cores| cores > core).await.is_err() {
            return;
        }
        match dial(&links, peer).await {
            Ok((wire, unread, theirs)) => {
                rest = REST_MIN;
                links.serve(wire, unread, &theirs, None).await;
            }
            Err(fault) => {
                note(peer, &fault);
                sleep(rest).await;
                rest = (2 * rest).min(REST_MAX);
            }
        }
    }
}

/// Says once why there is no link.
fn note(peer: &PeerState, fault: &LinkFault) {
    let reason = fault.to_string();
    if peer.set_refusal(Some(&reason)) {
        let (node, address) = (peer.node, &peer.address);
        tracing::warn!(peer = node, %address, %reason, "there is no link to a peer");
    }
}

/// A connection whose greeting was accepted, by both.
async fn dial(
    links: &Links,
    peer: &PeerState,
) -> Result<(Wire, (PeerReader, BytesMut), Greeting), LinkFault> {
    let state = links.state();
    let connected = timeout(CONNECT_TIMEOUT, Wire::dial(&peer.address)).await;
    let mut wire = connected.unwrap_or(Err(std::io::ErrorKind::TimedOut.into()))?;
    prepare(&wire);
    let greeting = introduce(&state.own, links.core().0, wall_ms());
    send_first(&mut wire, first_frame(Content::Greeting(greeting))).await?;
    let (mut reader, mut input) = (PeerReader::before_greeting(), BytesMut::new());
    let first = receive_first(&mut wire, &mut reader, &mut input).await?;
    let Content::GreetingAnswer(GreetingAnswer { greeting: theirs, outcome }) = first.content
    else {
        return Err(LinkFault::Refused("the other end does not answer the greeting".to_owned()));
    };
    let refused = |(_, reason): (Refusal, String)| LinkFault::Refused(reason);
    outcome.map_err(refused)?;
    judge(state, Side::Dialled(peer.node), &theirs).map_err(refused)?;
    Ok((wire, (reader, input), theirs))
}
