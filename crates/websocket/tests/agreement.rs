//! A client's request and a server's answer fit each other.

use http::{HeaderName, HeaderValue, Method, StatusCode, Version};
use sennit_websocket::{
    Upgrade,
    client::{AgreedUpgrade, UpgradeFault, UpgradeRequest},
};

const REQUEST: UpgradeRequest<'_> = UpgradeRequest {
    host: "localhost:8080",
    target: "/connection/websocket?format=json",
    key: *b"sixteen of bytes",
    subprotocols: &["protobuf", "json"],
    offers_deflate: true,
    headers: &[("Origin", "http://localhost")],
};

/// What a server makes of the request.
fn received(request: &UpgradeRequest<'_>) -> Upgrade {
    let mut bytes = Vec::new();
    request.put(&mut bytes);
    let mut lines = [httparse::EMPTY_HEADER; 16];
    let mut head = httparse::Request::new(&mut lines);
    let read = head.parse(&bytes).expect("a good head");
    assert_eq!(read, httparse::Status::Complete(bytes.len()));
    assert_eq!(head.path, Some(request.target));
    let headers = head.headers.iter().map(|line| (line.name, line.value));
    Upgrade::of(&Method::GET, Version::HTTP_11, headers).expect("a good request")
}

fn check(
    request: &UpgradeRequest<'_>,
    headers: Vec<(HeaderName, HeaderValue)>,
) -> Result<AgreedUpgrade, UpgradeFault> {
    request.check(StatusCode::SWITCHING_PROTOCOLS, headers)
}

#[test]
fn both_ends_agree() {
    let upgrade = received(&REQUEST);
    assert_eq!(upgrade.subprotocols(), ["protobuf", "json"]);
    let agreed = check(&REQUEST, upgrade.answer(Some("json"), upgrade.deflate()));
    let expected = AgreedUpgrade { subprotocol: Some("json".into()), is_deflate: true };
    assert_eq!(agreed, Ok(expected));
    let agreed = check(&REQUEST, upgrade.answer(None, None));
    assert_eq!(agreed, Ok(AgreedUpgrade { subprotocol: None, is_deflate: false }));
}

#[test]
fn a_client_that_offers_nothing_gets_nothing() {
    let request = UpgradeRequest { offers_deflate: false, subprotocols: &[], ..REQUEST };
    let upgrade = received(&request);
    assert_eq!((upgrade.subprotocols().len(), upgrade.deflate()), (0, None));
}

#[test]
fn an_answer_to_something_else_is_refused() {
    let upgrade = received(&REQUEST);
    let not_found = REQUEST.check(StatusCode::NOT_FOUND, upgrade.answer(None, None));
    assert_eq!(not_found, Err(UpgradeFault::Status(StatusCode::NOT_FOUND)));
    let other_key = UpgradeRequest { key: [0; 16], ..REQUEST };
    let answer = upgrade.answer(None, None);
    assert_eq!(check(&other_key, answer.clone()), Err(UpgradeFault::WrongAccept));
    assert_eq!(check(&REQUEST, answer[1..].to_vec()), Err(UpgradeFault::NoUpgrade));
    let unoffered = check(&REQUEST, upgrade.answer(Some("xml"), None));
    assert_eq!(unoffered, Err(UpgradeFault::UnknownSubprotocol("xml".into())));
    let plain = UpgradeRequest { offers_deflate: false, ..REQUEST };
    let unoffered = check(&plain, upgrade.answer(None, upgrade.deflate()));
    assert!(matches!(unoffered, Err(UpgradeFault::UnknownExtension(_))), "{unoffered:?}");
}
