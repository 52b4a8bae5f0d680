//! What somebody here follows of other brokers: topics by name, and all that a pattern means. Each is one subscription in Redis,
//! however many follow it, until nobody has for a while. It does no input and output, and knows no clock of its own.

use std::{collections::HashMap, time::Instant};

use foldhash::fast::RandomState;
use sennit_model::{TopicName, TopicPattern};
use tokio::sync::oneshot;

use super::redis_link::Channel;
use crate::doors::live::limits::RELAY_LINGER;

/// What somebody follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// A topic.
    Topic(TopicName),
    /// The topics that a pattern means, those as well that nobody here knows yet.
    Pattern(TopicPattern),
}

impl Subject {
    /// The subscription in Redis: no other subject has it.
    pub(super) fn channel(&self, prefix: &str) -> Channel {
        match self {
            Self::Topic(topic) => Channel::Name(topic_channel(prefix, topic)),
            Self::Pattern(pattern) => Channel::Pattern(glob(prefix, pattern)),
        }
    }
}

/// The channel of Redis in which messages of a topic are published.
pub(super) fn topic_channel(prefix: &str, topic: &TopicName) -> String {
    format!("{prefix}:topic:{topic}")
}

/// The pattern of Redis that matches the channels of all topics that a pattern means. It may match more: in Redis, `*` also
/// stands for parts behind dots.
fn glob(prefix: &str, pattern: &TopicPattern) -> String {
    let escape = |text: &str, glob: &mut String| {
        for character in text.chars() {
            if matches!(character, '*' | '?' | '[' | ']' | '\\') {
                glob.push('\\');
            }
            glob.push(character);
        }
    };
    let mut glob = String::new();
    escape(prefix, &mut glob);
    glob.push_str(":topic:");
    for (index, part) in pattern.as_str().split('.').enumerate() {
        if index > 0 {
            glob.push('.');
        }
        match part {
            "*" => glob.push('*'),
            // Other than for `*`, so that what comes says which pattern it is for.
            ">" => glob.push_str("?*"),
            part => escape(part, &mut glob),
        }
    }
    glob
}

/// Whether Redis sends what is followed.
#[derive(Debug)]
enum Standing {
    /// It has not said so.
    Unknown,
    /// It was asked to; these wait until it says that it does.
    Asked(Vec<oneshot::Sender<()>>),
    /// It has said so. Once the connection is lost, it is asked anew with the next one.
    Confirmed,
}

#[derive(Debug)]
struct Held {
    holders: usize,
    /// When the last of them went.
    left: Option<Instant>,
    /// Another one when something of others may have been missed.
    number: u32,
    standing: Standing,
}

/// How something is followed, for one who begins to.
#[derive(Debug)]
pub(crate) struct Followed {
    /// Another one when something of others may have been missed.
    pub(crate) number: u32,
    /// Told once Redis sends it; nothing, if Redis is away.
    pub(crate) confirmed: oneshot::Receiver<()>,
}

/// All that is followed.
#[derive(Debug)]
pub(super) struct Interests {
    held: HashMap<Subject, Held, RandomState>,
    /// By their subscriptions in Redis.
    patterns: HashMap<String, TopicPattern, RandomState>,
    prefix: String,
    numbers: u32,
}

impl Interests {
    /// Nothing is followed. Numbers begin behind this one, which no other start of the broker has.
    pub(super) fn new(prefix: String, numbers: u32) -> Self {
        Self { held: HashMap::default(), patterns: HashMap::default(), prefix, numbers }
    }

    /// Somebody follows something; says whether Redis is to be asked for it.
    pub(super) fn add(&mut self, subject: &Subject) -> (Followed, Option<Channel>) {
        let (told, confirmed) = oneshot::channel();
        let channel = subject.channel(&self.prefix);
        if let (Subject::Pattern(pattern), Channel::Pattern(glob)) = (subject, &channel) {
            self.patterns.insert(glob.clone(), pattern.clone());
        }
        let Self { held, numbers, .. } = self;
        let held = held.entry(subject.clone()).or_insert_with(|| {
            let (number, standing) = (next(numbers), Standing::Unknown);
            Held { holders: 0, left: None, number, standing }
        });
        held.holders += 1;
        held.left = None;
        let followed = Followed { number: held.number, confirmed };
        let mut asks = None;
        match &mut held.standing {
            Standing::Confirmed => {
                let _ = told.send(());
            }
            Standing::Asked(waiting) => waiting.push(told),
            Standing::Unknown => {
                held.standing = Standing::Asked(vec![told]);
                asks = Some(channel);
            }
        }
        (followed, asks)
    }

    /// Redis sends it from now on; or it is away, and will be asked when it is back.
    pub(super) fn note_answer(&mut self, subject: &Subject, is_confirmed: bool) {
        let Some(held) = self.held.get_mut(subject) else { return };
        let standing = if is_confirmed { Standing::Confirmed } else { Standing::Unknown };
        if let Standing::Asked(waiting) = std::mem::replace(&mut held.standing, standing)
            && is_confirmed
        {
            for told in waiting {
                // Nobody may wait for it any more.
                let _ = told.send(());
            }
        }
    }

    /// There is a new connection with Redis, which was asked for everything.
    pub(super) fn note_up(&mut self) {
        for held in self.held.values_mut() {
            if matches!(held.standing, Standing::Unknown) {
                held.standing = Standing::Confirmed;
            }
        }
    }

