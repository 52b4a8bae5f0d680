//! `sennit stream`: HTTP streams from the command line, over HTTP: create, fork, append to one or several, read,
//! tail, close, delete.

use std::io::{self, Read, Write};

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    connect_options::block_on,
    exit::{Exit, Failure},
    http::{Answer, ConnectOptions, Http, RetryTimer},
    output::{ignore_broken_pipe, print_json, print_to_stderr},
    quantity::duration,
    stdout_closed::stdout_closed,
    time_argument::{self, future},
};

const EXAMPLES: &str = "\
Examples:
  sennit stream create notes --content-type text/plain
  echo 'a line' | sennit stream append notes
  sennit stream append notes --close 'the last line'
  sennit stream read notes
  sennit stream tail notes --from now
  sennit stream fork notes draft
  curl http://127.0.0.1:4437/v1/stream/notes    is the same, without this program

read and tail try a broker that is lost again for a minute, and go on where they were; then the
exit code is 6.";

/// The path of atomic appends.
const ATOMIC: &str = "/v1/atomic";

/// The prefix of a stream's path.
const ROOT: &str = "/v1/stream/";

/// The arguments of `sennit stream`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print the result as a JSON object
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a stream; an existing stream with the same settings is left as it is
    Create {
        /// Its name, or its path behind /v1/stream/
        stream: String,
        /// The type of its content; of application/json each element is a message
        #[arg(long, value_name = "TYPE", default_value = "application/octet-stream")]
        content_type: String,
        #[command(flatten)]
        settings: Settings,
        /// Create it closed: nothing can be appended
        #[arg(long)]
        closed: bool,
    },
    /// Create a stream that begins with the content of another, without copying it
    Fork {
        /// The source
        source: String,
        /// Its name
        stream: String,
        /// The offset at which it leaves its source, as returned by the broker [default: the end]
        #[arg(long, value_name = "OFFSET")]
        at: Option<String>,
        /// The number of bytes, or of messages of JSON, of the append at that offset that belong to
        /// it too
        #[arg(long, value_name = "N", requires = "at")]
        behind: Option<u64>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Append the body, or standard input, as one append
    Append {
        /// The stream's name
        stream: String,
        /// The body; by default all of standard input
        body: Option<String>,
        /// Close the stream with the append: nothing can follow
        #[arg(long)]
        close: bool,
        /// Refuse the append unless this text is greater than that of the append before
        #[arg(long, value_name = "TEXT")]
        sequence: Option<String>,
    },
    /// Append to several streams of one group at once: to all of them, or to none
    AppendAll {
        /// A file of JSON lines, each an append: {"stream", "body", "content_type", …}; - is standard
        /// input
        #[arg(value_name = "FILE")]
        file: String,
    },
    /// Print the content of a stream, and end
    Read {
        /// The stream's name
        stream: String,
        /// Where to begin: -1, now, or an offset from the broker
        #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
        from: String,
    },
    /// Print the content of a stream and new appends, until it is closed
    Tail {
        /// The stream's name
        stream: String,
        /// Where to begin: -1, now, or an offset from the broker
        #[arg(long, value_name = "OFFSET", default_value = "-1", allow_hyphen_values = true)]
        from: String,
    },
    /// Print the description of a stream
    Show {
        /// The stream's name
        stream: String,
    },
    /// Close a stream: it stays, and nothing can be appended
    Close {
        /// The stream's name
        stream: String,
    },
    /// Delete a stream; content that its forks need stays
    Delete {
        /// The stream's name
        stream: String,
    },
}

