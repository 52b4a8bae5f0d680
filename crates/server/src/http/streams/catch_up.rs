//! A read of more than is read at once: what lies in a stream up to where that ended when the read began,
//! page by page, as the socket takes them. It knows no versions of HTTP.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use sennit_engine::{StreamChunk, StreamRest};
use sennit_model::{Offset, ReadFrom, TopicId};

use super::{
    content::{Form, Joining},
    read::{READ_BYTES_MAX, Source},
    refusals::Problem,
};
use crate::http::answer::{Body, PageSource};

impl Source {
    /// What follows `first`, up to where the stream ends now; none if nothing does.
    pub(super) async fn rest_of(&self, first: &StreamChunk) -> Result<Option<StreamRest>, Problem> {
        if first.is_up_to_date || first.rest.is_some() {
            return Ok(first.rest);
        }
        // Of what a fork has inherited its source has told, which does not know where the fork ends.
        let status = self.streams.status(&self.name, false).await?;
        let (until, is_closed) = (status.next, status.is_closed);
        let rest = StreamRest { until, is_up_to_date: true, is_closed };
        Ok(Some(rest).filter(|rest| rest.until > first.next))
    }

    /// The body of `first` and of what follows, up to `until`. What cannot be read on breaks it off.
    pub(super) fn body(self, first: StreamChunk, until: Offset) -> Body {
        let StreamChunk { topic, next, messages, settings, .. } = first;
        let mut joining = Joining::new(Form::of(&settings.content_type));
        let ready = joining.join(&messages, false).into();
        let pages = Pages { source: self, topic, next, until, joining, ready };
        Body::Pages(PageSource::unfold(Some(pages), |pages| async move {
            let mut pages = pages?;
            match pages.piece().await {
                Ok(piece) => piece.map(|piece| (Ok(piece), Some(pages))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}

/// What is still to be given of a stream.
#[derive(Debug)]
struct Pages {
    source: Source,
    /// The stream, whatever its name is by now.
    topic: TopicId,
    next: Offset,
    until: Offset,
    joining: Joining,
    /// Pieces of the page that was read last.
    ready: VecDeque<Bytes>,
}

impl Pages {
    /// The next piece; `None` behind the last.
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        while self.ready.is_empty() && self.next < self.until {
            self.turn().await?;
        }
        Ok(self.ready.pop_front())
    }

    /// Reads the next page.
    async fn turn(&mut self) -> io::Result<()> {
        let at = ReadFrom::Offset(self.next);
        let page = self.source.page(at, self.until, READ_BYTES_MAX).await;
        let page = page.map_err(|problem| io::Error::other(problem.code()))?;
        if page.topic != self.topic || page.next <= self.next {
            return Err(io::Error::other("the stream that was read is gone"));
        }
        self.next = page.next;
        self.ready = self.joining.join(&page.messages, self.next >= self.until).into();
        Ok(())
    }
}
