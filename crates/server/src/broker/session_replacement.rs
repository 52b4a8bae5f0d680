//! The end of a session whose client is on another connection now, here or at another node: the client says its token. The
//! requests of the new session come behind the word of that end. It knows no client.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_engine::{Command, SessionId};
use tokio::{sync::oneshot, task::spawn_local, time::timeout};

use super::control_peers::{ControlPeers, PeerRequests, PeerTopic, PendingAnswer};
use crate::runtime::{
    core::{CoreHandle, Cores},
    inbox::Message,
    index::CoreIndex,
    session_takeover::SessionToken,
};

/// How long a node may take to say whether it has a session: its client waits.
const PATIENCE: Duration = Duration::from_millis(500);

/// Has the session of this token end, at whichever node it is, and waits until it has. Whatever this core asks of a shard from
/// then on finds the session ended.
pub(crate) async fn replace_session(core: &CoreHandle, token: SessionToken) {
    let cores = &core.cores;
    if end_here(cores, token).await.is_some() {
        return;
    }
    let Some(session) = end_at_another_node(cores, token).await else { return };
    // The word of its node and ours reach the leader of a shard on two ways.
    let grace = cores.session_grace;
    core.with(|core| {
        for shard in cores.placement.all_shards() {
            core.command(shard, Command::EndSession { session, grace });
        }
        core.handle();
    });
}

/// Has the session of this token end if it is on a core of this node, and waits until all shards are told.
async fn end_here(cores: &Cores, token: SessionToken) -> Option<SessionId> {
    let mut answers = Vec::new();
    for inbox in cores.inboxes.iter() {
        let (ended, answer) = oneshot::channel();
        let _ = inbox.send(Message::Replace(token, ended));
        answers.push(answer);
    }
    let mut session = None;
    for answer in answers {
        // No answer comes from a core that has ended, and all its sessions with it.
        session = session.or(answer.await.ok().flatten());
    }
    session
}

async fn end_at_another_node(cores: &Cores, token: SessionToken) -> Option<SessionId> {
    cores.groups.as_ref()?;
    let (sender, answer) = oneshot::channel();
    let _ = cores.inboxes[CoreIndex::FIRST].send(Message::call(
        move |replacement: &Rc<SessionReplacement>| {
            let replacement = replacement.clone();
            spawn_local(async move { sender.send(replacement.ask_others(token).await) });
        },
    ));
    answer.await.ok().flatten()
}

/// The way to sessions at other nodes, on the first core.
#[derive(Debug)]
pub(crate) struct SessionReplacement {
    core: CoreHandle,
    peers: Rc<ControlPeers>,
}

impl PeerRequests for SessionReplacement {
    /// Ends the session of a token here; the answer is its id, or nothing.
    fn answer_node(self: Rc<Self>, body: Bytes) -> PendingAnswer {
        Box::pin(async move {
            let Some(token) = number_of(&body).map(SessionToken) else { return Bytes::new() };
            let ended = end_here(&self.core.cores, token).await;
            ended.map_or_else(Bytes::new, |SessionId(id)| bytes_of(id))
        })
    }
}

impl SessionReplacement {
    /// Of a node of a cluster.
    pub(crate) fn new(core: CoreHandle, peers: Rc<ControlPeers>) -> Rc<Self> {
        Rc::new(Self { core, peers })
    }

    /// Asks all other nodes at once.
    async fn ask_others(self: Rc<Self>, SessionToken(token): SessionToken) -> Option<SessionId> {
        let groups = &self.peers.groups;
        let others = groups.members.iter().copied().filter(|node| *node != groups.node);
        let asked: Vec<_> = others
            .map(|node| {
                let peers = self.peers.clone();
                spawn_local(async move {
                    let ask = peers.ask(node, PeerTopic::Sessions, bytes_of(token));
                    number_of(&timeout(PATIENCE, ask).await.ok()?.ok()?).map(SessionId)
                })
            })
            .collect();
        for answer in asked {
            if let Ok(Some(session)) = answer.await {
                return Some(session);
            }
        }
        None
    }
}

fn bytes_of(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

fn number_of(bytes: &Bytes) -> Option<u64> {
    bytes[..].try_into().ok().map(u64::from_be_bytes)
}
