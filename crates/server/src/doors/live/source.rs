//! Where the messages of a broadcast come from: a topic, or the topics that a pattern means. It knows no connections and no
//! rings.

use std::{collections::HashMap, rc::Rc, sync::Arc};

use foldhash::fast::RandomState;
use sennit_identity::{Rights, Verb};
use sennit_model::{TopicName, TopicPattern};
use tokio::task::AbortHandle;

use super::{connection_id::ConnectionId, relay::Interest};
use crate::{
    broker::{reserved_names::is_reserved, stream_offset::IncarnationTag, stream_request::Located},
    identity::principal::Principal,
};

/// Where messages come from.
#[derive(Debug)]
pub(crate) enum MessageSource {
    /// A topic. The broadcast has the number of its reader.
    Topic(TopicSource),
    /// The topics that a pattern means: their broadcasts give it what they take.
    Pattern(Box<PatternSource>),
}

/// A topic that is followed.
#[derive(Debug)]
pub(crate) struct TopicSource {
    pub(crate) name: TopicName,
    /// Where it is; its tag is the epoch as clients hold it.
    pub(crate) located: Located,
    /// The tag of the topic itself.
    pub(crate) incarnation: IncarnationTag,
    /// That in what other brokers publish, for those who are subscribed by name.
    pub(crate) interest: Option<Rc<Interest>>,
    /// What was taken of the reader's window and not given back.
    pub(crate) taken: (u32, u64),
    /// The broadcasts of patterns that mean it, each with the offset of the first message that it gets.
    pub(crate) patterns: Vec<(u32, u64)>,
}

/// A pattern that somebody is subscribed to.
#[derive(Debug)]
pub(crate) struct PatternSource {
    pub(crate) shared: SharedPattern,
    /// What those may who share it, unless that is everything.
    rights: Option<Arc<Rights>>,
    /// The broadcasts of the topics that it means.
    pub(crate) topics: HashMap<TopicName, u32, RandomState>,
    /// Subscriptions that begin when its topics are known; nothing once they are.
    pub(crate) waiting: Option<Vec<Waiting>>,
    /// The task that hears of topics that come and go.
    pub(crate) watching: Option<AbortHandle>,
}

/// A subscription that begins when the topics of its pattern are known.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) connection: ConnectionId,
    /// The number of the command.
    pub(crate) command: u32,
    /// Whether its client hoped to go on where it was.
    pub(crate) recovers: bool,
}

/// A pattern, as those share it who may subscribe to the same of its topics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SharedPattern {
    pub(crate) pattern: TopicPattern,
    /// Who they are: somebody with these rights, or whoever may subscribe to all that it can mean.
    only: Option<Box<str>>,
}

impl SharedPattern {
    /// The pattern as this principal shares it, with its rights, if they are to be asked of each topic; nothing if it may not
    /// subscribe to any topic that the pattern can mean.
    pub(crate) fn of(
        pattern: &TopicPattern,
        principal: &Principal,
    ) -> Option<(Self, Option<Arc<Rights>>)> {
        let all = || (Self { pattern: pattern.clone(), only: None }, None);
        if principal.is_unrestricted() {
            return Some(all());
        }
        let rights = principal.rights()?;
        let prefix = pattern.prefix();
        if rights.allow_all_behind(Verb::Subscribe, prefix) {
            return Some(all());
        }
        if !rights.may_allow_behind(Verb::Subscribe, prefix) {
            return None;
        }
        // Rights may have places that the principal fills, and end at names of its tenant.
        let tenant = principal.tenant().map(|tenant| tenant.to_string()).unwrap_or_default();
        let mut only = format!("{principal}\n{tenant}");
        for (text, _) in rights.iter() {
            only.push('\n');
            only.push_str(text);
        }
        Some((Self { pattern: pattern.clone(), only: Some(only.into()) }, Some(rights)))
    }
}

impl PatternSource {
    pub(crate) fn new(shared: SharedPattern, rights: Option<Arc<Rights>>) -> Self {
        let (topics, waiting, watching) = (HashMap::default(), Some(Vec::new()), None);
        Self { shared, rights, topics, waiting, watching }
    }

    /// What says which topics those may subscribe to who share it.
    pub(crate) fn filter(&self) -> PatternFilter {
        PatternFilter(self.rights.clone())
    }
}

impl Drop for PatternSource {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.take() {
            watching.abort();
        }
    }
}

/// Which topics of a pattern are delivered.
#[derive(Clone, Debug)]
pub(crate) struct PatternFilter(Option<Arc<Rights>>);

impl PatternFilter {
    /// Whether this one is.
    pub(crate) fn lets(&self, name: &TopicName) -> bool {
        let may = |rights: &Arc<Rights>| rights.allow(Verb::Subscribe, name.as_str());
        !is_reserved(name) && self.0.as_ref().is_none_or(may)
    }
}
