//! Converts what fair groups are told between the schema and the model, and checks it: the headers that a topic names,
//! throttles, rules for fair keys.

use std::sync::Arc;

use sennit_model::{
    ConfigError, Cost, HeaderName, KeyRule, MessageFields, ThrottleRate,
    limits::{KEY_RULES_MAX, THROTTLE_FILL_MAX},
};

use crate::control::{self, message_fields};

/// The fields of a topic; `None` where the message names no header.
pub(crate) fn message_fields(
    message: Option<&control::MessageFields>,
) -> Result<Option<Arc<MessageFields>>, ConfigError> {
    let Some(message) = message else { return Ok(None) };
    let name = |field, text: &str| match text {
        "" => Ok(None),
        text => header_name(field, text).map(Some),
    };
    let fields = MessageFields {
        fair_key: name("fields.fair_key", &message.fair_key)?,
        weight: name("fields.weight", &message.weight)?,
        priority: name("fields.priority", &message.priority)?,
        throttle_keys: name("fields.throttle_keys", &message.throttle_keys)?,
        delay: name("fields.delay", &message.delay)?,
        cost: match &message.cost {
            None => Cost::Message,
            Some(message_fields::Cost::CostInBytes(_)) => Cost::Bytes,
            Some(message_fields::Cost::CostHeader(name)) => {
                Cost::Header(header_name("fields.cost", name)?)
            }
        },
    };
    Ok(fields.if_any())
}

fn header_name(field: &'static str, text: &str) -> Result<HeaderName, ConfigError> {
    text.parse().map_err(|error| ConfigError { field, ..error })
}

impl From<&MessageFields> for control::MessageFields {
    fn from(fields: &MessageFields) -> Self {
        let MessageFields { fair_key, weight, priority, throttle_keys, delay, cost } = fields;
        let text = |name: &Option<HeaderName>| {
            name.as_ref().map_or_else(String::new, |name| name.as_str().into())
        };
        Self {
            fair_key: text(fair_key),
            weight: text(weight),
            priority: text(priority),
            throttle_keys: text(throttle_keys),
            delay: text(delay),
            cost: match cost {
                Cost::Message => None,
                Cost::Bytes => Some(message_fields::Cost::CostInBytes(true)),
                Cost::Header(name) => Some(message_fields::Cost::CostHeader(name.as_str().into())),
            },
        }
    }
}

/// What a message says of a throttle; the inner `None` is for no throttle.
pub(crate) fn throttle_change(
    message: Option<&control::Throttle>,
) -> Result<Option<Option<ThrottleRate>>, ConfigError> {
    message.map(|message| throttle("throttle", message)).transpose()
}

fn throttle(
    field: &'static str,
    message: &control::Throttle,
) -> Result<Option<ThrottleRate>, ConfigError> {
    let control::Throttle { interval_ns, burst } = *message;
    if interval_ns == 0 {
        return Ok(None);
    }
    let rate = ThrottleRate { interval_ns, burst };
    if !rate.is_allowed() {
        let days = THROTTLE_FILL_MAX.as_secs() / 86_400;
        return Err(ConfigError {
            field,
            value: format!("a token each {interval_ns} ns and a burst of {burst}"),
            allowed: format!(
                "a burst of 1 or more that fills within {days} days (THROTTLE_FILL_MAX)"
            ),
        });
    }
    Ok(Some(rate))
}

/// An interval of 0 stands for no throttle.
impl From<Option<ThrottleRate>> for control::Throttle {
    fn from(rate: Option<ThrottleRate>) -> Self {
        rate.map_or_else(Self::default, |rate| Self {
            interval_ns: rate.interval_ns,
            burst: rate.burst,
        })
    }
}

/// The rules of a message, in its order.
pub(crate) fn key_rules(messages: &[control::KeyRule]) -> Result<Vec<KeyRule>, ConfigError> {
    if messages.len() > KEY_RULES_MAX {
        let value = format!("{} rules", messages.len());
        let allowed = format!("0 to {KEY_RULES_MAX} (KEY_RULES_MAX)");
        return Err(ConfigError { field: "key_rules", value, allowed });
    }
    messages.iter().map(KeyRule::try_from).collect()
}

impl TryFrom<&control::KeyRule> for KeyRule {
    type Error = ConfigError;

