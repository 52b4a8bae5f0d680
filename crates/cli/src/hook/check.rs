//! `sennit hook check`: a script is compiled here, and tried on messages that are read from a topic. The broker learns
//! nothing of it.

use std::{collections::HashMap, path::PathBuf, rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_client::{Received, TopicName};
use sennit_hooks::{
    Failure as Attempt, FailureDecision, PublishDecision, Script, Settings, rewrite,
};
use sennit_model::{BatchBuilder, MessageView, ReadFrom, WhenSlow};
use serde_json::{Value, json};

use super::script_file::{configuration_of, script_of};
use crate::{
    connect_options::ConnectOptions,
    exit::{Exit, Failure},
    kv::shown,
    output::{print_json, print_table, print_to_stderr},
    read_source::{ReadOptions, ReadTarget, Source},
    time_argument,
};

/// The arguments of `sennit hook check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The script; - for standard input
    file: PathBuf,
    /// Try it on messages of this topic
    #[arg(long, value_name = "TOPIC")]
    against: Option<TopicName>,
    /// On how many, the latest of each partition
    #[arg(long, value_name = "N", default_value = "10", requires = "against")]
    last: u64,
    /// Try on_failure, as if an attempt at each message had failed. A script without on_publish
    /// is tried so anyhow
    #[arg(long, requires = "against")]
    failure: bool,
    /// How many attempts have failed
    #[arg(long, value_name = "N", default_value = "1", requires = "against")]
    attempts: u32,
    /// Why the last one has
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "retried by the consumer",
        requires = "against"
    )]
    reason: String,
}

/// What the script would do with a message.
struct Tried {
    partition: u32,
    offset: u64,
    key: String,
    outcome: Result<Outcome, String>,
}

/// What it has decided.
enum Outcome {
    Publish(PublishDecision),
    Failure(FailureDecision),
}

impl Check {
    pub(super) async fn run(self, connect: &ConnectOptions, as_json: bool) -> Result<(), Failure> {
        let source = script_of(&self.file)?;
        let file = self.file.display().to_string();
        let Some(topic) = &self.against else {
            compile(&source, "", HashMap::new()).map_err(|error| error.about(&file))?;
            if as_json {
                return print_json(&json!({ "file": file, "valid": true }));
            }
            print_to_stderr(&format!("{file}: the script compiles"));
            return Ok(());
        };
        let client = connect.client().await?;
        let configuration = configuration_of(&client).await?;
        let script = compile(&source, topic.as_str(), configuration);
        let script = script.map_err(|error| error.about(&file))?;
        let described = client.describe_topic(topic).await;
        let fields = described.map_err(|error| Failure::from(error).about(topic))?.config.fields;
        let on_failure = self.failure || !script.has_on_publish();
        let options = ReadOptions {
            from: ReadFrom::Last(self.last),
            filter: None,
            cursor: None,
            when_slow: WhenSlow::Wait,
            until_end: true,
        };
        let target = ReadTarget::Topic(topic.clone());
        let begun = Source::begin(&client, &target, options).await;
        let mut messages = begun.map_err(|error| Failure::from(error).about(topic))?;
        let mut tried = Vec::new();
        while let Some(received) = messages.next().await.transpose()? {
            let (_, Received::Delivered(run)) = received else { continue };
            let age =
                time_argument::now().saturating_sub(Duration::from_millis(run.appended_at().0));
            for (offset, message) in (run.first_offset().0..).zip(run.messages()) {
                let failure =
                    || Attempt { attempts: self.attempts, age, reason: self.reason.clone() };
                tried.push(Tried {
                    partition: run.partition().0,
                    offset,
                    key: shown(message.key()),
                    outcome: match on_failure {
                        true => failed(&script, &message, failure()).map(Outcome::Failure),
                        false => {
                            published(&script, &message, fields.as_deref()).map(Outcome::Publish)
                        }
                    },
                });
            }
        }
        messages.end(None).await.map_err(Failure::from)?;
        client.close().await;
        tried.sort_by_key(|tried| (tried.partition, tried.offset));
        print(&tried, as_json)?;
        let failed = tried.iter().filter(|tried| tried.outcome.is_err()).count();
        if failed > 0 {
            let text = format!("the script fails on {failed} of {} messages", tried.len());
            return Err(Failure::new(Exit::Failed, text).about(&file));
        }
        Ok(())
    }
}

fn compile(
    source: &str,
    topic: &str,
    configuration: HashMap<String, Bytes>,
) -> Result<Script, Failure> {
    let settings: Rc<dyn Settings> = Rc::new(move |key: &str| configuration.get(key).cloned());
    Script::compile(source, topic, &settings)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))
}