#[derive(Debug, clap::Args)]
struct Settings {
    /// Delete it after this time without use, in whole seconds
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    #[arg(conflicts_with = "expires_at")]
    ttl: Option<u64>,
    /// Delete it at this time: 2030-01-31 or 2030-01-31T12:00 (both UTC), or after a time: 7d
    #[arg(long, value_name = "TIME", value_parser = future)]
    expires_at: Option<u64>,
    /// Its storage: memory, file-fast, file-durable, acid [default: the broker's]
    #[arg(long, value_name = "MODE")]
    storage: Option<String>,
    /// Its stream group: streams of one group with storage acid can be appended to atomically
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

impl Settings {
    fn headers(self) -> Vec<(&'static str, String)> {
        let Self { ttl, expires_at, storage, group } = self;
        let ttl = ttl.map(|seconds| ("stream-ttl", seconds.to_string()));
        let expires_at = expires_at.map(|at_ms| ("stream-expires-at", time_argument::show(at_ms)));
        let storage = storage.map(|mode| ("stream-storage", mode));
        let group = group.map(|name| ("stream-group", name));
        ttl.into_iter().chain(expires_at).chain(storage).chain(group).collect()
    }
}

/// A duration in whole seconds, at least one.
fn whole_seconds(text: &str) -> Result<u64, String> {
    let span = duration(text)?;
    if span.subsec_nanos() > 0 || span.is_zero() {
        return Err(format!("{text:?} is no whole number of seconds, one at least"));
    }
    Ok(span.as_secs())
}

/// Runs the verb.
///
/// # Errors
/// The broker cannot be reached, or refuses.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, json, verb } = args;
    block_on(async {
        let http = &mut connect.connect().await?;
        let nothing = Bytes::new;
        match verb {
            Verb::Create { stream, content_type, settings, closed } => {
                let mut headers = settings.headers();
                headers.push(("content-type", content_type));
                if closed {
                    headers.push(("stream-closed", "true".into()));
                }
                let answer = http.ask("PUT", &path(&stream), &headers, nothing()).await?;
                say(created(&answer), &stream, &answer, json)
            }
            Verb::Fork { source, stream, at, behind, settings } => {
                let mut headers = settings.headers();
                headers.push(("stream-forked-from", path(&source)));
                headers.extend(at.map(|at| ("stream-fork-offset", at)));
                headers.extend(behind.map(|behind| ("stream-fork-sub-offset", behind.to_string())));
                let answer = http.ask("PUT", &path(&stream), &headers, nothing()).await?;
                say(created(&answer), &stream, &answer, json)
            }
            Verb::Append { stream, body, close, sequence } => {
                let body = match body {
                    Some(body) => Bytes::from(body),
                    None => standard_input()?,
                };
                let path = path(&stream);
                let status = http.ask("HEAD", &path, &[], nothing()).await?;
                let mut headers = Vec::from_iter(
                    status.header("content-type").map(|text| ("content-type", text.to_owned())),
                );
                headers.extend(sequence.map(|text| ("stream-seq", text)));
                if close {
                    headers.push(("stream-closed", "true".into()));
                }
                let answer = http.ask("POST", &path, &headers, body).await?;
                say("appended to", &stream, &answer, json)
            }
            Verb::AppendAll { file } => {
                let answer = http.ask("POST", ATOMIC, &[], appends(&file)?).await?;
                say_all(&answer, json)
            }
            Verb::Read { stream, from } => read(&connect, http, &stream, from, false, json).await,
            Verb::Tail { stream, from } => tokio::select! {
                ended = read(&connect, http, &stream, from, true, json) => ended,
                () = stdout_closed() => Ok(()),
            },
            Verb::Show { stream } => {
                let answer = http.ask("HEAD", &path(&stream), &[], nothing()).await?;
                show(&stream, &answer, json)
            }
            Verb::Close { stream } => {
                let headers = [("stream-closed", "true".to_owned())];
                let answer = http.ask("POST", &path(&stream), &headers, nothing()).await?;
                say("closed", &stream, &answer, json)
            }
            Verb::Delete { stream } => {
                let answer = http.ask("DELETE", &path(&stream), &[], nothing()).await?;
                say("deleted", &stream, &answer, json)
            }
        }
    })
}

fn created(answer: &Answer) -> &'static str {
    if answer.status.as_u16() == 201 { "created" } else { "found" }
}

fn standard_input() -> Result<Bytes, Failure> {
    let mut body = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut body);
    read.map_err(|error| Failure::from(error).about("standard input"))?;
    Ok(body.into())
}

/// The request for the lines of a file.
fn appends(file: &str) -> Result<Bytes, Failure> {
    let text = match file {
        "-" => standard_input()?,
        file => std::fs::read(file).map_err(|error| Failure::from(error).about(file))?.into(),
    };
    let mut appends = b"{\"appends\":[".to_vec();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed: Result<Value, _> = serde_json::from_slice(line);
        parsed.map_err(|error| {
            Failure::new(Exit::Usage, format!("line {}: no JSON: {error}", at + 1))
        })?;
        if appends.last() != Some(&b'[') {
            appends.push(b',');
        }
        // As it was written.
        appends.extend_from_slice(line);
    }
    appends.extend_from_slice(b"]}");
    Ok(appends.into())
}

/// Prints the results of several appends.
fn say_all(answer: &Answer, as_json: bool) -> Result<(), Failure> {
    let said: Value = serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is no JSON: {error}")))?;
    if as_json {
        return print_json(&said);
    }
    for append in said["appends"].as_array().into_iter().flatten() {
        let word = |name: &str| append[name].as_str().unwrap_or_default().to_owned();
        let again = if append["duplicate"] == true { ", as it was before" } else { "" };
        let closed = if append["closed"] == true { " and is closed" } else { "" };
        let (stream, next) = (word("stream"), word("next_offset"));
        print_to_stderr(&format!("appended to {stream}, it ends at {next}{closed}{again}"));
    }
    Ok(())
}

