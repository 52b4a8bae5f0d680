//! What a Rust program does with a broker; conformance/README.md says the steps. No client is on crates.io (the
//! official one is not published, and `durable-streams` there is a server), so this is what a user has
//! instead: the HTTP client that the official one is built on, and a parser of server-sent events.

use std::{cell::RefCell, env, error::Error, process, rc::Rc, time::Duration};

use eventsource_stream::Eventsource;
use futures_util::StreamExt;
use reqwest::{
    Client, Response, StatusCode,
    header::{AUTHORIZATION, HeaderMap, HeaderValue},
};
use serde_json::{Value, json};
use tokio::{io::AsyncBufReadExt, task::LocalSet, time};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

const FIRST: usize = 20;
const TAILED: usize = 5;
const AFTER: usize = 10;
const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

fn message(n: usize) -> Value {
    json!({ "n": n, "text": format!("message {n} ✓") })
}

fn chunk(n: usize) -> Vec<u8> {
    (0..1000 + n).map(|index| (index * 7 + n) as u8).collect()
}

fn step(name: &str) {
    println!("step {name}");
}

fn next_offset(response: &Response) -> Result<String> {
    let offset = response.headers().get("stream-next-offset").ok_or("no Stream-Next-Offset")?;
    Ok(offset.to_str()?.to_owned())
}

fn ensure(holds: bool, what: impl Into<String>) -> Result<()> {
    if holds { Ok(()) } else { Err(what.into().into()) }
}

/// A stream and who appends to it: with an epoch and a sequence, so that it may repeat what was not
/// answered.
struct Writer {
    http: Client,
    url: String,
    content_type: &'static str,
    sequence: RefCell<u64>,
}

impl Writer {
    async fn create(http: &Client, url: String, content_type: &'static str) -> Result<Self> {
        let made = http.put(&url).header("content-type", content_type).send().await?;
        ensure(made.status() == StatusCode::CREATED, format!("create: {}", made.status()))?;
        Ok(Self { http: http.clone(), url, content_type, sequence: RefCell::new(0) })
    }

    async fn append(&self, body: Vec<u8>, closes: bool) -> Result<StatusCode> {
        let sequence = self.sequence.replace_with(|sequence| *sequence + 1);
        loop {
            let request = self.http.post(&self.url).header("content-type", self.content_type);
            let request = request.header("producer-id", "rust").header("producer-epoch", "0");
            let mut request = request.header("producer-seq", sequence).body(body.clone());
            if closes {
                request = request.header("stream-closed", "true");
            }
            match request.send().await {
                Ok(answer) if !is_later(&answer) => return Ok(answer.status()),
                _ => time::sleep(PAUSE).await,
            }
        }
    }

    async fn read(&self, offset: &str, live: Option<&str>) -> reqwest::Result<Response> {
        let mut query = vec![("offset", offset)];
        query.extend(live.map(|live| ("live", live)));
        self.http.get(&self.url).query(&query).send().await
    }
}

/// Whether it is only to be asked again: a broker that recovers says so.
fn is_later(answer: &Response) -> bool {
    answer.status() == StatusCode::SERVICE_UNAVAILABLE
}

/// What has come of a stream that is followed from its start.
#[derive(Default)]
struct Followed {
    items: RefCell<Vec<Value>>,
    bytes: RefCell<Vec<u8>>,
    closed: RefCell<bool>,
}

/// By server-sent events, begun again at the last offset whenever the connection breaks.
async fn follow_events(writer: Rc<Writer>, followed: Rc<Followed>) -> Result<()> {
    let mut offset = "-1".to_owned();
    while !*followed.closed.borrow() {
        time::sleep(PAUSE).await;
        let Ok(answer) = writer.read(&offset, Some("sse")).await else { continue };
        if is_later(&answer) {
            continue;
        }
        ensure(answer.status() == StatusCode::OK, format!("sse: {}", answer.status()))?;
        let mut events = answer.bytes_stream().eventsource();
        let mut data = Vec::new();
        while let Some(Ok(event)) = events.next().await {
            if event.event == "data" {
                data.extend(serde_json::from_str::<Vec<Value>>(&event.data)?);
                continue;
            }
            // What came counts once its offset is known.
            let control: Value = serde_json::from_str(&event.data)?;
            offset = control["streamNextOffset"].as_str().ok_or("no streamNextOffset")?.to_owned();
            followed.items.borrow_mut().append(&mut data);
            *followed.closed.borrow_mut() = control["streamClosed"] == true;
        }
    }
    Ok(())
}

