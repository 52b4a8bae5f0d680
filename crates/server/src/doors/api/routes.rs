//! The routes of the HTTP API. It knows no requests and no answers.

use crate::http::route::{Captures, Reach, Route};

/// What lies at a route of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiResource {
    /// Messages are published.
    Publish,
    /// A message goes to live connections.
    Send,
    /// The live connections.
    Connections,
    /// One of them.
    Connection,
    /// Subscriptions of connections are made.
    Subscribe,
    /// Subscriptions of connections end.
    Unsubscribe,
}

/// All routes.
static ALL: [(Route, ApiResource); 6] = [
    of_programs("/api/v1/publish", "POST", ApiResource::Publish),
    of_programs("/api/v1/live/send", "POST", ApiResource::Send),
    of_programs("/api/v1/live/connections", "GET, HEAD, DELETE", ApiResource::Connections),
    of_programs("/api/v1/live/connections/{id}", "GET, HEAD, DELETE", ApiResource::Connection),
    of_programs("/api/v1/live/subscribe", "POST", ApiResource::Subscribe),
    of_programs("/api/v1/live/unsubscribe", "POST", ApiResource::Unsubscribe),
];

/// A route for programs, and for the broker's own pages.
const fn of_programs(
    path: &'static str,
    methods: &'static str,
    resource: ApiResource,
) -> (Route, ApiResource) {
    (Route { path, methods, reach: Reach::Own }, resource)
}

/// All routes.
pub(crate) fn all() -> impl Iterator<Item = &'static (Route, ApiResource)> {
    ALL.iter()
}

/// The route of a path with what lies there.
pub(crate) fn find(path: &str) -> Option<(&'static Route, ApiResource, Captures<'_>)> {
    // Most paths are of streams.
    if !path.starts_with("/api/") {
        return None;
    }
    ALL.iter().find_map(|(route, resource)| Some((route, *resource, route.captures(path)?)))
}