/// Decides about a failed attempt at a message.
fn failed(
    script: &Script,
    message: &MessageView<'_>,
    failure: Attempt,
) -> Result<FailureDecision, String> {
    let encoded = Bytes::copy_from_slice(message.encoded());
    script.on_failure(encoded, failure).map_err(|error| error.to_string())
}

/// Decides about a message, and writes the decision into a copy that is thrown away.
fn published(
    script: &Script,
    message: &MessageView<'_>,
    fields: Option<&sennit_model::MessageFields>,
) -> Result<PublishDecision, String> {
    let encoded = Bytes::copy_from_slice(message.encoded());
    let decision = script.on_publish(encoded, 0).map_err(|error| error.to_string())?;
    if decision.refuse.is_none() {
        rewrite(message, &decision, fields, &mut BatchBuilder::for_broker())
            .map_err(|error| error.to_string())?;
    }
    Ok(decision)
}

fn print(tried: &[Tried], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return tried.iter().try_for_each(|tried| {
            let mut json = match &tried.outcome {
                Ok(Outcome::Publish(decision)) => decision_json(decision),
                Ok(Outcome::Failure(decision)) => failure_json(decision),
                Err(error) => json!({ "failure": error }),
            };
            json["partition"] = tried.partition.into();
            json["offset"] = tried.offset.into();
            json["key"] = tried.key.as_str().into();
            print_json(&json)
        });
    }
    let rows = tried.iter().map(|tried| {
        let (outcome, details) = match &tried.outcome {
            Ok(Outcome::Publish(decision)) => match &decision.refuse {
                Some(reason) => ("refused", shown(reason.as_bytes())),
                None if decision.is_unchanged() => ("as it is", String::new()),
                None => ("changed", details(decision)),
            },
            Ok(Outcome::Failure(decision)) => match decision {
                FailureDecision::Default => ("as the policy says", String::new()),
                FailureDecision::RetryAfter(delay) => {
                    ("retried", format!("after {} ms", delay.as_millis()))
                }
                FailureDecision::DeadLetter(reason) => ("dead letter", shown(reason.as_bytes())),
                FailureDecision::Route(topic) => ("routed", shown(topic.as_bytes())),
            },
            Err(error) => ("FAILS", shown(error.as_bytes())),
        };
        let (partition, offset) = (tried.partition.to_string(), tried.offset.to_string());
        vec![partition, offset, tried.key.clone(), outcome.to_owned(), details]
    });
    let heads = ["PARTITION", "OFFSET", "KEY", "OUTCOME", "DETAILS"];
    print_table(&heads, &rows.collect::<Vec<_>>())
}

/// The fields that a decision sets, with their values.
fn fields_of(decision: &PublishDecision) -> Vec<(String, Value)> {
    let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let fields = [
        ("refuse", decision.refuse.clone().map(Value::from)),
        ("fair_key", decision.fair_key.clone().map(Value::from)),
        ("weight", decision.weight.map(Value::from)),
        ("priority", decision.priority.map(Value::from)),
        ("cost", decision.cost.map(Value::from)),
        ("throttle_keys", decision.throttle_keys.clone().map(Value::from)),
        ("delay_ms", decision.delay.map(ms).map(Value::from)),
        ("time_to_live_ms", decision.time_to_live.map(ms).map(Value::from)),
    ];
    let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    set.collect()
}

fn headers_of(decision: &PublishDecision) -> impl Iterator<Item = (&str, Value)> {
    decision.headers.iter().map(|(name, value)| {
        let value = value.as_ref().map_or(Value::Bool(false), |value| shown(value).into());
        (name.as_str(), value)
    })
}

fn decision_json(decision: &PublishDecision) -> Value {
    let mut json: Value = fields_of(decision).into_iter().collect::<serde_json::Map<_, _>>().into();
    if !decision.headers.is_empty() {
        json["headers"] = headers_of(decision)
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<serde_json::Map<_, _>>()
            .into();
    }
    json
}

fn failure_json(decision: &FailureDecision) -> Value {
    match decision {
        FailureDecision::Default => json!({}),
        FailureDecision::RetryAfter(delay) => {
            json!({ "retry_after_ms": u64::try_from(delay.as_millis()).unwrap_or(u64::MAX) })
        }
        FailureDecision::DeadLetter(reason) => json!({ "dead_letter": reason }),
        FailureDecision::Route(topic) => json!({ "route": topic }),
    }
}

fn details(decision: &PublishDecision) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => shown(text.as_bytes()),
        other => other.to_string(),
    };
    let fields = fields_of(decision);
    let fields = fields.iter().map(|(name, value)| format!("{name}={}", plain(value)));
    let headers = headers_of(decision).map(|(name, value)| match value {
        Value::Bool(_) => format!("headers.{name} removed"),
        value => format!("headers.{name}={}", plain(&value)),
    });
    fields.chain(headers).collect::<Vec<_>>().join(" ")
}
