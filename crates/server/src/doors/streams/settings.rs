//! The settings in a request that creates a stream: type, end, storage, source of a fork. It knows no bodies.

use http::{StatusCode, header};
use jiff::{civil::DateTime, fmt::temporal::Pieces};
use sennit_engine::{StreamSettings, media_type};
use sennit_model::{NameError, Timestamp, TopicName, limits::CONTENT_TYPE_BYTES_MAX};

use super::{
    header_values::{is_true, number, one},
    name, names,
    offset_token::{self, Position},
    refusals::Problem,
    storage_mode::StreamStorage,
};
use crate::{broker::stream_request::ForkRequest, http::request::Headers};

/// The type of a stream whose creator names none.
pub(super) const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// A stream to be created, as the headers say.
#[derive(Debug)]
pub(super) struct CreateHeaders {
    pub(super) settings: StreamSettings,
    pub(super) storage: StreamStorage,
    pub(super) closes: bool,
    pub(super) fork: Option<ForkRequest>,
}

/// Reads the headers of a request to create a stream. Of a fork that names no type the type is empty:
/// it is the source's.
///
/// # Errors
/// A header says nothing that can be.
pub(super) fn of_headers(
    headers: &Headers,
    storage: StreamStorage,
) -> Result<CreateHeaders, Problem> {
    let fork = fork(headers)?;
    let storage = match one(headers, &names::STORAGE)? {
        Some(text) => text.parse().map_err(|error| Problem::bad(format!("{error}")))?,
        None => storage,
    };
    let group = group(headers, storage)?;
    let time_to_live = number(headers, &names::TIME_TO_LIVE, u64::MAX)?;
    let expires_at = expires_at(headers)?;
    if time_to_live.is_some() && expires_at.is_some() {
        return Err(Problem::bad("a stream has Stream-TTL or Stream-Expires-At, not both"));
    }
    let content_type = content_type(headers)?.unwrap_or(match fork {
        Some(_) => "",
        None => CONTENT_TYPE_DEFAULT,
    });
    let settings = StreamSettings {
        content_type: content_type.into(),
        time_to_live,
        expires_at,
        is_verified: storage.is_verified(),
        fork: None,
        group,
    };
    Ok(CreateHeaders { settings, storage, closes: is_true(headers, &names::CLOSED), fork })
}

/// The type that a request names, as it writes it; `None` if it names none. Parameters alone are none: what
/// is kept so would be neither its source's type nor another.
pub(super) fn content_type(headers: &Headers) -> Result<Option<&str>, Problem> {
    let given = one(headers, &header::CONTENT_TYPE)?.filter(|text| !media_type(text).is_empty());
    if given.is_some_and(|text| text.len() > CONTENT_TYPE_BYTES_MAX) {
        let limit = format!("CONTENT_TYPE_BYTES_MAX is {CONTENT_TYPE_BYTES_MAX}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "limit_reached", limit));
    }
    Ok(given)
}

fn expires_at(headers: &Headers) -> Result<Option<(Timestamp, Box<str>)>, Problem> {
    let Some(text) = one(headers, &names::EXPIRES_AT)? else { return Ok(None) };
    let at = instant(text).ok_or_else(|| {
        Problem::bad(format!("Stream-Expires-At: {text:?} is no time: write 2030-01-31T12:00:00Z"))
    })?;
    Ok(Some((at, text.into())))
}

/// The instant that a text of RFC 3339 means, up to the last of the year 9999; one before 1970 is 1970. A
/// [`jiff::Timestamp`] ends a day earlier, so that it has a local time everywhere.
fn instant(text: &str) -> Option<Timestamp> {
    const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
    let pieces = Pieces::parse(text).ok()?;
    let (local, offset) = (pieces.date().to_datetime(pieces.time()?), pieces.to_numeric_offset()?);
    let millis = local.duration_since(EPOCH).as_millis() - i128::from(offset.seconds()) * 1000;
    Some(Timestamp(u64::try_from(millis).unwrap_or(0)))
}

/// The stream group that a request names.
fn group(headers: &Headers, storage: StreamStorage) -> Result<Option<Box<str>>, Problem> {
    let Some(text) = one(headers, &names::GROUP)? else { return Ok(None) };
    let name: TopicName = text.parse().map_err(|error: NameError| {
        Problem::new(StatusCode::BAD_REQUEST, "invalid_name", format!("Stream-Group: {error}"))
    })?;
    if storage != StreamStorage::Acid {
        let detail = format!("Stream-Group is for streams kept as acid, and this one is {storage}");
        return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "group_needs_acid", detail));
    }
    Ok(Some(name.as_str().into()))
}

