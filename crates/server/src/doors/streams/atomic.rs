//! POST /v1/atomic: appends to several streams of one group, to all of them or to none. It knows no reads.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{StatusCode, header};
use sennit_engine::{Content, StreamAppend, StreamAppended, StreamNote, StreamRefusal};
use sennit_model::limits::{
    APPEND_BYTES_MAX, ATOMIC_APPENDS_MAX, CONTENT_TYPE_BYTES_MAX, STREAM_NUMBER_MAX,
};
use serde::{Deserialize, Deserializer};
use serde_json::{json, value::RawValue};

use super::{
    StreamsDoor,
    answers::NO_STORE,
    append::{producer_of, sequence_of},
    content::{self, Form},
    name,
    offset_token::Token,
    refusals::Problem,
};
use crate::{
    broker::{
        stream_offset::Identified,
        stream_request::{AppendTo, StreamFailure, TogetherFailure},
    },
    http::{answer::full, request::Request, response::Response},
    identity::principal::Principal,
};

/// All that is to be appended, each as its text: how many there are is looked at before they are read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendsBody<'a> {
    #[serde(borrow)]
    appends: Vec<&'a RawValue>,
}

/// The append to one stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppendEntry<'a> {
    #[serde(borrow)]
    stream: Cow<'a, str>,
    /// A text; or any other value, which is its own text. `null` is one too, unlike no body.
    #[serde(default, borrow, deserialize_with = "any_value")]
    body: Option<&'a RawValue>,
    #[serde(default)]
    encoding: Encoding,
    #[serde(borrow)]
    content_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    producer: Option<ProducerFields<'a>>,
    #[serde(borrow)]
    seq: Option<Cow<'a, str>>,
    #[serde(default)]
    close: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProducerFields<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    epoch: u64,
    seq: u64,
}

fn any_value<'de: 'a, 'a, D: Deserializer<'de>>(body: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(body).map(Some)
}

/// The encoding of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// Itself.
    #[default]
    Utf8,
    /// Bytes.
    Base64,
}

impl StreamsDoor {
    pub(super) async fn append_together(
        &self,
        principal: &Principal,
        request: &Request,
    ) -> Result<Response, Problem> {
        let (paths, appends) = parse_body(request.body())?;
        let became = self.streams.append_together(principal, &appends).await;
        let became = became.map_err(|failure| refused(&paths, failure))?;
        Ok(answer(&paths, &became))
    }
}

