//! The door for HTTP streams: the Durable Streams protocol, over whole requests and answers. It knows no sockets,
//! and of streams only `crate::broker::streams`.
//!
//! In reading order: `name` and `query` find the stream and the position that a request names; `settings` and
//! `create` make a stream; `content` converts bodies to messages and back; `append`, `atomic`, `read` with
//! `catch_up`, `long_poll` and `sse` with `event` are the traffic; `parked_connections` keeps readers that wait
//! without a task; `refusals` says no. Paths below `__ds` go to `subscriptions`, with their `subscription_bodies`.

mod answers;
mod append;
mod atomic;
mod catch_up;
mod content;
mod create;
mod cursor;
mod delete;
mod etag;
mod event;
mod header_values;
mod long_poll;
mod name;
mod names;
mod offset_token;
mod parked;
pub(crate) mod parked_connections;
mod public_url;
mod query;
mod read;
mod refusals;
pub(crate) mod routes;
mod settings;
mod sse;
mod storage_mode;
mod storage_rules;
mod subscription_bodies;
mod subscriptions;
mod waiting_read;

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use http::Method;
use sennit_model::ReadFrom;

pub(crate) use self::answers::body as body_of;
pub(crate) use self::cursor::next as next_cursor;
pub(crate) use self::event::KEEP_ALIVE;
pub(crate) use self::names::PAGE_HEADERS;
pub(crate) use self::parked::{answer, nothing};
pub(crate) use self::public_url::PublicOrigin;
pub use self::public_url::{PublicUrl, PublicUrlError};
pub(crate) use self::query::Live;
pub(crate) use self::read::{body, is_sound};
use self::refusals::Problem;
pub(crate) use self::sse::{control, event};
pub use self::storage_mode::{StreamStorage, StreamStorageError};
pub(crate) use self::storage_rules::StorageRules;
pub use self::storage_rules::{StreamStorageRule, StreamStorageRuleError};
pub(crate) use self::waiting_read::{ReadPosition, WaitingRead};

use self::routes::StreamsResource;
use crate::http::{
    body::Body, handler::Patience, request::Request, response::Response, route::Captures,
    thread_state::HttpThreadState,
};
use crate::{broker::streams::Streams, identity::principal::Principal, runtime::core::Cores};

/// Whether a read waits for what comes.
pub(crate) fn patience(request: &Request) -> Patience {
    let asked = query::parse(request.query().unwrap_or_default()).ok();
    match asked.filter(|asked| asked.live.is_some()).map(|asked| asked.at.read_from()) {
        None => Patience::None,
        Some(ReadFrom::Latest) => Patience::ForNews,
        Some(_) => Patience::ForMore,
    }
}

/// What the broker's owner decides for all streams.
#[derive(Clone, Debug)]
pub(crate) struct StreamsSettings {
    /// How a stream is kept whose creator does not say.
    pub(crate) storage: StorageRules,
    /// Where others find the broker, if not where they ask.
    pub(crate) public_origin: PublicOrigin,
    /// How long a read waits for something to give.
    pub(crate) long_poll_timeout: Duration,
    /// How long events are silent before a comment breaks the silence.
    pub(crate) events_silence: Duration,
    /// How long a connection lasts on which they come.
    pub(crate) events_span: Duration,
}

/// The settings of the streams of a core, which a reload replaces.
#[derive(Debug)]
pub(crate) struct CurrentStreamsSettings(RefCell<Rc<StreamsSettings>>);

impl CurrentStreamsSettings {
    /// These at first.
    pub(crate) fn new(settings: StreamsSettings) -> Self {
        Self(RefCell::new(Rc::new(settings)))
    }

    /// Those of a request that begins now.
    fn get(&self) -> Rc<StreamsSettings> {
        self.0.borrow().clone()
    }

    /// Replaces them for all requests that begin from now on.
    pub(crate) fn set(&self, settings: StreamsSettings) {
        self.0.replace(Rc::new(settings));
    }
}

/// The door, as one core has it.
#[derive(Debug)]
pub(crate) struct StreamsDoor {
    streams: Rc<Streams>,
    /// The way to subscriptions, which live on the first core.
    cores: Arc<Cores>,
    settings: Rc<CurrentStreamsSettings>,
    /// Where it is: it says when who waits is to wait no longer.
    thread_state: Rc<HttpThreadState>,
}

impl StreamsDoor {
    /// A door to `streams`.
    pub(crate) fn new(
        streams: Rc<Streams>,
        cores: Arc<Cores>,
        settings: Rc<CurrentStreamsSettings>,
        thread_state: Rc<HttpThreadState>,
    ) -> Self {
        Self { streams, cores, settings, thread_state }
    }

    /// Answers a principal's request for something of streams, by a method that is known there.
    pub(crate) async fn answer(
        &self,
        principal: &Principal,
        request: &Request,
        resource: StreamsResource,
        captures: Captures<'_>,
    ) -> Response {
        let answer = match resource {
            StreamsResource::Subscriptions(resource) => {
                Ok(Box::pin(self.subscriptions(principal, resource, captures, request)).await)
            }
            StreamsResource::Atomic => Box::pin(self.append_together(principal, request)).await,
            StreamsResource::Stream => self.of_stream(principal, request).await,
        };
        let mut response = answer.unwrap_or_else(Response::from);
        if request.method() == Method::HEAD {
            *response.body_mut() = Body::Empty;
        }
        response
    }

    async fn of_stream(
        &self,
        principal: &Principal,
        request: &Request,
    ) -> Result<Response, Problem> {
        let name = name::of_path(request.path())?;
        // Every request has room for the largest of what is not in a box: appends are many, and small.
        match *request.method() {
            Method::GET => Box::pin(self.read(principal, name, request)).await,
            Method::POST => self.append(principal, &name, request).await,
            Method::PUT => Box::pin(self.create(principal, name, request)).await,
            Method::DELETE => Box::pin(self.delete(principal, &name)).await,
            _ => self.head(principal, &name).await,
        }
    }
}
