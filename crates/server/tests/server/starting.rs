//! Starting: what cannot be served is said, with the address or the path it is about.

use std::net::{SocketAddr, TcpListener};

use sennit_server::{Config, ServeError, serve};
use tempfile::TempDir;

use crate::world::{Broker, config};

fn refusal(config: Config) -> ServeError {
    serve(config, std::future::pending(), |_| panic!("it serves")).unwrap_err()
}

#[test]
fn an_address_beyond_the_loopback_is_refused_unless_it_is_meant() {
    let folder = TempDir::new().unwrap();
    let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
    for config in [
        Config { listen: anywhere, ..config(folder.path()) },
        Config { http: anywhere, ..config(folder.path()) },
    ] {
        let error = refusal(config);
        assert!(matches!(error, ServeError::NotLoopback { .. }), "{error}");
        assert!(error.to_string().contains("--insecure-no-auth"), "{error}");
    }
    let meant = Config { listen: anywhere, insecure_no_auth: true, ..config(folder.path()) };
    Broker::start(meant).stop();
}

#[test]
fn a_port_in_use_is_named() {
    let folder = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind(taken).unwrap();
    let error = refusal(Config { listen: taken, ..config(folder.path()) });
    assert!(matches!(error, ServeError::Listen { .. }), "{error}");
    assert!(error.to_string().contains(&taken.to_string()), "{error}");
    drop(listener);
}

#[test]
fn a_directory_in_use_is_named() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(config(folder.path()));
    let error = refusal(config(folder.path()));
    assert!(matches!(error, ServeError::Directory(_)), "{error}");
    assert!(error.to_string().contains(&folder.path().display().to_string()), "{error}");
    broker.stop();
}

#[test]
fn a_stopped_broker_lets_go_of_its_directory() {
    let folder = TempDir::new().unwrap();
    for _ in 0..3 {
        Broker::start(config(folder.path())).stop();
    }
}

#[test]
fn a_directory_keeps_its_number_of_shards() {
    let folder = TempDir::new().unwrap();
    Broker::start(Config { shards: Some(3), ..config(folder.path()) }).stop();
    let broker = Broker::start(Config { shards: Some(1), ..config(folder.path()) });
    assert_eq!(broker.addresses.shards, 3);
    broker.stop();
}

#[test]
fn a_number_of_shards_that_cannot_be_is_refused_and_what_can_be_is_said() {
    for shards in [0, 1025] {
        let folder = TempDir::new().unwrap();
        let error = refusal(Config { shards: Some(shards), ..config(folder.path()) }).to_string();
        assert!(error.contains(&format!("{shards} shards; 1 to 1024 are possible")), "{error}");
    }
}

#[test]
fn a_broker_that_could_serve_nobody_is_refused() {
    let folder = TempDir::new().unwrap();
    for (config, setting) in [
        (
            Config { http_connections: 0, ..config(folder.path()) },
            "http.connections (--http-connections)",
        ),
        (
            Config { journal_segments: 0, ..config(folder.path()) },
            "journal.segments (--journal-segments)",
        ),
    ] {
        let error = refusal(config).to_string();
        assert_eq!(error, format!("{setting} is 0; at least 1 is possible"));
    }
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let folder = TempDir::new().unwrap();
    Broker::start(config(folder.path())).stop();
    let format = folder.path().join("FORMAT");
    let text = std::fs::read_to_string(&format).unwrap().replace("format = 1", "format = 3");
    std::fs::write(&format, text).unwrap();
    let error = refusal(config(folder.path())).to_string();
    assert!(error.contains('3') && error.contains('2'), "{error}");
}

#[test]
fn a_segment_too_short_for_a_batch_is_refused() {
    let folder = TempDir::new().unwrap();
    let error = refusal(Config { segment_bytes: Some(1 << 20), ..config(folder.path()) });
    assert!(matches!(error, ServeError::SegmentBytes { .. }), "{error}");
}
