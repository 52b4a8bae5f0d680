//! Tokens of an issuer at both doors: what they allow, and that each wrong one is refused alike.

use std::{sync::LazyLock, time::Duration};

use sennit_identity::{NewToken, SigningKey, SystemRandom};
use sennit_model::Timestamp;
use sennit_protocol::{
    ErrorCode, Reply, Request,
    control::{self, change_access::Change},
};
use sennit_server::{Config, TokenConfig};
use tempfile::TempDir;

use crate::{
    access::{changes, create_tenant, logged_in, saying},
    browser::Browser,
    http_streams::{TEXT, ask},
    world::{Broker, Peer, config},
};

static KEY: LazyLock<SigningKey> =
    LazyLock::new(|| SigningKey::from_secret(&[7; 32]).expect("a secret"));

/// A broker that takes tokens of an issuer, and asks everybody.
pub fn broker() -> (Broker, TempDir) {
    let folder = TempDir::new().unwrap();
    let broker =
        Broker::start(Config { tokens: settings(), init_admin: true, ..config(folder.path()) });
    (broker, folder)
}

/// The settings by which a broker takes the issuer's tokens.
pub fn settings() -> TokenConfig {
    TokenConfig {
        issuer: Some("https://issuer.example".into()),
        secret: Some(KEY.token_key().unwrap()),
        ..TokenConfig::default()
    }
}

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(u64::try_from(since.as_millis()).unwrap())
}

pub fn token(subject: &str, roles: &[&str], rights: &[&str]) -> NewToken {
    let boxed = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
    NewToken {
        subject: subject.into(),
        issuer: "https://issuer.example".into(),
        audience: "sennit".into(),
        lifetime: Duration::from_secs(600),
        roles: boxed(roles),
        rights: boxed(rights),
        ..NewToken::default()
    }
}

pub fn mint(token: &NewToken) -> String {
    token.mint(&KEY, now(), &SystemRandom::new()).unwrap().to_string()
}

fn code(peer: &mut Peer, request: &Request) -> Option<ErrorCode> {
    match peer.ask(request) {
        Reply::Error(error) => error.error_code(),
        _ => None,
    }
}

fn create(name: &str) -> Request {
    Request::CreateTopic(control::CreateTopic { name: name.into(), ..<_>::default() })
}

#[test]
fn a_token_may_what_its_claims_and_roles_say_over_both_doors() {
    let (broker, _folder) = broker();
    let text = mint(&token(
        "ada",
        &["viewer", "Not A Role"],
        &["create user.{sub}.>", "allow publish,read,create,describe user/{sub}/>"],
    ));
    let mut ada = logged_in(&broker, &text);
    assert_eq!(code(&mut ada, &create("user.ada.orders")), None);
    assert_eq!(code(&mut ada, &create("user.bob.orders")), Some(ErrorCode::Forbidden));
    assert_eq!(code(&mut ada, &create("orders")), Some(ErrorCode::Forbidden));
    let list = Request::ListTopics(control::ListTopics::default());
    assert_eq!(code(&mut ada, &list), None, "viewers may");
    let mut browser = Browser::of(&broker);
    let authorized = format!("Authorization: Bearer {text}\r\n{TEXT}");
    assert_eq!(ask(&mut browser, "PUT", "user/ada/notes", &authorized, "a").status, 201);
    assert_eq!(ask(&mut browser, "PUT", "user/bob/notes", &authorized, "a").status, 403);
    assert_eq!(ask(&mut browser, "PUT", "user/ada/other", TEXT, "a").status, 401);
}

#[test]
fn wrong_tokens_are_refused_alike_and_an_expired_one_is_told_so() {
    let (broker, _folder) = broker();
    let good = token("ada", &["admin"], &[]);
    let other_key = SigningKey::from_secret(&[8; 32]).unwrap();
    let forged = good.mint(&other_key, now(), &SystemRandom::new()).unwrap().to_string();
    let text = mint(&good);
    let (_, payload) = text.split_once('.').unwrap();
    let none = format!("eyJhbGciOiJub25lIn0.{payload}");
    let mut messages = Vec::new();
    for wrong in [
        forged,
        none,
        format!("{text}x"),
        text[..text.len() - 5].to_owned(),
        mint(&NewToken { audience: "other".into(), ..good.clone() }),
        mint(&NewToken { issuer: "https://evil.example".into(), ..good.clone() }),
        mint(&NewToken { lifetime: Duration::from_secs(90_000), ..good.clone() }),
        mint(&NewToken { not_before: Some(now().plus(Duration::from_secs(300))), ..good.clone() }),
        mint(&NewToken { tenant: Some("nobody".into()), ..good.clone() }),
        mint(&NewToken { rights: vec!["deny fly >".into()], ..good.clone() }),
        "sennit_0w3ge1r70w3g_5vhfc0vwa4ayatehfaqd1gbjf6s9my8jdmt2cy8fnj24mkfhyww3pwh7".to_owned(),
    ] {
        let hello = control::Hello { token: Some(wrong), ..<_>::default() };
        let error = saying(&broker, hello).error();
        assert_eq!(error.error_code(), Some(ErrorCode::Unauthorized));
        messages.push(error.message);
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
    let long_ago = Timestamp(now().0 - 3_600_000);
    let expired = good.mint(&KEY, long_ago, &SystemRandom::new()).unwrap().to_string();
    let hello = control::Hello { token: Some(expired), ..<_>::default() };
    assert_eq!(saying(&broker, hello).error().message, "the token has expired");
    logged_in(&broker, &text);
}

#[test]
fn a_token_of_a_tenant_stays_in_its_namespace() {
    let (broker, _folder) = broker();
    let mut admin = logged_in(&broker, broker.admin_key.as_deref().expect("an admin key"));
    let of_tenant = NewToken { tenant: Some("acme".into()), ..token("ada", &[], &["* >"]) };
    let create_tenant = changes(create_tenant("acme"));
    assert!(matches!(admin.ask(&create_tenant), Reply::AccessChanged(_)));
    let mut ada = logged_in(&broker, &mint(&of_tenant));
    assert_eq!(code(&mut ada, &create("acme.orders")), None);
    assert_eq!(code(&mut ada, &create("beta.orders")), Some(ErrorCode::Forbidden));
    // The tenant goes, and with it whoever belongs to it.
    let delete_tenant = changes(Change::DeleteTenant("acme".into()));
    assert!(matches!(admin.ask(&delete_tenant), Reply::AccessChanged(_)));
    ada.hears_the_end_with(ErrorCode::Unauthorized);
}

#[test]
fn a_connection_ends_when_its_token_expires() {
    let (broker, _folder) = broker();
    let short = NewToken { lifetime: Duration::from_secs(1), ..token("ada", &["viewer"], &[]) };
    // It was good for a second, and is within the leeway of clocks for two more.
    let at = Timestamp(now().0 - 28_000);
    let text = short.mint(&KEY, at, &SystemRandom::new()).unwrap().to_string();
    logged_in(&broker, &text).hears_the_end_with(ErrorCode::Unauthorized);
}
