//! The catalogue: all topics and groups. One shard leads it; it knows names and settings, never messages.

mod news;

use std::sync::Arc;

use sennit_model::{
    ConfigError, Durability, GroupConfig, GroupId, GroupName, Incarnation, Retention, StartAt,
    TopicConfig, TopicId, TopicKind, TopicName, limits,
};

pub use self::news::CatalogueNews;
use self::news::WaitingNews;
use crate::{
    command::{CatalogueCommand, DeadLetters, GroupSetting, Placed},
    names::SourceNames,
    ordered::Ordered,
    pages::Pages,
    record::{Record, TopicCreated, TopicSettings},
    refusal::Refusal,
    settings_hash::SettingsHash,
    shared::Shared,
    terms::{NamedTerms, Terms},
};

/// A group as the catalogue knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogueGroup {
    /// Its number.
    pub id: GroupId,
    pub(crate) named: Arc<NamedTerms>,
}

impl CatalogueGroup {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &GroupName {
        &self.named.name
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &GroupConfig {
        &self.named.terms.config
    }

    /// The settings that its partitions use.
    #[must_use]
    pub fn setting(&self) -> GroupSetting {
        let Terms { config, start } = (*self.named.terms).clone();
        GroupSetting { id: self.id, config, start }
    }
}

/// A topic as the catalogue knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its number, name, incarnation, settings and place.
    pub created: TopicCreated,
    /// The topic that takes its dead letters, once there is one.
    pub dead_letter: Option<TopicId>,
    /// Its groups, by number.
    pub groups: Box<[CatalogueGroup]>,
}

impl Topic {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> TopicId {
        self.created.topic
    }

    /// Its settings.
    #[must_use]
    pub fn config(&self) -> &TopicConfig {
        self.created.config()
    }

    /// The group of this name.
    #[must_use]
    pub fn group(&self, name: &GroupName) -> Option<&CatalogueGroup> {
        self.groups.iter().find(|group| group.name() == name)
    }

    /// The destination of the dead letters of its partitions.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        match self.dead_letter {
            _ if self.created.name.is_dead_letter_topic() => DeadLetters::Stay,
            Some(topic) => DeadLetters::To(topic),
            None => DeadLetters::NotYet,
        }
    }

    /// The settings of its groups that its partitions use.
    #[must_use]
    pub fn group_settings(&self) -> Vec<GroupSetting> {
        self.groups.iter().map(CatalogueGroup::setting).collect()
    }

    /// The names of it and of its groups.
    #[must_use]
    pub fn source_names(&self) -> SourceNames {
        let groups = self.groups.iter().map(|group| (group.id, group.name().clone()));
        SourceNames { topic: self.created.name.clone(), groups: groups.collect() }
    }

    /// All that each of its partitions must know.
    #[must_use]
    pub fn settings_hash(&self) -> SettingsHash {
        let groups = self.groups.iter().map(CatalogueGroup::setting);
        SettingsHash::of(self.config(), groups, self.dead_letters())
    }
}

/// The result of a catalogue command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// To be appended and applied; empty when nothing is to be changed.
    pub(crate) records: Vec<Record>,
    pub(crate) topic: TopicId,
    pub(crate) group: Option<GroupId>,
}

/// The topics and groups that exist.
#[derive(Debug, Default)]
pub struct Catalogue {
    topics: Pages<Option<Topic>>,
    /// Their numbers, with their places.
    by_number: Ordered<(TopicId, u32)>,
    /// Their places by name, which only they hold.
    by_name: Ordered<u32>,
    next_topic: u32,
    next_group: u32,
    /// Numbers, half-open, of topics that the journal has lost, if there were any.
    lost: Vec<(u32, u32)>,
    pub(crate) news: WaitingNews,
}

impl Catalogue {
    fn at(&self, place: u32) -> &Topic {
        self.topics[place].as_ref().expect("places are those of topics")
    }

    fn place(&self, id: TopicId) -> Option<u32> {
        self.by_number.get(|held| held.0.cmp(&id)).map(|held| held.1)
    }

    fn topic_mut(&mut self, id: TopicId) -> Option<&mut Topic> {
        let place = self.place(id)?;
        self.topics[place].as_mut()
    }

    /// The topic of this number. O(log n).
    #[must_use]
    pub fn topic(&self, id: TopicId) -> Option<&Topic> {
        self.place(id).map(|place| self.at(place))
    }

    /// The topic of this name. O(log n).
    #[must_use]
    pub fn topic_named(&self, name: &TopicName) -> Option<&Topic> {
        let place = self.by_name.get(|place| self.at(place).created.name.cmp(name));
        place.map(|place| self.at(place))
    }

    /// The number of topics.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// How often a record has changed something since this state was made.
    #[must_use]
    pub fn change_count(&self) -> u64 {
        self.news.changes()
    }

