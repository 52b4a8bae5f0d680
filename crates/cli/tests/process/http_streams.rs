//! HTTP streams while the broker is killed again and again: answered appends exist once and in order, closed
//! streams stay closed, deleted ones stay deleted, and a fork has the content of its source.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    asking::{self, Answer},
    broker::Broker,
    torture::kills,
};

/// How long a request that was not answered waits before it is sent again.
const AGAIN: Duration = Duration::from_millis(10);

/// How long a request may go unanswered, with the broker killed meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a request until it is answered; says how often it was sent.
pub fn ask(
    broker: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (Answer, u32) {
    let begun = Instant::now();
    let mut tries = 0;
    loop {
        tries += 1;
        // What says 503 says to come again.
        let answer = asking::ask(broker, method, path, headers, body);
        if let Some(answer) = answer.filter(|answer| answer.status != 503) {
            return (answer, tries);
        }
        assert!(begun.elapsed() < PATIENCE, "{method} {path} is not answered, {tries} times");
        thread::sleep(AGAIN);
    }
}

const JSON: (&str, &str) = ("content-type", "application/json");

/// What a stream has to be once all is over.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It holds these numbers.
    Holds { count: u64, is_closed: bool },
    /// It is gone.
    Gone,
    /// It is deleted, and there for its forks.
    Deleted,
}

/// Appends a number to a stream, once however often it is sent.
fn append(broker: &str, path: &str, number: u64, sequence: u64, closes: bool) {
    let sequence = sequence.to_string();
    let mut headers = vec![
        JSON,
        ("producer-id", "writer"),
        ("producer-epoch", "0"),
        ("producer-seq", sequence.as_str()),
    ];
    if closes {
        headers.push(("stream-closed", "true"));
    }
    let (answer, tries) = ask(broker, "POST", path, &headers, &format!("[{number}]"));
    let is_right = answer.status == 200 || answer.status == 204 && tries > 1;
    assert!(is_right, "{path} {number}: {} after {tries}", answer.head);
}

/// Makes streams until told to stop; says what became of each.
fn work(broker: &str, worker: u64, stop: &AtomicBool) -> Vec<(String, Fate)> {
    let mut fates = Vec::new();
    for round in 0_u64.. {
        if stop.load(Relaxed) {
            break;
        }
        let path = format!("w{worker}/s{round}");
        let (created, tries) = ask(broker, "PUT", &path, &[JSON], "");
        let is_right = created.status == 201 || created.status == 200 && tries > 1;
        assert!(is_right, "{path}: {} after {tries}", created.head);
        let count = 1 + round % 7;
        let closes = round % 3 == 0;
        for number in 0..count {
            append(broker, &path, number, number, closes && number + 1 == count);
        }
        let mut fate = Fate::Holds { count, is_closed: closes };
        let forks = round % 4 == 1;
        if forks {
            let fork = format!("w{worker}/f{round}");
            let from = format!("/v1/stream/{path}");
            let of = [JSON, ("stream-forked-from", from.as_str())];
            let (forked, _) = ask(broker, "PUT", &fork, &of, "");
            assert!(matches!(forked.status, 200 | 201), "{fork}: {}", forked.head);
            append(broker, &fork, count, 0, false);
            append(broker, &fork, count + 1, 1, false);
            fates.push((fork, Fate::Holds { count: count + 2, is_closed: false }));
        }
        if round % 5 == 1 {
            let (deleted, tries) = ask(broker, "DELETE", &path, &[], "");
            let is_again = tries > 1 && matches!(deleted.status, 404 | 410);
            assert!(deleted.status == 204 || is_again, "{path}: {}", deleted.head);
            fate = if forks { Fate::Deleted } else { Fate::Gone };
        }
        fates.push((path, fate));
    }
    fates
}

/// What a stream is.
fn fate_of(broker: &str, path: &str) -> Fate {
    let (mut numbers, mut at) = (Vec::new(), "-1".to_owned());
    loop {
        let (answer, _) = ask(broker, "GET", &format!("{path}?offset={at}"), &[], "");
        match answer.status {
            404 => return Fate::Gone,
            410 => return Fate::Deleted,
            status => assert_eq!(status, 200, "{path}: {}", answer.head),
        }
        let part: Vec<Value> = serde_json::from_slice(&answer.body).unwrap();
        numbers.extend(part.iter().map(|number| number.as_u64().unwrap()));
        answer.header("stream-next-offset").unwrap().clone_into(&mut at);
        if answer.header("stream-up-to-date").is_some() {
            let count = numbers.len() as u64;
            assert_eq!(numbers, (0..count).collect::<Vec<_>>(), "{path}");
            return Fate::Holds { count, is_closed: answer.header("stream-closed").is_some() };
        }
    }
}

#[test]
fn what_was_answered_over_http_is_so_after_the_broker_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let (address, stop) = (broker.http.clone(), stop.clone());
            thread::spawn(move || work(&address, worker, &stop))
        })
        .collect();
    let mut count = 0;
    for _ in kills(5) {
        thread::sleep(Duration::from_millis(700));
        broker.kill();
        broker.start_again();
        count += 1;
    }
    thread::sleep(Duration::from_millis(300));
    stop.store(true, Relaxed);
    let fates: Vec<_> =
        workers.into_iter().flat_map(|worker| worker.join().expect("it was answered")).collect();
    // Once more, so that what is found is what lies on the disk.
    broker.kill();
    broker.start_again();
    assert!(fates.len() > 40, "{} streams", fates.len());
    for (path, fate) in &fates {
        assert_eq!(fate_of(&broker.http, path), *fate, "{path}");
    }
    eprintln!("{count} kills, {} streams", fates.len());
}
