//! The links of a core as its shards' groups use them: messages of replicas, commands and effects become frames, and
//! frames these. Requests of the control go to whoever takes them.

use std::{cell::RefCell, fmt, rc::Rc, sync::Arc};

use bytes::Bytes;
use sennit_engine::{Command, DecodeError, Effect};
use sennit_protocol::peer::{Class, Content, PeerFrame, RAFT_MESSAGE_BYTES};
use sennit_replica::OutgoingMessage;
use sennit_replication::{Message, MessageError, MessageKind};

use super::{link_listener::LinkListener, links::Links, peer_state::ClusterState};
use crate::runtime::{
    core::{Core, CoreHandle, Parcel, PeerLinks},
    index::ShardIndex,
};

/// Takes requests of the control of other nodes, and the answers to its own, on the core's thread. It must not wait.
pub(crate) trait ControlListener {
    /// A node asks. Answered with [`GroupLinks::send_control`].
    fn on_request(&self, peer: u16, number: u64, sort: u32, body: Bytes);

    /// A node answers.
    fn on_answer(&self, peer: u16, number: u64, sort: u32, body: Bytes);

    /// The link to a node is there, or has ended: what was asked and not answered is lost then.
    fn on_link(&self, peer: u16, is_up: bool);
}

/// The links of a core, for groups and for the control.
pub(crate) struct GroupLinks {
    core: CoreHandle,
    state: Arc<ClusterState>,
    links: RefCell<Option<Rc<Links>>>,
    control: RefCell<Option<Rc<dyn ControlListener>>>,
}

impl fmt::Debug for GroupLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupLinks").field("core", &self.core.index).finish_non_exhaustive()
    }
}

impl GroupLinks {
    /// The links of a core, which its groups use from now on.
    pub(crate) fn open(core: &CoreHandle, state: &Arc<ClusterState>) -> (Rc<Self>, Rc<Links>) {
        let this = Rc::new(Self {
            core: core.clone(),
            state: state.clone(),
            links: RefCell::default(),
            control: RefCell::default(),
        });
        let links = Rc::new(Links::new(core.index, state.clone(), this.clone()));
        *this.links.borrow_mut() = Some(links.clone());
        let peers: Rc<dyn PeerLinks> = this.clone();
        core.with(|core| core.set_peers(&peers));
        (this, links)
    }

    /// The core ends. Core and links hold each other until then.
    pub(crate) fn close(&self) {
        self.core.with(Core::forget_peers);
        self.links.take();
        self.control.take();
    }

    /// Requests and answers of other nodes' controls go there from now on.
    pub(crate) fn set_control(&self, control: Rc<dyn ControlListener>) {
        *self.control.borrow_mut() = Some(control);
    }

    /// Sends a request of the control, or an answer to one, which has its number; false if it is lost.
    pub(crate) fn send_control(&self, peer: u16, number: u64, content: Content) -> bool {
        let frame = PeerFrame { class: Class::Ordinary, group: 0, number, content };
        self.send(peer, frame)
    }

    fn send(&self, peer: u16, frame: PeerFrame) -> bool {
        let links = self.links.borrow();
        links.as_ref().is_some_and(|links| links.send(peer, frame).is_ok())
    }

    fn control(&self, act: impl FnOnce(&dyn ControlListener)) -> bool {
        let control = self.control.borrow().clone();
        control.as_deref().map(act).is_some()
    }

    /// Passes a frame on; false if nobody here takes it.
    fn pass(&self, peer: u16, frame: PeerFrame) -> bool {
        let PeerFrame { group, number, content, .. } = frame;
        let shard = group.checked_sub(1).map(ShardIndex);
        match (content, shard) {
            (Content::Raft { table, body }, Some(shard)) => match message_of(&table, &body) {
                Ok((message, body)) if message.from == u64::from(peer) => {
                    self.core.with(|core| core.hear(shard, &message, body))
                }
                Ok(_) => false,
                Err(error) => {
                    tracing::warn!(peer, %error, "a message of a replica cannot be read");
                    false
                }
            },
            (Content::Commands { body, .. }, Some(shard)) => {
                let commands = all(peer, body, Command::decode);
                self.core.with(|core| core.take_from(peer, (shard, number), commands))
            }
            (Content::Effects { body, .. }, Some(shard)) => {
                let effects = all(peer, body, Effect::decode);
                self.core.with(|core| core.hear_effects(peer, (shard, number), effects))
            }
            (Content::Request { sort, body }, _) => {
                self.control(|control| control.on_request(peer, number, sort, body))
            }
            (Content::Answer { sort, body }, _) => {
                self.control(|control| control.on_answer(peer, number, sort, body))
            }
            _ => false,
        }
    }

    fn send_parcel(
        &self,
        peer: u16,
        parcel: Parcel,
        content: impl FnOnce(u32, Bytes) -> Content,
    ) -> bool {
        let Parcel { shard, term, count, body } = parcel;
        let content = content(count, body);
        let group = group_of(shard);
        self.send(peer, PeerFrame { class: Class::Ordinary, group, number: term, content })
    }
}

