//! `sennit group key`: the rules of a group for its fair keys: set, list, delete.

use sennit_client::{
    Client, GroupChange, GroupName, KeyRule, KeyRules, ThrottlePattern, TopicName,
};
use serde_json::{Value, json};

use super::about;
use crate::{
    exit::{Exit, Failure},
    field_options::OrNone,
    output::{print_json, print_table, print_to_stderr},
    throttle_options::{ThrottleOptions, show_throttle, throttle_json},
};

const EXAMPLES: &str = "\
Examples:
  sennit group key set jobs default noisy --concurrency 2 --throttle 10/s
  sennit group key set jobs default 'tenant-*' --weight 3
  sennit group key set jobs default noisy --pause
  sennit group key list jobs default
  sennit group key delete jobs default noisy

A pattern is a fair key, or its beginning and *. Of the rules that mean a key one counts, and it
alone: an exact key has precedence over a pattern, a longer pattern over a shorter one.";

#[derive(Debug, clap::Subcommand)]
#[command(after_help = EXAMPLES)]
pub enum Verb {
    /// Set the rule of a pattern; what is not named stays as it is in the rule
    #[command(group = clap::ArgGroup::new("limit").required(true).multiple(true).args([
        "weight", "concurrency", "throttle", "pause", "resume",
    ]))]
    Set {
        #[command(flatten)]
        rule: RuleName,
        #[command(flatten)]
        limits: Limits,
    },
    /// Print the rules of a group by pattern
    List {
        /// The topic's name
        topic: TopicName,
        /// The group's name
        group: GroupName,
    },
    /// Delete the rule of a pattern
    Delete {
        #[command(flatten)]
        rule: RuleName,
    },
}

/// Which rule is meant.
#[derive(Debug, clap::Args)]
pub struct RuleName {
    /// The topic's name
    topic: TopicName,
    /// The group's name
    group: GroupName,
    /// The fair keys that the rule is for: one key, or the beginning of keys and *
    pattern: ThrottlePattern,
}

/// What a rule says.
#[derive(Debug, clap::Args)]
pub struct Limits {
    /// The weight of each key, whatever its messages say; none for what they say
    #[arg(long, value_name = "N", value_parser = number_or_none)]
    weight: Option<OrNone<u32>>,
    /// How many messages of each key consumers may hold at once; none for any number
    #[arg(long, value_name = "N", value_parser = number_or_none)]
    concurrency: Option<OrNone<u32>>,
    #[command(flatten)]
    throttle: ThrottleOptions,
    /// Hold back the messages of these keys
    #[arg(long, conflicts_with = "resume")]
    pause: bool,
    /// Deliver the messages of these keys again
    #[arg(long)]
    resume: bool,
}

fn number_or_none(text: &str) -> Result<OrNone<u32>, String> {
    match (text, text.parse()) {
        ("none", _) => Ok(OrNone(None)),
        (_, Ok(number)) => Ok(OrNone(Some(number))),
        _ => Err(format!("{text:?} is no number from 1 to {}, and not none", u32::MAX)),
    }
}

impl Limits {
    /// `held` with what the options say.
    fn apply_to(&self, held: KeyRule) -> Result<KeyRule, Failure> {
        let throttle = self.throttle.rate()?;
        Ok(KeyRule {
            weight: self.weight.map_or(held.weight, |weight| weight.0),
            concurrency: self.concurrency.map_or(held.concurrency, |limit| limit.0),
            throttle: throttle.map_or(held.throttle, |rate| rate.0),
            is_paused: self.pause || (held.is_paused && !self.resume),
            pattern: held.pattern,
        })
    }
}

impl Verb {
    /// Checks what the command line says without a broker.
    ///
    /// # Errors
    /// It names a throttle that is none.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Set { limits, .. } => limits.throttle.rate().map(drop),
            _ => Ok(()),
        }
    }

    /// Runs the verb.
    ///
    /// # Errors
    /// The broker's refusal, or there is no such rule.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        match self {
            Self::Set { rule, limits } => {
                let held = rule.held(client).await?;
                let set = held.unwrap_or_else(|| KeyRule::new(rule.pattern.clone()));
                let set = limits.apply_to(set)?;
                // A rule that says nothing any more is no rule.
                let outcome = if set.is_empty() { "deleted" } else { "set" };
                rule.write(client, set).await?;
                rule.say_done(as_json, outcome)
            }
            Self::List { topic, group } => {
                let described = client.describe_group(&topic, &group).await;
                let described = described.map_err(|error| about(error, &topic, &group))?;
                let rules = &described.config.key_rules;
                if as_json {
                    return rules.iter().try_for_each(|rule| print_json(&rule_json(rule)));
                }
                print_rules(rules)
            }
            Self::Delete { rule } => {
                if rule.held(client).await?.is_none() {
                    let none = Failure::new(
                        Exit::NotFound,
                        "there is no rule of this pattern; sennit group key list prints the rules",
                    );
                    return Err(none.about(&rule.pattern));
                }
                rule.write(client, KeyRule::new(rule.pattern.clone())).await?;
                rule.say_done(as_json, "deleted")
            }
        }
    }
}

impl RuleName {
    async fn held(&self, client: &Client) -> Result<Option<KeyRule>, Failure> {
        let described = client.describe_group(&self.topic, &self.group).await;
        let described = described.map_err(|error| about(error, &self.topic, &self.group))?;
        let mut rules = described.config.key_rules.iter();
        Ok(rules.find(|rule| rule.pattern == self.pattern).cloned())
    }

    async fn write(&self, client: &Client, rule: KeyRule) -> Result<(), Failure> {
        let change = GroupChange { key_rules: vec![rule], ..GroupChange::default() };
        let written = client.alter_group(&self.topic, &self.group, change).await;
        written.map_err(|error| about(error, &self.topic, &self.group).about(&self.pattern))
    }

    fn say_done(&self, as_json: bool, outcome: &str) -> Result<(), Failure> {
        let Self { topic, group, pattern } = self;
        if as_json {
            return print_json(&json!({
                "topic": topic.as_str(), "group": group.as_str(), "pattern": pattern.as_str(),
                "outcome": outcome,
            }));
        }
        print_to_stderr(&format!("{topic} {group} {pattern}: {outcome}"));
        Ok(())
    }
}

/// Prints the rules as a table; nothing without any.
pub fn print_rules(rules: &KeyRules) -> Result<(), Failure> {
    if rules.is_empty() {
        return Ok(());
    }
    let or_none = |number: Option<u32>| number.map_or("-".into(), |number| number.to_string());
    let rows: Vec<_> = rules
        .iter()
        .map(|rule| {
            vec![
                rule.pattern.to_string(),
                or_none(rule.weight),
                or_none(rule.concurrency),
                show_throttle(rule.throttle),
                if rule.is_paused { "paused" } else { "-" }.into(),
            ]
        })
        .collect();
    print_table(&["PATTERN", "WEIGHT", "CONCURRENCY", "THROTTLE", "PAUSED"], &rows)
}

/// A rule as JSON.
pub fn rule_json(rule: &KeyRule) -> Value {
    json!({
        "pattern": rule.pattern.as_str(),
        "weight": rule.weight,
        "concurrency": rule.concurrency,
        "throttle": throttle_json(rule.throttle),
        "paused": rule.is_paused,
    })
}
