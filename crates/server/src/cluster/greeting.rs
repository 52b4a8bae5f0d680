//! The rules of greetings: what a node says of itself, and which links it refuses, with the reason. It has no sockets.

use sennit_protocol::peer::{
    Class, Content, Greeting, GreetingAnswer, PEER_PROTOCOL, PeerFrame, Refusal,
};

use super::peer_state::{ClusterState, Identity, Life};

/// What may enter a log or a link.
const LEVEL: u32 = 1;

/// The reason for which a link is refused, and that in words.
pub(super) type Refused = (Refusal, String);

/// The side that judges a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// It has dialled this node.
    Dialled(u16),
    /// It was dialled.
    Accepts,
}

/// What this node says of itself on a link.
pub(super) fn introduce(own: &Identity, link: u32, clock_ms: u64) -> Greeting {
    let Identity { cluster, node, incarnation, start_epoch, cores, shards } = *own;
    Greeting {
        cluster,
        node,
        incarnation,
        start_epoch,
        protocol: PEER_PROTOCOL,
        features: Vec::new(),
        level: LEVEL,
        clock_ms,
        cores,
        link,
        shards,
    }
}

/// The frame of a greeting, or of the answer to one.
pub(super) fn first_frame(content: Content) -> PeerFrame {
    PeerFrame { class: Class::Urgent, group: 0, number: 0, content }
}

/// The answer to a greeting.
pub(super) fn answer(
    own: &Identity,
    theirs: &Greeting,
    clock_ms: u64,
    outcome: Result<u32, Refused>,
) -> PeerFrame {
    let greeting = introduce(own, theirs.link, clock_ms);
    first_frame(Content::GreetingAnswer(GreetingAnswer { greeting, outcome }))
}

/// The version of the protocol that both speak, if the other node may have a link.
///
/// # Errors
/// The reason for which it may not.
pub(super) fn judge(state: &ClusterState, side: Side, theirs: &Greeting) -> Result<u32, Refused> {
    let (own, node) = (&state.own, theirs.node);
    let refuse = |refusal, reason: String| Err((refusal, reason));
    if theirs.cluster != own.cluster {
        let reason = format!(
            "node {node} belongs to cluster {}, node {} to cluster {}",
            theirs.cluster, own.node, own.cluster
        );
        return refuse(Refusal::OtherCluster, reason);
    }
    if let Side::Dialled(dialled) = side
        && dialled != node
    {
        let reason = format!("node {node} answers at the address of node {dialled}");
        return refuse(Refusal::UnknownNode, reason);
    }
    let Some(peer) = state.peer(node) else {
        let reason = format!("node {node} is no peer of node {}", own.node);
        return refuse(Refusal::UnknownNode, reason);
    };
    if side == Side::Accepts && node > own.node {
        let reason = format!("node {} has the lower id and dials node {node}", own.node);
        return refuse(Refusal::Direction, reason);
    }
    if let Some(life) = peer.life() {
        judge_life(node, life, theirs)?;
    }
    let ((oldest, newest), (own_oldest, own_newest)) = (theirs.protocol, PEER_PROTOCOL);
    let version = newest.min(own_newest);
    if version < oldest.max(own_oldest) {
        let reason = format!(
            "node {node} speaks versions {oldest} to {newest} of the protocol between nodes, node {} {own_oldest} to \
             {own_newest}",
            own.node
        );
        return refuse(Refusal::Protocol, reason);
    }
    if theirs.level != LEVEL {
        let reason =
            format!("node {node} is at level {}, node {} at {LEVEL}", theirs.level, own.node);
        return refuse(Refusal::Level, reason);
    }
    if (theirs.shards, theirs.cores) != (own.shards, own.cores) {
        let reason = format!(
            "node {node} has {} shards on {} cores, node {} has {} on {}: all nodes of a cluster need the same numbers",
            theirs.shards, theirs.cores, own.node, own.shards, own.cores
        );
        return refuse(Refusal::Layout, reason);
    }
    if theirs.link >= own.cores {
        let reason =
            format!("node {} has {} cores and no link {}", own.node, own.cores, theirs.link);
        return refuse(Refusal::Link, reason);
    }
    Ok(version)
}

