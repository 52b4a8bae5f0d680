//! PUT creates a stream, with its first content. HEAD describes it. It knows no messages.

use http::{HeaderValue, StatusCode, header};
use sennit_engine::{StreamRefusal, StreamStatus};
use sennit_model::TopicName;

use super::{
    StreamsDoor,
    answers::{self, NO_STORE},
    content::{self, Form},
    names,
    public_url::{PublicOrigin, origin},
    refusals::Problem,
    settings,
    storage_mode::StreamStorage,
};
use crate::{
    broker::stream_request::{CreateStream, StreamFailure},
    http::{
        request::Request,
        response::{HeaderList, Response},
    },
    identity::principal::Principal,
};

impl StreamsDoor {
    pub(super) async fn create(
        &self,
        principal: &Principal,
        name: TopicName,
        request: &Request,
    ) -> Result<Response, Problem> {
        let current = self.settings.get();
        let headers = settings::of_headers(request.headers(), current.storage.of(name.as_str()))?;
        let content = match &headers.fork {
            _ if request.body().is_empty() => None,
            Some(fork) if headers.settings.content_type.is_empty() => {
                // What its body is depends on what it is a fork of.
                let source = self.streams.status(principal, &fork.source, false).await;
                let source = source.map_err(of_source)?;
                let form = Form::of(&source.answer.settings.content_type);
                content::content_of(form, request.body())?
            }
            _ => content::content_of(Form::of(&headers.settings.content_type), request.body())?,
        };
        let create = CreateStream {
            name,
            durability: headers.storage.durability(),
            settings: headers.settings,
            content,
            closes: headers.closes,
            fork: headers.fork,
        };
        let (created, stream) =
            self.streams.create(principal, create).await.map_err(of_creation)?;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        let mut response =
            answers::at(status, stream.offset(stream.answer.next), stream.answer.is_closed);
        let headers = response.headers_mut();
        answers::say_type(headers, &stream.answer.settings)?;
        say_storage(headers, &stream.answer);
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        if created && let Some(location) = location(request, &current.public_origin) {
            headers.insert(header::LOCATION, location);
        }
        Ok(response)
    }

    pub(super) async fn head(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<Response, Problem> {
        let stream = self.streams.status(principal, name, false).await?;
        let next = stream.offset(stream.answer.next);
        let mut response = answers::at(StatusCode::OK, next, stream.answer.is_closed);
        let headers = response.headers_mut();
        answers::say_type(headers, &stream.answer.settings)?;
        say_storage(headers, &stream.answer);
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        if let Some(seconds) = stream.answer.settings.time_to_live {
            headers.insert(&names::TIME_TO_LIVE, seconds.into());
        }
        if let Some((_, text)) = &stream.answer.settings.expires_at
            && let Ok(text) = HeaderValue::from_str(text)
        {
            headers.insert(&names::EXPIRES_AT, text);
        }
        if let Some(group) = &stream.answer.settings.group
            && let Ok(group) = HeaderValue::from_str(group)
        {
            headers.insert(&names::GROUP, group);
        }
        Ok(response)
    }
}

/// Says how a stream is kept.
fn say_storage(headers: &mut HeaderList, stream: &StreamStatus) {
    let storage = StreamStorage::of(stream.durability, stream.settings.is_verified);
    if let Some(storage) = storage {
        headers.insert(&names::STORAGE, HeaderValue::from_static(storage.name()));
    }
}

/// A name is not free as long as the forks of what had it are there.
fn of_creation(failure: StreamFailure) -> Problem {
    match failure {
        StreamFailure::Stream(StreamRefusal::Deleted) => {
            Problem::new(StatusCode::CONFLICT, "stream_deleted", failure.to_string())
        }
        failure => failure.into(),
    }
}

fn of_source(failure: StreamFailure) -> Problem {
    match failure {
        StreamFailure::Stream(StreamRefusal::Unknown) => StreamFailure::SourceUnknown.into(),
        StreamFailure::Stream(StreamRefusal::Deleted) => StreamFailure::SourceDeleted.into(),
        failure => failure.into(),
    }
}

/// The whole address of what was asked for.
fn location(request: &Request, public: &PublicOrigin) -> Option<HeaderValue> {
    let origin = origin(request, public)?;
    HeaderValue::from_str(&format!("{origin}{}", request.path())).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn the_location_names_the_requested_stream() {
        let request = |uri: &str, host: Option<&str>| {
            let mut request = http::Request::put(uri);
            if let Some(host) = host {
                request = request.header(header::HOST, host);
            }
            location(
                &request.body(Bytes::new()).unwrap().into(),
                &PublicOrigin::Host { is_tls: false },
            )
        };
        let by_host = request("/v1/stream/a%20b?x", Some("127.0.0.1:4437")).unwrap();
        assert_eq!(by_host, "http://127.0.0.1:4437/v1/stream/a%20b");
        assert_eq!(request("/v1/stream/a", None), None);
    }

    #[test]
    fn a_name_whose_forks_live_is_not_free() {
        let deleted = || StreamFailure::Stream(StreamRefusal::Deleted);
        assert_eq!(of_creation(deleted()).status(), StatusCode::CONFLICT);
        assert_eq!(of_source(deleted()).status(), StatusCode::CONFLICT);
        let unknown = StreamFailure::Stream(StreamRefusal::Unknown);
        assert_eq!(of_source(unknown).status(), StatusCode::NOT_FOUND);
    }
}