    /// All topics, by number: in the order in which they were created.
    pub fn topics(&self) -> impl Iterator<Item = &Topic> {
        self.by_number.iter().map(|held| self.at(held.1))
    }

    /// All topics whose name comes after `name`, by name. The next costs little, however many there
    /// are.
    pub fn topics_after_name(&self, name: &str) -> impl Iterator<Item = &Topic> {
        let after = self.by_name.after(|place| self.at(place).created.name.as_str().cmp(name));
        after.map(|place| self.at(place))
    }

    /// Has this topic from now on, whatever its number meant before.
    fn add(&mut self, topic: Topic) {
        self.take(topic.id());
        let (id, name) = (topic.id(), topic.created.name.clone());
        let place = self.topics.insert(Some(topic));
        let Self { topics, by_number, by_name, .. } = self;
        let name_at = |place: u32| topics[place].as_ref().map(|topic| &topic.created.name);
        by_number.insert((id, place), |other| other.0.cmp(&id));
        by_name.insert(place, |other| name_at(other).cmp(&Some(&name)));
    }

    fn take(&mut self, id: TopicId) -> Option<Topic> {
        let place = self.place(id)?;
        let Self { topics, by_number, by_name, .. } = self;
        let name_at = |place: u32| topics[place].as_ref().map(|topic| &topic.created.name);
        let by_its_name = |other| name_at(other).cmp(&name_at(place));
        // The name may be another's by now, where the journal has lost that it came free.
        if by_name.get(by_its_name) == Some(place) {
            by_name.remove(by_its_name);
        }
        by_number.remove(|other| other.0.cmp(&id));
        topics.remove(place)
    }

    /// The numbers of the next topic and group.
    pub(crate) fn next_ids(&self) -> (u32, u32) {
        (self.next_topic, self.next_group)
    }

    pub(crate) fn set_next_ids(&mut self, next_ids: (u32, u32)) {
        (self.next_topic, self.next_group) = next_ids;
    }

