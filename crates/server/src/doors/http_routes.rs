//! The table of all routes of the HTTP port. The router finds each request's route here, so no route exists outside
//! this table, and tests go over all of it. It knows no requests and no answers.

use super::{
    api::routes::{self as api_routes, ApiResource},
    live::emulation::Emulated,
    streams::routes::{self as stream_routes, StreamsResource, SubscriptionResource},
};
use crate::http::route::{Captures, Reach, Route};

/// What lies at a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Something of the streams protocol.
    Streams(StreamsResource),
    /// Whether the process lives.
    Alive,
    /// Whether the broker serves.
    Ready,
    /// What is counted.
    Metrics,
    /// An archive of all that the broker holds.
    Backup,
    /// What the node knows of its peers.
    Cluster,
    /// Live connections that speak the Centrifuge client protocol.
    Live,
    /// Live connections that speak the WSE protocol.
    Wse,
    /// The same in the body of an answer.
    Emulated(Emulated),
    /// Connections of the native protocol.
    Native,
    /// Something of the HTTP API.
    Api(ApiResource),
}

/// Whether a resource is served to those only who have credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Login {
    /// To all: it says nothing of what the broker holds, has a token of its own, or looks at credentials itself.
    Open,
    /// To all; credentials that are shown have to be good.
    Optional,
    /// To those only.
    Needed,
}

impl Resource {
    /// Whether credentials are needed for it, where the broker asks for them.
    pub(crate) fn login(self) -> Login {
        match self {
            Self::Alive | Self::Ready => Login::Open,
            // Wrong credentials are refused behind the handshake, as its clients expect.
            Self::Wse => Login::Open,
            // A browser cannot show credentials here: the first command does.
            Self::Live | Self::Emulated(Emulated::Events | Emulated::Stream) => Login::Optional,
            // Hello shows them.
            Self::Native => Login::Open,
            // The session is named that a connection was told.
            Self::Emulated(Emulated::Commands) => Login::Open,
            Self::Metrics | Self::Backup | Self::Cluster | Self::Api(_) => Login::Needed,
            Self::Streams(resource) => match resource {
                StreamsResource::Stream | StreamsResource::Atomic => Login::Needed,
                StreamsResource::Subscriptions(resource) => match resource {
                    // The keys are public; the others show the token of a wake where credentials would be.
                    SubscriptionResource::Keys
                    | SubscriptionResource::Callback
                    | SubscriptionResource::Ack
                    | SubscriptionResource::Release => Login::Open,
                    SubscriptionResource::All
                    | SubscriptionResource::One
                    | SubscriptionResource::Streams
                    | SubscriptionResource::Stream
                    | SubscriptionResource::Claim => Login::Needed,
                },
            },
        }
    }
}

/// The routes of the broker itself.
static OWN: [(Route, Resource); 11] = [
    (own("/healthz", "GET, HEAD"), Resource::Alive),
    (own("/readyz", "GET, HEAD"), Resource::Ready),
    (own("/metrics", "GET, HEAD"), Resource::Metrics),
    (own("/v1/admin/backup", "GET"), Resource::Backup),
    (own("/v1/admin/cluster", "GET"), Resource::Cluster),
    (live("/connection/websocket", "GET"), Resource::Live),
    (live("/wse", "GET"), Resource::Wse),
    (live("/connection/sse", "GET, POST, OPTIONS"), Resource::Emulated(Emulated::Events)),
    (live("/connection/http_stream", "POST, OPTIONS"), Resource::Emulated(Emulated::Stream)),
    (live("/emulation", "POST, OPTIONS"), Resource::Emulated(Emulated::Commands)),
    (live("/native", "GET"), Resource::Native),
];

const fn live(path: &'static str, methods: &'static str) -> Route {
    Route { path, methods, reach: Reach::AllowedToChange }
}

const fn own(path: &'static str, methods: &'static str) -> Route {
    Route { path, methods, reach: Reach::Own }
}

/// All routes.
pub(crate) fn all() -> impl Iterator<Item = (&'static Route, Resource)> {
    let of_streams =
        stream_routes::all().map(|(route, resource)| (route, Resource::Streams(*resource)));
    let of_api = api_routes::all().map(|(route, resource)| (route, Resource::Api(*resource)));
    of_streams.chain(of_api).chain(OWN.iter().map(|(route, resource)| (route, *resource)))
}

