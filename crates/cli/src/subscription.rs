//! `sennit subscription`: subscriptions that are woken when HTTP streams have content: create, list, show, delete.
//! It uses HTTP.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    connect_options::block_on,
    exit::{Exit, Failure},
    http::{Answer, ConnectOptions},
    output::{print_json, print_table, print_to_stderr},
    quantity::duration,
};

const EXAMPLES: &str = "\
Examples:
  sennit subscription create mailer --pattern 'mails/*' --webhook https://example.com/wake
  sennit subscription create jobs --stream a --stream b --wake-stream wakes --lease 1m
  sennit subscription list
  sennit subscription show mailer
  sennit subscription delete mailer";

/// The path of subscriptions.
const ROOT: &str = "/v1/stream/__ds/subscriptions";

/// The arguments of `sennit subscription`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a subscription; an existing one with the same settings is left as it is
    Create {
        /// Its id
        id: String,
        /// Link it to all streams that match, now and later: a/*, a/**, user-*
        #[arg(long, required_unless_present = "stream")]
        pattern: Option<String>,
        /// Link it to this stream; may be given often
        #[arg(long)]
        stream: Vec<String>,
        /// Call this address
        #[arg(long, value_name = "URL", conflicts_with = "wake_stream")]
        #[arg(required_unless_present = "wake_stream")]
        webhook: Option<String>,
        /// Write wakes into this stream; workers claim them
        #[arg(long, value_name = "STREAM")]
        wake_stream: Option<String>,
        /// How long a worker may go without a heartbeat before its claim ends [default: 30s]
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        lease: Option<Duration>,
        /// A description
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
    },
    /// List all subscriptions
    List,
    /// Print a subscription: its streams, their acked offsets, and its worker
    Show {
        /// Its id
        id: String,
    },
    /// Delete a subscription; its worker is refused from then on
    Delete {
        /// Its id
        id: String,
    },
}

/// Runs the verb.
///
/// # Errors
/// The broker cannot be reached, or refuses.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, json: as_json, verb } = args;
    block_on(async {
        let http = &mut connect.connect().await?;
        match verb {
            Verb::Create { id, pattern, stream, webhook, wake_stream, lease, description } => {
                let mut body = json!({ "type": "pull-wake", "streams": stream });
                if let Some(url) = webhook {
                    body["type"] = "webhook".into();
                    body["webhook"] = json!({ "url": url });
                }
                let texts = [
                    ("pattern", pattern),
                    ("wake_stream", wake_stream),
                    ("description", description),
                ];
                for (name, text) in texts {
                    if let Some(text) = text {
                        body[name] = text.into();
                    }
                }
                if let Some(lease) = lease {
                    body["lease_ttl_ms"] =
                        json!(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX));
                }
                let headers = [("content-type", "application/json".to_owned())];
                let body = Bytes::from(body.to_string());
                let answer = http.ask("PUT", &path(&id), &headers, body).await?;
                if as_json {
                    return print_json(&body_json(&answer)?);
                }
                let outcome = if answer.status.as_u16() == 201 { "created" } else { "found" };
                print_to_stderr(&format!("{id}: {outcome}"));
                Ok(())
            }
            Verb::List => {
                let answer = http.ask("GET", ROOT, &[], Bytes::new()).await?;
                list(&body_json(&answer)?, as_json)
            }
            Verb::Show { id } => {
                let answer = http.ask("GET", &path(&id), &[], Bytes::new()).await?;
                show(&body_json(&answer)?, as_json)
            }
            Verb::Delete { id } => {
                // To delete what is not there is no error to the broker; to who mistypes it is one.
                http.ask("GET", &path(&id), &[], Bytes::new()).await?;
                http.ask("DELETE", &path(&id), &[], Bytes::new()).await?;
                if as_json {
                    return print_json(&json!({ "id": id, "outcome": "deleted" }));
                }
                print_to_stderr(&format!("{id}: deleted"));
                Ok(())
            }
        }
    })
}

/// The JSON of an answer.
fn body_json(answer: &Answer) -> Result<Value, Failure> {
    serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is no JSON: {error}")))
}

fn list(answer: &Value, as_json: bool) -> Result<(), Failure> {
    let all = answer["subscriptions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if as_json {
        return all.iter().try_for_each(print_json);
    }
    let columns = ["id", "type", "status", "generation", "streams", "pending"];
    let rows: Vec<_> =
        all.iter().map(|one| columns.map(|name| text(&one[name])).to_vec()).collect();
    print_table(&["ID", "TYPE", "STATUS", "GENERATION", "STREAMS", "PENDING"], &rows)
}

/// Prints a line for each setting, and one for each stream.
fn show(answer: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        return print_json(answer);
    }
    let named = ["id", "type", "status", "holder", "generation", "pattern", "wake_stream"];
    let mut rows: Vec<_> = named
        .iter()
        .filter(|name| !answer[**name].is_null())
        .map(|name| vec![(*name).to_owned(), text(&answer[*name])])
        .collect();
    if let Some(url) = answer["webhook"]["url"].as_str() {
        rows.push(vec!["webhook".to_owned(), url.to_owned()]);
    }
    for name in ["lease_ttl_ms", "description"] {
        if !answer[name].is_null() {
            rows.push(vec![name.to_owned(), text(&answer[name])]);
        }
    }
    for stream in answer["streams"].as_array().into_iter().flatten() {
        let (acked, tail) = (text(&stream["acked_offset"]), text(&stream["tail_offset"]));
        let said = format!("acked {acked} of {tail}, {}", text(&stream["link_type"]));
        rows.push(vec![format!("stream {}", text(&stream["path"])), said]);
    }
    print_table(&["SETTING", "VALUE"], &rows)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The path of a subscription; other characters are written as `%XX`.
fn path(id: &str) -> String {
    let mut path = format!("{ROOT}/");
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~:".contains(&byte) {
            path.push(char::from(byte));
        } else {
            path += &format!("%{byte:02X}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_becomes_one_segment() {
        assert_eq!(path("a-b:1"), format!("{ROOT}/a-b:1"));
        assert_eq!(path("a/b?"), format!("{ROOT}/a%2Fb%3F"));
    }
}
