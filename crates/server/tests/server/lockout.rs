//! Wrong passwords, from one address and from others: what a guesser is told, and that nobody else pays for it.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sennit_protocol::{
    ErrorCode, Reply, Request,
    control::{self, change_access::Change},
};

use crate::{
    access::Guarded,
    browser::Browser,
    http_streams::{TEXT, ask},
    stream::Dialing,
    world::{Broker, Peer},
};

const RIGHT: &str = "correct horse battery";
const HERE: [u8; 4] = [127, 0, 0, 7];
const THERE: [u8; 4] = [127, 0, 0, 8];

fn guarded() -> Guarded {
    let mut guarded = Guarded::start();
    for user in ["ada", "bob", "eve", "zoe"] {
        let rights = vec!["create,publish,read,describe >".to_owned()];
        let holder = Some(control::Holder { rights, ..<_>::default() });
        let (user, password) = (user.into(), RIGHT.into());
        guarded.change(Change::SetPassword(control::UserPassword { user, password, holder }));
    }
    guarded
}

/// A connection that has said Hello with this password, and has heard nothing yet.
fn shown(broker: &Broker, from: [u8; 4], user: &str, password: &str) -> Peer {
    let mut peer = broker.connect_by(&Dialing::from(from));
    peer.send_bytes(&sennit_protocol::Preface::BYTES);
    let (user, password) = (Some(user.into()), Some(password.into()));
    peer.send(&Request::Hello(control::Hello { user, password, ..<_>::default() }));
    peer
}

/// Guesses until the address is told to come again; the refusal, and the guesses before it, which nobody has waited for.
fn locked_out(broker: &Broker, user: &str) -> (control::Error, Vec<Peer>) {
    let mut guesses = Vec::new();
    for _ in 0..10 {
        // Many at once: one after the other would be as slow as they have to be.
        let mut guess = || {
            let number = guesses.len();
            guesses.push(shown(broker, HERE, user, &format!("a wrong password {number}")));
        };
        (0..20).for_each(|_| guess());
        let mut last = guesses.pop().expect("a guess");
        let error = last.error();
        if error.error_code() == Some(ErrorCode::TooManyLogins) {
            assert_eq!(last.next(), None);
            return (error, guesses);
        }
    }
    panic!("two hundred guesses are checked");
}

fn basic(user: &str, password: &str) -> String {
    let shown = STANDARD.encode(format!("{user}:{password}"));
    format!("Authorization: Basic {shown}\r\n{TEXT}")
}

#[test]
fn who_guesses_is_told_to_come_again_and_the_user_logs_in_from_elsewhere() {
    let mut guarded = guarded();
    let mut browser = Browser::by(&guarded.broker, &Dialing::from(HERE));
    // Where the asking took longer than the address has to wait, another user is guessed at.
    let mut users = ["ada", "bob", "eve"].into_iter();
    let (user, waiting) = loop {
        let user = users.next().expect("a machine that asks within two seconds");
        let (refused, waiting) = locked_out(&guarded.broker, user);
        let told_at = Instant::now();
        assert!(refused.retryable && refused.closes_connection, "{refused:?}");
        assert!((1..=2000).contains(&refused.retry_after_ms), "{refused:?}");
        // At this address even the right password is not looked at; over HTTP neither.
        let again = shown(&guarded.broker, HERE, user, RIGHT).next();
        let answer = ask(&mut browser, "PUT", "notes", &basic(user, RIGHT), "a");
        // The refusal was sent before it was heard.
        if 2 * told_at.elapsed() > Duration::from_millis(refused.retry_after_ms) {
            continue;
        }
        let Some((_, Reply::Error(again))) = again else { panic!("{again:?}") };
        assert_eq!(again.error_code(), Some(ErrorCode::TooManyLogins));
        assert_eq!(answer.status, 429, "{answer:?}");
        assert!(answer.body.contains("too_many_logins"), "{answer:?}");
        let after = answer.head.lines().find_map(|line| line.strip_prefix("retry-after: "));
        assert!((1..=2).contains(&after.unwrap().parse::<u64>().unwrap()), "{answer:?}");
        break (user, waiting);
    };
    // Others there, and the user elsewhere.
    let ok = |mut peer: Peer| {
        let (_, reply) = peer.next().expect("an answer");
        assert!(matches!(reply, Reply::HelloOk(_)), "{reply:?}");
    };
    ok(shown(&guarded.broker, HERE, "zoe", RIGHT));
    ok(shown(&guarded.broker, THERE, user, RIGHT));
    // What was right at this address before does not wait there, at both doors.
    let (_, more) = locked_out(&guarded.broker, "zoe");
    ok(shown(&guarded.broker, HERE, "zoe", RIGHT));
    assert_eq!(ask(&mut browser, "PUT", "notes", &basic("zoe", RIGHT), "a").status, 201);
    // Nor does a key.
    let key = guarded.key("", &["describe >"]);
    let hello = |token: &str| control::Hello { token: Some(token.into()), ..<_>::default() };
    let here = Dialing::from(HERE);
    guarded.broker.connect_by(&here).greeted_with(hello(&key.text));
    let metrics = metrics(&mut guarded);
    let count = |name: &str| {
        let lines = metrics.lines().filter(|line| line.starts_with(name));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>()
    };
    assert!(count("sennit_logins_locked_out_total") >= 3, "{metrics}");
    assert!(count("sennit_logins_refused_total") >= 5, "{metrics}");
    let codes = waiting.into_iter().chain(more).map(|mut peer| peer.error().error_code());
    let codes: Vec<_> = codes.collect();
    let count = |code| codes.iter().filter(|it| **it == Some(code)).count();
    let (checked, refused) = (count(ErrorCode::Unauthorized), count(ErrorCode::TooManyLogins));
    assert_eq!(checked + refused, codes.len(), "{codes:?}");
    assert!(checked >= 10, "those of two users that are answered at once: {codes:?}");
}

fn metrics(guarded: &mut Guarded) -> String {
    let key = guarded.admin_key.clone();
    let mut browser = Browser::of(&guarded.broker);
    browser.say(format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
    ));
    browser.hear(true).body
}

#[test]
fn wrong_keys_are_refused_as_often_as_they_come() {
    let mut guarded = guarded();
    let deleted = guarded.key("", &[]);
    guarded.change(Change::DeleteKey(deleted.id));
    for _ in 0..300 {
        let mut peer = guarded.broker.connect();
        peer.send_bytes(&sennit_protocol::Preface::BYTES);
        let token = Some(deleted.text.clone());
        peer.send(&Request::Hello(control::Hello { token, ..<_>::default() }));
        assert_eq!(peer.error().error_code(), Some(ErrorCode::Unauthorized));
    }
}

#[test]
fn a_user_who_is_created_anew_is_not_logged_in_by_the_password_before() {
    let mut guarded = guarded();
    let mut browser = Browser::of(&guarded.broker);
    assert_eq!(ask(&mut browser, "PUT", "notes", &basic("ada", RIGHT), "a").status, 201);
    guarded.change(Change::DeleteUser("ada".into()));
    let rights = vec!["create,publish,read,describe >".to_owned()];
    let holder = Some(control::Holder { rights, ..<_>::default() });
    let (user, password) = ("ada".into(), "another horse battery".into());
    guarded.change(Change::SetPassword(control::UserPassword { user, password, holder }));
    assert_eq!(ask(&mut browser, "PUT", "notes", &basic("ada", RIGHT), "a").status, 401);
    let new = basic("ada", "another horse battery");
    assert_eq!(ask(&mut browser, "PUT", "other", &new, "a").status, 201);
}