    /// The lost records may have used so many numbers: none of them is used again.
    pub(crate) fn skip_ids(&mut self, count: u64) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.lose_topics_below(self.next_topic.saturating_add(count));
        self.next_group = self.next_group.saturating_add(count);
    }

    /// The topics between the last one known and this one are lost.
    pub(crate) fn lose_topics_below(&mut self, topic: u32) {
        if self.next_topic < topic {
            self.lost.push((self.next_topic, topic));
            self.next_topic = topic;
        }
    }

    /// Whether the journal may have lost this topic: its name and settings, not its messages.
    #[must_use]
    pub fn may_have_lost(&self, topic: TopicId) -> bool {
        self.lost.iter().any(|&(start, end)| start <= topic.0 && topic.0 < end)
            && self.topic(topic).is_none()
    }

    pub(crate) fn lost(&self) -> &[(u32, u32)] {
        &self.lost
    }

    pub(crate) fn put_back_lost(&mut self, lost: Vec<(u32, u32)>) {
        self.lost = lost;
    }

    /// The topic after this one, or the first.
    pub(crate) fn topic_after(&self, after: Option<TopicId>) -> Option<&Topic> {
        let Some(after) = after else { return self.topics().next() };
        let behind = self.by_number.after(|held| held.0.cmp(&after)).next();
        behind.map(|held| self.at(held.1))
    }

    /// Has a topic as a checkpoint says it is.
    pub(crate) fn put_back(&mut self, mut topic: Topic, shared: &mut Shared) {
        topic.created.settings = shared.topic_settings((*topic.created.settings).clone());
        for group in &mut topic.groups {
            group.named = shared.named(group.name(), &group.setting());
        }
        self.add(topic);
    }

    fn existing(&self, id: TopicId) -> Result<&Topic, Refusal> {
        self.topic(id).ok_or(Refusal::UnknownTopic)
    }

    pub(crate) fn decide(&self, command: CatalogueCommand) -> Result<Decision, Refusal> {
        match command {
            CatalogueCommand::CreateTopic { name, config, incarnation, placed, is_stream } => {
                self.create_topic(name, config, incarnation, placed, is_stream)
            }
            CatalogueCommand::CreateDeadLetterTopic { source, incarnation } => {
                self.create_dead_letter_topic(source, incarnation)
            }
            CatalogueCommand::AdoptTopic { topic, partitions, home, incarnation } => {
                self.adopt_topic(topic, partitions, home, incarnation)
            }
            CatalogueCommand::AlterTopic { topic, config } => self.alter_topic(topic, config),
            CatalogueCommand::DeleteTopic { topic } => {
                self.existing(topic)?;
                let records = vec![Record::TopicDeleted { topic }];
                Ok(Decision { records, topic, group: None })
            }
            CatalogueCommand::CreateGroup { topic, name, config, start } => {
                self.create_group(topic, &name, config, start)
            }
            CatalogueCommand::AlterGroup { topic, group, config } => {
                self.alter_group(topic, group, config)
            }
            CatalogueCommand::DeleteGroup { topic, group } => {
                let known = self.existing(topic)?.groups.iter().any(|g| g.id == group);
                if !known {
                    return Err(Refusal::UnknownGroup);
                }
                let records = vec![Record::GroupDeleted { topic, group }];
                Ok(Decision { records, topic, group: Some(group) })
            }
        }
    }

    fn create_topic(
        &self,
        name: TopicName,
        config: TopicConfig,
        incarnation: Incarnation,
        placed: Option<Placed>,
        is_stream: bool,
    ) -> Result<Decision, Refusal> {
        config.check()?;
        if let Some(topic) = self.topic_named(&name) {
            return match topic.config().difference(&config) {
                None => Ok(Decision { records: Vec::new(), topic: topic.id(), group: None }),
                Some((field, existing, requested)) => Err(Refusal::SettingsDiffer {
                    name: name.to_string(),
                    field,
                    existing,
                    requested,
                }),
            };
        }
        let topic = self.next_topic(placed);
        let settings = TopicSettings { config, is_stream }.into();
        self.new_topic(TopicCreated { topic, name, incarnation, settings, home: topic })
    }

    /// The number of the next topic that is to lie there, or anywhere.
    #[must_use]
    pub fn next_topic(&self, placed: Option<Placed>) -> TopicId {
        TopicId(self.next_topic + placed.map_or(0, |placed| self.skipped_for(placed)))
    }

    /// How many numbers are passed over, never to be used, so that the next one lies there.
    fn skipped_for(&self, Placed { shard, shards }: Placed) -> u32 {
        let next = self.next_topic % shards.max(1);
        (shard + shards - next) % shards.max(1)
    }

    fn adopt_topic(
        &self,
        topic: TopicId,
        partitions: u32,
        home: TopicId,
        incarnation: Incarnation,
    ) -> Result<Decision, Refusal> {
        if self.topic(topic).is_some() {
            return Ok(Decision { records: Vec::new(), topic, group: None });
        }
        let config = TopicConfig { partitions, ..TopicConfig::of_kind(TopicKind::Queue) };
        config.check()?;
        let mut name: TopicName = format!("lost-{}", topic.0).parse()?;
        if self.topic_named(&name).is_some() {
            name = format!("lost-{}-{:x}", topic.0, incarnation.0).parse()?;
        }
        let settings = TopicSettings { config, is_stream: false }.into();
        self.new_topic(TopicCreated { topic, name, incarnation, settings, home })
    }

    fn create_dead_letter_topic(
        &self,
        source: TopicId,
        incarnation: Incarnation,
    ) -> Result<Decision, Refusal> {
        let source = self.existing(source)?;
        if let Some(topic) = source.dead_letter {
            return Ok(Decision { records: Vec::new(), topic, group: None });
        }
        let config = TopicConfig {
            retention: Retention::UNTIL_SETTLED,
            time_to_live: None,
            // What has failed is to be looked at, and kept until then.
            durability: Durability::Durable,
            fields: None,
            is_paused: false,
            ..source.config().clone()
        };
        let (topic, home) = (TopicId(self.next_topic), source.id());
        let mut name = source.created.name.dead_letter_topic(None);
        let mut number = home.0;
        while self.topic_named(&name).is_some() {
            // It is that of a topic of the same name that is gone, or somebody has made it: it stays.
            name = source.created.name.dead_letter_topic(Some(number));
            number += 1;
        }
        let settings = TopicSettings { config, is_stream: false }.into();
        self.new_topic(TopicCreated { topic, name, incarnation, settings, home })
    }

    /// A new topic; a queue has its default group from the start.
    fn new_topic(&self, created: TopicCreated) -> Result<Decision, Refusal> {
        if self.topic_count() >= limits::TOPICS_MAX {
            return Err(Refusal::topics_max());
        }
        let (topic, kind) = (created.topic, created.config().kind());
        let mut records = vec![Record::TopicCreated(created)];
        if kind == TopicKind::Queue {
            let setting = GroupSetting {
                id: GroupId(self.next_group),
                config: GroupConfig::default(),
                start: StartAt::Earliest,
            };
            let name = GroupName::default_group();
            records.push(Record::GroupCreated { topic, name, setting });
        }
        Ok(Decision { records, topic, group: None })
    }

    fn alter_topic(&self, topic: TopicId, config: TopicConfig) -> Result<Decision, Refusal> {
        config.check()?;
        let existing = self.existing(topic)?.config();
        if existing.partitions != config.partitions {
            return Err(Refusal::SettingFixed { field: "partitions" });
        }
        if existing.durability != config.durability {
            return Err(Refusal::SettingFixed { field: "durability" });
        }
        let has_rules = config.limit.is_set() || config.dedup.is_some();
        if self.existing(topic)?.created.is_stream() && has_rules {
            let field = if config.limit.is_set() { "limit" } else { "dedup" };
            let value = "set, in a stream over HTTP".into();
            return Err(ConfigError { field, value, allowed: "none".into() }.into());
        }
        let same = *existing == config;
        let records = if same { Vec::new() } else { vec![Record::TopicAltered { topic, config }] };
        Ok(Decision { records, topic, group: None })
    }

    fn create_group(
        &self,
        topic: TopicId,
        name: &GroupName,
        config: GroupConfig,
        start: StartAt,
    ) -> Result<Decision, Refusal> {
        config.check()?;
        let existing = self.existing(topic)?;
        if let Some(group) = existing.group(name) {
            return match group.config().difference(&config) {
                None => Ok(Decision { records: Vec::new(), topic, group: Some(group.id) }),
                Some((field, existing, requested)) => Err(Refusal::SettingsDiffer {
                    name: name.to_string(),
                    field,
                    existing,
                    requested,
                }),
            };
        }
        if existing.groups.len() >= limits::GROUPS_PER_TOPIC_MAX {
            return Err(Refusal::groups_max());
        }
        let id = GroupId(self.next_group);
        let setting = GroupSetting { id, config, start };
        let records = vec![Record::GroupCreated { topic, name: name.clone(), setting }];
        Ok(Decision { records, topic, group: Some(id) })
    }

    fn alter_group(
        &self,
        topic: TopicId,
        group: GroupId,
        config: GroupConfig,
    ) -> Result<Decision, Refusal> {
        config.check()?;
        let held = self.existing(topic)?.groups.iter().find(|held| held.id == group);
        let setting = held.ok_or(Refusal::UnknownGroup)?.setting();
        let same = setting.config == config;
        let setting = GroupSetting { config, ..setting };
        let records = if same { Vec::new() } else { vec![Record::GroupAltered { topic, setting }] };
        Ok(Decision { records, topic, group: Some(group) })
    }

    /// Applies a record; those that are not the catalogue's change nothing.
    pub(crate) fn apply(&mut self, record: &Record, shared: &mut Shared) {
        match record {
            Record::TopicCreated(created) => {
                let topic = created.topic;
                self.next_topic = self.next_topic.max(topic.0 + 1);
                if created.home != topic
                    && let Some(source) = self.topic_mut(created.home)
                {
                    source.dead_letter = Some(topic);
                }
                let groups = Box::default();
                let settings = shared.topic_settings((*created.settings).clone());
                let created = TopicCreated { settings, ..created.clone() };
                self.news.note(|| Some(CatalogueNews::Created(topic)));
                self.add(Topic { created, dead_letter: None, groups });
            }
            Record::TopicAltered { topic, config } => {
                if let Some(topic) = self.topic_mut(*topic) {
                    let settings =
                        TopicSettings { config: config.clone(), ..*topic.created.settings };
                    topic.created.settings = shared.topic_settings(settings);
                }
                self.news.note(|| Some(CatalogueNews::Altered(*topic)));
            }
            Record::TopicDeleted { topic } => self.delete(*topic),
            Record::GroupCreated { topic, name, setting } => {
                self.news.note(|| None);
                self.next_group = self.next_group.max(setting.id.0 + 1);
                if let Some(topic) = self.topic_mut(*topic) {
                    let group =
                        CatalogueGroup { id: setting.id, named: shared.named(name, setting) };
                    let groups = std::mem::take(&mut topic.groups);
                    topic.groups = groups.into_iter().chain([group]).collect();
                }
            }
            Record::GroupAltered { topic, setting } => {
                self.news.note(|| None);
                let held = self
                    .topic_mut(*topic)
                    .and_then(|topic| topic.groups.iter_mut().find(|group| group.id == setting.id));
                if let Some(group) = held {
                    group.named = shared.named(&group.name().clone(), setting);
                }
            }
            Record::GroupDeleted { topic, group } => {
                self.news.note(|| None);
                if let Some(topic) = self.topic_mut(*topic) {
                    let groups = std::mem::take(&mut topic.groups);
                    topic.groups = groups.into_iter().filter(|held| held.id != *group).collect();
                }
            }
            _ => {}
        }
    }

    fn delete(&mut self, topic: TopicId) {
        let Some(gone) = self.take(topic) else { return };
        if let Some(source) = self.topic_mut(gone.created.home) {
            source.dead_letter = None;
        }
        self.news.note(|| Some(CatalogueNews::Deleted(Box::new(gone))));
    }
}
