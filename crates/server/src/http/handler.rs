//! The handler of a connection answers the requests that the transports parse. A transport learns everything that it
//! needs about a request's meaning from the handler.

use std::{any::Any, fmt, pin::Pin, rc::Rc};

use super::{concurrency::Concurrency, request::Request, response::Response};
use crate::runtime::peer::Peer;

/// An answer under way. Dropped when its client goes before it is there.
pub(crate) type Answering = Pin<Box<dyn Future<Output = Response>>>;

/// Has a handler for each connection: an answer depends on who is at the other end.
pub(crate) trait Handlers: fmt::Debug {
    /// The handler of the requests of this peer.
    fn of_peer(self: Rc<Self>, peer: Peer) -> Rc<dyn Handler>;
}

/// Answers the requests of a connection.
pub(crate) trait Handler: fmt::Debug {
    /// Answers a request.
    fn answer(self: Rc<Self>, request: Rc<Request>) -> Answering;

    /// Goes on with a request that has waited without a task, as it was offered.
    fn resume(self: Rc<Self>, wait: Wait) -> Answering;

    /// Beside which others of its connection a request may be worked on.
    fn concurrency(&self, request: &Request) -> Concurrency;

    /// What the answer to a request may hold at most while it is made, in bytes.
    fn answer_bytes_expected(&self, request: &Request) -> usize;

    /// Whether a request may wait long for its answer, and what is to be had again of that.
    fn patience(&self, request: &Request) -> Patience;
}

/// Whether a request waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// The answer is made at once.
    None,
    /// It may wait; what comes is there when it is asked for again.
    ForMore,
    /// It may wait for what is new: asked again, that would be passed over.
    ForNews,
}

/// What a request waits for, to be gone on with elsewhere. Its handler knows what it is.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    what: Rc<dyn Any>,
    /// Whether its answer has begun to go out.
    pub(crate) is_begun: bool,
}

impl Wait {
    /// To wait for this.
    pub(crate) fn new<W: Any>(what: W, is_begun: bool) -> Self {
        Self { what: Rc::new(what), is_begun }
    }

    /// What is waited for; `None` if it is of another handler.
    pub(crate) fn what<W: Any + Clone>(&self) -> Option<W> {
        self.what.downcast_ref().cloned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use http::Method;

    use super::*;
    use crate::http::limits::ANSWER_BYTES_EXPECTED;

    /// A handler that answers by a function. Below `/v1/stream/` it reads what may be long, and appends.
    pub(crate) struct ByFunction<F>(pub(crate) F);

    impl<F> fmt::Debug for ByFunction<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("ByFunction")
        }
    }

    impl<F, A> Handler for ByFunction<F>
    where
        F: Fn(Rc<Request>) -> A,
        A: Future<Output = Response> + 'static,
    {
        fn answer(self: Rc<Self>, request: Rc<Request>) -> Answering {
            Box::pin((self.0)(request))
        }

        fn resume(self: Rc<Self>, _: Wait) -> Answering {
            unreachable!("nothing waits without a task")
        }

        fn concurrency(&self, request: &Request) -> Concurrency {
            match request.method() {
                method if method.is_safe() => Concurrency::Reads,
                &Method::POST if request.path().starts_with("/v1/stream/") => Concurrency::Appends,
                _ => Concurrency::Alone,
            }
        }

        fn answer_bytes_expected(&self, request: &Request) -> usize {
            let is_read =
                *request.method() == Method::GET && request.path().starts_with("/v1/stream/");
            if is_read { ANSWER_BYTES_EXPECTED } else { 0 }
        }

        fn patience(&self, request: &Request) -> Patience {
            match request.query().unwrap_or_default() {
                query if query.contains("offset=now") => Patience::ForNews,
                query if query.contains("live=") => Patience::ForMore,
                _ => Patience::None,
            }
        }
    }

    #[test]
    fn what_waits_is_given_back_to_whoever_knows_it() {
        let wait = Wait::new(7_u32, true);
        assert_eq!((wait.what::<u32>(), wait.what::<u64>()), (Some(7), None));
    }
}
