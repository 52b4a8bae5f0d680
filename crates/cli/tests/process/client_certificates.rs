//! Users whom client certificates log in, at both ports; and logins that failed too often.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Instant,
};

use sennit_tls::{Authority, Fingerprint, certificates_of_file};
use tempfile::TempDir;

use crate::{
    bounds::{BOUND, Watch},
    broker::{Broker, run},
};

/// A broker that asks for client certificates, with an admin's key.
struct Certified {
    broker: Broker,
    clients: Authority,
    admin: String,
    folder: TempDir,
}

/// The credentials of one client: the flag of its certificate, and a key.
#[derive(Clone, Copy)]
struct Shows<'a> {
    certificate: &'a str,
    key: Option<&'a str>,
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

impl Certified {
    fn start(asked: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let (clients, _) = Authority::create("clients", 30).unwrap();
        let client_ca = folder.path().join("clients.pem");
        fs::write(&client_ca, clients.certificate_pem()).unwrap();
        let client_ca = client_ca.to_str().unwrap();
        let flags = [
            &["--tls", "self", "--tls-client", asked, "--tls-client-ca", client_ca][..],
            &["--init-admin"],
        ];
        let broker = Broker::start_with(&folder.path().join("data"), &flags.concat());
        let admin = broker.admin_key.clone().unwrap();
        Self { broker, clients, admin, folder }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("data/tls/ca.pem")
    }

    /// A certificate of this common name; returns the flag that names it.
    fn certificate(&self, name: &str) -> String {
        certificate_of(&self.clients, self.folder.path(), name)
    }

    fn run(&self, shows: Shows<'_>, arguments: &[&str], input: &str) -> Output {
        let mut command = self.broker.command(arguments);
        command.env("SENNIT_TLS_CA", self.ca());
        if !shows.certificate.is_empty() {
            command.env("SENNIT_TLS_CERT", shows.certificate);
        }
        if let Some(key) = shows.key {
            command.env("SENNIT_KEY", key);
        }
        run(command, input.as_bytes())
    }