/// Refuses a directory that another one has replaced, and a process that a later one has replaced.
fn judge_life(node: u16, known: Life, theirs: &Greeting) -> Result<(), Refused> {
    if theirs.incarnation != known.incarnation {
        let reason = format!("node {node} has another data directory than before");
        return Err((Refusal::OtherDirectory, reason));
    }
    if theirs.start_epoch < known.start_epoch {
        let reason = format!(
            "node {node} has been started again since: {} starts, before that greeting {}",
            theirs.start_epoch, known.start_epoch
        );
        return Err((Refusal::OldStart, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::settings::PeerAddress;

    /// A node with three shards on two cores.
    fn of(node: u16) -> Identity {
        let incarnation = u64::from(node) * 10;
        Identity { cluster: 7, node, incarnation, start_epoch: 5, cores: 2, shards: 3 }
    }

    /// Node 2, whose peers are 1 and 3.
    fn state() -> ClusterState {
        let own = Identity { start_epoch: 1, ..of(2) };
        let peer = |node| PeerAddress { node, address: "127.0.0.1:1".to_owned() };
        ClusterState::new(own, &[peer(1), peer(3)])
    }

    fn of_node(node: u16, link: u32) -> Greeting {
        introduce(&of(node), link, 0)
    }

    fn refusal(side: Side, change: impl FnOnce(&mut Greeting)) -> Option<Refusal> {
        let mut greeting = of_node(1, 1);
        change(&mut greeting);
        judge(&state(), side, &greeting).err().map(|(refusal, _)| refusal)
    }

    #[test]
    fn nodes_that_belong_together_have_a_link() {
        assert_eq!(judge(&state(), Side::Accepts, &of_node(1, 0)), Ok(1));
        assert_eq!(judge(&state(), Side::Dialled(3), &of_node(3, 1)), Ok(1));
    }

    #[test]
    fn a_link_is_refused_with_the_first_reason() {
        let accepts = |change: fn(&mut Greeting)| refusal(Side::Accepts, change);
        assert_eq!(accepts(|_| ()), None);
        assert_eq!(accepts(|theirs| theirs.cluster = 8), Some(Refusal::OtherCluster));
        assert_eq!(accepts(|theirs| theirs.node = 4), Some(Refusal::UnknownNode));
        assert_eq!(accepts(|theirs| theirs.node = 2), Some(Refusal::UnknownNode));
        assert_eq!(accepts(|theirs| theirs.node = 3), Some(Refusal::Direction));
        assert_eq!(accepts(|theirs| theirs.protocol = (2, 3)), Some(Refusal::Protocol));
        assert_eq!(accepts(|theirs| theirs.level = 2), Some(Refusal::Level));
        assert_eq!(accepts(|theirs| theirs.link = 2), Some(Refusal::Link));
        assert_eq!(accepts(|theirs| theirs.cores = 1), Some(Refusal::Layout));
        assert_eq!(accepts(|theirs| theirs.shards = 4), Some(Refusal::Layout));
        assert_eq!(refusal(Side::Dialled(3), |_| ()), Some(Refusal::UnknownNode));
    }

    #[test]
    fn a_newer_version_that_speaks_ours_too_is_accepted() {
        assert_eq!(refusal(Side::Accepts, |theirs| theirs.protocol = (1, 9)), None);
    }

    #[test]
    fn another_directory_and_an_older_start_are_refused_once_a_peer_is_known() {
        let state = state();
        let known = of_node(1, 0);
        state.peers[0].accepted(&known);
        let judge = |theirs: Greeting| {
            judge(&state, Side::Accepts, &theirs).err().map(|(refusal, _)| refusal)
        };
        assert_eq!(judge(known.clone()), None);
        assert_eq!(judge(Greeting { start_epoch: 6, ..known.clone() }), None);
        let older = Greeting { start_epoch: 4, ..known.clone() };
        assert_eq!(judge(older), Some(Refusal::OldStart));
        assert_eq!(judge(Greeting { incarnation: 11, ..known }), Some(Refusal::OtherDirectory));
    }
}
