//! The router of a thread finds the route of each HTTP request, and passes the request to the door that answers
//! there. It knows routes, not what they mean.

use std::{rc::Rc, sync::Arc};

use http::{HeaderValue, Method, StatusCode, header};
use sennit_identity::Verb;

use super::{
    api::ApiDoor,
    http_login::{self, unauthorized},
    http_routes::{self, Login, Resource},
    live::{self, emulation::LiveDoor},
    native_upgrade,
    status::Status,
    streams::{
        self, StreamsDoor,
        routes::{ROOT, is_of_stream},
    },
};
use crate::broker::audit;
use crate::http::{
    answer::{coded_problem, come_again},
    concurrency::Concurrency,
    handler::{Answering, Handler, Handlers, Patience, Wait},
    limits::ANSWER_BYTES_EXPECTED,
    request::Request,
    response::Response,
    route::{Captures, Reach, Route},
    thread_state::HttpThreadState,
    upgrade::UpgradeEntry,
};
use crate::identity::{
    authority::Authority, login::LoginRefusal, login_cache::LoginCache, principal::Principal,
};
use crate::runtime::{clock::now, inbox, peer::Peer};

/// The cookie in which clients of the WSE protocol show their token.
const WSE_TOKEN_COOKIE: &str = "access_token";

/// The router of a thread.
#[derive(Debug)]
pub(crate) struct HttpRouter {
    thread_state: Rc<HttpThreadState>,
    status: Arc<Status>,
    /// The streams, as this thread sees them; none while the shards are recovered, and when the broker
    /// stops.
    streams: Option<StreamsDoor>,
    /// The live connections of this thread; none where there are no streams either.
    live: Option<LiveDoor>,
    /// The way to the native door; none there either.
    native: Option<Rc<UpgradeEntry>>,
    /// The HTTP API, as long as there are streams.
    api: Option<ApiDoor>,
    logins: LoginCache,
    /// The way to the audit.
    first_core: inbox::Sender,
}

/// The router of a connection.
#[derive(Debug)]
struct PeerRouter {
    router: Rc<HttpRouter>,
    peer: Peer,
}

impl Handlers for HttpRouter {
    fn of_peer(self: Rc<Self>, peer: Peer) -> Rc<dyn Handler> {
        Rc::new(PeerRouter { router: self, peer })
    }
}

impl Handler for PeerRouter {
    fn answer(self: Rc<Self>, request: Rc<Request>) -> Answering {
        Box::pin(async move { self.router.route(&request, &self.peer).await })
    }

    fn resume(self: Rc<Self>, wait: Wait) -> Answering {
        Box::pin(async move {
            match (&self.router.streams, wait.what()) {
                (Some(streams), Some(wait)) => streams.go_on(wait).await,
                _ => not_ready(),
            }
        })
    }

    fn concurrency(&self, request: &Request) -> Concurrency {
        match request.method() {
            method if method.is_safe() => Concurrency::Reads,
            &Method::POST if is_of_stream(request.path()) => Concurrency::Appends,
            _ => Concurrency::Alone,
        }
    }

    fn answer_bytes_expected(&self, request: &Request) -> usize {
        let is_read = *request.method() == Method::GET && request.path().starts_with(ROOT);
        if is_read { ANSWER_BYTES_EXPECTED } else { 0 }
    }

    fn patience(&self, request: &Request) -> Patience {
        streams::patience(request)
    }
}

impl HttpRouter {
    pub(crate) fn new(
        thread_state: Rc<HttpThreadState>,
        status: Arc<Status>,
        (live, native): (Option<LiveDoor>, Option<Rc<UpgradeEntry>>),
        (streams, api): (Option<StreamsDoor>, Option<ApiDoor>),
        authority: Authority,
        first_core: inbox::Sender,
    ) -> Self {
        let logins = LoginCache::new(authority, thread_state.metrics.clone());
        Self { thread_state, status, streams, live, native, api, logins, first_core }
    }

