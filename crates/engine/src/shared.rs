//! Topics, groups and streams with equal settings share one value.

use std::sync::Arc;

use sennit_model::{GroupId, GroupName, TopicConfig};

use crate::{
    codec::Writer,
    command::GroupSetting,
    interner::Interner,
    record::TopicSettings,
    stream::StreamSettings,
    terms::{NamedTerms, Terms},
};

/// Settings, each kept once.
#[derive(Debug)]
pub(crate) struct Shared {
    configs: Interner<TopicConfig>,
    topic_settings: Interner<TopicSettings>,
    terms: Interner<Terms>,
    defaults: Interner<NamedTerms>,
    settings: Interner<StreamSettings>,
    /// Those of a topic that was not created as a stream.
    pub(crate) of_topic: Arc<StreamSettings>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            configs: Interner::default(),
            topic_settings: Interner::default(),
            terms: Interner::default(),
            defaults: Interner::default(),
            settings: Interner::default(),
            of_topic: Arc::new(StreamSettings::of_topic()),
        }
    }
}

impl Shared {
    pub(crate) fn config(&mut self, config: &TopicConfig) -> Arc<TopicConfig> {
        self.configs.get(config.clone(), |config, out| {
            Writer(out).topic_config(config);
        })
    }

    /// The settings of a topic in the catalogue.
    pub(crate) fn topic_settings(&mut self, settings: TopicSettings) -> Arc<TopicSettings> {
        self.topic_settings.get(settings, |settings, out| {
            Writer(out).topic_config(&settings.config).u8(settings.is_stream.into());
        })
    }

    pub(crate) fn settings(&mut self, settings: &StreamSettings) -> Arc<StreamSettings> {
        self.settings.get(settings.clone(), |settings, out| {
            Writer(out).stream_settings(settings);
        })
    }

    pub(crate) fn terms(&mut self, setting: &GroupSetting) -> Arc<Terms> {
        let terms = Terms { config: setting.config.clone(), start: setting.start };
        // The number is each group's own.
        let of_none = GroupSetting { id: GroupId(0), ..setting.clone() };
        self.terms.get(terms, |_, out| {
            Writer(out).group_setting(&of_none);
        })
    }

    /// Those of a group in the catalogue. As many groups as there are queues are called as the default
    /// one is; other names are each a group's own.
    pub(crate) fn named(&mut self, name: &GroupName, setting: &GroupSetting) -> Arc<NamedTerms> {
        let named = NamedTerms { name: name.clone(), terms: self.terms(setting) };
        if *name != GroupName::default_group() {
            return Arc::new(named);
        }
        self.defaults.get(named, |named, out| {
            out.extend((Arc::as_ptr(&named.terms) as usize).to_le_bytes());
        })
    }
}
