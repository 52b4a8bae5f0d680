//! The HTTP API: programs publish messages to topics, and reach live connections, by requests of their own. Answers are JSON.
//!
//! In reading order: the `routes`; what a body says (`message_body`), how it is published (`publish`), and what a refusal
//! looks like (`refusals`). Which connections are meant (`target_body`), messages to them (`send`), and the list of them, with
//! having them end (`connections`); subscriptions that programs make for them (`subscriptions`).

mod connections;
mod limits;
mod message_body;
mod publish;
mod query;
mod refusals;
pub(super) mod routes;
mod send;
mod subscriptions;
mod target_body;

use std::{fmt::Display, rc::Rc, sync::Arc};

use bytes::Bytes;
use http::{Method, StatusCode};
use sennit_identity::Verb;
use sennit_model::{Message, TopicName};
use serde_json::Value;

use self::{message_body::Messages, refusals::ApiRefusal, routes::ApiResource};
use crate::{
    broker::audit,
    hooks::topic_publisher::TopicPublisher,
    http::{answer::full, request::Request, response::Response, route::Captures},
    identity::principal::Principal,
    runtime::{
        core::{CoreHandle, Cores},
        index::CoreIndex,
    },
};

/// The API, as a core serves it.
#[derive(Debug)]
pub(crate) struct ApiDoor {
    publisher: Rc<TopicPublisher>,
    cores: Arc<Cores>,
}

impl ApiDoor {
    pub(crate) fn new(core: &CoreHandle) -> Self {
        Self { publisher: TopicPublisher::of_core(core), cores: core.cores.clone() }
    }

    /// Answers a request.
    pub(super) async fn answer(
        &self,
        principal: &Principal,
        request: &Request,
        (resource, captures): (ApiResource, Captures<'_>),
    ) -> Response {
        let answered = self.answered(principal, request, (resource, captures)).await;
        answered.unwrap_or_else(Response::from)
    }

    async fn answered(
        &self,
        principal: &Principal,
        request: &Request,
        (resource, captures): (ApiResource, Captures<'_>),
    ) -> Result<Response, ApiRefusal> {
        if resource == ApiResource::Publish {
            // Rights are those to each topic.
            return self.publish(principal, request.body()).await;
        }
        let ends = *request.method() == Method::DELETE;
        let act = match resource {
            ApiResource::Connections | ApiResource::Connection if ends => Some("live disconnect"),
            ApiResource::Subscribe => Some("live subscribe"),
            ApiResource::Unsubscribe => Some("live unsubscribe"),
            _ => None,
        };
        let may = principal.may(Verb::Live, "");
        if let (Some(act), Err(_)) = (act, &may) {
            self.note(principal, act, "", &may);
        }
        may?;
        match resource {
            ApiResource::Publish => self.publish(principal, request.body()).await,
            ApiResource::Send => self.send(request.body()).await,
            ApiResource::Connections if ends => {
                self.disconnect(principal, None, request.query()).await
            }
            ApiResource::Connections => self.connections(request.query()).await,
            ApiResource::Connection if ends => {
                self.disconnect(principal, Some(captures.id), request.query()).await
            }
            ApiResource::Connection => self.connection(captures.id).await,
            ApiResource::Subscribe => self.subscribe(principal, request.body()).await,
            ApiResource::Unsubscribe => self.unsubscribe(principal, request.body()).await,
        }
    }

    /// Has the audit know of an act.
    fn note<T, E: Display>(
        &self,
        principal: &Principal,
        act: &'static str,
        to: impl Into<String>,
        outcome: &Result<T, E>,
    ) {
        let first_core = &self.cores.inboxes[CoreIndex::FIRST];
        audit::note_to(first_core, principal, act, to, outcome);
    }
}

/// What each request of the API that has a body makes of one.
#[derive(Debug)]
pub struct ApiBody {
    /// `publish`: the messages and their topics.
    pub published: Result<Vec<(TopicName, Message)>, String>,
    /// `live/send`: the payload.
    pub sent: Result<Bytes, String>,
    /// `live/subscribe` and `live/unsubscribe`: the channel and its topic.
    pub subscription: Result<(String, TopicName), String>,
}

impl ApiBody {
    /// Reads a body as each of them does. What is refused is so in words.
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let published = message_body::read(body).map(|messages| match messages {
            Messages::One(one) => vec![(one.topic, one.message)],
            Messages::Many(many) => many.into_iter().map(|it| (it.topic, it.message)).collect(),
        });
        let subscription = subscriptions::read(body).map(|(_, channel, topic, _)| (channel, topic));
        Self {
            published: published.map_err(|refusal| refusal.detail),
            sent: send::read(body).map(|(_, payload)| payload).map_err(|refusal| refusal.detail),
            subscription: subscription.map_err(|refusal| refusal.detail),
        }
    }
}

/// An answer in JSON.
fn json_answer(status: StatusCode, body: &Value) -> Response {
    full(status, "application/json", (body.to_string() + "\n").into())
}