impl LinkListener for GroupLinks {
    fn on_frame(&self, peer: u16, frame: PeerFrame) {
        if !self.pass(peer, frame)
            && let Some(peer) = self.state.peer(peer)
        {
            peer.links[self.core.index.0 as usize].unclaimed_frames.add(1);
        }
    }

    fn on_link(&self, peer: u16, is_up: bool) {
        let life = self.state.peer(peer).and_then(|peer| peer.life());
        let start_epoch = life.map(|life| life.start_epoch).filter(|_| is_up);
        self.core.with(|core| core.link_changed(peer, start_epoch));
        self.control(|control| control.on_link(peer, is_up));
    }
}

impl PeerLinks for GroupLinks {
    fn is_up(&self, node: u16) -> bool {
        self.links.borrow().as_ref().is_some_and(|links| links.is_up(node))
    }

    fn send_message(&self, node: u16, OutgoingMessage { message, body }: OutgoingMessage) -> bool {
        let Ok(group) = u32::try_from(message.group) else { return false };
        let class = class_of(&message.kind);
        let bytes = message.encode();
        let Some((table, membership)) = bytes.split_first_chunk::<RAFT_MESSAGE_BYTES>() else {
            return false;
        };
        // A membership and a body of records are never in one message.
        let body = body.unwrap_or_else(|| Bytes::copy_from_slice(membership));
        let content = Content::Raft { table: Box::new(*table), body };
        self.send(node, PeerFrame { class, group, number: 0, content })
    }

    fn send_commands(&self, node: u16, commands: Parcel) -> bool {
        self.send_parcel(node, commands, |count, body| Content::Commands { count, body })
    }

    fn send_effects(&self, node: u16, effects: Parcel) -> bool {
        self.send_parcel(node, effects, |count, body| Content::Effects { count, body })
    }

    fn has_sent_all(&self) -> bool {
        self.links.borrow().as_ref().is_none_or(|links| links.have_sent_all())
    }

    fn end(&self, node: u16) {
        if let Some(links) = &*self.links.borrow() {
            links.end(node);
        }
    }
}

/// The number of a shard's group. Groups count from 1.
pub(crate) fn group_of(ShardIndex(shard): ShardIndex) -> u32 {
    shard + 1
}

/// Appends keep their order, and the command to lead comes behind them. All else is short and urgent.
fn class_of(kind: &MessageKind) -> Class {
    match kind {
        MessageKind::Append { .. } | MessageKind::TakeOver => Class::Ordinary,
        _ => Class::Urgent,
    }
}

/// The message of a frame, and the body of the entry in it.
fn message_of(
    table: &[u8; RAFT_MESSAGE_BYTES],
    body: &Bytes,
) -> Result<(Message, Option<Bytes>), MessageError> {
    let membership = Message::length(table)? - RAFT_MESSAGE_BYTES;
    if membership > body.len() {
        return Err(MessageError::Length);
    }
    let message = Message::decode(&[&table[..], &body[..membership]].concat())?;
    let body = body.slice(membership..);
    Ok((message, Some(body).filter(|body| !body.is_empty())))
}

/// All commands or effects of a body; those that this version does not know are left out.
fn all<T>(
    peer: u16,
    mut body: Bytes,
    decode: impl Fn(&mut Bytes) -> Result<T, DecodeError>,
) -> Vec<T> {
    let mut all = Vec::new();
    while !body.is_empty() {
        match decode(&mut body) {
            Ok(one) => all.push(one),
            Err(error) => tracing::warn!(peer, %error, "a part of a frame cannot be read"),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use sennit_replication::{Body, Content as EntryContent, EntryId, Label, Membership};

    use super::*;

    fn message(content: EntryContent) -> Message {
        let label = Label { id: EntryId { term: 3, index: 8 }, content };
        let before = EntryId { term: 2, index: 7 };
        let kind = MessageKind::Append { before, commit: 6, label: Some(label) };
        Message { group: 1, from: 1, to: 2, term: 3, kind }
    }

    /// Encodes a message as a frame has it, and reads it.
    fn there_and_back(message: &Message, body: Option<Bytes>) -> (Message, Option<Bytes>) {
        let bytes = message.encode();
        let (table, membership) = bytes.split_first_chunk().unwrap();
        let body = body.unwrap_or_else(|| Bytes::copy_from_slice(membership));
        message_of(table, &body).unwrap()
    }

    #[test]
    fn a_message_travels_with_its_body_or_its_members() {
        let records = EntryContent::Records(Body { length: 4, checksum: 5, records: 1 });
        let with_body = message(records);
        let body = Some(Bytes::from_static(b"body"));
        assert_eq!(there_and_back(&with_body, body.clone()), (with_body, body));
        let members = Box::new(Membership::of(1..=3));
        let with_members = message(EntryContent::Membership(members));
        assert_eq!(there_and_back(&with_members, None), (with_members, None));
    }

    #[test]
    fn a_message_that_ends_too_early_is_refused() {
        let members = Box::new(Membership::of(1..=3));
        let bytes = message(EntryContent::Membership(members)).encode();
        let (table, membership) = bytes.split_first_chunk().unwrap();
        let short = Bytes::copy_from_slice(&membership[1..]);
        assert_eq!(message_of(table, &short), Err(MessageError::Length));
    }
}