    fn ok(&self, shows: Shows<'_>, arguments: &[&str], input: &str) -> String {
        let output = self.run(shows, arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The error text of a verb that ends with this exit code.
    fn refused(&self, shows: Shows<'_>, arguments: &[&str], exit: i32) -> String {
        let output = self.run(shows, arguments, "");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
        said
    }
}

fn certificate_of(authority: &Authority, folder: &Path, name: &str) -> String {
    let issued = authority.issue_client(name, 5).unwrap();
    let (certificate, key) =
        (folder.join(format!("{name}.pem")), folder.join(format!("{name}.key")));
    fs::write(&certificate, &issued.chain_pem).unwrap();
    fs::write(&key, &issued.key_pem).unwrap();
    format!("{},{}", certificate.display(), key.display())
}

fn by(certificate: &str) -> Shows<'_> {
    Shows { certificate, key: None }
}

#[test]
fn a_certificate_logs_in_the_user_that_accepts_it_at_both_ports_and_nobody_else() {
    let certified = Certified::start("required");
    let (billing, other) = (certified.certificate("billing"), certified.certificate("other"));
    let admin = Shows { certificate: &other, key: Some(&certified.admin) };
    certified.ok(admin, &["topic", "create", "bills"], "");
    let create = [
        &["auth", "user", "create", "billing", "--certificate", "cn:billing"][..],
        &["--right", "publish bills", "--right", "create,publish,read bills/>"],
    ];
    certified.ok(admin, &create.concat(), "");
    let listed = certified.ok(admin, &["auth", "user", "list"], "");
    assert!(listed.contains("cn:billing") && !listed.contains("password"), "{listed}");
    certified.ok(by(&billing), &["publish", "bills", "hello"], "");
    certified.ok(by(&billing), &["stream", "create", "bills/june"], "");
    certified.ok(by(&billing), &["stream", "append", "bills/june"], "line\n");
    let said = certified.ok(by(&billing), &["auth", "can", "me", "publish", "bills"], "");
    assert!(said.starts_with("yes: by its right"), "{said}");
    let said = certified.refused(by(&billing), &["read", "bills", "-n", "1"], 5);
    assert!(said.contains("missing right: read"), "{said}");
    for verb in [&["publish", "bills", "x"][..], &["stream", "read", "bills/june"]] {
        certified.refused(by(&other), verb, 5);
        // A credential that is sent counts, and the certificate does not make up for a wrong one.
        let wrong = Shows { certificate: &billing, key: Some("sennit_x") };
        certified.refused(wrong, verb, 5);
    }
    certified.refused(by(""), &["topic", "list"], 6);
    let since = Instant::now();
    let audit = ["read", "__ds/audit", "--from", "earliest"];
    while !certified.ok(admin, &audit, "").contains("\"who\":\"certificate:billing\"") {
        assert!(since.elapsed() < BOUND, "the audit does not say who has created the stream");
    }
}

#[test]
fn a_certificate_that_its_user_accepts_no_more_ends_the_connection_at_once() {
    let certified = Certified::start("optional");
    let worker = certified.certificate("worker");
    let admin = Shows { certificate: "", key: Some(&certified.admin) };
    certified.ok(admin, &["topic", "create", "jobs"], "");
    let file = worker.split_once(',').unwrap().0;
    let print = Fingerprint::of(&certificates_of_file(Path::new(file)).unwrap()[0]).to_string();
    let create = ["auth", "user", "create", "worker", "--certificate", &print, "--right"];
    certified.ok(admin, &[&create[..], &["consume,settle jobs"]].concat(), "");
    let mut consumer = certified.broker.command(&["consume", "jobs", "--follow"]);
    consumer.env("SENNIT_TLS_CA", certified.ca()).env("SENNIT_TLS_CERT", &worker);
    let mut consumer = consumer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watch = Watch::over(&consumer, "a consumer that is not wanted any more");
    certified.ok(admin, &["publish", "jobs", "first"], "");
    let mut line = String::new();
    let mut stdout = std::io::BufReader::new(consumer.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(line, "first\n");
    certified.ok(admin, &["auth", "user", "certificates", "worker", "cn:somebody"], "");
    certified.ok(admin, &["publish", "jobs", "second"], "");
    let ended = consumer.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(5), "{}", text(&ended.stderr));
    line.clear();
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(line, "", "nothing is delivered to it any more");
    certified.refused(by(&worker), &["consume", "jobs"], 5);
    certified.ok(admin, &["auth", "user", "certificates", "worker", "cn:worker"], "");
    assert_eq!(certified.ok(by(&worker), &["consume", "jobs"], ""), "second");
    certified.ok(admin, &["auth", "user", "delete", "worker"], "");
    certified.refused(by(&worker), &["consume", "jobs"], 5);
}

#[test]
fn the_operator_alone_says_whom_a_certificate_logs_in_and_each_logs_in_one() {
    let certified = Certified::start("optional");
    let admin = Shows { certificate: "", key: Some(&certified.admin) };
    certified.ok(admin, &["auth", "tenant", "create", "acme"], "");
    let create = ["auth", "key", "create", "acme", "--tenant", "acme", "--right", "identity"];
    let of_tenant = certified.ok(admin, &create, "");
    let tenant = Shows { certificate: "", key: Some(&of_tenant) };
    let create = |name: &'static str, certificate: &'static str| {
        ["auth", "user", "create", name, "--certificate", certificate]
    };
    certified.refused(tenant, &create("eve", "cn:billing"), 5);
    certified.ok(admin, &create("ada", "dns:Billing.internal"), "");
    let said = certified.refused(admin, &create("bob", "dns:billing.internal"), 4);
    assert!(said.contains("dns:billing.internal logs in ada already"), "{said}");
    let said = certified.refused(admin, &create("bob", "billing"), 2);
    assert!(said.contains("cn:billing"), "{said}");
    let many: Vec<String> = (0..17).map(|number| format!("cn:{number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let set = [&["auth", "user", "certificates", "ada"][..], &many];
    let said = certified.refused(admin, &set.concat(), 1);
    assert!(said.contains("CERTIFICATES_OF_USER_MAX"), "{said}");
    let listed = certified.ok(admin, &["auth", "user", "list", "--json"], "");
    assert!(listed.contains(r#""certificates":["dns:billing.internal"]"#), "{listed}");
    assert!(listed.contains(r#""password":false"#), "{listed}");
}

#[test]
fn who_guesses_waits_and_is_then_told_to_come_again_and_keys_go_on() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start_with(folder.path(), &["--init-admin"]);
    let admin = broker.admin_key.clone().unwrap();
    let file = |name: &str, password: &str| {
        let file = folder.path().join(name);
        fs::write(&file, password).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (right, wrong) =
        (file("right", "correct horse battery"), file("wrong", "a horse, a horse"));
    let create = ["auth", "user", "create", "ada", "--role", "viewer", "--new-password-file"];
    let mut command = broker.command(&[&create[..], &[&right]].concat());
    command.env("SENNIT_KEY", &admin);
    assert!(run(command, b"").status.success());
    let list =
        |file: &str| ["topic", "list", "--user", "ada", "--password-file", file].map(str::to_owned);
    let guess = list(&wrong);
    let guess = guess.each_ref().map(String::as_str);
    // They come together: the first are answered at once, some wait, and the others are not looked at.
    let guesses: Vec<Output> = std::thread::scope(|scope| {
        let guesses: Vec<_> = (0..16).map(|_| scope.spawn(|| broker.run(&guess, b""))).collect();
        guesses.into_iter().map(|guess| guess.join().unwrap()).collect()
    });
    let ended = |exit| {
        let ended = guesses.iter().filter(|guess| guess.status.code() == Some(exit));
        ended.collect::<Vec<_>>()
    };
    // On a busy machine a client gives up on one that waits.
    assert!(!ended(5).is_empty(), "{guesses:?}");
    let told_to_wait = ended(6);
    assert_eq!(ended(5).len() + told_to_wait.len(), 16, "{guesses:?}");
    let mut said = told_to_wait.iter().map(|guess| text(&guess.stderr));
    let said = said.find(|said| said.contains("too-many-logins"));
    let said = said.expect("some are not looked at");
    assert!(said.contains("try again in"), "{said}");
    let mut command = broker.command(&["topic", "list"]);
    command.env("SENNIT_KEY", &admin);
    assert!(run(command, b"").status.success(), "a key is not held off");
}
