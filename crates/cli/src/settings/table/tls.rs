//! Settings of the section `tls`: the certificate of both ports, and those of clients.

use sennit_server::ClientCertificates;
use sennit_settings::{Assignment, Flag, Kind, Setting, Value};

use super::{ROW, Start, word};

/// Whether clients show certificates.
const CLIENTS: [(&str, ClientCertificates); 3] = [
    ("off", ClientCertificates::Off),
    ("optional", ClientCertificates::Optional),
    ("required", ClientCertificates::Required),
];

/// The rows of the section.
pub const SETTINGS: &[Setting<Start>] = &[
    Setting {
        section: "tls",
        field: "certificate",
        flag: Flag::Value("tls"),
        kind: Kind::Text,
        shape: "CERT,KEY|self",
        help: "Speak TLS on both ports under the certificate of two PEM files, the chain (the certificate itself \
               first) and its key, which are read again when they change; self: under a certificate that the broker \
               makes, signed by an authority of its own in DIR/tls",
        unset: "no TLS",
        get: |start| Value::optional(start.broker.tls.as_ref(), Value::text),
        set: |start, given| given.optional_to(&mut start.broker.tls, Assignment::parsed),
        ..ROW
    },
    Setting {
        section: "tls",
        field: "client",
        flag: Flag::Value("tls-client"),
        kind: Kind::OneOf(&[
            ("off", "They are not asked"),
            ("optional", "They may; one that is shown has to be good"),
            ("required", "They must"),
        ]),
        shape: "MODE",
        help: "Whether clients show certificates of their own",
        get: |start| word(&CLIENTS, start.broker.tls_clients),
        set: |start, given| {
            start.broker.tls_clients = given.one_of(&CLIENTS)?;
            Ok(())
        },
        ..ROW
    },
    Setting {
        section: "tls",
        field: "client_ca",
        flag: Flag::Value("tls-client-ca"),
        kind: Kind::Text,
        shape: "FILE",
        help: "The authorities that client certificates have to be from, a PEM file",
        unset: "none",
        get: |start| {
            Value::optional(start.broker.tls_client_ca.as_ref(), |path| Value::text(path.display()))
        },
        set: |start, given| given.optional_to(&mut start.broker.tls_client_ca, Assignment::parsed),
        ..ROW
    },
];