/// The route of a path with what lies there; none where nothing can lie.
pub(crate) fn find(path: &str) -> Option<(&'static Route, Resource, Captures<'_>)> {
    let of_streams = stream_routes::find(path)
        .map(|(route, resource, captures)| (route, Resource::Streams(resource), captures));
    let of_api = || {
        let (route, resource, captures) = api_routes::find(path)?;
        Some((route, Resource::Api(resource), captures))
    };
    of_streams.or_else(of_api).or_else(|| {
        OWN.iter().find_map(|(route, resource)| Some((route, *resource, route.captures(path)?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::streams::routes::SubscriptionResource;

    fn resource(path: &str) -> Option<(Resource, &str, &str)> {
        find(path).map(|(_, resource, Captures { id, rest })| (resource, id, rest))
    }

    #[test]
    fn a_path_is_of_one_route() {
        use Resource::Streams;
        use StreamsResource::{Stream, Subscriptions};
        for (path, found) in [
            ("/v1/stream/a/b", (Streams(Stream), "", "")),
            ("/v1/stream/", (Streams(Stream), "", "")),
            ("/v1/stream/__ds", (Streams(Stream), "", "")),
            ("/v1/stream/__dst/x", (Streams(Stream), "", "")),
            (
                "/v1/stream/__ds/jwks.json",
                (Streams(Subscriptions(SubscriptionResource::Keys)), "", ""),
            ),
            (
                "/v1/stream/__ds/subscriptions/s",
                (Streams(Subscriptions(SubscriptionResource::One)), "s", ""),
            ),
            (
                "/v1/stream/__ds/subscriptions/s/streams/a/b",
                (Streams(Subscriptions(SubscriptionResource::Stream)), "s", "a/b"),
            ),
            ("/v1/admin/backup", (Resource::Backup, "", "")),
        ] {
            assert_eq!(resource(path), Some(found), "{path}");
        }
        for path in [
            "",
            "*",
            "/",
            "/v1/stream",
            "/v1/admin",
            "/v1/admin/backup/",
            "/metricsx",
            "/v1/stream/__ds/",
            "/v1/stream/__ds/other",
            "/v1/stream/__ds/subscriptions/",
            "/v1/stream/__ds/subscriptions/s/",
            "/v1/stream/__ds/subscriptions/s/acknowledge",
        ] {
            assert_eq!(resource(path), None, "{path}");
        }
    }

    #[test]
    fn each_route_is_found_by_its_own_path() {
        for (route, _) in all() {
            let path =
                route.path.replace("{id}", "s").replace("{path}", "a").replace("{stream}", "a");
            let (found, _, _) = find(&path).unwrap();
            assert!(std::ptr::eq(found, route), "{path}");
        }
    }

    /// What the page for machines says of the port: each path with the methods that it names.
    fn documented() -> Vec<(String, Vec<String>)> {
        let page = include_str!("../../../../docs/reference/openapi.yaml");
        let paths = page.split_once("\npaths:\n").unwrap().1.split_once("\ncomponents:").unwrap().0;
        let mut documented: Vec<(String, Vec<String>)> = Vec::new();
        for line in paths.lines() {
            if let Some(path) = line.strip_prefix("  /") {
                documented.push((format!("/{}", path.trim_end_matches(':')), Vec::new()));
            } else if let Some(word) = line.strip_prefix("    ").and_then(|l| l.strip_suffix(':'))
                && ["get", "head", "post", "put", "delete", "options"].contains(&word)
            {
                documented.last_mut().unwrap().1.push(word.to_ascii_uppercase());
            }
        }
        documented
    }

    #[test]
    fn the_page_for_machines_has_every_route_and_no_other() {
        let documented = documented();
        assert!(documented.len() > 10, "the page is read: {documented:?}");
        let verbs = ["callback", "ack", "release"];
        for (route, resource) in all() {
            let is_stream = resource == Resource::Streams(StreamsResource::Stream);
            let (before, verb) = route.path.rsplit_once('/').unwrap();
            let by_verb =
                if verbs.contains(&verb) { format!("{before}/{{verb}}") } else { String::new() };
            let page = documented.iter().find(|(path, _)| path == route.path || *path == by_verb);
            let (_, methods) = page.unwrap_or_else(|| panic!("{} is not in the page", route.path));
            let mut known: Vec<&str> = route.methods.split(", ").collect();
            // Where the page says GET, HEAD is the same without a body; what browsers ask first it says once.
            known.retain(|method| match *method {
                "HEAD" => is_stream,
                "OPTIONS" => is_stream,
                _ => true,
            });
            known.sort_unstable();
            let mut methods = methods.clone();
            methods.sort();
            assert_eq!(known, methods, "{}", route.path);
        }
        for (path, _) in documented {
            let path = path.replace("{verb}", "ack");
            assert!(all().any(|(route, _)| route.path == path), "{path} is no route");
        }
    }
}
