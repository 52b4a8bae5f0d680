//! Every route of the HTTP port: its path, the methods it knows, and whose pages may use it. The `door`
//! finds each request's route here, so that there is none which is not in this table, and tests go over
//! all of it. It knows no requests and no answers.

/// What lies at a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// A stream.
    Stream,
    /// Appends to several streams.
    Atomic,
    /// Something about subscriptions.
    Subscriptions(SubscriptionRoom),
    /// Whether the process lives.
    Alive,
    /// Whether the broker serves.
    Ready,
    /// What is counted.
    Metrics,
    /// An archive of all that the broker holds.
    Backup,
}

/// What of subscriptions lies at a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionRoom {
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

/// Whose pages may use a route. A program that is no browser may use all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of the broker's own origin. No answer says anything to others.
    OwnPages,
    /// Those of allowed origins too: browsers read and write streams.
    AllowedPages,
}

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its path. `{id}` is one segment, what else is in braces is all that follows.
    pub(crate) path: &'static str,
    pub(crate) room: Room,
    /// What can be asked there, as `Allow` says it.
    pub(crate) methods: &'static str,
    pub(crate) reach: Reach,
}

/// What the path of a stream begins with.
pub(crate) const ROOT: &str = "/v1/stream/";

/// What of the paths of streams is reserved for the protocol, as a path begins with it.
pub(crate) const RESERVED_ROOT: &str = "/v1/stream/__ds/";

/// A stream: most requests are for one.
static STREAM: Route = Route {
    path: "/v1/stream/{path}",
    room: Room::Stream,
    methods: "GET, HEAD, POST, PUT, DELETE, OPTIONS",
    reach: Reach::AllowedPages,
};

/// All others, each as its path, what lies there, its methods, and its reach.
static OTHERS: [Route; 14] = [
    Route {
        path: "/v1/atomic",
        room: Room::Atomic,
        methods: "POST, OPTIONS",
        reach: Reach::AllowedPages,
    },
    Route {
        path: "/v1/stream/__ds/jwks.json",
        room: Room::Subscriptions(SubscriptionRoom::Keys),
        methods: "GET, HEAD",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions",
        room: Room::Subscriptions(SubscriptionRoom::All),
        methods: "GET, HEAD",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}",
        room: Room::Subscriptions(SubscriptionRoom::One),
        methods: "GET, HEAD, PUT, DELETE",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}/streams",
        room: Room::Subscriptions(SubscriptionRoom::Streams),
        methods: "POST",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}/streams/{stream}",
        room: Room::Subscriptions(SubscriptionRoom::Stream),
        methods: "DELETE",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}/callback",
        room: Room::Subscriptions(SubscriptionRoom::Callback),
        methods: "POST",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}/claim",
        room: Room::Subscriptions(SubscriptionRoom::Claim),
        methods: "POST",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}/ack",
        room: Room::Subscriptions(SubscriptionRoom::Ack),
        methods: "POST",
        reach: Reach::OwnPages,
    },
    Route {
        path: "/v1/stream/__ds/subscriptions/{id}/release",
        room: Room::Subscriptions(SubscriptionRoom::Release),
        methods: "POST",
        reach: Reach::OwnPages,
    },
    Route { path: "/healthz", room: Room::Alive, methods: "GET, HEAD", reach: Reach::OwnPages },
    Route { path: "/readyz", room: Room::Ready, methods: "GET, HEAD", reach: Reach::OwnPages },
    Route { path: "/metrics", room: Room::Metrics, methods: "GET, HEAD", reach: Reach::OwnPages },
    Route { path: "/v1/admin/backup", room: Room::Backup, methods: "GET", reach: Reach::OwnPages },
];

/// What a path says where its route has braces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'a> {
    /// The segment at `{id}`.
    pub(crate) id: &'a str,
    /// What follows at the other braces.
    pub(crate) rest: &'a str,
}

/// All routes.
pub(crate) fn all() -> impl Iterator<Item = &'static Route> {
    std::iter::once(&STREAM).chain(&OTHERS)
}

/// The route of a path; none where nothing can lie.
pub(crate) fn find(path: &str) -> Option<(&'static Route, Captures<'_>)> {
    if path.starts_with(ROOT) && !path.starts_with(RESERVED_ROOT) {
        return Some((&STREAM, Captures::default()));
    }
    OTHERS.iter().find_map(|route| Some((route, captures(route.path, path)?)))
}

impl Route {
    /// Whether it knows a method.
    pub(crate) fn knows(&self, method: &str) -> bool {
        self.methods.split(", ").any(|known| known == method)
    }
}

/// What `path` says where `pattern` has braces; `None` if it is another path.
fn captures<'a>(pattern: &str, path: &'a str) -> Option<Captures<'a>> {
    let (mut found, mut left) = (Captures::default(), path);
    for segment in pattern.split('/').skip(1) {
        left = left.strip_prefix('/')?;
        match segment {
            "{id}" => {
                (found.id, left) = left.split_at(left.find('/').unwrap_or(left.len()));
                if found.id.is_empty() {
                    return None;
                }
            }
            _ if segment.starts_with('{') => (found.rest, left) = (left, ""),
            text => left = left.strip_prefix(text)?,
        }
    }
    left.is_empty().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(path: &str) -> Option<(Room, &str, &str)> {
        find(path).map(|(route, Captures { id, rest })| (route.room, id, rest))
    }

    #[test]
    fn a_path_is_of_one_route() {
        use Room::Subscriptions;
        for (path, found) in [
            ("/v1/stream/a/b", (Room::Stream, "", "")),
            ("/v1/stream/", (Room::Stream, "", "")),
            ("/v1/stream/__ds", (Room::Stream, "", "")),
            ("/v1/stream/__dst/x", (Room::Stream, "", "")),
            ("/v1/stream/__ds/jwks.json", (Subscriptions(SubscriptionRoom::Keys), "", "")),
            ("/v1/stream/__ds/subscriptions/s", (Subscriptions(SubscriptionRoom::One), "s", "")),
            (
                "/v1/stream/__ds/subscriptions/s/streams/a/b",
                (Subscriptions(SubscriptionRoom::Stream), "s", "a/b"),
            ),
            ("/v1/admin/backup", (Room::Backup, "", "")),
        ] {
            assert_eq!(room(path), Some(found), "{path}");
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
            assert_eq!(room(path), None, "{path}");
        }
    }

    #[test]
    fn each_route_is_found_by_its_own_path() {
        for route in all() {
            let path =
                route.path.replace("{id}", "s").replace("{path}", "a").replace("{stream}", "a");
            let (found, _) = find(&path).unwrap();
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
        for route in all() {
            let (before, verb) = route.path.rsplit_once('/').unwrap();
            let by_verb =
                if verbs.contains(&verb) { format!("{before}/{{verb}}") } else { String::new() };
            let page = documented.iter().find(|(path, _)| path == route.path || *path == by_verb);
            let (_, methods) = page.unwrap_or_else(|| panic!("{} is not in the page", route.path));
            let mut known: Vec<&str> = route.methods.split(", ").collect();
            // Where the page says GET, HEAD is the same without a body; what browsers ask first it says once.
            known.retain(|method| match *method {
                "HEAD" => route.room == Room::Stream,
                "OPTIONS" => route.room == Room::Stream,
                _ => true,
            });
            known.sort_unstable();
            let mut methods = methods.clone();
            methods.sort();
            assert_eq!(known, methods, "{}", route.path);
        }
        for (path, _) in documented {
            let path = path.replace("{verb}", "ack");
            assert!(all().any(|route| route.path == path), "{path} is no route");
        }
    }
}
