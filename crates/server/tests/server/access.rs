//! Who may do what, over real sockets: changes reach open connections before they are confirmed, and survive a restart.

use sennit_identity::limits::RIGHTS_MAX;
use sennit_protocol::{
    ErrorCode, Preface, Reply, Request,
    control::{self, change_access::Change},
};
use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    browser::Browser,
    http_streams::{TEXT, ask, next},
    world::{Broker, Peer, config, publish, texts_of, until},
};

/// A broker that asks for credentials, with a connection of its admin.
pub struct Guarded {
    pub broker: Broker,
    pub admin: Peer,
    pub admin_key: String,
    folder: TempDir,
}

/// A key: its id, and all of it.
#[derive(Clone, Debug)]
pub struct Key {
    pub id: String,
    pub text: String,
}

impl Guarded {
    pub fn start() -> Self {
        Self::start_with(|config| config)
    }

    /// The same with other settings.
    pub fn start_with(change: impl FnOnce(Config) -> Config) -> Self {
        let folder = TempDir::new().unwrap();
        let config = change(config(folder.path()));
        let broker = Broker::start(Config { init_admin: true, ..config });
        let admin_key = broker.admin_key.clone().expect("the first start makes an admin key");
        let admin = logged_in(&broker, &admin_key);
        Self { broker, admin, admin_key, folder }
    }

    /// The broker after a restart.
    pub fn restarted(self) -> Self {
        let Self { broker, admin_key, folder, .. } = self;
        broker.stop();
        let broker = Broker::start(Config { init_admin: true, ..config(folder.path()) });
        assert_eq!(broker.admin_key, None, "there is an admin");
        let admin = logged_in(&broker, &admin_key);
        Self { broker, admin, admin_key, folder }
    }

    pub fn change(&mut self, change: Change) -> control::AccessChanged {
        match self.admin.ask(&changes(change)) {
            Reply::AccessChanged(changed) => changed,
            other => panic!("{other:?}"),
        }
    }

    pub fn refused(&mut self, change: Change) -> (Option<ErrorCode>, String) {
        match self.admin.ask(&changes(change)) {
            Reply::Error(error) => (error.error_code(), error.message),
            other => panic!("{other:?}"),
        }
    }

    /// A new key with these rights, perhaps of a tenant.
    pub fn key(&mut self, tenant: &str, rights: &[&str]) -> Key {
        self.expiring_key(tenant, rights, None)
    }

    pub fn expiring_key(&mut self, tenant: &str, rights: &[&str], expires_ms: Option<u64>) -> Key {
        let rights = rights.iter().map(ToString::to_string).collect();
        let holder = control::Holder { tenant: tenant.into(), rights, ..<_>::default() };
        let key = control::NewKey { name: "test".into(), holder: Some(holder), expires_ms };
        let changed = self.change(Change::CreateKey(key));
        Key { id: changed.id, text: changed.key }
    }

    /// A connection with a new key that has these rights.
    pub fn connect(&mut self, rights: &[&str]) -> (Peer, Key) {
        let key = self.key("", rights);
        (logged_in(&self.broker, &key.text), key)
    }

    pub fn grant(&mut self, key: &Key, right: &str) {
        self.change(Change::Grant(grant(key, right)));
    }

    pub fn revoke(&mut self, key: &Key, right: &str) {
        self.change(Change::Revoke(grant(key, right)));
    }
}

pub fn grant(key: &Key, right: &str) -> control::Grant {
    let principal = control::PrincipalName { key_id: key.id.clone(), ..<_>::default() };
    control::Grant { principal: Some(principal), rights: vec![right.into()], ..<_>::default() }
}

pub fn create_tenant(tenant: &str) -> Change {
    Change::CreateTenant(control::TenantQuotas { tenant: tenant.into(), quotas: None })
}

pub fn changes(change: Change) -> Request {
    Request::ChangeAccess(control::ChangeAccess { change: Some(change) })
}

pub fn logged_in(broker: &Broker, key: &str) -> Peer {
    let hello = control::Hello { token: Some(key.into()), ..<_>::default() };
    broker.connect().greeted_with(hello).0
}

