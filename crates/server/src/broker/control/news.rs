//! Topics that come and go on a node that does not lead the catalogue: what its replica applies is reported to the watches and listeners of
//! this node. Where the catalogue is led, whoever makes a change reports it.
//!
//! News are reported once they are committed, and of a new topic once the leader has finished with it: its partitions are there then.
//! After a state was made anew some may be missing: watches end, and whoever watches begins anew.

use std::{rc::Rc, sync::atomic::Ordering::Relaxed};

use sennit_engine::{CatalogueNews, Topic};
use sennit_model::{Offset, TopicId};

use super::{Control, descriptions::watched_topic};
use crate::{
    broker::{
        control_peers::ControlPeers, live_changes, name_change::NameChange,
        reserved_names::RESERVED,
    },
    runtime::{groups::Leader, index::ShardIndex},
};

impl Control {
    /// Reports what changes in the catalogue, as long as the core's thread lives.
    pub(super) async fn report_news(self: Rc<Self>, peers: Rc<ControlPeers>) {
        let mut entries = peers.groups.entries(ShardIndex::CATALOGUE);
        loop {
            let news = self.core.with(|core| core.take_catalogue_news());
            // Without a leader they wait for one: a state that is made anew has its own.
            while self.wait_until_committed(&peers).await.is_err() {}
            match news {
                Some(news) => {
                    for news in news {
                        self.report(&peers, news).await;
                    }
                }
                None => self.report_anew(),
            }
            if entries.changed().await.is_err() {
                return;
            }
        }
    }

    async fn report(&self, peers: &ControlPeers, news: CatalogueNews) {
        let leads = || matches!(peers.groups.leader_of(ShardIndex::CATALOGUE), Leader::Here { .. });
        match news {
            CatalogueNews::Created(topic) => {
                let Some(topic) = self.known_topic(topic) else { return };
                let name = topic.created.name.clone();
                // If nobody leads now, the partitions come with the next leader.
                let _ = Box::pin(self.change_names(NameChange::Settle { name })).await;
                if !self.reported.borrow_mut().remove(&(topic.id(), true)) {
                    self.announce_here(topic.id(), Offset(0));
                }
            }
            CatalogueNews::Altered(topic) => {
                self.core.cores.topic_changes.fetch_add(1, Relaxed);
                if let Some(topic) = self.known_topic(topic)
                    && !leads()
                {
                    live_changes::tell(&self.core.cores, topic.id(), topic.config().live);
                }
            }
            CatalogueNews::Deleted(topic) => {
                self.core.cores.topic_changes.fetch_add(1, Relaxed);
                if leads() {
                    self.wait_for_changes(&topic.created.name).await;
                }
                if !self.reported.borrow_mut().remove(&(topic.id(), false)) {
                    self.watches.borrow_mut().gone(&watched_topic(&topic));
                    self.listener_gone(&topic);
                }
            }
        }
    }

    /// Something may be missing: whoever watches begins anew, and the broker's own topics are shown again.
    fn report_anew(&self) {
        self.watches.borrow_mut().end();
        self.core.cores.topic_changes.fetch_add(1, Relaxed);
        let own: Vec<Topic> = self.core.look(|core| {
            let behind = core.catalogue().topics_after_name(RESERVED);
            let own = behind.take_while(|topic| topic.created.name.as_str().starts_with(RESERVED));
            own.cloned().collect()
        });
        for topic in own {
            for listener in self.listeners.iter() {
                listener.clone().appeared(&topic.created.name, topic.id(), Offset(0));
            }
        }
    }

    fn known_topic(&self, topic: TopicId) -> Option<Topic> {
        self.core.look(|core| core.catalogue().topic(topic).cloned())
    }
}
