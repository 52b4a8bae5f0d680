//! The routes of the streams protocol, each with its path, its methods and the origins that may use it. It knows no
//! requests and no answers.

use crate::http::route::{Captures, Reach, Route};

/// What lies at a route of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamsResource {
    /// A stream.
    Stream,
    /// Appends to several streams.
    Atomic,
    /// Something about subscriptions.
    Subscriptions(SubscriptionResource),
}

/// What of subscriptions lies at a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionResource {
    /// The public keys.
    Keys,
    /// All of them.
    All,
    /// One.
    One,
    /// The streams that one is linked to.
    Streams,
    /// One of those.
    Stream,
    /// Where workers say what they do.
    Callback,
    Claim,
    Ack,
    Release,
}

/// What the path of a stream begins with.
pub(crate) const ROOT: &str = "/v1/stream/";

/// What of the paths of streams is reserved for the protocol, as a path begins with it.
pub(crate) const RESERVED_ROOT: &str = "/v1/stream/__ds/";

/// A stream: most requests are for one.
static STREAM: (Route, StreamsResource) = (
    Route {
        path: "/v1/stream/{path}",
        methods: "GET, HEAD, POST, PUT, DELETE, OPTIONS",
        reach: Reach::Allowed,
    },
    StreamsResource::Stream,
);

/// All others.
static OTHERS: [(Route, StreamsResource); 10] = [
    (
        Route { path: "/v1/atomic", methods: "POST, OPTIONS", reach: Reach::Allowed },
        StreamsResource::Atomic,
    ),
    of_subscriptions("/v1/stream/__ds/jwks.json", "GET, HEAD", SubscriptionResource::Keys),
    of_subscriptions("/v1/stream/__ds/subscriptions", "GET, HEAD", SubscriptionResource::All),
    of_subscriptions(
        "/v1/stream/__ds/subscriptions/{id}",
        "GET, HEAD, PUT, DELETE",
        SubscriptionResource::One,
    ),
    of_subscriptions(
        "/v1/stream/__ds/subscriptions/{id}/streams",
        "POST",
        SubscriptionResource::Streams,
    ),
    of_subscriptions(
        "/v1/stream/__ds/subscriptions/{id}/streams/{stream}",
        "DELETE",
        SubscriptionResource::Stream,
    ),
    of_subscriptions(
        "/v1/stream/__ds/subscriptions/{id}/callback",
        "POST",
        SubscriptionResource::Callback,
    ),
    of_subscriptions(
        "/v1/stream/__ds/subscriptions/{id}/claim",
        "POST",
        SubscriptionResource::Claim,
    ),
    of_subscriptions("/v1/stream/__ds/subscriptions/{id}/ack", "POST", SubscriptionResource::Ack),
    of_subscriptions(
        "/v1/stream/__ds/subscriptions/{id}/release",
        "POST",
        SubscriptionResource::Release,
    ),
];

const fn of_subscriptions(
    path: &'static str,
    methods: &'static str,
    resource: SubscriptionResource,
) -> (Route, StreamsResource) {
    (Route { path, methods, reach: Reach::Own }, StreamsResource::Subscriptions(resource))
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static (Route, StreamsResource)> {
    std::iter::once(&STREAM).chain(&OTHERS)
}

/// The route of a path with what lies there; none where nothing can lie.
pub(crate) fn find(path: &str) -> Option<(&'static Route, StreamsResource, Captures<'_>)> {
    if is_of_stream(path) {
        return Some((&STREAM.0, STREAM.1, Captures::default()));
    }
    OTHERS.iter().find_map(|(route, resource)| Some((route, *resource, route.captures(path)?)))
}

/// Whether a path is that of a stream, if there is one.
pub(crate) fn is_of_stream(path: &str) -> bool {
    path.starts_with(ROOT) && !path.starts_with(RESERVED_ROOT)
}
