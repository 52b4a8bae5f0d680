//! Any bytes to the server's end of a TLS connection, in pieces: it says nothing plain before the handshake is done,
//! holds little, and ends with a fault or goes on. Knows only `sennit-tls`.
#![no_main]

use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use sennit_tls::{
    Authority, ClientCertificates, Codec, HTTP_PROTOCOLS, ServerConfig, begins_tls, server_settings,
};

fn settings() -> Arc<ServerConfig> {
    static SETTINGS: OnceLock<Arc<ServerConfig>> = OnceLock::new();
    let made = || {
        let (authority, _) = Authority::create("authority", 10).expect("keys can be made");
        let issued = authority.issue_server(&["localhost".into()], 5).expect("it is a name");
        let identity = issued.into_identity();
        server_settings(identity, ClientCertificates::Off, None, &HTTP_PROTOCOLS).expect("they fit")
    };
    SETTINGS.get_or_init(made).clone()
}

// The first byte says how long the pieces are.
fuzz_target!(|data: &[u8]| {
    let Some((step, records)) = data.split_first() else { return };
    let _ = begins_tls(records);
    let mut codec = Codec::server(settings()).expect("the settings are good");
    let mut plain = Vec::new();
    let mut answer = 0;
    for piece in records.chunks(usize::from(*step) + 1) {
        let fed = codec.feed(piece, &mut plain);
        let sent = codec.flush(|bytes| {
            answer += bytes.len();
            Ok(bytes.len())
        });
        assert!(sent.is_ok());
        if let Err(fault) = fed {
            assert!(!fault.to_string().is_empty());
            break;
        }
    }
    assert!(plain.is_empty() || !codec.is_handshaking());
    assert!(answer <= 1 << 20, "{answer}");
});
