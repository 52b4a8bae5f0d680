//! Tokens from the command line to the broker: `sennit auth token` mints them, `sennit serve` takes those of its issuer.

use std::{fs, path::Path, process::Output};

use tempfile::TempDir;

use crate::broker::{Broker, run, sennit};

const ED25519: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../identity/test_keys/ed25519");

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// A token of `ada` by the issuer `dev`.
fn mint(arguments: &[&str]) -> String {
    let all = [&["auth", "token", "ada", "--issuer", "dev"], arguments].concat();
    let minted = run(sennit(&all), b"");
    assert!(minted.status.success(), "{}", text(&minted.stderr));
    text(&minted.stdout)
}

fn with_token(broker: &Broker, token: &str, arguments: &[&str]) -> Output {
    let mut command = broker.command(arguments);
    command.env("SENNIT_KEY", token);
    run(command, b"")
}

fn secret(folder: &Path) -> String {
    let file = folder.join("secret");
    fs::write(&file, format!("{}\n", "s3cret".repeat(6))).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_minted_token_opens_what_it_says_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let secret = secret(folder.path());
    let flags = ["--token-issuer", "dev", "--token-secret-file", &secret];
    let broker = Broker::start_with(&folder.path().join("data"), &flags);
    let token = mint(&[
        "--signing-secret-file",
        &secret,
        "--right",
        "create {team}.>",
        "--claim",
        "team=blue",
    ]);
    let created = with_token(&broker, &token, &["topic", "create", "blue.orders"]);
    assert!(created.status.success(), "{}", text(&created.stderr));
    let refused = with_token(&broker, &token, &["topic", "create", "red.orders"]);
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
    assert_eq!(broker.run(&["topic", "list"], b"").status.code(), Some(5), "everybody is asked");
    let short = mint(&["--signing-secret-file", &secret, "--role", "admin", "--audience", "other"]);
    let refused = with_token(&broker, &short, &["topic", "list"]);
    assert_eq!(refused.status.code(), Some(5));
    assert!(!text(&refused.stderr).contains(&short), "a token is not repeated");
    let can = with_token(&broker, &token, &["auth", "can", "me", "create", "blue.a"]);
    assert!(text(&can.stdout).contains("of its token"), "{}", text(&can.stdout));
}

#[test]
fn a_token_is_checked_with_a_public_key() {
    let folder = TempDir::new().unwrap();
    let public = format!("{ED25519}_public.pem");
    let flags = ["--token-issuer", "dev", "--token-keys", &public, "--token-lifetime-max", "10m"];
    let broker = Broker::start_with(folder.path(), &flags);
    let private = format!("{ED25519}.pem");
    let token = mint(&["--signing-key-file", &private, "--role", "admin", "--lifetime", "5m"]);
    let created = with_token(&broker, &token, &["topic", "create", "orders"]);
    assert!(created.status.success(), "{}", text(&created.stderr));
    let long = mint(&["--signing-key-file", &private, "--role", "admin", "--lifetime", "11m"]);
    assert_eq!(with_token(&broker, &long, &["topic", "list"]).status.code(), Some(5));
}

#[test]
fn settings_of_tokens_that_do_not_fit_are_refused_with_what_would() {
    let folder = TempDir::new().unwrap();
    let secret = secret(folder.path());
    let data = folder.path().join("data");
    let short = folder.path().join("short");
    fs::write(&short, "short").unwrap();
    let short = short.to_str().unwrap();
    for (flags, part) in [
        (&["--token-secret-file", &secret][..], "--token-issuer"),
        (&["--token-issuer", "dev"], "--token-keys"),
        (&["--token-issuer", "dev", "--token-keys", "http://issuer.example/keys"], "https://"),
        (&["--token-issuer", "dev", "--token-keys", "/none.pem"], "/none.pem"),
        (&["--token-issuer", "dev", "--token-keys", &secret], "BEGIN PUBLIC KEY"),
        (&["--token-issuer", "dev", "--token-secret-file", short], "32 to 1024"),
    ] {
        let all =
            [&["serve", "--data", data.to_str().unwrap(), "--until-stdin-ends"], flags].concat();
        let refused = run(sennit(&all), b"");
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{flags:?} {said}");
        assert!(said.contains(part), "{flags:?} {said}");
        assert!(!said.contains("s3cret"), "{said}");
    }
    let refused = run(sennit(&["auth", "token", "ada", "--issuer", "dev"]), b"");
    assert_eq!(refused.status.code(), Some(2));
}
