//! The routes below `__ds`: subscriptions and the broker's public keys. Paths and methods become requests to the
//! first core, and its replies become answers. It knows no rules of subscriptions.

use std::rc::Rc;

use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    StreamsDoor,
    answers::NO_STORE,
    name::{self, ROOT},
    public_url::{PublicOrigin, origin},
    routes::SubscriptionResource,
    subscription_bodies as bodies,
};
use crate::{
    broker::reserved_names::RESERVED,
    http::{answer::full, body::Body, request::Request, response::Response, route::Captures},
    identity::principal::Principal,
    runtime::{inbox::Message, index::CoreIndex},
    subscriptions::{
        Subscriptions,
        request::{
            Ack, NewSubscription, SubscriptionAnswer, SubscriptionRefusal, SubscriptionRequest,
            limits::SUBSCRIPTION_BODY_BYTES_MAX,
        },
    },
};

/// Why something is not even asked.
enum BadRequest {
    Refused(SubscriptionRefusal),
    TooLong,
}

impl StreamsDoor {
    /// Answers a request for what lies at `resource`, by a method that is known there.
    pub(super) async fn subscriptions(
        &self,
        principal: &Principal,
        resource: SubscriptionResource,
        captures: Captures<'_>,
        request: &Request,
    ) -> Response {
        let settings = self.settings.get();
        let told = match parse_request(resource, captures, request, &settings.public_origin) {
            Ok(asked) => self.ask(principal.clone(), asked).await,
            Err(BadRequest::Refused(refusal)) => Err(refusal),
            Err(other) => return bad_request(&other),
        };
        match told {
            Ok(told) => answer(told),
            Err(refusal) => {
                let (status, body) = bodies::refused(&refusal);
                let mut response = json_answer(status, &body);
                let headers = response.headers_mut();
                match status {
                    StatusCode::UNAUTHORIZED => {
                        let bearer = HeaderValue::from_static("Bearer");
                        headers.insert(header::WWW_AUTHENTICATE, bearer);
                    }
                    StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                    }
                    _ => {}
                }
                response
            }
        }
    }

    async fn ask(
        &self,
        principal: Principal,
        asked: SubscriptionRequest,
    ) -> Result<SubscriptionAnswer, SubscriptionRefusal> {
        let (sender, told) = oneshot::channel();
        let call = Message::call(move |subscriptions: &Rc<Subscriptions>| {
            let subscriptions = subscriptions.clone();
            spawn_local(async move {
                let _ = sender.send(subscriptions.answer(&principal, asked).await);
            });
        });
        let _ = self.cores.inboxes[CoreIndex::FIRST].send(call);
        let stopping = || SubscriptionRefusal::Unavailable("it is about to stop".into());
        told.await.unwrap_or_else(|_| Err(stopping()))
    }
}

/// What a request asks.
fn parse_request(
    resource: SubscriptionResource,
    captures: Captures<'_>,
    request: &Request,
    public: &PublicOrigin,
) -> Result<SubscriptionRequest, BadRequest> {
    use SubscriptionResource as At;
    let body = &request.body()[..];
    if body.len() > SUBSCRIPTION_BODY_BYTES_MAX {
        return Err(BadRequest::TooLong);
    }
    match resource {
        At::Keys => return Ok(SubscriptionRequest::Keys),
        At::All => return Ok(SubscriptionRequest::List),
        _ => {}
    }
    let id = bodies::id(&decoded(captures.id)?)?;
    Ok(match (resource, request.method()) {
        (At::One, &Method::PUT) => {
            let (config, base) = (bodies::config(body)?, base(request, public)?);
            SubscriptionRequest::Create(NewSubscription { id, config, base })
        }
        (At::One, &Method::DELETE) => SubscriptionRequest::Delete(id),
        (At::Keys | At::All | At::One, _) => SubscriptionRequest::Get(id),
        (At::Streams, _) => SubscriptionRequest::Link(id, bodies::streams(body)?),
        (At::Stream, _) => {
            SubscriptionRequest::Unlink(id, bodies::stream_named(&decoded(captures.rest)?)?)
        }
        (At::Claim, _) => SubscriptionRequest::Claim(id, bodies::worker(body)?),
        (At::Callback | At::Ack | At::Release, _) => {
            let token = bearer(request)?;
            let bodies::Acked { wake, generation, acks, is_done } = bodies::acked(body)?;
            let is_callback = resource == At::Callback;
            let ack = Ack { id, is_callback, token, generation, wake, acks, is_done };
            if resource == At::Release {
                SubscriptionRequest::Release(ack)
            } else {
                SubscriptionRequest::Ack(ack)
            }
        }
    })
}

/// What a segment of a path means.
fn decoded(segment: &str) -> Result<String, SubscriptionRefusal> {
    name::text(segment)
        .ok_or_else(|| SubscriptionRefusal::invalid(format!("{segment:?}: %XX stands for a byte")))
}

/// What the addresses of a subscription begin with: where others find the broker, or where its creator
/// has.
fn base(request: &Request, public: &PublicOrigin) -> Result<Box<str>, SubscriptionRefusal> {
    let origin = origin(request, public);
    let origin = origin.ok_or_else(|| SubscriptionRefusal::invalid("the Host header is needed"))?;
    Ok(format!("{origin}{ROOT}{RESERVED}").into())
}

