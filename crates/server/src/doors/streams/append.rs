//! POST: something is appended, or the stream is closed, or both at once. It knows no reads.

use http::StatusCode;
use sennit_engine::{StreamAppend, StreamNote, StreamProducer};
use sennit_model::{
    TopicName,
    limits::{STREAM_NUMBER_MAX, STREAM_PRODUCER_BYTES_MAX, STREAM_SEQUENCE_BYTES_MAX},
};

use super::{
    StreamsDoor, answers,
    content::{self, Form},
    header_values::{is_true, number, one},
    names,
    refusals::Problem,
    settings,
};
use crate::{
    http::{
        request::{Headers, Request},
        response::Response,
    },
    identity::principal::Principal,
};

impl StreamsDoor {
    pub(super) async fn append(
        &self,
        principal: &Principal,
        name: &TopicName,
        request: &Request,
    ) -> Result<Response, Problem> {
        let append = parse_append(request)?;
        let has_content = append.content.is_some();
        let producer = append.note.producer.as_ref().map(|producer| producer.epoch);
        let given = append.note.producer.as_ref().map(|producer| producer.sequence);
        let mut first = Some(append);
        let append = || first.take().or_else(|| parse_append(request).ok());
        let appended = self.streams.append(principal, name, append).await?;
        // Whoever may send twice is told whether this was the first time.
        let is_news = producer.is_some() && has_content && !appended.answer.is_duplicate;
        let status = if is_news { StatusCode::OK } else { StatusCode::NO_CONTENT };
        let mut response =
            answers::at(status, appended.offset(appended.answer.next), appended.answer.is_closed);
        if let Some(epoch) = producer {
            let headers = response.headers_mut();
            headers.insert(&names::PRODUCER_EPOCH, epoch.into());
            if let Some(sequence) = appended.answer.sequence.or(given) {
                headers.insert(&names::PRODUCER_SEQUENCE, sequence.into());
            }
        }
        Ok(response)
    }
}

/// The append that a request describes.
fn parse_append(request: &Request) -> Result<Box<StreamAppend>, Problem> {
    let headers = request.headers();
    let closes = is_true(headers, &names::CLOSED);
    let note = StreamNote { producer: producer(headers)?, sequence: sequence(headers)?, closes };
    if request.body().is_empty() {
        if !closes {
            return Err(Problem::bad("an append has a body, or Stream-Closed: true"));
        }
        return Ok(Box::new(StreamAppend { content: None, content_type: None, note }));
    }
    let content_type = settings::content_type(headers)?;
    let content_type = content_type.ok_or_else(|| Problem::bad("Content-Type is missing"))?;
    let content = content::content_of(Form::of(content_type), request.body())?;
    if content.is_none() {
        return Err(Problem::bad("an empty array appends nothing"));
    }
    Ok(Box::new(StreamAppend { content, content_type: Some(content_type.into()), note }))
}

fn sequence(headers: &Headers) -> Result<Option<Box<str>>, Problem> {
    let Some(text) = one(headers, &names::SEQUENCE)? else { return Ok(None) };
    sequence_of(text).map(Some)
}

/// What is a sequence, if it is not too long.
pub(super) fn sequence_of(text: &str) -> Result<Box<str>, Problem> {
    within(text, "STREAM_SEQUENCE_BYTES_MAX", STREAM_SEQUENCE_BYTES_MAX)?;
    Ok(text.into())
}

/// What is a producer, if it has a name that is not too long.
pub(super) fn producer_of(id: &str, epoch: u64, sequence: u64) -> Result<StreamProducer, Problem> {
    if id.is_empty() {
        return Err(Problem::bad("Producer-Id is empty"));
    }
    within(id, "STREAM_PRODUCER_BYTES_MAX", STREAM_PRODUCER_BYTES_MAX)?;
    Ok(StreamProducer { id: id.into(), epoch, sequence })
}

