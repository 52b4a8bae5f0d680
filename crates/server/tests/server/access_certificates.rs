//! The matrix of identity for clients that show a certificate: every request and every route of HTTP, with the user who may,
//! with one who may not, with one of another tenant, and with a certificate that nobody accepts. A certificate that is not trusted
//! ends the handshake: the process tests of TLS have it.

use std::path::Path;

use sennit_protocol::{
    ErrorCode, Preface, Reply, Request,
    control::{self, change_access::Change},
};
use sennit_server::{BrokerCertificate, Config};
use sennit_tls::{Authority, ClientCertificates};
use tempfile::TempDir;

use crate::{
    access::{Guarded, create_tenant},
    access_matrix::{NO_TOPIC, Named, Need, answer, refusal, rows},
    access_matrix_http::{documented, http_answer_by, http_row},
    browser::Browser,
    http_streams::{TEXT, ask},
    stream::Dialing,
    world::{Peer, publish},
};

/// A broker that accepts client certificates, with an authority that signs them.
pub struct Certified {
    pub guarded: Guarded,
    clients: Authority,
    /// The folder with the certificates.
    folder: TempDir,
    broker_ca: std::path::PathBuf,
}

impl Certified {
    pub fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let (clients, _) = Authority::create("clients", 30).unwrap();
        let client_ca = folder.path().join("clients.pem");
        std::fs::write(&client_ca, clients.certificate_pem()).unwrap();
        let mut broker_ca = None;
        let guarded = Guarded::start_with(|config| {
            broker_ca = Some(config.data.join("tls/ca.pem"));
            Config {
                tls: Some(BrokerCertificate::Own),
                tls_clients: ClientCertificates::Optional,
                tls_client_ca: Some(client_ca),
                ..config
            }
        });
        Self { guarded, clients, folder, broker_ca: broker_ca.expect("it was asked for") }
    }

    /// How a client connects with a certificate of this common name.
    pub fn dialing(&self, name: &str) -> Dialing {
        let files = certificate(&self.clients, self.folder.path(), name);
        Dialing::secure(&self.broker_ca, Some(&files))
    }

    pub fn user(&mut self, user: &str, certificate: &str, tenant: &str, rights: &[&str]) {
        let rights = rights.iter().map(ToString::to_string).collect();
        let holder = control::Holder { tenant: tenant.into(), rights, ..<_>::default() };
        self.guarded.change(certificates(user, &[certificate], holder));
    }
}

fn certificates(user: &str, certificates: &[&str], holder: control::Holder) -> Change {
    Change::SetCertificates(control::UserCertificates {
        user: user.into(),
        certificates: certificates.iter().map(ToString::to_string).collect(),
        holder: Some(holder),
    })
}