fn bearer(request: &Request) -> Result<Box<str>, SubscriptionRefusal> {
    let given =
        request.headers().get(&header::AUTHORIZATION).and_then(|given| str::from_utf8(given).ok());
    let (scheme, token) =
        given.and_then(|given| given.split_once(' ')).ok_or(SubscriptionRefusal::TokenInvalid)?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(SubscriptionRefusal::TokenInvalid);
    }
    Ok(token.trim().into())
}

fn answer(told: SubscriptionAnswer) -> Response {
    match told {
        SubscriptionAnswer::Created(body) => json_answer(StatusCode::CREATED, &body),
        SubscriptionAnswer::Body(body) => json_answer(StatusCode::OK, &body),
        SubscriptionAnswer::Done => {
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        SubscriptionAnswer::Keys(body) => {
            let body = body.to_string() + "\n";
            let mut response = full(StatusCode::OK, "application/jwk-set+json", body.into());
            let for_a_while = HeaderValue::from_static("public, max-age=300");
            response.headers_mut().insert(header::CACHE_CONTROL, for_a_while);
            response
        }
    }
}

fn bad_request(why: &BadRequest) -> Response {
    match why {
        BadRequest::Refused(refusal) => {
            let (status, body) = bodies::refused(refusal);
            json_answer(status, &body)
        }
        BadRequest::TooLong => {
            let message = format!("SUBSCRIPTION_BODY_BYTES_MAX is {SUBSCRIPTION_BODY_BYTES_MAX}");
            let body = json!({ "error": { "code": "LIMIT_REACHED", "message": message } });
            json_answer(StatusCode::PAYLOAD_TOO_LARGE, &body)
        }
    }
}

fn json_answer(status: StatusCode, body: &Value) -> Response {
    let mut response = full(status, "application/json", (body.to_string() + "\n").into());
    response.headers_mut().insert(header::CACHE_CONTROL, NO_STORE);
    response
}

impl From<SubscriptionRefusal> for BadRequest {
    fn from(refusal: SubscriptionRefusal) -> Self {
        Self::Refused(refusal)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::doors::streams::routes::{self, StreamsResource};

    fn ask(method: &str, path: &str, body: &'static str) -> Result<SubscriptionRequest, u16> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "here:1")
            .header(header::AUTHORIZATION, "Bearer t")
            .body(Bytes::from_static(body.as_bytes()))
            .unwrap();
        let request = Request::from(request);
        let (_, found, captures) = routes::find(request.path()).unwrap();
        let StreamsResource::Subscriptions(resource) = found else {
            panic!("{path} is no path of subscriptions")
        };
        parse_request(resource, captures, &request, &PublicOrigin::Host { is_tls: false })
            .map_err(|why| bad_request(&why).status().as_u16())
    }

    #[test]
    fn each_path_asks_something() {
        let create = r#"{"type":"pull-wake","wake_stream":"w","pattern":"a"}"#;
        let ack = r#"{"wake_id":"w","generation":1}"#;
        let base = "/v1/stream/__ds";
        for (method, path, body) in [
            ("GET", "jwks.json", ""),
            ("GET", "subscriptions", ""),
            ("PUT", "subscriptions/s", create),
            ("GET", "subscriptions/s", ""),
            ("DELETE", "subscriptions/s", ""),
            ("POST", "subscriptions/s/streams", r#"{"streams":["a"]}"#),
            ("DELETE", "subscriptions/s/streams/a%2Fb", ""),
            ("POST", "subscriptions/s/claim", r#"{"worker":"one"}"#),
            ("POST", "subscriptions/s/ack", ack),
            ("POST", "subscriptions/s/callback", ack),
            ("POST", "subscriptions/s/release", ack),
        ] {
            assert!(ask(method, &format!("{base}/{path}"), body).is_ok(), "{method} {path}");
        }
        assert_eq!(ask("GET", &format!("{base}/subscriptions/a%20b"), "").unwrap_err(), 400);
    }

    #[test]
    fn a_stream_is_named_as_one_segment_or_as_it_stands() {
        for path in ["a%2Fb", "a/b"] {
            let path = format!("/v1/stream/__ds/subscriptions/s/streams/{path}");
            let Ok(SubscriptionRequest::Unlink(_, stream)) = ask("DELETE", &path, "") else {
                panic!("{path}")
            };
            assert_eq!(stream.as_str(), "a/b");
        }
    }

    #[test]
    fn its_addresses_begin_where_it_was_made_or_where_the_operator_says() {
        let request = Request::with_headers(&[("host", "here:1")]);
        assert_eq!(
            &*base(&request, &PublicOrigin::Host { is_tls: false }).unwrap(),
            "http://here:1/v1/stream/__ds"
        );
        let public = "https://example.com/broker".parse().unwrap();
        let base = base(&request, &PublicOrigin::Url(public)).unwrap();
        assert_eq!(&*base, "https://example.com/broker/v1/stream/__ds");
    }

    #[test]
    fn without_a_token_nobody_acks() {
        let request = http::Request::post("/v1/stream/__ds/subscriptions/s/ack")
            .body(Bytes::from_static(br#"{"wake_id":"w","generation":1}"#))
            .unwrap();
        let captures = Captures { id: "s", rest: "" };
        let refused = parse_request(
            SubscriptionResource::Ack,
            captures,
            &request.into(),
            &PublicOrigin::Host { is_tls: false },
        );
        let Err(BadRequest::Refused(refusal)) = refused else { panic!("it was let through") };
        assert_eq!(refusal, SubscriptionRefusal::TokenInvalid);
    }
}
