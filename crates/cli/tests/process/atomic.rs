//! Atomic appends to several streams while the broker is killed again and again: the streams of a group never
//! differ, answered appends exist, and repeated ones count once.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use crate::{
    asking::{self, Answer},
    broker::Broker,
    torture::kills,
};

const NAMES: [&str; 3] = ["debit", "credit", "audit"];

/// Asks once; `None` if nobody answered, or was about to stop.
fn once(
    broker: &str,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Answer> {
    asking::ask_at(broker, method, target, headers, body).filter(|answer| answer.status != 503)
}

fn asked(broker: &str, method: &str, target: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    once(broker, method, target, headers, body).expect("a broker that runs answers")
}

/// The streams that one worker appends to.
struct Account {
    worker: u64,
    /// So many groups were answered.
    answered: u64,
}

impl Account {
    fn stream(&self, name: &str) -> String {
        format!("/v1/stream/w{}/{name}", self.worker)
    }

    fn create(&self, broker: &str) {
        let group = format!("w{}", self.worker);
        let headers = [
            ("content-type", "application/json"),
            ("stream-storage", "acid"),
            ("stream-group", group.as_str()),
        ];
        for name in NAMES {
            let created = asked(broker, "PUT", &self.stream(name), &headers, "");
            assert_eq!(created.status, 201, "{}", created.head);
        }
    }

    /// Appends the next number to all three; whether that was answered, and whether it was news.
    fn append(&mut self, broker: &str) -> Option<bool> {
        let number = self.answered;
        let appends: Vec<Value> = NAMES
            .iter()
            .map(|name| {
                json!({
                    "stream": self.stream(name),
                    "body": [number],
                    "content_type": "application/json",
                    "producer": { "id": "worker", "epoch": 0, "seq": number },
                })
            })
            .collect();
        let body = json!({ "appends": appends }).to_string();
        let answer = once(broker, "POST", "/v1/atomic", &[], &body)?;
        assert_eq!(answer.status, 200, "{}", answer.head);
        let said: Value = serde_json::from_slice(&answer.body).unwrap();
        let was_before: Vec<_> =
            (0..3).map(|at| said["appends"][at]["duplicate"].as_bool().unwrap()).collect();
        assert!(was_before.iter().all(|was| *was == was_before[0]), "{said}");
        self.answered += 1;
        Some(!was_before[0])
    }

    /// How many messages each stream has; each has them in order.
    fn counts(&self, broker: &str) -> [u64; 3] {
        NAMES.map(|name| {
            let (mut numbers, mut at) = (Vec::new(), "-1".to_owned());
            loop {
                let target = format!("{}?offset={at}", self.stream(name));
                let answer = asked(broker, "GET", &target, &[], "");
                assert_eq!(answer.status, 200, "{}", answer.head);
                let part: Vec<u64> = serde_json::from_slice(&answer.body).unwrap();
                numbers.extend(part);
                answer.header("stream-next-offset").unwrap().clone_into(&mut at);
                if answer.header("stream-up-to-date").is_some() {
                    let count = numbers.len() as u64;
                    assert!(numbers.iter().copied().eq(0..count), "{name}: {numbers:?}");
                    return count;
                }
            }
        })
    }
}

#[test]
fn after_each_kill_the_streams_of_a_group_hold_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let mut accounts: Vec<_> = (0..4).map(|worker| Account { worker, answered: 0 }).collect();
    accounts.iter().for_each(|account| account.create(&broker.http));
    let (mut count, mut sent_again) = (0, 0);
    for kill in kills(6) {
        let address = broker.http.clone();
        accounts = thread::scope(|scope| {
            let workers: Vec<_> = accounts
                .into_iter()
                .map(|mut account| {
                    let address = &address;
                    scope.spawn(move || {
                        while account.append(address).is_some() {}
                        account
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(200 + 37 * u64::from(kill % 7)));
            broker.kill();
            count += 1;
            workers.into_iter().map(|worker| worker.join().expect("it appended")).collect()
        });
        broker.start_again();
        for account in &mut accounts {
            let counts = account.counts(&broker.http);
            let [count, ..] = counts;
            assert_eq!(counts, [count; 3], "worker {} after kill {kill}", account.worker);
            let was_done = count == account.answered + 1;
            assert!(count == account.answered || was_done, "{count} of {}", account.answered);
            // The one that was not answered counts once, whatever became of it.
            let is_news = account.append(&broker.http).expect("a broker that runs answers");
            assert_eq!(is_news, !was_done);
            assert_eq!(account.counts(&broker.http), [account.answered; 3]);
            sent_again += u64::from(was_done);
        }
    }
    let answered: u64 = accounts.iter().map(|account| account.answered).sum();
    assert!(answered > 4 * count, "{answered} groups");
    eprintln!("{count} kills, {answered} groups, {sent_again} done and not answered");
}
