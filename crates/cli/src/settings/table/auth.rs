//! Settings of the section `auth`: who may do what.

use sennit_identity::TokenKey;
use sennit_settings::{Assignment, Flag, Kind, Setting, Value};

use super::{ROW, Start};

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "auth",
        field: "init_admin",
        flag: Flag::Switch("init-admin", "true"),
        variable: Some("SENNIT_INIT_ADMIN"),
        kind: Kind::Switch,
        shape: "true|false",
        help: "Create an admin API key at the start, if there is no key and no user yet, and print it once",
        unset: "false; true in a container, if an address can be reached from outside of it",
        get: |start| Value::optional(start.init_admin, Value::Switch),
        set: |start, given| given.optional_to(&mut start.init_admin, Assignment::switch),
        ..ROW
    },
    Setting {
        section: "auth",
        field: "insecure_no_auth",
        flag: Flag::Switch("insecure-no-auth", "true"),
        kind: Kind::Switch,
        shape: "true|false",
        help: "Listen on non-loopback addresses though nobody is asked for credentials",
        get: |start| Value::Switch(start.broker.insecure_no_auth),
        set: |start, given| {
            start.broker.insecure_no_auth = given.switch()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token_issuer",
        flag: Flag::Value("token-issuer"),
        shape: "ISSUER",
        help: "The issuer whose tokens (JWT) are taken: their claim iss. With one, everybody is asked for credentials",
        unset: "no tokens are taken",
        get: |start| Value::optional(start.broker.tokens.issuer.as_deref(), Value::text),
        set: |start, given| given.optional_to(&mut start.broker.tokens.issuer, Assignment::parsed),
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token_audience",
        flag: Flag::Value("token-audience"),
        shape: "AUDIENCE",
        help: "The audience that tokens have to name: their claim aud",
        get: |start| Value::text(&start.broker.tokens.audience),
        set: |start, given| given.parse_to(&mut start.broker.tokens.audience),
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token_keys",
        flag: Flag::Value("token-keys"),
        shape: "FILE|URL",
        help: "The public keys of the issuer: a file in PEM, or the https URL of a key set (JWKS)",
        unset: "none",
        get: |start| Value::optional(start.broker.tokens.keys.as_ref(), Value::text),
        set: |start, given| given.optional_to(&mut start.broker.tokens.keys, Assignment::parsed),
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token_secret",
        flag: Flag::Value("token-secret-file"),
        kind: Kind::Secret,
        shape: "text of 32 to 1024 bytes",
        help: "The secret of HS256, for an issuer without public keys: a text of at least 32 bytes",
        unset: "none",
        get: |start| {
            Value::optional(start.broker.tokens.secret.as_ref(), |_| Value::text("(secret)"))
        },
        set: |start, given| given.optional_to(&mut start.broker.tokens.secret, token_secret),
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token_leeway",
        flag: Flag::Value("token-leeway"),
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The time by which the clocks of issuer and broker may differ, at most 5m",
        get: |start| Value::duration(start.broker.tokens.leeway),
        set: |start, given| {
            start.broker.tokens.leeway = given.duration()?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "auth",
        field: "token_lifetime_max",
        flag: Flag::Value("token-lifetime-max"),
        kind: Kind::Duration,
        shape: "DURATION",
        help: "The longest lifetime of a token; nobody can take one back before",
        get: |start| Value::duration(start.broker.tokens.lifetime_max),
        set: |start, given| {
            start.broker.tokens.lifetime_max = given.duration()?;
            Ok(())
        },
        ..ROW
    },
];

fn token_secret(given: &Assignment) -> Result<TokenKey, String> {
    TokenKey::from_secret(given.text()?.as_bytes()).map_err(|error| error.to_string())
}