    /// Has a request answered where its route leads, if a page in a browser may ask that.
    async fn route(&self, request: &Request, peer: &Peer) -> Response {
        let guard = &self.thread_state.guard;
        let found = http_routes::find(request.path());
        let route = found.map(|(route, ..)| route);
        let (mut response, reach) = match (guard.check(request, route), found) {
            // Nothing is said to a page that may not ask.
            (Err(misdirected), _) => (misdirected.answer(), Reach::Own),
            (Ok(()), None) => {
                let login = self.log_in(request, peer).await;
                (login.map_or_else(unauthorized, |_| nothing_here()), Reach::Own)
            }
            (Ok(()), Some((route, resource, captures))) => {
                let answer = self.answer_at((route, resource, captures), request, peer);
                (answer.await, route.reach)
            }
        };
        guard.say(response.headers_mut(), request, reach);
        response
    }

    async fn answer_at(
        &self,
        (route, resource, captures): (&'static Route, Resource, Captures<'_>),
        request: &Request,
        peer: &Peer,
    ) -> Response {
        let method = request.method();
        // A browser asks first without credentials.
        if *method == Method::OPTIONS && route.knows(method.as_str()) {
            return self.thread_state.guard.preflight(request, route);
        }
        let principal = match resource.login() {
            Login::Open => Principal::nobody(),
            Login::Optional if http_login::shown(request.headers()).is_empty() => {
                Principal::nobody()
            }
            // A parked read keeps the principal with which it began.
            Login::Optional | Login::Needed => match self.log_in(request, peer).await {
                Ok(principal) => principal,
                Err(refusal) => return unauthorized(refusal),
            },
        };
        if !route.knows(method.as_str()) {
            return not_allowed(route.methods);
        }
        let principal = &principal;
        match resource {
            Resource::Streams(resource) => match &self.streams {
                Some(streams) => streams.answer(principal, request, resource, captures).await,
                None => not_ready(),
            },
            Resource::Api(resource) => match &self.api {
                Some(api) => Box::pin(api.answer(principal, request, (resource, captures))).await,
                None => not_ready(),
            },
            Resource::Live => {
                live::upgrade::answer(&self.thread_state, request, principal.clone(), peer)
            }
            Resource::Wse => {
                let credential =
                    http_login::credential_or_cookie(request.headers(), WSE_TOKEN_COOKIE);
                live::upgrade::answer_wse(&self.thread_state, request, credential, peer)
            }
            Resource::Emulated(emulated) => match &self.live {
                Some(live) => live.answer(emulated, request, principal.clone(), peer).await,
                None => not_ready(),
            },
            Resource::Native => match &self.native {
                Some(entry) => native_upgrade::answer(&self.thread_state, request, entry),
                None => not_ready(),
            },
            Resource::Alive => self.status.alive(),
            Resource::Ready => self.status.ready(),
            Resource::Metrics => match principal.may(Verb::Monitor, "") {
                Ok(()) => self.status.metrics(),
                Err(missing) => http_login::forbidden(&missing),
            },
            Resource::Cluster => match principal.may(Verb::Monitor, "") {
                Ok(()) => self.status.cluster(),
                Err(missing) => http_login::forbidden(&missing),
            },
            Resource::Backup => {
                let may = principal.may(Verb::Backup, "");
                audit::note_to(&self.first_core, principal, "backup", "", &may);
                match may {
                    Ok(()) => Box::pin(self.status.backup()).await,
                    Err(missing) => http_login::forbidden(&missing),
                }
            }
        }
    }

    /// The principal that the credentials of a request are those of, or the certificate of its connection.
    async fn log_in(&self, request: &Request, peer: &Peer) -> Result<Principal, LoginRefusal> {
        let shown = http_login::shown(request.headers());
        self.logins.log_in(shown, || http_login::credential(shown), peer, now()).await
    }
}

fn not_ready() -> Response {
    come_again("not_ready", "the broker recovers, or is about to stop")
}

fn nothing_here() -> Response {
    let mut paths: Vec<&str> = http_routes::all().map(|(route, _)| route.path).collect();
    paths.sort_unstable();
    let detail = format!("nothing is here; there are {}", paths.join(", "));
    coded_problem(StatusCode::NOT_FOUND, "unknown_path", &detail)
}

fn not_allowed(methods: &'static str) -> Response {
    let detail = format!("this knows {methods}");
    let mut response = coded_problem(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", &detail);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    response
}

#[cfg(test)]
mod tests;
