//! All subscriptions and their links to streams: it finds those that are concerned when a stream appears, goes or
//! grows. It waits for nothing, and returns each change that it makes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use sennit_model::{Offset, TopicId, TopicName};
use tokio::sync::Notify;

use super::request::{
    SubscriptionRefusal,
    limits::{LINKS_IN_ALL_MAX, SUBSCRIPTION_LINKS_MAX, SUBSCRIPTIONS_MAX},
};
use super::{
    change::{Change, Kept, KeptLink, Link, Moved, What},
    pattern_index::PatternIndex,
    phase::Phase,
    subscription::Subscription,
};
use crate::broker::reserved_names::is_reserved;

/// All subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    members: BTreeMap<Box<str>, Member>,
    /// Those of them that have a pattern.
    pattern_index: PatternIndex,
    /// Those of them whose wakes are written into a stream.
    by_wake_stream: HashMap<TopicName, BTreeSet<Box<str>>>,
    followed: HashMap<TopicName, Followed>,
    links: usize,
    /// Those that are woken, and those that somebody has.
    woken: usize,
    held: usize,
    lives: u64,
}

/// A subscription, and what wakes the task that works for it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) subscription: Subscription,
    pub(crate) notify: Rc<Notify>,
    /// No other subscription of this id has it.
    pub(crate) life: u64,
}

/// A stream that subscriptions are linked to.
#[derive(Debug)]
struct Followed {
    by: BTreeSet<Box<str>>,
    topic: Option<TopicId>,
    /// Where it ends, as far as is known.
    end: Offset,
    /// Whether a read waits for it to grow.
    is_awaited: bool,
    notify: Rc<Notify>,
    life: u64,
}

/// A stream whose end somebody wants to know.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The topic, if there is one and somebody waits for it to grow.
    pub(crate) topic: Option<TopicId>,
    /// Where it ends, as far as is known.
    pub(crate) end: Offset,
    /// Rings when it is to be looked at again.
    pub(crate) notify: Rc<Notify>,
}

/// Streams that nobody followed before: each with the life of its task.
pub(crate) type NewlyFollowed = Vec<(TopicName, u64)>;

impl Registry {
    pub(crate) fn get(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Every subscription, by id.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &Subscription)> {
        self.members.iter().map(|(id, member)| (&**id, &member.subscription))
    }

