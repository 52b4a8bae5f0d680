//! The body of an answer, of one of the kinds there are. It knows no sockets and no version of HTTP.

use std::{
    fmt, io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum Body {
    /// Nothing.
    Empty,
    /// All of it.
    Full(Bytes),
    /// Pieces that follow one another, each sent from where it lies.
    Parts(Vec<Bytes>),
    /// Pieces that have a known length together, each made when the one before is sent.
    Measured {
        /// Gives them.
        source: PageSource,
        /// How many bytes are still to come.
        left: u64,
    },
    /// What comes as long as it comes, each piece sent at once.
    Events(EventSource),
    /// The same, of a source that says goodbye and ends by itself when connections are to end.
    Farewell(EventSource),
    /// Pieces that follow one another, each made when the one before is sent.
    Pages(PageSource),
}

impl Body {
    /// How long it is, in bytes, if that is known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Full(bytes) => Some(bytes.len() as u64),
            Self::Parts(parts) => Some(parts.iter().map(|part| part.len() as u64).sum()),
            Self::Measured { left, .. } => Some(*left),
            Self::Events(_) | Self::Farewell(_) | Self::Pages(_) => None,
        }
    }
}

/// Gives the pieces of an answer, one after the other.
pub(crate) trait Pieces<P> {
    /// The next piece, not empty; `None` at the end. Asked for only when the client's socket has taken the
    /// one before, and dropped when the client goes.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<P>>;
}

/// Whoever gives the pieces of an answer.
pub(crate) struct PieceSource<P>(Box<dyn Pieces<P>>);

/// Gives the pieces of an answer that has no end yet.
pub(crate) type EventSource = PieceSource<Bytes>;

/// Gives the pieces of an answer that is too long to be had at once. Behind an error nothing comes: the
/// answer breaks off.
pub(crate) type PageSource = PieceSource<io::Result<Bytes>>;

impl<P: 'static> PieceSource<P> {
    pub(crate) fn new(pieces: impl Pieces<P> + 'static) -> Self {
        Self(Box::new(pieces))
    }

    /// Pieces made one after the other: `next` gives the next one and what it needs for the one
    /// after it, or `None` at the end.
    pub(crate) fn unfold<T, F>(first: T, next: impl FnMut(T) -> F + 'static) -> Self
    where
        T: 'static,
        F: Future<Output = Option<(P, T)>> + 'static,
    {
        Self::new(Unfold { between: Some(first), next, under_way: None })
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<P>> {
        self.0.poll_next(context)
    }
}

impl<P> fmt::Debug for PieceSource<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PieceSource")
    }
}

struct Unfold<T, N, F> {
    between: Option<T>,
    next: N,
    under_way: Option<Pin<Box<F>>>,
}

impl<P, T, N, F> Pieces<P> for Unfold<T, N, F>
where
    N: FnMut(T) -> F,
    F: Future<Output = Option<(P, T)>>,
{
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<P>> {
        let Self { between, next, under_way } = self;
        if let Some(from) = between.take() {
            let future = next(from);
            match under_way {
                // The memory of the one before is used again.
                Some(place) => place.set(future),
                None => *under_way = Some(Box::pin(future)),
            }
        }
        let Some(future) = under_way else { return Poll::Ready(None) };
        let next = ready!(future.as_mut().poll(context));
        Poll::Ready(match next {
            Some((piece, from)) => {
                *between = Some(from);
                Some(piece)
            }
            None => {
                *under_way = None;
                None
            }
        })
    }
}
