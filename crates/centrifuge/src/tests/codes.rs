//! What codes mean to clients.

use crate::{DisconnectCode, Encoding, ErrorCode, ReplyError, UnsubscribeCode, code_reconnects};

#[test]
fn codes_are_different_and_in_the_ranges_that_clients_know() {
    let errors: Vec<_> = ErrorCode::ALL.map(ErrorCode::code).into();
    assert!(errors.is_sorted_by(|a, b| a < b) && errors[0] == 100 && errors[13] == 113);
    let ends: Vec<_> = DisconnectCode::ALL.map(DisconnectCode::code).into();
    assert!(ends.is_sorted_by(|a, b| a < b) && ends[0] == 3000 && ends[ends.len() - 1] == 3509);
    let unsubscribes: Vec<_> = UnsubscribeCode::ALL.map(UnsubscribeCode::code).into();
    assert_eq!(unsubscribes, [2000, 2500, 2501, 2502]);
}

#[test]
fn every_code_has_words_that_fit_a_close_frame() {
    let reasons = DisconnectCode::ALL.map(DisconnectCode::reason).into_iter();
    let messages = ErrorCode::ALL.map(ErrorCode::message);
    let unsubscribes = UnsubscribeCode::ALL.map(UnsubscribeCode::reason);
    for text in reasons.chain(messages).chain(unsubscribes) {
        assert!(!text.is_empty() && text.len() <= 123, "{text}");
    }
}

#[test]
fn clients_come_back_after_some_codes_only() {
    assert!(DisconnectCode::Shutdown.reconnects() && DisconnectCode::StateInvalidated.reconnects());
    assert!(!DisconnectCode::InvalidToken.reconnects() && !DisconnectCode::Stale.reconnects());
    for (code, comes_back) in [(1000, true), (1006, true), (1009, false), (3499, true)] {
        assert_eq!(code_reconnects(code), comes_back, "{code}");
    }
    for (code, comes_back) in [(3500, false), (3999, false), (4000, true), (4499, true)] {
        assert_eq!(code_reconnects(code), comes_back, "{code}");
    }
    assert!(!code_reconnects(4500) && !code_reconnects(4999));
    assert!(!UnsubscribeCode::Server.resubscribes() && UnsubscribeCode::Expired.resubscribes());
}

#[test]
fn an_error_may_say_more_than_its_code() {
    let error = ReplyError::new(ErrorCode::TooManyRequests, "100 publishes a second");
    assert_eq!((error.code, error.temporary), (111, true));
    assert_eq!(error.message, "100 publishes a second");
}

#[test]
fn a_subprotocol_names_the_encoding() {
    assert_eq!(Encoding::of_subprotocol("centrifuge-protobuf"), Some(Encoding::Protobuf));
    assert_eq!(Encoding::of_subprotocol("centrifuge-json"), Some(Encoding::Json));
    assert_eq!(Encoding::of_subprotocol("mqtt"), None);
}