    /// One who followed something does so no more.
    pub(super) fn remove(&mut self, subject: &Subject, now: Instant) {
        if let Some(held) = self.held.get_mut(subject) {
            held.holders = held.holders.saturating_sub(1);
            if held.holders == 0 {
                held.left = Some(now);
            }
        }
    }

    /// What nobody has followed for long enough is followed no more; says what that was.
    pub(super) fn let_go(&mut self, now: Instant) -> Vec<(Subject, Channel)> {
        let is_over =
            |held: &Held| held.left.is_some_and(|left| now.duration_since(left) >= RELAY_LINGER);
        let over = self.held.extract_if(|_, held| is_over(held));
        let over = over.map(|(subject, _)| (subject.channel(&self.prefix), subject));
        let over: Vec<_> = over.map(|(channel, subject)| (subject, channel)).collect();
        for (_, channel) in &over {
            if let Channel::Pattern(glob) = channel {
                self.patterns.remove(glob);
            }
        }
        over
    }

    /// Something of a topic was missed: who follows it by name does so otherwise from now on.
    pub(super) fn note_missed(&mut self, topic: &TopicName) {
        let number = next(&mut self.numbers);
        if let Some(held) = self.held.get_mut(&Subject::Topic(topic.clone())) {
            held.number = number;
        }
    }

    /// The topics that are followed by name.
    pub(super) fn topics(&self) -> Vec<TopicName> {
        let names = self.held.keys().filter_map(|subject| match subject {
            Subject::Topic(topic) => Some(topic.clone()),
            Subject::Pattern(_) => None,
        });
        names.collect()
    }

    /// Whether somebody follows a topic by name, or by the pattern for which Redis has sent something.
    pub(super) fn want(&self, topic: &TopicName, glob: Option<&str>) -> bool {
        self.held.contains_key(&Subject::Topic(topic.clone()))
            || glob.and_then(|glob| self.patterns.get(glob)).is_some_and(|it| it.matches(topic))
    }

    /// Whether some pattern means a topic.
    pub(super) fn has_pattern_for(&self, topic: &TopicName) -> bool {
        self.patterns.values().any(|pattern| pattern.matches(topic))
    }
}

/// A number by which nothing was followed before.
fn next(numbers: &mut u32) -> u32 {
    *numbers = numbers.wrapping_add(1).max(1);
    *numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Subject {
        Subject::Topic(name.parse().unwrap())
    }

    fn pattern(text: &str) -> Subject {
        Subject::Pattern(text.parse().unwrap())
    }

    #[test]
    fn redis_is_asked_once_however_many_follow_a_topic_and_told_when_the_last_has_gone() {
        let (mut interests, now) = (Interests::new("p".into(), 6), Instant::now());
        let (first, asks) = interests.add(&topic("news"));
        assert_eq!(asks, Some(Channel::Name("p:topic:news".into())));
        let (mut second, asks) = interests.add(&topic("news"));
        assert_eq!((first.number, second.number, asks), (7, 7, None));
        assert!(second.confirmed.try_recv().is_err(), "it waits as the first does");
        interests.note_answer(&topic("news"), true);
        second.confirmed.try_recv().unwrap();
        let (mut third, asks) = interests.add(&topic("news"));
        assert_eq!(asks, None);
        third.confirmed.try_recv().unwrap();
        for _ in 0..2 {
            interests.remove(&topic("news"), now);
        }
        assert_eq!(interests.let_go(now + RELAY_LINGER), [], "one is left");
        interests.remove(&topic("news"), now);
        assert_eq!(interests.let_go(now), [], "clients may come back");
        let over = interests.let_go(now + RELAY_LINGER);
        assert_eq!(over, [(topic("news"), Channel::Name("p:topic:news".into()))]);
        let (again, asks) = interests.add(&topic("news"));
        assert!(asks.is_some());
        assert_eq!(again.number, 8, "something may have been missed");
    }

    #[test]
    fn while_redis_is_away_nobody_waits_and_once_it_is_back_it_has_been_asked() {
        let mut interests = Interests::new("p".into(), 0);
        let (mut waits, _) = interests.add(&topic("news"));
        interests.note_answer(&topic("news"), false);
        assert!(matches!(waits.confirmed.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        interests.note_up();
        let (mut next, asks) = interests.add(&topic("news"));
        assert_eq!(asks, None);
        next.confirmed.try_recv().unwrap();
    }

    #[test]
    fn a_pattern_takes_what_it_means_and_not_all_that_redis_sends_for_it() {
        let mut interests = Interests::new("a*b".into(), 0);
        let asked = |interests: &mut Interests, text| match interests.add(&pattern(text)).1 {
            Some(Channel::Pattern(glob)) => glob,
            other => panic!("{other:?}"),
        };
        let one = asked(&mut interests, "chat.*");
        let all = asked(&mut interests, "chat.>");
        assert_eq!([&*one, &*all], ["a\\*b:topic:chat.*", "a\\*b:topic:chat.?*"]);
        let name = |text: &str| text.parse::<TopicName>().unwrap();
        for (topic, by_one, by_all) in
            [("chat.a", true, true), ("chat.a.b", false, true), ("news", false, false)]
        {
            let wanted = [
                interests.want(&name(topic), Some(&one)),
                interests.want(&name(topic), Some(&all)),
            ];
            assert_eq!(wanted, [by_one, by_all], "{topic}");
            assert!(!interests.want(&name(topic), None), "{topic} is not followed by name");
            assert_eq!(interests.has_pattern_for(&name(topic)), by_all);
        }
    }
}