fn producer(headers: &Headers) -> Result<Option<StreamProducer>, Problem> {
    let id = one(headers, &names::PRODUCER_ID)?;
    let epoch = number(headers, &names::PRODUCER_EPOCH, STREAM_NUMBER_MAX)?;
    let sequence = number(headers, &names::PRODUCER_SEQUENCE, STREAM_NUMBER_MAX)?;
    match (id, epoch, sequence) {
        (None, None, None) => Ok(None),
        (Some(""), ..) => producer_of("", 0, 0).map(Some),
        (Some(id), Some(epoch), Some(sequence)) => producer_of(id, epoch, sequence).map(Some),
        _ => Err(Problem::bad("Producer-Id, Producer-Epoch and Producer-Seq go together")),
    }
}

fn within(text: &str, name: &str, limit: usize) -> Result<(), Problem> {
    if text.len() > limit {
        let detail = format!("{name} is {limit}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, "limit_reached", detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn append(given: &[(&str, &str)], body: &'static str) -> Result<Box<StreamAppend>, Problem> {
        let mut request = http::Request::post("/v1/stream/a");
        for (name, value) in given {
            request = request.header(*name, *value);
        }
        parse_append(&request.body(Bytes::from_static(body.as_bytes())).unwrap().into())
    }

    const TEXT: (&str, &str) = ("content-type", "text/plain");
    const ID: (&str, &str) = ("producer-id", "writer");
    const EPOCH: (&str, &str) = ("producer-epoch", "3");
    const NUMBER: (&str, &str) = ("producer-seq", "9007199254740991");

    #[test]
    fn an_append_says_what_and_who() {
        let whole =
            append(&[TEXT, ID, EPOCH, NUMBER, ("stream-seq", "a"), ("stream-closed", "true")], "x");
        let whole = whole.unwrap();
        assert_eq!(whole.content.unwrap().count(), 1);
        assert_eq!(whole.content_type.as_deref(), Some("text/plain"));
        let producer =
            StreamProducer { id: "writer".into(), epoch: 3, sequence: 9_007_199_254_740_991 };
        assert_eq!(whole.note.producer, Some(producer));
        assert_eq!(whole.note.sequence.as_deref(), Some("a"));
        assert!(whole.note.closes);
    }

    #[test]
    fn to_close_alone_no_type_is_needed() {
        for given in [&[("stream-closed", "true")][..], &[TEXT, ("stream-closed", "TRUE")]] {
            let close = append(given, "").unwrap();
            assert!(close.note.closes && close.content.is_none() && close.content_type.is_none());
        }
    }

    #[test]
    fn what_appends_nothing_is_refused() {
        let json = ("content-type", "application/json");
        for (given, body) in [
            (&[TEXT][..], ""),
            (&[TEXT, ("stream-closed", "yes")], ""),
            (&[], "data"),
            (&[("content-type", "")], "data"),
            (&[json], "[]"),
            (&[json, ("stream-closed", "true")], "[]"),
            (&[json], "{ invalid json }"),
        ] {
            assert_eq!(append(given, body).unwrap_err().status(), 400, "{given:?} {body:?}");
        }
    }

    #[test]
    fn a_producer_is_named_whole_or_not_at_all() {
        for given in [&[ID][..], &[EPOCH], &[NUMBER], &[ID, EPOCH], &[ID, NUMBER], &[EPOCH, NUMBER]]
        {
            let given = [&[TEXT], given].concat();
            assert_eq!(append(&given, "x").unwrap_err().status(), 400, "{given:?}");
        }
        for number in ["1abc", "1e3", "-1", "+1", "", "9007199254740992", "00"] {
            for given in
                [[ID, EPOCH, ("producer-seq", number)], [ID, NUMBER, ("producer-epoch", number)]]
            {
                let given = [&[TEXT][..], &given].concat();
                assert_eq!(append(&given, "x").unwrap_err().status(), 400, "{given:?}");
            }
        }
        let nobody = [TEXT, ("producer-id", ""), EPOCH, NUMBER];
        assert_eq!(append(&nobody, "x").unwrap_err().status(), 400);
        let long = "x".repeat(STREAM_PRODUCER_BYTES_MAX + 1);
        let long = [TEXT, ("producer-id", &*long), EPOCH, NUMBER];
        assert_eq!(append(&long, "x").unwrap_err().code(), "limit_reached");
    }
}
