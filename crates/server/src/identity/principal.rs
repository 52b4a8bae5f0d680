//! The principal of a request: the identity it is made for. It knows no credentials and no rights.

/// On whose behalf something is asked. Clones are cheap: every request has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Principal(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// A client that has shown no credentials, because none are asked for.
    Local,
    /// The broker itself.
    Broker,
}

impl Principal {
    /// The principal of every client, as long as the broker asks for no credentials.
    pub(crate) const fn local() -> Self {
        Self(Kind::Local)
    }

    /// The broker itself: it keeps topics of its own, and follows streams for its subscriptions.
    pub(crate) const fn broker() -> Self {
        Self(Kind::Broker)
    }

    /// Whether this is the broker itself.
    pub(crate) fn is_broker(&self) -> bool {
        self.0 == Kind::Broker
    }
}