/// Prints the content of a stream from `from`; if it `stays`, also new appends. A lost broker is
/// tried again, and the read continues at its position.
async fn read(
    connect: &ConnectOptions,
    http: &mut Http,
    stream: &str,
    mut from: String,
    stays: bool,
    json: bool,
) -> Result<(), Failure> {
    let mut cursor: Option<String> = None;
    let mut patience = RetryTimer::default();
    loop {
        let mut address = format!("{}?offset={from}", path(stream));
        if stays {
            address += "&live=long-poll";
        }
        if let Some(cursor) = &cursor {
            address += &format!("&cursor={cursor}");
        }
        // Whole before it is printed: of an answer that breaks off nobody knows where to go on.
        let answer = match http.ask("GET", &address, &[], Bytes::new()).await {
            Ok(answer) => answer,
            Err(failure) => {
                patience.wait(failure).await?;
                // As long as nobody is there, the next request fails and is waited for again.
                if let Ok(again) = connect.connect().await {
                    *http = again;
                }
                continue;
            }
        };
        patience = RetryTimer::default();
        let mut out = io::stdout().lock();
        match out.write_all(&answer.body).and_then(|()| out.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => ignore_broken_pipe(written)?,
        }
        let next = answer.header("stream-next-offset");
        let next = next.ok_or_else(|| {
            Failure::new(Exit::Failed, "the answer says no offset: is this a broker's HTTP port?")
        })?;
        let is_closed = answer.header("stream-closed").is_some();
        let is_at_end = !stays && answer.header("stream-up-to-date").is_some();
        cursor = answer.header("stream-cursor").map(str::to_owned);
        if is_closed || is_at_end {
            if json {
                let told = json!({ "stream": stream, "next_offset": next, "closed": is_closed });
                print_to_stderr(&told.to_string());
            }
            return Ok(());
        }
        from = next.to_owned();
    }
}

fn show(stream: &str, answer: &Answer, json: bool) -> Result<(), Failure> {
    let told = json!({
        "stream": stream,
        "content_type": answer.header("content-type"),
        "next_offset": answer.header("stream-next-offset"),
        "closed": answer.header("stream-closed").is_some(),
        "ttl_seconds": answer.header("stream-ttl").and_then(|text| text.parse::<u64>().ok()),
        "expires_at": answer.header("stream-expires-at"),
        "group": answer.header("stream-group"),
        "storage": answer.header("stream-storage"),
    });
    if json {
        return print_json(&told);
    }
    let rows: Vec<Vec<String>> = told
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            vec![name.clone(), text]
        })
        .collect();
    crate::output::print_table(&["SETTING", "VALUE"], &rows)
}

/// Prints the result of a request.
fn say(what: &str, stream: &str, answer: &Answer, json: bool) -> Result<(), Failure> {
    let next = answer.header("stream-next-offset");
    let is_closed = answer.header("stream-closed").is_some();
    if json {
        let verb = what.split(' ').next();
        return print_json(&json!({
            "stream": stream,
            "done": verb,
            "next_offset": next,
            "closed": is_closed,
        }));
    }
    let next = next.map(|next| format!(", it ends at {next}")).unwrap_or_default();
    let closed = if is_closed && what != "closed" { " and is closed" } else { "" };
    print_to_stderr(&format!("{what} {stream}{next}{closed}"));
    Ok(())
}

/// The path of a stream; other characters are written as `%XX`.
fn path(stream: &str) -> String {
    let stream = stream.strip_prefix(ROOT).unwrap_or(stream);
    let mut path = ROOT.to_owned();
    for byte in stream.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/%".contains(&byte) {
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
    fn a_time_to_live_is_seconds_and_no_part_of_one() {
        assert_eq!(whole_seconds("1h30m"), Ok(5400));
        for text in ["500ms", "1s500ms", "0s", "soon"] {
            assert!(whole_seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_becomes_a_path() {
        assert_eq!(path("notes/2026"), "/v1/stream/notes/2026");
        assert_eq!(path("/v1/stream/notes"), "/v1/stream/notes");
        assert_eq!(path("a b?c#d&ä"), "/v1/stream/a%20b%3Fc%23d%26%C3%A4");
        assert_eq!(path("a%20b"), "/v1/stream/a%20b");
    }
}