/// A connection that has said Hello with these words, whatever comes of it.
pub fn saying(broker: &Broker, hello: control::Hello) -> Peer {
    let mut peer = broker.connect();
    peer.send_bytes(&Preface::BYTES);
    peer.send(&Request::Hello(hello));
    peer
}

fn authorized(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n{TEXT}")
}

#[test]
fn a_broker_asks_nobody_until_the_first_key_which_is_an_admins() {
    let (broker, _folder) = Broker::fresh();
    let mut local = broker.greeted();
    local.create_topic("orders", 1);
    let key = |roles: &[&str], expires_ms| {
        let roles = roles.iter().map(ToString::to_string).collect();
        let holder = Some(control::Holder { roles, ..<_>::default() });
        changes(Change::CreateKey(control::NewKey { name: "first".into(), holder, expires_ms }))
    };
    for request in [key(&[], None), key(&["viewer"], None), key(&["admin"], Some(u64::MAX))] {
        match local.ask(&request) {
            Reply::Error(error) => {
                assert_eq!(error.error_code(), Some(ErrorCode::PrincipalConflict), "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    let other = broker.greeted();
    let Reply::AccessChanged(made) = local.ask(&key(&["admin"], None)) else { panic!() };
    assert!(made.key.starts_with("sennit_"));
    // Whoever made it is told, and then is asked as all others are.
    local.hears_the_end_with(ErrorCode::Unauthorized);
    other.hears_the_end_with(ErrorCode::Unauthorized);
    let hello = control::Hello::default();
    saying(&broker, hello).hears_the_end_with(ErrorCode::Unauthorized);
    let mut admin = logged_in(&broker, &made.key);
    admin.create_topic("bills", 1);
    broker.stop();
}

#[test]
fn credentials_that_do_not_count_are_refused_alike() {
    let mut guarded = Guarded::start();
    let good = guarded.key("", &["read >"]);
    let password = |user: &str, password: &str| control::Hello {
        user: Some(user.into()),
        password: Some(password.into()),
        ..<_>::default()
    };
    guarded.change(Change::SetPassword(control::UserPassword {
        user: "ada".into(),
        password: "correct horse battery".into(),
        holder: None,
    }));
    let key = |text: &str| control::Hello { token: Some(text.into()), ..<_>::default() };
    let deleted = guarded.key("", &[]);
    guarded.change(Change::DeleteKey(deleted.id));
    let (begin, secret) = good.text.rsplit_once('_').unwrap();
    let (other_id, _) = guarded.admin_key.rsplit_once('_').unwrap();
    let mut messages = Vec::new();
    for hello in [
        key(""),
        key("sennit_x"),
        key(&deleted.text),
        key(&format!("{other_id}_{secret}")),
        key(&format!("{begin}_{}", "0".repeat(secret.len()))),
        key(&format!("{}x", good.text)),
        password("ada", "wrong horse battery"),
        password("ada", ""),
        password("nobody", "correct horse battery"),
        password("not a name", "correct horse battery"),
    ] {
        let mut peer = saying(&guarded.broker, hello);
        let error = peer.error();
        assert_eq!(error.error_code(), Some(ErrorCode::Unauthorized));
        assert!(error.closes_connection);
        messages.push(error.message);
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "{messages:?}");
    guarded.broker.connect().greeted_with(password("ada", "correct horse battery"));
    logged_in(&guarded.broker, &good.text);
}

#[test]
fn a_key_that_is_deleted_ends_its_connections_and_what_comes_after_is_not_delivered() {
    let mut guarded = Guarded::start();
    let topic = guarded.admin.create_topic("orders", 1);
    let (mut consumer, key) = guarded.connect(&["consume,settle orders"]);
    consumer.subscribe("orders", 1, 100);
    guarded.admin.send(&Request::Publish(publish(topic, 0, 0, &["before"])));
    assert_eq!(consumer.deliveries(1).0, ["before"]);
    guarded.change(Change::DeleteKey(key.id));
    guarded.admin.send(&Request::Publish(publish(topic, 0, 1, &["after"])));
    guarded.admin.confirmed_up_to(2);
    consumer.hears_the_end_with(ErrorCode::Unauthorized);
}

#[test]
fn a_right_that_is_taken_ends_the_subscription_and_not_the_connection() {
    let mut guarded = Guarded::start();
    let topic = guarded.admin.create_topic("orders", 1);
    let (mut consumer, key) = guarded.connect(&["consume,settle orders", "describe >"]);
    consumer.subscribe("orders", 1, 100);
    guarded.revoke(&key, "consume,settle orders");
    guarded.admin.send(&Request::Publish(publish(topic, 0, 0, &["after"])));
    guarded.admin.confirmed_up_to(1);
    let ended = loop {
        match consumer.next().expect("the connection stays") {
            (_, Reply::SubscriptionEnded(ended)) => break ended,
            (_, Reply::Deliver(deliver)) => panic!("{:?}", texts_of(&deliver)),
            _ => {}
        }
    };
    assert_eq!(ErrorCode::of_number(ended.code), Some(ErrorCode::Forbidden));
    let list = control::ListTopics::default();
    assert!(matches!(consumer.ask(&Request::ListTopics(list)), Reply::TopicList(_)));
    // Whoever may consume gets it, and the number is free again.
    guarded.grant(&key, "consume orders");
    consumer.subscribe("orders", 1, 100);
    assert_eq!(consumer.deliveries(1).0, ["after"]);
}

#[test]
fn a_rotated_key_counts_as_long_as_it_was_said() {
    let mut guarded = Guarded::start();
    let (old, key) = guarded.connect(&["describe >"]);
    let rotate =
        |grace_ms| Change::RotateKey(control::KeyRotation { key_id: key.id.clone(), grace_ms });
    let second = guarded.change(rotate(3_600_000)).key;
    logged_in(&guarded.broker, &key.text);
    logged_in(&guarded.broker, &second);
    let third = guarded.change(rotate(0)).key;
    old.hears_the_end_with(ErrorCode::Unauthorized);
    let hello = control::Hello { token: Some(second), ..<_>::default() };
    saying(&guarded.broker, hello).hears_the_end_with(ErrorCode::Unauthorized);
    logged_in(&guarded.broker, &third);
    // An admin that rotates its own key is told the new one before the connection ends.
    let id = guarded.admin_key.split('_').nth(1).unwrap().to_owned();
    let own = control::KeyRotation { key_id: id, grace_ms: 0 };
    let new = guarded.change(Change::RotateKey(own)).key;
    logged_in(&guarded.broker, &new);
}

#[test]
fn changes_are_there_after_a_restart() {
    let mut guarded = Guarded::start();
    guarded.change(create_tenant("acme"));
    let role = control::RoleRights { role: "ops".into(), rights: vec!["rework >".into()] };
    guarded.change(Change::SetRole(role));
    let key = guarded.key("acme", &["publish >"]);
    let gone = guarded.key("", &["read >"]);
    guarded.change(Change::DeleteKey(gone.id.clone()));
    let mut guarded = guarded.restarted();
    logged_in(&guarded.broker, &key.text);
    let hello = control::Hello { token: Some(gone.text), ..<_>::default() };
    saying(&guarded.broker, hello).hears_the_end_with(ErrorCode::Unauthorized);
    let list = |kind: control::AccessKind| {
        Request::ListAccess(control::ListAccess { kind: kind.into(), ..<_>::default() })
    };
    let mut ids = |kind| match guarded.admin.ask(&list(kind)) {
        Reply::AccessList(list) => {
            list.entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(ids(control::AccessKind::Tenants), ["acme"]);
    assert_eq!(ids(control::AccessKind::Roles), ["admin", "operator", "ops", "viewer"]);
    assert_eq!(ids(control::AccessKind::Keys).len(), 2);
}

#[test]
fn nobody_takes_the_last_admin_away_or_what_is_in_use() {
    let mut guarded = Guarded::start();
    let id = guarded.admin_key.split('_').nth(1).unwrap().to_owned();
    let conflict = Some(ErrorCode::PrincipalConflict);
    assert_eq!(guarded.refused(Change::DeleteKey(id.clone())).0, conflict);
    let mut admin = grant(&Key { id, text: String::new() }, "read >");
    (admin.rights, admin.roles) = (Vec::new(), vec!["admin".into()]);
    assert_eq!(guarded.refused(Change::Revoke(admin)).0, conflict);
    guarded.change(create_tenant("acme"));
    guarded.key("acme", &[]);
    assert_eq!(guarded.refused(Change::DeleteTenant("acme".into())).0, conflict);
    assert_eq!(guarded.refused(create_tenant("acme")).0, conflict);
    assert_eq!(guarded.refused(Change::DeleteRole("viewer".into())).0, conflict);
    let unknown = Some(ErrorCode::UnknownPrincipal);
    assert_eq!(guarded.refused(Change::DeleteRole("none".into())).0, unknown);
    assert_eq!(guarded.refused(Change::DeleteUser("none".into())).0, unknown);
    let key = guarded.key("", &[]);
    let mut many = grant(&key, "read >");
    many.rights = (0..=RIGHTS_MAX).map(|n| format!("read a{n}")).collect();
    assert_eq!(guarded.refused(Change::Grant(many)).0, Some(ErrorCode::LimitReached));
    for right in ["fly >", "publish", "monitor >", "read a*"] {
        let (code, message) = guarded.refused(Change::Grant(grant(&key, right)));
        assert_eq!(code, Some(ErrorCode::InvalidRight), "{message}");
    }
}

#[test]
fn an_admin_of_a_tenant_manages_its_keys_and_sees_no_others() {
    let mut guarded = Guarded::start();
    for tenant in ["acme", "beta"] {
        guarded.change(create_tenant(tenant));
    }
    let other = guarded.key("beta", &["read >"]);
    let own = guarded.key("acme", &["* >", "identity"]);
    let mut tenant = logged_in(&guarded.broker, &own.text);
    let create = |tenant: &str| {
        let holder = control::Holder { tenant: tenant.into(), ..<_>::default() };
        changes(Change::CreateKey(control::NewKey {
            name: "k".into(),
            holder: Some(holder),
            expires_ms: None,
        }))
    };
    assert!(matches!(tenant.ask(&create("")), Reply::AccessChanged(_)));
    let mut code = |request: &Request| match tenant.ask(request) {
        Reply::Error(error) => error.error_code().unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(code(&create("beta")), ErrorCode::Forbidden);
    assert_eq!(code(&changes(Change::DeleteKey(other.id))), ErrorCode::UnknownPrincipal);
    assert_eq!(code(&changes(create_tenant("c"))), ErrorCode::Forbidden);
    let role = control::RoleRights { role: "r".into(), rights: Vec::new() };
    assert_eq!(code(&changes(Change::SetRole(role))), ErrorCode::Forbidden);
    let kind = control::AccessKind::Keys.into();
    match tenant.ask(&Request::ListAccess(control::ListAccess { kind, ..<_>::default() })) {
        Reply::AccessList(list) => {
            let tenants = list.entries.into_iter().map(|entry| entry.holder.unwrap().tenant);
            assert_eq!(tenants.collect::<Vec<_>>(), ["acme", "acme"]);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_configuration_shows_and_changes_nothing_of_who_may_do_what() {
    let mut guarded = Guarded::start();
    let list = control::ListConfiguration::default();
    match guarded.admin.ask(&Request::ListConfiguration(list)) {
        Reply::ConfigurationList(list) => assert!(list.entries.is_empty(), "{list:?}"),
        other => panic!("{other:?}"),
    }
    let key = "identity.role.ops".to_owned();
    let get = control::GetConfiguration { key: key.clone() };
    let set = control::SetConfiguration { key, ..<_>::default() };
    for request in [Request::GetConfiguration(get), Request::SetConfiguration(set)] {
        match guarded.admin.ask(&request) {
            Reply::Error(error) => assert_eq!(error.error_code(), Some(ErrorCode::InvalidKey)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_read_over_http_that_waits_ends_when_its_right_is_taken() {
    for live in ["long-poll", "sse"] {
        let mut guarded = Guarded::start();
        let (_, key) = guarded.connect(&["create,read,publish chat/*"]);
        let http = &mut Browser::of(&guarded.broker);
        let created = ask(http, "PUT", "chat/a", &authorized(&key.text), "");
        assert_eq!(created.status, 201, "{created:?}");
        let path = format!("chat/a?offset={}&live={live}", next(&created));
        http.say(format!(
            "GET /v1/stream/{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n",
            authorized(&key.text)
        ));
        // It waits, in its task or parked.
        until("nobody waits", || {
            let mut browser = Browser::of(&guarded.broker);
            let key = &guarded.admin_key;
            browser.say(format!(
                "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
            ));
            let parked =
                |line: &str| line.starts_with("sennit_http_parked{") && !line.ends_with(" 0");
            browser.hear(true).body.lines().any(parked)
        });
        guarded.revoke(&key, "create,read,publish chat/*");
        let append = ask(
            &mut Browser::of(&guarded.broker),
            "POST",
            "chat/a",
            &authorized(&guarded.admin_key),
            "secret",
        );
        assert_eq!(append.status, 204, "{append:?}");
        let all = http.until_closed();
        assert!(!all.contains("secret"), "{all}");
        guarded.broker.stop();
    }
}

#[test]
fn the_audit_says_who_did_and_tried_what_and_can_be_read_as_any_stream() {
    let mut guarded = Guarded::start();
    let topic = guarded.admin.create_topic("orders", 1);
    let (mut nosy, key) = guarded.connect(&["describe orders", "publish orders"]);
    nosy.ask(&Request::DeleteTopic(control::DeleteTopic { name: "orders".into() }));
    nosy.send(&Request::Publish(publish(topic, 0, 0, &["payload"])));
    nosy.confirmed_up_to(1);
    guarded.change(Change::DeleteKey(key.id.clone()));
    let mut acts: Vec<serde_json::Value> = Vec::new();
    let read = control::Read {
        subscription: 7,
        topic: "__ds/audit".into(),
        credit_messages: 1000,
        credit_bytes: 1 << 20,
        ..<_>::default()
    };
    let (mut stranger, _) = guarded.connect(&["* >"]);
    match stranger.ask(&Request::Read(read.clone())) {
        Reply::Error(error) => assert_eq!(error.error_code(), Some(ErrorCode::Forbidden)),
        other => panic!("{other:?}"),
    }
    // It is created with the first act, and acts are kept some moments after they are done.
    until("there is no audit", || {
        let mut reader = logged_in(&guarded.broker, &guarded.admin_key);
        matches!(reader.ask(&Request::Read(read.clone())), Reply::Subscribed(_))
    });
    let mut reader = logged_in(&guarded.broker, &guarded.admin_key);
    let from = control::ReadFrom { at: Some(control::read_from::At::Earliest(true)) };
    assert!(matches!(
        reader.ask(&Request::Read(control::Read { from: Some(from), ..read })),
        Reply::Subscribed(_)
    ));
    while !acts.iter().any(|act| act["to"] == "key.".to_owned() + &key.id) {
        for text in texts_of(&reader.delivery()) {
            acts.push(serde_json::from_str(&text).unwrap());
        }
    }
    acts.retain(|act| act["act"] != "key create");
    let id = guarded.admin_key.split('_').nth(1).unwrap();
    let (admin, nosy) = (format!("key:{id}"), format!("key:{}", key.id));
    let key_entry = format!("key.{}", key.id);
    let found: Vec<_> = acts
        .iter()
        .map(|act| ["who", "act", "to", "outcome"].map(|field| act[field].as_str().unwrap()))
        .collect();
    let expected = [
        [&admin, "topic create", "orders", "done"],
        [&nosy, "topic delete", "orders", "missing right: delete \"orders\""],
        [&admin, "delete", &key_entry, "done"],
    ];
    assert_eq!(found, expected, "{acts:?}");
}