    fn try_from(message: &control::KeyRule) -> Result<Self, ConfigError> {
        let wrong = |error: sennit_model::ThrottleError| ConfigError {
            field: "key_rules.pattern",
            value: format!("{:?}", message.pattern),
            allowed: format!("a fair key, or the beginning of keys and *: {error}"),
        };
        let rate = message.throttle.as_ref().map(|rate| throttle("key_rules.throttle", rate));
        Ok(Self {
            pattern: message.pattern.parse().map_err(wrong)?,
            weight: message.weight,
            concurrency: message.concurrency,
            throttle: rate.transpose()?.flatten(),
            is_paused: message.paused,
        })
    }
}

impl From<&KeyRule> for control::KeyRule {
    fn from(rule: &KeyRule) -> Self {
        let KeyRule { pattern, weight, concurrency, throttle, is_paused } = rule;
        Self {
            pattern: pattern.as_str().into(),
            weight: *weight,
            concurrency: *concurrency,
            throttle: throttle.map(|rate| Some(rate).into()),
            paused: *is_paused,
        }
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{GroupChange, GroupConfig, TopicConfig};

    use super::*;

    fn refused_fields(fields: control::MessageFields) -> String {
        let topic = control::TopicConfig { fields: Some(fields), ..<_>::default() };
        TopicConfig::try_from(&topic).unwrap_err().to_string()
    }

    #[test]
    fn a_name_of_a_header_that_cannot_be_is_refused_with_its_field() {
        let weight = control::MessageFields { weight: "x".repeat(65), ..<_>::default() };
        let refused = refused_fields(weight);
        assert!(refused.starts_with("fields.weight is xxx"), "{refused}");
        assert!(refused.ends_with("allowed is 1 to 64 bytes of text"), "{refused}");
        let cost = Some(message_fields::Cost::CostHeader(String::new()));
        let refused = refused_fields(control::MessageFields { cost, ..<_>::default() });
        assert_eq!(refused, "fields.cost is , allowed is 1 to 64 bytes of text");
    }

    #[test]
    fn fields_without_a_header_are_none() {
        let fields = Some(control::MessageFields::default());
        let topic = control::TopicConfig { fields, ..<_>::default() };
        assert_eq!(TopicConfig::try_from(&topic).unwrap().fields, None);
    }

    #[test]
    fn rules_and_throttles_that_cannot_be_are_refused_with_what_would_be_right() {
        let rule = |pattern: &str| control::KeyRule {
            pattern: pattern.into(),
            weight: Some(2),
            ..<_>::default()
        };
        let throttle = |interval_ns, burst| Some(control::Throttle { interval_ns, burst });
        let group = control::GroupConfig::default;
        for (message, said) in [
            (
                control::GroupConfig { throttle: throttle(1, 0), ..group() },
                "throttle is a token each 1 ns and a burst of 0, allowed is a burst of 1 or more",
            ),
            (
                control::GroupConfig { throttle: throttle(u64::MAX, u32::MAX), ..group() },
                "throttle is a token each 18446744073709551615 ns",
            ),
            (
                control::GroupConfig { key_rules: vec![rule("a*b")], ..group() },
                "key_rules.pattern is \"a*b\", allowed is a fair key, or the beginning of keys and *",
            ),
            (
                control::GroupConfig { key_rules: vec![rule("")], ..group() },
                "key_rules.pattern is \"\"",
            ),
            (
                control::GroupConfig {
                    key_rules: vec![control::KeyRule { throttle: throttle(5, 0), ..rule("a") }],
                    ..group()
                },
                "key_rules.throttle is a token each 5 ns",
            ),
            (
                control::GroupConfig {
                    key_rules: vec![control::KeyRule { weight: Some(0), ..rule("a") }],
                    ..group()
                },
                "key_rules.weight is 0, allowed is 1 to 1000000",
            ),
            (
                control::GroupConfig { key_rules: vec![rule("a"); 257], ..group() },
                "key_rules is 257 rules, allowed is 0 to 256 (KEY_RULES_MAX)",
            ),
        ] {
            let refused = GroupConfig::try_from(&message).unwrap_err().to_string();
            assert!(refused.starts_with(said), "{refused}");
        }
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name_and_an_interval_of_0_removes_the_throttle() {
        let none = GroupChange::try_from(&control::GroupConfig::default()).unwrap();
        assert_eq!(none, GroupChange::default());
        let throttle = Some(control::Throttle { interval_ns: 0, burst: 7 });
        let message = control::GroupConfig { throttle, ..<_>::default() };
        let change = GroupChange::try_from(&message).unwrap();
        assert_eq!(change, GroupChange { throttle: Some(None), ..GroupChange::default() });
    }
}
