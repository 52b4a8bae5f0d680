//! The layout of what schedulers are told: the fields of messages, rules for fair keys, classes.

use std::sync::Arc;

use sennit_model::{
    Class, Cost, HeaderName, KeyRule, KeyRules, MessageFields, Priority, ThrottlePattern,
    ThrottleRate,
};

use crate::{
    codec::{Reader, Writer},
    record_error::RecordError,
};

impl Writer<'_> {
    fn header_name(&mut self, name: Option<&HeaderName>) -> &mut Self {
        self.optional_text(name.map(HeaderName::as_str))
    }

    pub(crate) fn message_fields(&mut self, fields: &MessageFields) -> &mut Self {
        let MessageFields { fair_key, weight, priority, throttle_keys, delay, cost } = fields;
        for name in [fair_key, weight, priority, throttle_keys, delay] {
            self.header_name(name.as_ref());
        }
        match cost {
            Cost::Message => self.u8(0),
            Cost::Bytes => self.u8(1),
            Cost::Header(name) => self.u8(2).text(name.as_str()),
        }
    }

    /// An interval of 0 stands for none.
    pub(crate) fn optional_rate(&mut self, rate: Option<ThrottleRate>) -> &mut Self {
        let none = ThrottleRate { interval_ns: 0, burst: 0 };
        let ThrottleRate { interval_ns, burst } = rate.unwrap_or(none);
        self.u64(interval_ns).u32(burst)
    }

    pub(crate) fn key_rules(&mut self, rules: &KeyRules) -> &mut Self {
        self.count(rules.iter().len());
        for KeyRule { pattern, weight, concurrency, throttle, is_paused } in rules.iter() {
            self.text(pattern.as_str()).u32(weight.unwrap_or(0)).u32(concurrency.unwrap_or(0));
            self.optional_rate(*throttle).u8(u8::from(*is_paused));
        }
        self
    }

    pub(crate) fn class(&mut self, class: &Class) -> &mut Self {
        let Class { fair_key, weight, priority, throttle_keys } = class;
        self.text(fair_key).u32(*weight).u8(priority.number());
        self.count(throttle_keys.len());
        for key in throttle_keys {
            self.text(key);
        }
        self
    }
}

impl Reader {
    fn header_name(&mut self) -> Result<HeaderName, RecordError> {
        let kind = self.kind;
        self.text()?.parse().map_err(|error| RecordError::Config { kind, error })
    }

    fn optional_header_name(&mut self) -> Result<Option<HeaderName>, RecordError> {
        if self.flag("name of a header")? { self.header_name().map(Some) } else { Ok(None) }
    }

    pub(crate) fn message_fields(&mut self) -> Result<Arc<MessageFields>, RecordError> {
        let fields = MessageFields {
            fair_key: self.optional_header_name()?,
            weight: self.optional_header_name()?,
            priority: self.optional_header_name()?,
            throttle_keys: self.optional_header_name()?,
            delay: self.optional_header_name()?,
            cost: match self.u8()? {
                0 => Cost::Message,
                1 => Cost::Bytes,
                2 => Cost::Header(self.header_name()?),
                tag => return Err(self.field("cost", tag)),
            },
        };
        Ok(Arc::new(fields))
    }

    pub(crate) fn optional_rate(&mut self) -> Result<Option<ThrottleRate>, RecordError> {
        let rate = ThrottleRate { interval_ns: self.u64()?, burst: self.u32()? };
        if rate.interval_ns == 0 {
            self.require_zero("burst of no throttle", rate.burst)?;
            return Ok(None);
        }
        if rate.burst == 0 || !rate.is_allowed() {
            return Err(self.field("burst of a throttle", rate.burst));
        }
        Ok(Some(rate))
    }

    pub(crate) fn key_rules(&mut self) -> Result<KeyRules, RecordError> {
        let rules = self.list(|r| {
            let kind = r.kind;
            let pattern: ThrottlePattern =
                r.text()?.parse().map_err(|_| RecordError::Text { kind })?;
            let some = |value: u32| Some(value).filter(|value| *value > 0);
            Ok(KeyRule {
                pattern,
                weight: some(r.u32()?),
                concurrency: some(r.u32()?),
                throttle: r.optional_rate()?,
                is_paused: r.flag("paused")?,
            })
        })?;
        if !rules.is_sorted_by(|a, b| a.pattern < b.pattern) {
            return Err(self.field("rules for keys", rules.len() as u64));
        }
        Ok(KeyRules::new(rules))
    }

    pub(crate) fn class(&mut self) -> Result<Class, RecordError> {
        let (fair_key, weight, priority) = (self.text()?.into(), self.u32()?, self.u8()?);
        if weight == 0 {
            return Err(self.field("weight", weight));
        }
        if priority > Priority::MAX.number() {
            return Err(self.field("priority", priority));
        }
        let throttle_keys = self.list(|r| Ok(r.text()?.into()))?;
        let priority = Priority::of(priority.into());
        Ok(Class { fair_key, weight, priority, throttle_keys: throttle_keys.into() })
    }
}