/// By long-polls, repeated at the same offset whenever one breaks.
async fn follow_polls(writer: Rc<Writer>, followed: Rc<Followed>) -> Result<()> {
    let mut offset = "-1".to_owned();
    while !*followed.closed.borrow() {
        let answer = match writer.read(&offset, Some("long-poll")).await {
            Ok(answer) if !is_later(&answer) => answer,
            _ => {
                time::sleep(PAUSE).await;
                continue;
            }
        };
        ensure(answer.status().is_success(), format!("long-poll: {}", answer.status()))?;
        let (next, closed) = (next_offset(&answer)?, answer.headers().contains_key("stream-closed"));
        let Ok(bytes) = answer.bytes().await else { continue };
        offset = next;
        followed.bytes.borrow_mut().extend_from_slice(&bytes);
        *followed.closed.borrow_mut() = closed;
    }
    Ok(())
}

/// What each request shows: the key, if there is one.
fn credentials() -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    if let Ok(key) = env::var("CONFORMANCE_KEY") {
        let mut shown = HeaderValue::try_from(format!("Bearer {key}"))?;
        shown.set_sensitive(true);
        headers.insert(AUTHORIZATION, shown);
    }
    Ok(headers)
}

async fn run(base: String) -> Result<()> {
    let http = Client::builder().default_headers(credentials()?).build()?;
    let messages = Rc::new(Writer::create(&http, format!("{base}/json"), "application/json").await?);
    let octets =
        Rc::new(Writer::create(&http, format!("{base}/bytes"), "application/octet-stream").await?);
    step("create");

    let mut sent = 0;
    let append = async |from: usize, count: usize, closes: bool| -> Result<usize> {
        for n in from..from + count {
            for (writer, body) in [(&messages, message(n).to_string().into()), (&octets, chunk(n))] {
                let status = writer.append(body, closes).await?;
                ensure(status.is_success(), format!("append {n}: {status}"))?;
            }
        }
        Ok(from + count)
    };
    let whole = |count: usize| (0..count).flat_map(chunk).collect::<Vec<_>>();
    let all = |count: usize| (0..count).map(message).collect::<Vec<_>>();
    sent = append(sent, FIRST, false).await?;
    step("append");

    let read: Vec<Value> = messages.read("-1", None).await?.json().await?;
    ensure(read == all(sent), "json: other than was appended")?;
    let read = octets.read("-1", None).await?.bytes().await?;
    ensure(read == whole(sent), "bytes: other than was appended")?;
    step("read");

    let (events, polls) = (Rc::new(Followed::default()), Rc::new(Followed::default()));
    let followers = [
        tokio::task::spawn_local(follow_events(Rc::clone(&messages), Rc::clone(&events))),
        tokio::task::spawn_local(follow_polls(Rc::clone(&octets), Rc::clone(&polls))),
    ];
    let tailed = async |sent: usize| -> Result<()> {
        let (all, whole) = (all(sent), whole(sent));
        let until = time::Instant::now() + DEADLINE;
        while events.items.borrow().len() < all.len() || polls.bytes.borrow().len() < whole.len() {
            let (items, bytes) = (events.items.borrow().len(), polls.bytes.borrow().len());
            let lack = format!("{items} of {sent} messages, {bytes} of {} bytes", whole.len());
            ensure(time::Instant::now() < until, format!("only {lack} have come"))?;
            time::sleep(PAUSE).await;
        }
        ensure(*events.items.borrow() == all, "the tail of json: other than was appended")?;
        ensure(*polls.bytes.borrow() == whole, "the tail of bytes: other than was appended")
    };
    tailed(sent).await?;
    sent = append(sent, TAILED, false).await?;
    tailed(sent).await?;
    step("tail");

    println!("kill");
    tokio::io::BufReader::new(tokio::io::stdin()).read_line(&mut String::new()).await?;
    sent = append(sent, AFTER, false).await?;
    tailed(sent).await?;
    step("restart");

    sent = append(sent, 1, true).await?;
    for follower in followers {
        time::timeout(DEADLINE, follower).await???;
    }
    tailed(sent).await?;
    let status = messages.append(message(sent).to_string().into(), false).await?;
    ensure(status == StatusCode::CONFLICT, format!("an append to a closed stream: {status}"))?;
    step("close");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = env::args().nth(1).ok_or("which server?")?;
    let base = format!("{url}/v1/stream/clients/rust-{}", process::id());
    LocalSet::new().run_until(run(base)).await
}