    /// How many there are, their links, and how many of them are woken and held.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [self.members.len(), self.links, self.woken, self.held]
    }

    /// Everything, as it is kept.
    pub(crate) fn keep(&self) -> impl Iterator<Item = Change> {
        self.members.iter().map(|(id, member)| {
            let kept = Box::new(member.subscription.keep());
            Change { id: id.clone(), what: What::Kept(kept) }
        })
    }

    /// Adds one, with a new life; says which streams nobody followed before.
    pub(crate) fn add(&mut self, id: &str, subscription: Subscription) -> (u64, NewlyFollowed) {
        self.lives += 1;
        let life = self.lives;
        let streams: Vec<_> =
            subscription.links().iter().map(|(stream, link)| (stream.clone(), *link)).collect();
        self.links += streams.len();
        self.count(subscription.phase(), usize::wrapping_add);
        if let Some(beginning) = subscription.config.beginning() {
            self.pattern_index.add(beginning, id);
        }
        if let Some(stream) = subscription.config.wake_stream() {
            self.by_wake_stream.entry(stream.clone()).or_default().insert(id.into());
        }
        let member = Member { subscription, notify: Rc::default(), life };
        self.members.insert(id.into(), member);
        let new = streams.into_iter().filter_map(|(stream, link)| {
            let life = self.follow(id, &stream, link)?;
            Some((stream, life))
        });
        let new = new.collect();
        (life, new)
    }

    /// Has those who work for subscriptions and streams look again: there are none any more.
    pub(crate) fn end(&mut self) {
        let all = std::mem::take(self);
        all.members.values().for_each(|member| member.notify.notify_one());
        all.followed.values().for_each(|followed| followed.notify.notify_one());
    }

    /// Refuses what would be more than there may be, `links` of them in one subscription.
    pub(crate) fn check_room(&self, links: usize, more: usize) -> Result<(), SubscriptionRefusal> {
        let limits = [
            ("SUBSCRIPTION_LINKS_MAX", links, SUBSCRIPTION_LINKS_MAX),
            ("LINKS_IN_ALL_MAX", self.links + more, LINKS_IN_ALL_MAX),
        ];
        for (name, would_be, limit) in limits {
            if would_be > limit {
                return Err(SubscriptionRefusal::Limit { name: name.into(), limit });
            }
        }
        Ok(())
    }

    /// Refuses one subscription too many.
    pub(crate) fn check_members(&self) -> Result<(), SubscriptionRefusal> {
        if self.members.len() < SUBSCRIPTIONS_MAX {
            return Ok(());
        }
        let name = "SUBSCRIPTIONS_MAX".into();
        Err(SubscriptionRefusal::Limit { name, limit: SUBSCRIPTIONS_MAX })
    }

    /// Takes one away; says whether it was there.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let Some(member) = self.members.remove(id) else { return false };
        member.notify.notify_one();
        if let Some(beginning) = member.subscription.config.beginning() {
            self.pattern_index.remove(beginning, id);
        }
        if let Some(stream) = member.subscription.config.wake_stream()
            && let Some(told) = self.by_wake_stream.get_mut(stream)
        {
            told.remove(id);
            if told.is_empty() {
                self.by_wake_stream.remove(stream);
            }
        }
        self.links -= member.subscription.links().len();
        self.count(member.subscription.phase(), usize::wrapping_sub);
        for stream in member.subscription.links().keys() {
            self.follow_no_more(id, stream);
        }
        true
    }

    /// Applies what was decided for one.
    pub(crate) fn apply(&mut self, id: &str, moved: &Moved) {
        let Some(member) = self.members.get_mut(id) else { return };
        let was = member.subscription.phase().clone();
        member.subscription.apply(moved);
        member.notify.notify_one();
        self.count(&was, usize::wrapping_sub);
        self.count(&moved.phase, usize::wrapping_add);
        let Some(member) = self.members.get(id) else { return };
        if member.subscription.is_idle() {
            // Those whose ends nobody wanted to know while it was busy.
            for stream in member.subscription.links().keys() {
                if let Some(followed) = self.followed.get(stream).filter(|one| !one.is_awaited) {
                    followed.notify.notify_one();
                }
            }
        }
    }

    /// Links one to a stream, or changes the link; says whether that is followed only now.
    pub(crate) fn link(&mut self, id: &str, stream: &TopicName, link: Link) -> NewlyFollowed {
        let Some(member) = self.members.get_mut(id) else { return Vec::new() };
        self.links += usize::from(member.subscription.link(stream.clone(), link).is_none());
        member.notify.notify_one();
        self.follow(id, stream, link).map(|life| (stream.clone(), life)).into_iter().collect()
    }

    /// Unlinks one from a stream.
    pub(crate) fn unlink(&mut self, id: &str, stream: &TopicName) {
        let Some(member) = self.members.get_mut(id) else { return };
        if member.subscription.unlink(stream).is_some() {
            self.links -= 1;
            self.follow_no_more(id, stream);
        }
    }

    /// A stream is there, and was not before: those whose wakes are written into it are told there.
    pub(crate) fn wakes_appeared(&mut self, stream: &TopicName) {
        for id in self.by_wake_stream.get(stream).into_iter().flatten() {
            if let Some(member) = self.members.get_mut(id) {
                member.subscription.send_wake_again();
                member.notify.notify_one();
            }
        }
    }

    /// A stream is there, and was not before: what lies at and behind `from` is news to all who are
    /// linked to it now.
    pub(crate) fn appeared(
        &mut self,
        stream: &TopicName,
        topic: TopicId,
        from: Offset,
    ) -> (Vec<Change>, NewlyFollowed) {
        let (mut changes, mut new) = (Vec::new(), Vec::new());
        if is_reserved(stream) {
            return (changes, new);
        }
        let linked = self.followed.get(stream).into_iter().flat_map(|followed| &followed.by);
        let ids: BTreeSet<&str> =
            linked.map(|id| &**id).chain(self.pattern_index.of(stream.as_str())).collect();
        let concerned: Vec<(Box<str>, bool)> = ids
            .into_iter()
            .filter_map(|id| {
                let subscription = &self.members.get(id)?.subscription;
                match subscription.links().get(stream) {
                    Some(link) if link.topic == Some(topic) => None,
                    Some(link) => Some((id.into(), link.is_explicit)),
                    None => subscription.config.means(stream).then(|| (id.into(), false)),
                }
            })
            .collect();
        for (id, is_explicit) in concerned {
            let links = self.members[&id].subscription.links();
            let more = usize::from(!links.contains_key(stream));
            if let Err(refusal) = self.check_room(links.len() + more, more) {
                tracing::warn!(%id, %stream, %refusal, "a subscription is not linked to a stream that it means");
                continue;
            }
            let link = Link::at(is_explicit, topic, from);
            new.append(&mut self.link(&id, stream, link));
            changes.push(Change { id, what: What::Linked(vec![link.keep(stream)]) });
        }
        (changes, new)
    }

    /// The stream that was this topic is gone. Those who have named it wait for another one.
    pub(crate) fn gone(&mut self, stream: &TopicName, topic: TopicId) -> Vec<Change> {
        let Some(followed) = self.followed.get_mut(stream) else { return Vec::new() };
        if followed.topic == Some(topic) {
            followed.topic = None;
            followed.notify.notify_one();
        }
        let mut changes = Vec::new();
        for id in followed.by.clone() {
            let link = self.members.get(&id).and_then(|one| one.subscription.links().get(stream));
            let Some(link) = link.filter(|link| link.topic == Some(topic)) else { continue };
            let what = if link.is_explicit {
                let link = Link::to_come(true);
                self.link(&id, stream, link);
                What::Linked(vec![link.keep(stream)])
            } else {
                self.unlink(&id, stream);
                What::Unlinked(vec![stream.as_str().into()])
            };
            changes.push(Change { id, what });
        }
        changes
    }

    /// The stream ends there now.
    pub(crate) fn seen(&mut self, stream: &TopicName, topic: TopicId, end: Offset) {
        let Some(followed) = self.followed.get_mut(stream) else { return };
        if followed.topic != Some(topic) {
            return;
        }
        followed.end = followed.end.max(end);
        for id in &followed.by {
            if let Some(member) = self.members.get_mut(id)
                && member.subscription.seen(stream, topic, end)
            {
                member.notify.notify_one();
            }
        }
    }

    /// What is to be known of a stream; `None` once nobody of this life follows it. Asked by who
    /// follows it, who waits next.
    pub(crate) fn wanted(&mut self, stream: &TopicName, life: u64) -> Option<Wanted> {
        let members = &self.members;
        let followed = self.followed.get_mut(stream).filter(|followed| followed.life == life)?;
        let is_idle =
            |id: &str| members.get(id).is_some_and(|member| member.subscription.is_idle());
        let topic = followed.topic.filter(|_| followed.by.iter().any(|id| is_idle(id)));
        followed.is_awaited = topic.is_some();
        Some(Wanted { topic, end: followed.end, notify: followed.notify.clone() })
    }

    /// The read of a stream that was awaited has come to nothing; it is not tried before it is
    /// rung for.
    pub(crate) fn stop_awaiting(&mut self, stream: &TopicName, life: u64) {
        if let Some(followed) = self.followed.get_mut(stream).filter(|one| one.life == life) {
            followed.is_awaited = false;
        }
    }

    /// Brings everything in line with the streams that there are: `streams` are all topics that can be
    /// streams. What is meant and was not linked has appeared while nobody could be told.
    pub(crate) fn reconcile(
        &mut self,
        streams: &HashMap<TopicName, TopicId>,
    ) -> (Vec<Change>, NewlyFollowed) {
        let (mut changes, mut new) = (Vec::new(), Vec::new());
        let linked = self.members.values().flat_map(|member| member.subscription.links());
        let followed: BTreeSet<(TopicName, TopicId)> =
            linked.filter_map(|(stream, link)| Some((stream.clone(), link.topic?))).collect();
        for (stream, topic) in followed {
            if streams.get(&stream) != Some(&topic) {
                changes.append(&mut self.gone(&stream, topic));
            }
        }
        for (stream, &topic) in streams {
            let (mut linked, mut followed) = self.appeared(stream, topic, Offset(0));
            changes.append(&mut linked);
            new.append(&mut followed);
        }
        (changes, new)
    }

    /// Takes back what was kept. Returns whether it can have been.
    pub(crate) fn replay(&mut self, change: Change) -> bool {
        let Change { id, what } = change;
        match what {
            What::Kept(kept) => return self.replay_kept(&id, *kept),
            What::Linked(links) => {
                for link in &links {
                    let Some((stream, link)) = KeptLink::read(link) else { return false };
                    self.link(&id, &stream, link);
                }
            }
            What::Unlinked(streams) => {
                for stream in &streams {
                    let Ok(stream) = stream.parse() else { return false };
                    self.unlink(&id, &stream);
                }
            }
            What::Moved(moved) => self.apply(&id, &moved),
            What::Deleted => {
                self.remove(&id);
            }
        }
        true
    }

    fn replay_kept(&mut self, id: &str, kept: Kept) -> bool {
        let Some(subscription) = Subscription::read(kept) else { return false };
        self.remove(id);
        self.add(id, subscription);
        true
    }

    /// Every subscription with its life, and every stream that is followed.
    pub(crate) fn all(&self) -> (Vec<(Box<str>, u64)>, NewlyFollowed) {
        let members = self.members.iter().map(|(id, member)| (id.clone(), member.life));
        let followed = self.followed.iter().map(|(stream, one)| (stream.clone(), one.life));
        (members.collect(), followed.collect())
    }

    /// One more, or one fewer, is in this phase.
    fn count(&mut self, phase: &Phase, change: impl Fn(usize, usize) -> usize) {
        match phase {
            Phase::Idle => {}
            Phase::Woken { .. } => self.woken = change(self.woken, 1),
            Phase::Held { .. } => self.held = change(self.held, 1),
        }
    }

    /// One of this id follows the stream; the life of the task that is to, if there is none yet.
    fn follow(&mut self, id: &str, stream: &TopicName, link: Link) -> Option<u64> {
        let mut new = None;
        let followed = self.followed.entry(stream.clone()).or_insert_with(|| {
            self.lives += 1;
            new = Some(self.lives);
            Followed {
                by: BTreeSet::new(),
                topic: link.topic,
                end: link.acked,
                is_awaited: false,
                notify: Rc::default(),
                life: self.lives,
            }
        });
        followed.by.insert(id.into());
        if let Some(topic) = link.topic
            && followed.topic != Some(topic)
        {
            followed.topic = Some(topic);
            followed.end = link.acked;
            followed.notify.notify_one();
        }
        if !followed.is_awaited {
            followed.notify.notify_one();
        }
        // Others may know already that there is more.
        let end = followed.end;
        if let (Some(topic), Some(member)) = (link.topic, self.members.get_mut(id))
            && member.subscription.seen(stream, topic, end)
        {
            member.notify.notify_one();
        }
        new
    }

    fn follow_no_more(&mut self, id: &str, stream: &TopicName) {
        if let Some(followed) = self.followed.get_mut(stream) {
            followed.by.remove(id);
            if followed.by.is_empty() {
                followed.notify.notify_one();
                self.followed.remove(stream);
            }
        }
    }
}

#[cfg(test)]
mod tests;
