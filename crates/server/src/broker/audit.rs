//! The audit: who did, or tried, which administrative act. Acts of all cores gather on the first one, in order, until they
//! are kept. It knows no stream and no protocol.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt::Display,
    rc::Rc,
};

use sennit_model::Timestamp;
use serde::Serialize;
use tokio::sync::Notify;

use crate::{
    identity::principal::Principal,
    runtime::{
        clock::now,
        core::Cores,
        inbox::{self, Message},
        index::CoreIndex,
    },
};

/// Most acts that wait for the disk. Those beyond it are counted.
const WAITING_MAX: usize = 16_384;

/// An act, as it is kept: a line of JSON.
#[derive(Debug, Serialize)]
struct Act<'a> {
    at_ms: u64,
    /// The principal.
    who: &'a str,
    /// What was done.
    act: &'a str,
    /// The topic, key, user or the like that it was done to.
    to: &'a str,
    /// `done`, or the reason why it was refused.
    outcome: &'a str,
}

/// The acts that wait to be kept, on the first core.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    waiting: RefCell<VecDeque<Vec<u8>>>,
    /// Acts that were left out since the last one that was taken.
    left_out: Cell<u64>,
    has_more: Notify,
}

/// Notes that a principal has done something, or was refused. Nothing is noted as long as nobody is asked who they are.
pub(crate) fn note<T, E: Display>(
    cores: &Cores,
    principal: &Principal,
    act: &'static str,
    to: impl Into<String>,
    outcome: &Result<T, E>,
) {
    note_to(&cores.inboxes[CoreIndex::FIRST], principal, act, to, outcome);
}

/// The same, for those who know the way to the first core alone.
pub(crate) fn note_to<T, E: Display>(
    first_core: &inbox::Sender,
    principal: &Principal,
    act: &'static str,
    to: impl Into<String>,
    outcome: &Result<T, E>,
) {
    if !principal.is_known() {
        return;
    }
    let (at, who, to) = (now(), principal.to_string(), to.into());
    let outcome = match outcome {
        Ok(_) => "done".to_owned(),
        Err(refusal) => refusal.to_string(),
    };
    let message = Message::call(move |audit: &Rc<Audit>| {
        audit.take(at, &who, act, &to, &outcome);
    });
    let _ = first_core.send(message);
}

impl Audit {
    fn take(&self, at: Timestamp, who: &str, act: &str, to: &str, outcome: &str) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            return self.left_out.set(self.left_out.get() + 1);
        }
        let left_out = self.left_out.take();
        if left_out > 0 {
            tracing::warn!(left_out, "acts are missing in the audit: the disk was too slow");
            let text = format!("{left_out} acts are missing: the disk was too slow");
            waiting.push_back(line(at, "broker", "audit", "", &text));
        }
        waiting.push_back(line(at, who, act, to, outcome));
        self.has_more.notify_one();
    }

    /// Waits until there are acts.
    pub(crate) async fn wait(&self) {
        while self.waiting.borrow().is_empty() {
            self.has_more.notified().await;
        }
    }

    /// Has acts taken, the oldest first, as long as `take` takes them.
    pub(crate) fn give(&self, mut take: impl FnMut(&[u8]) -> bool) {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|act| take(act)) {
            waiting.pop_front();
        }
    }
}

fn line(at: Timestamp, who: &str, act: &str, to: &str, outcome: &str) -> Vec<u8> {
    let act = Act { at_ms: at.0, who, act, to, outcome };
    // Texts and a number have a form in JSON.
    serde_json::to_vec(&act).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Timestamp = Timestamp(1_763_718_000_000);

    #[test]
    fn an_act_is_a_line_of_json_as_the_page_says() {
        let page = include_str!("../../../../docs/reference/identity.md");
        let line = line(AT, "key:0w3ge1r70w3g", "topic delete", "orders", "done");
        let line = String::from_utf8(line).expect("it is text");
        assert!(page.contains(&line), "docs/reference/identity.md has no {line}");
    }

    #[test]
    fn acts_beyond_the_limit_are_counted_and_told() {
        let audit = Audit::default();
        for _ in 0..WAITING_MAX + 5 {
            audit.take(AT, "user:ada", "topic create", "a", "done");
        }
        let mut count = 0;
        audit.give(|_| {
            count += 1;
            true
        });
        assert_eq!(count, WAITING_MAX);
        audit.take(AT, "user:ada", "topic create", "b", "done");
        let mut lines = Vec::new();
        audit.give(|act| {
            lines.push(String::from_utf8_lossy(act).into_owned());
            true
        });
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("5 acts are missing"), "{lines:?}");
    }
}
