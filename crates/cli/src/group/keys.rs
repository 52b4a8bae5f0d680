//! `sennit group keys`: the fair keys of a group with the most ready messages, and the reasons why they wait.

use sennit_client::{Client, FairKey, KeyDeliveries};
use sennit_model::{GroupName, TopicName, limits::FAIR_KEYS_LISTED_MAX};
use serde_json::{Value, json};

use crate::{
    exit::Failure,
    explain::{cell, reason_json},
    output::{print_json, print_table},
    quantity::show_duration,
};

use super::{about, age};

/// The options of `sennit group keys`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The topic's name
    topic: TopicName,
    /// The group's name
    name: GroupName,
    /// How many keys, at most 1000
    #[arg(long, value_name = "N", default_value_t = 20)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=FAIR_KEYS_LISTED_MAX as i64))]
    top: u32,
}

impl Args {
    /// Lists the keys.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let listed = client.list_fair_keys(&self.topic, &self.name, self.top).await;
        let keys = listed.map_err(|error| about(error, &self.topic, &self.name))?;
        if as_json {
            return keys.iter().try_for_each(|key| print_json(&key_json(key)));
        }
        let rows: Vec<_> = keys.iter().map(row).collect();
        print_table(
            &["KEY", "READY", "IN FLIGHT", "OLDEST", "DELIVERED", "WAIT", "CONSUMER", "WAITS FOR"],
            &rows,
        )
    }
}

/// Prints the keys of which consumers hold messages, and the sessions of these.
pub fn print_holders(keys: &[FairKey]) -> Result<(), Failure> {
    let held = keys.iter().filter_map(|key| Some((key, key.session?)));
    let rows: Vec<_> = held
        .map(|(key, session)| {
            let (name, count) = (key.fair_key.clone(), key.in_flight.to_string());
            vec![name, count, session.to_string()]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    print_table(&["KEY", "IN FLIGHT", "CONSUMER"], &rows)
}

fn row(key: &FairKey) -> Vec<String> {
    let name = if key.fair_key.is_empty() { "-" } else { &key.fair_key };
    vec![
        name.to_owned(),
        key.ready.to_string(),
        key.in_flight.to_string(),
        key.oldest_at.map_or_else(|| "-".into(), age),
        key.served.map_or_else(|| "-".into(), delivered),
        key.served.map_or_else(|| "-".into(), |served| show_duration(served.mean_wait)),
        key.session.map_or_else(|| "-".into(), |session| session.to_string()),
        cell(key.reason.as_ref()),
    ]
}

/// Deliveries, with a sign if they may be fewer.
fn delivered(served: KeyDeliveries) -> String {
    let sign = if served.overcounted == 0 { "" } else { "~" };
    format!("{sign}{}", served.delivered)
}

pub fn key_json(key: &FairKey) -> Value {
    json!({
        "fair_key": key.fair_key,
        "ready": key.ready,
        "in_flight": key.in_flight,
        "oldest_ms": key.oldest_at.map(|at| at.0),
        "session": key.session,
        "reason": key.reason.as_ref().map(reason_json),
        "delivered": key.served.map(|served| served.delivered),
        "overcounted": key.served.map(|served| served.overcounted),
        "mean_wait_ms": key.served.map(|served| served.mean_wait.as_millis() as u64),
    })
}
