//! The options that name the headers of a topic's fair groups: how they are read, and how they are shown.

use std::sync::Arc;

use sennit_client::{Cost, HeaderName, MessageFields};
use serde_json::{Value, json};

/// Options of the headers; one that is not named keeps its setting.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Fair groups (none removes a header)")]
pub struct FieldOptions {
    /// The header with a message's fair key. In each group, messages of one key wait for each other
    /// and keys take turns
    #[arg(long, value_name = "HEADER", value_parser = header_or_none)]
    fair_key: Option<OrNone<HeaderName>>,
    /// The header with the weight of the fair key: a number, of which a key's share follows
    #[arg(long, value_name = "HEADER", value_parser = header_or_none)]
    weight: Option<OrNone<HeaderName>>,
    /// The header with the priority of a message: 0 to 9, and higher goes first
    #[arg(long, value_name = "HEADER", value_parser = header_or_none)]
    priority: Option<OrNone<HeaderName>>,
    /// The header with the throttle keys of a message, separated by commas
    #[arg(long, value_name = "HEADER", value_parser = header_or_none)]
    throttle_keys: Option<OrNone<HeaderName>>,
    /// The header with the delay of a message in milliseconds
    #[arg(long, value_name = "HEADER", value_parser = header_or_none)]
    delay_header: Option<OrNone<HeaderName>>,
    /// What a message takes of its key's share: bytes (1 for each KiB), or header:NAME for the
    /// number in that header; 1 without this option
    #[arg(long, value_name = "COST", value_parser = cost)]
    cost: Option<Cost>,
}

/// A value, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrNone<T>(pub Option<T>);

fn header_or_none(text: &str) -> Result<OrNone<HeaderName>, String> {
    match text {
        "none" => Ok(OrNone(None)),
        name => name
            .parse()
            .map(|name| OrNone(Some(name)))
            .map_err(|error: sennit_model::ConfigError| error.to_string()),
    }
}

fn cost(text: &str) -> Result<Cost, String> {
    match (text, text.strip_prefix("header:")) {
        ("none", _) => Ok(Cost::Message),
        ("bytes", _) => Ok(Cost::Bytes),
        (_, Some(name)) => name
            .parse()
            .map(Cost::Header)
            .map_err(|error: sennit_model::ConfigError| error.to_string()),
        _ => Err(format!("{text:?} is no cost: write bytes, header:NAME or none")),
    }
}

impl FieldOptions {
    /// The fields `held` with those of the options.
    pub fn apply_to(&self, held: Option<&MessageFields>) -> Option<Arc<MessageFields>> {
        let held = held.cloned().unwrap_or_default();
        let header = |option: &Option<OrNone<HeaderName>>, held| match option {
            Some(OrNone(name)) => name.clone(),
            None => held,
        };
        let fields = MessageFields {
            fair_key: header(&self.fair_key, held.fair_key),
            weight: header(&self.weight, held.weight),
            priority: header(&self.priority, held.priority),
            throttle_keys: header(&self.throttle_keys, held.throttle_keys),
            delay: header(&self.delay_header, held.delay),
            cost: self.cost.clone().unwrap_or(held.cost),
        };
        fields.if_any()
    }
}

/// The cost as it is written.
fn show_cost(cost: &Cost) -> Option<String> {
    match cost {
        Cost::Message => None,
        Cost::Bytes => Some("bytes".into()),
        Cost::Header(name) => Some(format!("header:{name}")),
    }
}

/// Rows of a description: the headers, as the options name them.
pub fn rows(fields: &MessageFields) -> Vec<Vec<String>> {
    let MessageFields { fair_key, weight, priority, throttle_keys, delay, cost } = fields;
    let headers = [
        ("fair key", fair_key),
        ("weight", weight),
        ("priority", priority),
        ("throttle keys", throttle_keys),
        ("delay", delay),
    ];
    let named = headers
        .into_iter()
        .filter_map(|(field, name)| Some(vec![field.into(), format!("header {}", name.as_ref()?)]));
    named.chain(show_cost(cost).map(|cost| vec!["cost".into(), cost])).collect()
}

/// The headers as JSON; null without any.
pub fn fields_json(fields: Option<&MessageFields>) -> Value {
    let Some(fields) = fields else { return Value::Null };
    let MessageFields { fair_key, weight, priority, throttle_keys, delay, cost } = fields;
    let name = |name: &Option<HeaderName>| name.as_ref().map(|name| name.as_str().to_owned());
    json!({
        "fair_key": name(fair_key),
        "weight": name(weight),
        "priority": name(priority),
        "throttle_keys": name(throttle_keys),
        "delay": name(delay),
        "cost": show_cost(cost),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Option<OrNone<HeaderName>> {
        Some(header_or_none(text).unwrap())
    }

    #[test]
    fn options_change_what_they_name_and_none_removes_it() {
        let tenant = FieldOptions { fair_key: header("tenant"), ..FieldOptions::default() };
        let first = tenant.apply_to(None).unwrap();
        assert_eq!(rows(&first), [["fair key", "header tenant"]]);
        let more = FieldOptions {
            weight: header("plan weight"),
            cost: Some(cost("header:size").unwrap()),
            ..FieldOptions::default()
        };
        let both = more.apply_to(Some(&first)).unwrap();
        assert_eq!(both.to_string(), "fair_key=tenant, weight=plan weight, cost=size");
        assert_eq!(FieldOptions::default().apply_to(Some(&both)).as_ref(), Some(&both));
        let without = FieldOptions { fair_key: header("none"), ..FieldOptions::default() };
        let without = without.apply_to(Some(&both)).unwrap();
        assert_eq!((&without.fair_key, &without.weight), (&None, &both.weight));
        let nothing = FieldOptions {
            weight: header("none"),
            cost: Some(cost("none").unwrap()),
            ..FieldOptions::default()
        };
        assert_eq!(nothing.apply_to(Some(&without)), None);
    }

    #[test]
    fn a_wrong_option_says_what_would_be_right() {
        assert!(header_or_none("").unwrap_err().contains("allowed is 1 to 64 bytes of text"));
        assert!(cost("size").unwrap_err().contains("write bytes, header:NAME or none"));
        assert!(cost("header:").is_err());
        assert_eq!(cost("bytes"), Ok(Cost::Bytes));
    }
}