/// The streams that a body names, and the append to each.
fn parse_body(body: &Bytes) -> Result<(Vec<String>, Vec<AppendTo>), Problem> {
    let invalid = |error| {
        let detail = format!("the body is {{\"appends\":[{{\"stream\",\"body\",…}},…]}}: {error}");
        Problem::new(StatusCode::BAD_REQUEST, "invalid_json", detail)
    };
    let parsed: AppendsBody<'_> = serde_json::from_slice(body).map_err(invalid)?;
    if parsed.appends.is_empty() {
        return Err(Problem::bad("appends is empty"));
    }
    if parsed.appends.len() > ATOMIC_APPENDS_MAX {
        return Err(Problem::too_large("ATOMIC_APPENDS_MAX", ATOMIC_APPENDS_MAX));
    }
    let (mut paths, mut appends, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (which, text) in parsed.appends.into_iter().enumerate() {
        let one: AppendEntry<'_> = serde_json::from_str(text.get()).map_err(invalid)?;
        let path = path_of(&one.stream);
        let append = append_of(&path, one).map_err(|problem| about(problem, which, &path))?;
        bytes += append.append.content.as_ref().map_or(0, Content::bytes);
        if bytes > APPEND_BYTES_MAX {
            return Err(Problem::too_large("APPEND_BYTES_MAX", APPEND_BYTES_MAX));
        }
        appends.push(append);
        paths.push(path);
    }
    Ok((paths, appends))
}

/// A stream is named by its path, or by what of it lies behind the root.
fn path_of(stream: &str) -> String {
    if stream.starts_with(name::ROOT) {
        stream.to_owned()
    } else {
        format!("{}{stream}", name::ROOT)
    }
}

fn append_of(path: &str, one: AppendEntry<'_>) -> Result<AppendTo, Problem> {
    let AppendEntry { body, encoding, content_type, producer, seq, close: closes, .. } = one;
    let name = name::of_path(path)?;
    let producer = match producer {
        Some(ProducerFields { epoch, seq, .. }) if epoch.max(seq) > STREAM_NUMBER_MAX => {
            return Err(Problem::bad(format!("epoch and seq are at most {STREAM_NUMBER_MAX}")));
        }
        Some(ProducerFields { id, epoch, seq }) => Some(producer_of(&id, epoch, seq)?),
        None => None,
    };
    let sequence = seq.map(|text| sequence_of(&text)).transpose()?;
    let note = StreamNote { producer, sequence, closes };
    let Some(body) =
        body.map(|body| bytes_of(body, encoding)).transpose()?.filter(|b| !b.is_empty())
    else {
        if !closes {
            return Err(Problem::bad("an append has a body, or close: true"));
        }
        let append = StreamAppend { content: None, content_type: None, note };
        return Ok(AppendTo { name, append });
    };
    let content_type = content_type.ok_or_else(|| Problem::bad("content_type is missing"))?;
    if content_type.len() > CONTENT_TYPE_BYTES_MAX {
        let detail = format!("CONTENT_TYPE_BYTES_MAX is {CONTENT_TYPE_BYTES_MAX}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "limit_reached", detail));
    }
    let content = content::content_of(Form::of(&content_type), &body)?;
    if content.is_none() {
        return Err(Problem::bad("an empty array appends nothing"));
    }
    let append = StreamAppend { content, content_type: Some(content_type.into()), note };
    Ok(AppendTo { name, append })
}

fn bytes_of(body: &RawValue, encoding: Encoding) -> Result<Bytes, Problem> {
    let text = body.get();
    let is_text = text.starts_with('"');
    match encoding {
        Encoding::Utf8 if !is_text => Ok(Bytes::copy_from_slice(text.as_bytes())),
        Encoding::Base64 if !is_text => Err(Problem::bad("base64 is a text")),
        _ => {
            let wrong = |error| Problem::bad(format!("body: {error}"));
            let text: Cow<'_, str> = serde_json::from_str(text).map_err(wrong)?;
            if encoding == Encoding::Utf8 {
                return Ok(Bytes::from(text.into_owned()));
            }
            let wrong = |error| Problem::bad(format!("body is no base64: {error}"));
            STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(wrong)
        }
    }
}

/// Says which append a problem is about.
fn about(problem: Problem, which: usize, path: &str) -> Problem {
    problem.about(path).and("append", which).and("stream", path)
}

fn refused(paths: &[String], failure: TogetherFailure) -> Problem {
    let TogetherFailure { which, failure } = failure;
    let Some((which, path)) = which.and_then(|at| Some((at, paths.get(at)?))) else {
        return failure.into();
    };
    if failure != StreamFailure::Stream(StreamRefusal::OtherGroup) {
        return about(failure.into(), which, path);
    }
    let first = &paths[0];
    let what = if which == 0 {
        format!("{path} is of no group")
    } else {
        format!("{first} and {path} are not of one group")
    };
    let detail =
        format!("{what}: streams that are appended to together are created with one Stream-Group");
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "groups_differ", detail);
    problem.and("append", which).and("streams", json!([first, path]))
}

/// The answer that says what became of each append.
fn answer(paths: &[String], became: &[Identified<StreamAppended>]) -> Response {
    let each = paths.iter().zip(became).map(|(path, appended)| {
        let mut said = json!({
            "stream": path,
            "next_offset": Token(appended.offset(appended.answer.next)).to_string(),
            "closed": appended.answer.is_closed,
            "duplicate": appended.answer.is_duplicate,
        });
        if let Some(sequence) = appended.answer.sequence {
            said["producer_seq"] = sequence.into();
        }
        said
    });
    let said = json!({ "appends": each.collect::<Vec<_>>() });
    let mut response = full(StatusCode::OK, "application/json", (said.to_string() + "\n").into());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

#[cfg(test)]
mod tests {
    use sennit_model::Offset;

    use super::*;
    use crate::http::body::Body;

    fn payloads(appends: &[AppendTo]) -> Vec<Vec<String>> {
        let texts = |each: &AppendTo| {
            let messages = each.append.content.iter().flat_map(Content::messages);
            messages.map(|m| String::from_utf8_lossy(m.payload()).into_owned()).collect()
        };
        appends.iter().map(texts).collect()
    }

    fn problem(body: &str) -> (u16, String) {
        let Err(problem) = parse_body(&Bytes::copy_from_slice(body.as_bytes())) else {
            panic!("{body} is not refused");
        };
        (problem.status().as_u16(), problem.code().to_owned())
    }

    #[test]
    fn a_body_is_a_text_or_base64_or_json_itself() {
        let body = r#"{"appends":[
            {"stream":"/v1/stream/a","body":"x \u00e4","content_type":"text/plain"},
            {"stream":"b","body":"AAE=","encoding":"base64","content_type":"application/octet-stream",
             "producer":{"id":"w","epoch":1,"seq":2},"seq":"9","close":true},
            {"stream":"c","body":[{"n": 1},2],"content_type":"application/json"},
            {"stream":"d","close":true},
            {"stream":"e","body":null,"content_type":"application/json","close":true}]}"#;
        let (paths, appends) = parse_body(&Bytes::from_static(body.as_bytes())).unwrap();
        assert_eq!(paths, ["a", "b", "c", "d", "e"].map(|name| format!("/v1/stream/{name}")));
        let expected: [&[&str]; 5] = [&["x ä"], &["\0\u{1}"], &["{\"n\": 1}", "2"], &[], &["null"]];
        assert_eq!(payloads(&appends), expected);
        let note = &appends[1].append.note;
        assert_eq!(
            note.producer.as_ref().map(|p| (&*p.id, p.epoch, p.sequence)),
            Some(("w", 1, 2))
        );
        assert_eq!((note.sequence.as_deref(), note.closes), (Some("9"), true));
    }

    #[test]
    fn what_appends_nothing_or_cannot_be_read_is_refused() {
        let text = r#""content_type":"text/plain""#;
        for body in [
            r#"{"appends":[]}"#.to_owned(),
            r#"{"appends":[{"stream":"a"}]}"#.to_owned(),
            r#"{"appends":[{"stream":"a","body":"x"}]}"#.to_owned(),
            format!(r#"{{"appends":[{{"stream":"a","body":"",{text}}}]}}"#),
            format!(r#"{{"appends":[{{"stream":"a","body":7,"encoding":"base64",{text}}}]}}"#),
            format!(r#"{{"appends":[{{"stream":"a","body":"?","encoding":"base64",{text}}}]}}"#),
            r#"{"appends":[{"stream":"a","close":true,"producer":{"id":"","epoch":0,"seq":0}}]}"#
                .to_owned(),
            r#"{"appends":[{"stream":"a","close":true,"producer":{"id":"w","epoch":0,"seq":9007199254740992}}]}"#
                .to_owned(),
        ] {
            assert_eq!(problem(&body), (400, "bad_request".into()), "{body}");
        }
        for body in ["", "[]", r#"{"appends":[{"stream":"a","bdoy":"x"}]}"#] {
            assert_eq!(problem(body), (400, "invalid_json".into()), "{body}");
        }
        let (status, code) = problem(r#"{"appends":[{"stream":"__ds/x","close":true}]}"#);
        assert_eq!((status, &*code), (404, "reserved_path"));
    }

    #[test]
    fn more_than_fits_is_refused_by_name() {
        let one = r#"{"stream":"a","close":true}"#;
        let many = vec![one; ATOMIC_APPENDS_MAX + 1].join(",");
        assert_eq!(problem(&format!(r#"{{"appends":[{many}]}}"#)), (413, "limit_reached".into()));
        let large =
            format!(r#""body":[{}0],"content_type":"application/json""#, "1000,".repeat(16_000));
        let large: Vec<_> = (0..62).map(|n| format!(r#"{{"stream":"s{n}",{large}}}"#)).collect();
        let (status, code) = problem(&format!(r#"{{"appends":[{}]}}"#, large.join(",")));
        assert_eq!((status, &*code), (413, "limit_reached"));
    }

    #[test]
    fn a_refusal_says_which_append_and_names_two_streams_of_different_groups() {
        let paths = ["/v1/stream/a".to_owned(), "/v1/stream/b".to_owned()];
        let refused_with = |which, refusal: StreamRefusal| {
            let failure = TogetherFailure { which, failure: refusal.into() };
            let response = Response::from(refused(&paths, failure));
            let Body::Full(body) = response.body else { panic!("a problem is one text") };
            serde_json::from_slice::<serde_json::Value>(&body).unwrap()
        };
        let closed = refused_with(Some(1), StreamRefusal::Closed { next: Offset(7) });
        assert_eq!((&closed["code"], &closed["append"]), (&json!("stream_closed"), &json!(1)));
        assert_eq!(closed["stream"], "/v1/stream/b");
        let other = refused_with(Some(1), StreamRefusal::OtherGroup);
        assert_eq!(other["streams"], json!(["/v1/stream/a", "/v1/stream/b"]));
        assert_eq!((&other["status"], &other["code"]), (&json!(422), &json!("groups_differ")));
    }
}