fn certificate(authority: &Authority, folder: &Path, name: &str) -> String {
    let issued = authority.issue_client(name, 5).unwrap();
    let (certificate, key) =
        (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    std::fs::write(&certificate, &issued.chain_pem).unwrap();
    std::fs::write(&key, &issued.key_pem).unwrap();
    format!("{},{}", certificate.display(), key.display())
}

fn greeted(certified: &Certified, dialing: &Dialing) -> Peer {
    certified.guarded.broker.connect_by(dialing).greeted(0)
}

#[test]
fn every_request_is_allowed_to_the_user_of_a_certificate_by_rights_alone() {
    let mut certified = Certified::start();
    let all = ["* >", "kv-read,kv-write >", "monitor,backup,webhook,identity"];
    certified.user("all", "cn:all", "", &all);
    certified.user("none", "cn:none", "", &[]);
    certified.guarded.change(create_tenant("beta"));
    certified.user("other", "cn:other", "beta", &all);
    let id = certified.guarded.admin.create_topic("acme.orders", 1);
    let there = Named { name: "acme.orders", id };
    let absent = Named { name: "acme.absent", id: NO_TOPIC };
    let [all, none, other] = ["all", "none", "other"].map(|name| certified.dialing(name));
    // They delete what others need.
    let mut may = rows(&there);
    may.sort_by_key(|(kind, ..)| format!("{kind}").to_lowercase().contains("delete"));
    for (kind, need, request) in may {
        let (Need::Right(_) | Need::OneOf(..)) = need else { continue };
        if let Reply::Error(error) = answer(&mut greeted(&certified, &all), &request) {
            let code = error.error_code();
            let is_refused = matches!(code, Some(ErrorCode::Forbidden | ErrorCode::Unauthorized));
            assert!(!is_refused, "{kind} {error:?}");
        }
    }
    let id = certified.guarded.admin.create_topic("acme.orders", 1);
    let there = Named { name: "acme.orders", id };
    for ((kind, need, request), (.., elsewhere)) in rows(&there).into_iter().zip(rows(&absent)) {
        let (Need::Right(verb) | Need::OneOf(verb, _)) = need else { continue };
        for dialing in [&none, &other] {
            // Of its own tenant it may do all.
            if std::ptr::eq(dialing, &other) && verb == sennit_identity::Verb::Identity {
                continue;
            }
            let mut peer = greeted(&certified, dialing);
            let refused = refusal(&answer(&mut peer, &request), &there);
            assert_eq!(refused.0, Some(ErrorCode::Forbidden), "{kind} {refused:?}");
            assert_eq!(refusal(&answer(&mut peer, &elsewhere), &absent), refused, "{kind}");
        }
    }
}

#[test]
fn nothing_is_answered_to_a_certificate_that_nobody_accepts_nor_to_one_with_a_wrong_key() {
    let mut certified = Certified::start();
    certified.user("known", "cn:known", "", &["* >"]);
    let id = certified.guarded.admin.create_topic("acme.orders", 1);
    let there = Named { name: "acme.orders", id };
    let (known, unknown) = (certified.dialing("known"), certified.dialing("unknown"));
    let wrong = Some("sennit_x".to_owned());
    for (dialing, token) in [(&unknown, None), (&known, wrong)] {
        for (kind, need, request) in rows(&there) {
            if need == Need::None {
                continue;
            }
            let hello = control::Hello { token: token.clone(), ..<_>::default() };
            let mut peer = certified.guarded.broker.connect_by(dialing);
            peer.send_bytes(&Preface::BYTES);
            peer.send_together(&[Request::Hello(hello), request]);
            let (number, reply) = peer.next().expect("a refusal");
            let Reply::Error(error) = reply else { panic!("{kind} {reply:?}") };
            assert_eq!((number, error.error_code()), (1, Some(ErrorCode::Unauthorized)), "{kind}");
            assert_eq!(error.message, "these credentials are not valid");
            assert_eq!(peer.next(), None, "{kind} is answered");
        }
    }
}

#[test]
fn every_route_of_http_is_open_to_the_user_of_a_certificate_by_rights_alone() {
    let mut certified = Certified::start();
    certified.user("all", "cn:all", "", &["* >", "monitor,backup,webhook,live"]);
    certified.user("none", "cn:none", "", &[]);
    let [all, none, unknown] = ["all", "none", "unknown"].map(|name| certified.dialing(name));
    let status = |dialing: &Dialing, row: (&str, &str, &str)| {
        let answer = http_answer_by(Browser::by(&certified.guarded.broker, dialing), row, "");
        (answer.status, answer.body)
    };
    for (path, method) in documented() {
        let (need, of_there, body) = http_row(&path, &method, "chat/there");
        let (_, of_absent, body_absent) = http_row(&path, &method, "chat/absent");
        if need == Need::None {
            continue;
        }
        // Another row may have deleted it.
        status(&all, ("PUT", "/v1/stream/chat/there", ""));
        let [there, absent] = [(&of_there, &body), (&of_absent, &body_absent)]
            .map(|(path, body)| (method.as_str(), path.as_str(), body.as_str()));
        for (dialing, refused) in [(&none, 403), (&unknown, 401)] {
            let ((one, body), (other, body_other)) =
                (status(dialing, there), status(dialing, absent));
            assert_eq!((one, other), (refused, refused), "{method} {path}");
            let same = |text: &str| text.replace("chat/there", "S").replace("chat/absent", "S");
            assert_eq!(same(&body), same(&body_other), "{method} {path}");
        }
        let (allowed, _) = status(&all, there);
        assert!(![401, 403].contains(&allowed), "{method} {path} {allowed}");
    }
}

#[test]
fn requests_over_http_are_those_of_the_connections_certificate() {
    let mut certified = Certified::start();
    certified.user("ada", "cn:ada", "", &["create,publish,read,describe notes/>"]);
    let broker = &certified.guarded.broker;
    let mut ada = Browser::by(broker, &certified.dialing("ada"));
    assert_eq!(ask(&mut ada, "PUT", "notes/a", TEXT, "one").status, 201);
    assert_eq!(ask(&mut ada, "POST", "notes/a", TEXT, "two").status, 204);
    assert_eq!(ask(&mut ada, "PUT", "bills/a", TEXT, "one").status, 403);
    let wrong = format!("Authorization: Bearer sennit_x\r\n{TEXT}");
    assert_eq!(ask(&mut ada, "POST", "notes/a", &wrong, "two").status, 401);
    let admin = format!("Authorization: Bearer {}\r\n{TEXT}", certified.guarded.admin_key);
    assert_eq!(ask(&mut ada, "PUT", "bills/a", &admin, "one").status, 201, "what is sent counts");
    let mut eve = Browser::by(broker, &certified.dialing("eve"));
    assert_eq!(ask(&mut eve, "POST", "notes/a", TEXT, "three").status, 401);
    let mut none = Browser::of(broker);
    assert_eq!(ask(&mut none, "POST", "notes/a", TEXT, "three").status, 401);
    // The connection stays, and what its certificate opened is closed.
    certified.guarded.change(certificates("ada", &["cn:eve"], control::Holder::default()));
    assert_eq!(ask(&mut ada, "POST", "notes/a", TEXT, "four").status, 401);
    assert_eq!(ask(&mut eve, "POST", "notes/a", TEXT, "four").status, 204);
}

#[test]
fn a_connection_ends_with_what_its_certificate_is_accepted_for_and_delivers_nothing_behind_it() {
    let mut certified = Certified::start();
    let topic = certified.guarded.admin.create_topic("orders", 1);
    let worker = certified.dialing("worker");
    for end in [
        certificates("worker", &[], control::Holder::default()),
        certificates("worker", &["cn:other"], control::Holder::default()),
        Change::DeleteUser("worker".into()),
    ] {
        certified.user("worker", "cn:worker", "", &["consume,settle orders"]);
        let mut peer = greeted(&certified, &worker);
        peer.subscribe("orders", 1, 100);
        certified.guarded.change(end);
        certified.guarded.admin.send(&Request::Publish(publish(topic, 0, 0, &["after"])));
        peer.hears_the_end_with(ErrorCode::Unauthorized);
        let again = certified.guarded.broker.connect_by(&worker);
        let mut again = again;
        again.send_bytes(&Preface::BYTES);
        again.send(&Request::Hello(control::Hello::default()));
        again.hears_the_end_with(ErrorCode::Unauthorized);
    }
}

#[test]
fn a_user_of_a_certificate_is_not_the_first_and_not_the_last_who_may_manage_others() {
    let mut certified = Certified::start();
    let roles = vec!["admin".to_owned()];
    let admin = control::Holder { roles, ..<_>::default() };
    certified.guarded.change(certificates("ada", &["cn:ada"], admin));
    let id = certified.guarded.admin_key.split('_').nth(1).unwrap().to_owned();
    let (code, message) = certified.guarded.refused(Change::DeleteKey(id));
    assert_eq!(code, Some(ErrorCode::PrincipalConflict), "{message}");
    let nobody = certificates("bob", &[], control::Holder::default());
    assert_eq!(certified.guarded.refused(nobody).0, Some(ErrorCode::InvalidRight));
}
