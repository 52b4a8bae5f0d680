//! Streams that expire while the broker is killed again and again: a stream that was reported as gone stays gone,
//! and all others are whole.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;

use crate::{bounds::until, broker::Broker, http_streams::ask, torture::kills};

/// How far two looks at the clock may be apart: a request waits for the disk, and for a start.
const SLACK_MS: u64 = 400;
/// Streams that one worker has at a time, of those that end.
const WATCHED: usize = 12;

/// A stream, and when it is gone whatever happens.
struct Made {
    path: String,
    count: u64,
    ends_at_ms: Option<u64>,
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
    u64::try_from(now.as_millis()).expect("it is not so late")
}

/// A time as RFC 3339 has it (the days as in Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn rfc_3339(at_ms: u64) -> String {
    let (seconds, millis) = (at_ms / 1000, at_ms % 1000);
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Makes a stream that holds some numbers from the start: one that a time to live ends, one that ends
/// at a time, or one that stays.
fn make(broker: &str, worker: u64, round: u64) -> Made {
    let (path, count) = (format!("e{worker}/s{round}"), 1 + round % 5);
    let numbers = serde_json::to_string(&(0..count).collect::<Vec<_>>()).expect("numbers");
    let at_ms = now_ms() + 300 + round * 97 % 1_500;
    let at = rfc_3339(at_ms);
    let (header, ends_at_ms) = match round % 3 {
        0 => (("stream-ttl", "1"), None),
        1 => (("stream-expires-at", at.as_str()), Some(at_ms)),
        _ => (("stream-ttl", "3600"), None),
    };
    let headers = [("content-type", "application/json"), header];
    let (created, tries) = ask(broker, "PUT", &path, &headers, &numbers);
    // One that took as long as the stream was to live may find it gone, and make it anew.
    let is_right = created.status == 201 || created.status == 200 && tries > 1;
    assert!(is_right, "{path}: {} after {tries}", created.head);
    Made { path, count, ends_at_ms }
}

/// Whether a stream is there; if so it is whole. To look is no use of it, to read is.
fn is_there(broker: &str, made: &Made, reads: bool) -> bool {
    let Made { path, count, ends_at_ms } = made;
    let begun = now_ms();
    let (answer, _) = match reads {
        true => ask(broker, "GET", &format!("{path}?offset=-1"), &[], ""),
        false => ask(broker, "HEAD", path, &[], ""),
    };
    let is_there = match answer.status {
        200 => true,
        404 | 410 => false,
        _ => panic!("{path}: {}", answer.head),
    };
    if let Some(at) = ends_at_ms {
        assert!(!is_there || begun < at + SLACK_MS, "{path} was to be gone at {at}: {begun}");
        assert!(is_there || now_ms() + SLACK_MS > *at, "{path} was to be there until {at}");
    }
    if is_there && reads {
        let numbers: Vec<Value> = serde_json::from_slice(&answer.body).expect("JSON");
        let numbers: Vec<_> = numbers.iter().filter_map(Value::as_u64).collect();
        assert_eq!(numbers, (0..*count).collect::<Vec<_>>(), "{path}");
    }
    is_there
}

/// Makes streams and looks at them until told to stop; says which are gone, and which are to stay.
fn work(
    broker: &str,
    worker: u64,
    (stop, ended): (&AtomicBool, &AtomicU64),
) -> (Vec<Made>, Vec<Made>) {
    let (mut gone, mut stays): (Vec<Made>, Vec<Made>) = Default::default();
    let mut watched = VecDeque::new();
    let mut looks = 0_u64;
    for round in 0_u64.. {
        if stop.load(Relaxed) {
            break;
        }
        let made = make(broker, worker, round);
        match round % 3 {
            2 => stays.push(made),
            _ => watched.push_back(made),
        }
        while watched.len() > WATCHED {
            let made = watched.pop_front().expect("there are some");
            // A read is a use of the stream, so that it lives on: one that every look read would never end.
            looks += 1;
            if is_there(broker, &made, looks.is_multiple_of(7)) {
                watched.push_back(made);
                thread::sleep(Duration::from_millis(20));
            } else {
                ended.fetch_add(1, Relaxed);
                gone.push(made);
            }
        }
        // What was gone once is.
        let again = gone.len().saturating_sub(1 + round as usize % 4);
        if let Some(made) = gone.get(again) {
            assert!(!is_there(broker, made, false), "{} was gone", made.path);
        }
    }
    (gone, stays)
}

#[test]
fn a_stream_that_was_gone_stays_gone_however_often_the_broker_is_killed() {
    assert_eq!(rfc_3339(951_782_400_123), "2000-02-29T00:00:00.123Z");
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let (stop, ended) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut count = 0;
    let address = broker.http.clone();
    let fates = thread::scope(|scope| {
        let (address, told) = (address.as_str(), (&stop, &ended));
        let workers: Vec<_> =
            (0..4).map(|worker| scope.spawn(move || work(address, worker, told))).collect();
        for _ in kills(5) {
            // Killed while streams end: some were told to be gone just now.
            let seen = ended.load(Relaxed);
            until("streams end", || ended.load(Relaxed) > seen + 5);
            broker.kill();
            broker.start_again();
            count += 1;
        }
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Relaxed);
        let fates = workers.into_iter().map(|worker| worker.join().expect("all was as promised"));
        fates.collect::<Vec<_>>()
    });
    // Once more, so that what is found is what lies on the disk.
    broker.kill();
    broker.start_again();
    let (mut gone_count, mut stay_count) = (0, 0);
    for (gone, stays) in &fates {
        (gone_count, stay_count) = (gone_count + gone.len(), stay_count + stays.len());
        for made in gone {
            assert!(!is_there(&broker.http, made, false), "{} was gone", made.path);
        }
        for made in stays {
            assert!(is_there(&broker.http, made, true), "{} is to stay", made.path);
        }
    }
    assert!(gone_count > 10 && stay_count > 10, "{gone_count} gone, {stay_count} there");
    eprintln!("{count} kills, {gone_count} streams gone, {stay_count} there");
}
