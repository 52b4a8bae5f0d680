//! Clients of other brokers that share a Redis are subscribed as well: the core that keeps the presence of a topic knows them,
//! and has others told of those here.

use std::{collections::HashSet, rc::Rc};

use sennit_centrifuge::ClientInfo;
use sennit_model::TopicName;

use super::LiveConnections;
use crate::{
    doors::live::{
        connection_id::ClientId,
        limits::RELAY_MEMBERS_MAX,
        presence::{Member, MemberId},
        relay::{
            Relay, RelayNews,
            message::{NodeId, RelayKind},
        },
    },
    runtime::{inbox::Message, index::CoreIndex},
};

/// A client of another broker, if its id is one.
fn member_of(node: NodeId, info: &ClientInfo) -> Option<MemberId> {
    let ClientId { core, connection } = info.client.parse().ok()?;
    Some(MemberId { node: Some(node), core, connection })
}

impl LiveConnections {
    /// Has other brokers told of clients here, or the one that has asked.
    pub(super) fn announce(
        &self,
        kind: RelayKind,
        topic: &TopicName,
        asker: Option<NodeId>,
        members: impl FnOnce() -> Vec<ClientInfo>,
    ) {
        if self.rules.has_relay {
            let (topic, members) = (topic.clone(), members());
            let call = move |relay: &Rc<Relay>| relay.announce(kind, topic, members, asker);
            // A broker that stops tells nobody.
            let _ = self.core.cores.inboxes[CoreIndex::FIRST].send(Message::call(call));
        }
    }

    /// Something comes from other brokers.
    pub(crate) fn hear_relay(&mut self, news: RelayNews) {
        match news {
            RelayNews::Missed(topic) => self.miss(&topic),
            RelayNews::Members { kind, topic, node, members } => {
                self.hear_members(kind, topic, node, members);
            }
            RelayNews::Asked { topic, asker } => {
                let own = self.presences.get(&topic).map(|presence| presence.own());
                self.announce(RelayKind::Here, &topic, Some(asker), || own.unwrap_or_default());
            }
            RelayNews::Unfollowed(topic) => self.forget_members(topic, |id| id.node.is_some()),
            RelayNews::Gone(node) => {
                let topics: Vec<TopicName> = self.presences.keys().cloned().collect();
                for topic in topics {
                    self.forget_members(topic, |id| id.node == Some(node));
                }
            }
            RelayNews::Announce => {
                for (topic, presence) in &self.presences {
                    self.announce(RelayKind::Here, topic, None, || presence.own());
                }
            }
        }
    }

    fn hear_members(
        &mut self,
        kind: RelayKind,
        topic: TopicName,
        node: NodeId,
        members: Vec<ClientInfo>,
    ) {
        let presence = self.presences.entry(topic.clone()).or_default();
        let named = members.into_iter().filter_map(|info| Some((member_of(node, &info)?, info)));
        let named: Vec<(MemberId, ClientInfo)> = named.collect();
        if kind == RelayKind::Left {
            named.iter().for_each(|(id, _)| presence.leave(*id));
        } else {
            if kind == RelayKind::Here {
                let here: HashSet<MemberId> = named.iter().map(|(id, _)| *id).collect();
                presence.leave_where(|id| id.node == Some(node) && !here.contains(&id));
            }
            for (id, info) in named {
                if !presence.has(id) && presence.counts().0 < RELAY_MEMBERS_MAX {
                    presence.join(id, Member { info, is_told: false });
                }
            }
        }
        self.tell_presence(topic, false);
    }

    fn forget_members(&mut self, topic: TopicName, are: impl Fn(MemberId) -> bool) {
        if let Some(presence) = self.presences.get_mut(&topic) {
            presence.leave_where(are);
            self.tell_presence(topic, false);
        }
    }
}