fn fork(headers: &Headers) -> Result<Option<ForkRequest>, Problem> {
    let source = one(headers, &names::FORKED_FROM)?;
    let token = one(headers, &names::FORK_OFFSET)?;
    let behind = number(headers, &names::FORK_SUB_OFFSET, u64::MAX)?;
    let Some(source) = source else {
        return match (token, behind) {
            (None, None) => Ok(None),
            _ => Err(Problem::bad("where a fork begins needs Stream-Forked-From")),
        };
    };
    // Which part of an address it is, nobody says: the path alone, or all of it.
    let path = source.find(name::ROOT).map_or(source, |at| match &source[..at] {
        origin if origin.starts_with("http://") || origin.starts_with("https://") => &source[at..],
        _ => source,
    });
    let source = name::of_path(path).map_err(|problem| match problem.status() {
        StatusCode::NOT_FOUND => {
            Problem::not_found("unknown_source", format!("{source:?} is no stream"))
        }
        _ => problem,
    })?;
    let at = match token.map(offset_token::parse) {
        None => None,
        Some(Some(Position::At(offset))) => Some(offset),
        Some(_) => {
            let what = "Stream-Fork-Offset is an offset as Stream-Next-Offset says it";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid_offset", what));
        }
    };
    let behind = behind.unwrap_or(0);
    if behind > 0 && at.is_none() {
        return Err(Problem::bad("Stream-Fork-Sub-Offset needs Stream-Fork-Offset"));
    }
    Ok(Some(ForkRequest { source, at, token: token.unwrap_or_default().into(), behind }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{broker::stream_offset::StreamOffset, http::request::Request};

    fn asked(given: &[(&'static str, &'static str)]) -> Result<CreateHeaders, Problem> {
        of_headers(Request::with_headers(given).headers(), StreamStorage::FileDurable)
    }

    fn is_bad(given: &[(&'static str, &'static str)]) -> bool {
        asked(given).is_err_and(|problem| problem.status() == StatusCode::BAD_REQUEST)
    }

    #[test]
    fn what_is_not_said_is_as_the_broker_says() {
        let plain = asked(&[]).unwrap();
        assert_eq!(&*plain.settings.content_type, CONTENT_TYPE_DEFAULT);
        assert_eq!(plain.storage, StreamStorage::FileDurable);
        assert!(!plain.closes && plain.fork.is_none() && !plain.settings.is_verified);
        assert_eq!((plain.settings.time_to_live, plain.settings.expires_at), (None, None));
    }

    #[test]
    fn what_is_said_is_kept_as_it_was_written() {
        let all = asked(&[
            ("content-type", "text/plain; charset=UTF-8"),
            ("stream-expires-at", "2030-01-31T12:00:00.500+01:00"),
            ("stream-storage", "acid"),
            ("stream-closed", "True"),
        ])
        .unwrap();
        assert_eq!(&*all.settings.content_type, "text/plain; charset=UTF-8");
        let end = (Timestamp(1_896_087_600_500), "2030-01-31T12:00:00.500+01:00".into());
        assert_eq!(all.settings.expires_at, Some(end));
        assert!(all.closes && all.settings.is_verified);
        let sliding = asked(&[("stream-ttl", "18446744073709551615")]).unwrap();
        assert_eq!(sliding.settings.time_to_live, Some(u64::MAX));
    }

    #[test]
    fn any_instant_of_rfc_3339_may_be_an_end() {
        for (text, millis) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799_000),
            ("9999-12-31T23:59:59.999999999-23:59", 253_402_387_139_999),
            ("1970-01-01T00:00:00Z", 0),
            ("1969-12-31T23:59:59Z", 0),
            ("0001-01-01T00:00:00Z", 0),
            ("2030-01-31t12:00:00z", 1_896_091_200_000),
            ("2030-01-31 12:00:00+00:00", 1_896_091_200_000),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000),
        ] {
            let end = asked(&[("stream-expires-at", text)]).unwrap().settings.expires_at;
            assert_eq!(end, Some((Timestamp(millis), text.into())), "{text}");
        }
    }

    #[test]
    fn an_end_that_is_none_is_refused() {
        assert!(is_bad(&[("stream-ttl", "60"), ("stream-expires-at", "2030-01-31T12:00:00Z")]));
        for end in [
            "not-a-timestamp",
            "2030-01-31",
            "2030-01-31T12:00:00",
            "2030-02-30T12:00:00Z",
            "10000-01-01T00:00:00Z",
            "",
            "1896087600",
        ] {
            assert!(is_bad(&[("stream-expires-at", end)]), "{end:?}");
        }
        for span in ["abc", "-1", "00060", "+60", "60.5", "1e3", "", "18446744073709551616"] {
            assert!(is_bad(&[("stream-ttl", span)]), "{span:?}");
        }
        assert!(is_bad(&[("stream-storage", "disk")]));
    }

    #[test]
    fn a_group_is_of_streams_that_are_kept_as_acid() {
        let acid = ("stream-storage", "acid");
        let grouped = asked(&[acid, ("stream-group", "accounts/eu")]).unwrap();
        assert_eq!(grouped.settings.group.as_deref(), Some("accounts/eu"));
        let problem = asked(&[("stream-group", "accounts")]).unwrap_err();
        assert_eq!(
            (problem.status(), problem.code()),
            (StatusCode::UNPROCESSABLE_ENTITY, "group_needs_acid")
        );
        for name in ["", "a b", "a..b"] {
            assert_eq!(asked(&[acid, ("stream-group", name)]).unwrap_err().code(), "invalid_name");
        }
    }

    const ZERO: (&str, &str) = ("stream-fork-offset", "0000000000000000_0000000000000000");
    const SOURCE: (&str, &str) = ("stream-forked-from", "/v1/stream/source");

    #[test]
    fn a_fork_has_the_type_of_its_source_unless_it_says_otherwise() {
        let fork = asked(&[SOURCE]).unwrap();
        assert_eq!(&*fork.settings.content_type, "");
        let fork = fork.fork.unwrap();
        assert_eq!((fork.source.as_str(), fork.at, fork.behind), ("source", None, 0));
        let said = asked(&[SOURCE, ZERO, ("content-type", "text/plain")]).unwrap();
        assert_eq!(&*said.settings.content_type, "text/plain");
        assert_eq!(said.fork.unwrap().at, Some(StreamOffset::BEGINNING));
    }

    #[test]
    fn parameters_alone_are_no_type() {
        let parameters = ("content-type", "; charset=utf-8");
        assert_eq!(&*asked(&[parameters]).unwrap().settings.content_type, CONTENT_TYPE_DEFAULT);
        assert_eq!(&*asked(&[parameters, SOURCE]).unwrap().settings.content_type, "");
    }

    #[test]
    fn a_source_may_be_a_whole_address() {
        for source in ["http://127.0.0.1:4437/v1/stream/source", "https://a/v1/stream/source"] {
            let fork = asked(&[("stream-forked-from", source)]).unwrap().fork.unwrap();
            assert_eq!(fork.source.as_str(), "source");
        }
    }

    #[test]
    fn a_source_that_cannot_be_is_not_found() {
        for source in ["", "source", "/v1/stream/", "/elsewhere/source", "ftp://a/v1/stream/source"]
        {
            let problem = asked(&[("stream-forked-from", source)]).unwrap_err();
            assert_eq!(problem.code(), "unknown_source", "{source:?}");
        }
    }

    #[test]
    fn where_a_fork_begins_has_to_be_within_something() {
        assert!(is_bad(&[("stream-fork-sub-offset", "0")]));
        assert!(is_bad(&[ZERO]));
        assert!(is_bad(&[SOURCE, ("stream-fork-sub-offset", "1")]));
        assert!(is_bad(&[SOURCE, ("stream-fork-offset", "now")]));
        for behind in ["-1", "abc", "1.5", "05", "+1"] {
            assert!(is_bad(&[SOURCE, ZERO, ("stream-fork-sub-offset", behind)]), "{behind:?}");
        }
        assert_eq!(
            asked(&[SOURCE, ("stream-fork-sub-offset", "0")]).unwrap().fork.unwrap().behind,
            0
        );
    }
}
