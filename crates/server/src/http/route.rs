//! A route of the HTTP port: a pattern of paths, the methods allowed there, and the origins that may use it. It
//! knows no requests.

/// Whose pages may use a route. A program that is no browser may use all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Those of the broker's own origin. No answer says anything to others.
    Own,
    /// Those of allowed origins too: browsers read and write streams.
    Allowed,
    /// The same, but for those that may read only: one request begins a connection by which its page reads and writes.
    AllowedToChange,
}

/// A route.
#[derive(Debug)]
pub(crate) struct Route {
    /// Its path. `{id}` is one segment, what else is in braces is all that follows.
    pub(crate) path: &'static str,
    /// What can be asked there, as `Allow` says it.
    pub(crate) methods: &'static str,
    pub(crate) reach: Reach,
}

/// What a path says where its route has braces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'a> {
    /// The segment at `{id}`.
    pub(crate) id: &'a str,
    /// What follows at the other braces.
    pub(crate) rest: &'a str,
}

impl Route {
    /// Whether it knows a method.
    pub(crate) fn knows(&self, method: &str) -> bool {
        self.methods.split(", ").any(|known| known == method)
    }

    /// What `path` says where the route has braces; `None` if it is another path.
    pub(crate) fn captures<'a>(&self, path: &'a str) -> Option<Captures<'a>> {
        let (mut found, mut left) = (Captures::default(), path);
        for segment in self.path.split('/').skip(1) {
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
}
