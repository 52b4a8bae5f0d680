//! A long read: it sends the stream page by page, up to the end that the stream had when the read began, as the
//! socket takes the pages. It knows no versions of HTTP.

use std::{collections::VecDeque, io};

use bytes::Bytes;
use sennit_engine::{StreamChunk, StreamRest};
use sennit_model::{Offset, ReadFrom};

use super::{
    content::{Form, Joining},
    read::{READ_BYTES_MAX, Source},
    refusals::Problem,
};
use crate::{
    broker::stream_offset::Identified,
    http::{
        answer_room::AnswerAccount,
        body::{Body, PageSource},
    },
};

impl Source {
    /// What follows `first` in the same answer: up to where the stream ends now, or where one broke off;
    /// none if nothing does, or if that cannot be read. With it the page that comes next.
    pub(super) async fn rest_of(
        &self,
        first: &StreamChunk,
    ) -> Result<Option<(StreamRest, Identified<StreamChunk>)>, Problem> {
        let Some(mut rest) = self.all_of(first).await? else { return Ok(None) };
        if let Some(at) = self.streams.break_of(first.topic)
            && (first.next..rest.until).contains(&at)
        {
            rest = StreamRest { until: at, is_up_to_date: false, is_closed: false };
        }
        if rest.until <= first.next {
            return Ok(None);
        }
        let read = self.room.page(READ_BYTES_MAX);
        let page = self.page(ReadFrom::Offset(first.next), rest.until, read.bytes()).await;
        Ok(page.ok().filter(|page| follows(&page.answer, first)).map(|page| (rest, page)))
    }

    /// What follows `first`, as far as it is told.
    async fn all_of(&self, first: &StreamChunk) -> Result<Option<StreamRest>, Problem> {
        if first.is_up_to_date || first.rest.is_some() {
            return Ok(first.rest);
        }
        // Of what a fork has inherited its source has told, which does not know where the fork ends.
        let status = self.streams.status(&self.principal, &self.name, false).await?;
        let (until, is_closed) = (status.answer.next, status.answer.is_closed);
        Ok(Some(StreamRest { until, is_up_to_date: true, is_closed }))
    }

    /// The body of `first`, of the page behind it and of what follows, up to `until`. What cannot be read on
    /// breaks it off.
    pub(super) fn body(self, first: StreamChunk, page: StreamChunk, until: Offset) -> Body {
        let mut joining = Joining::new(Form::of(&first.settings.content_type));
        let mut ready = VecDeque::from(joining.join(&first.messages, false));
        ready.extend(joining.join(&page.messages, page.next >= until));
        let last = StreamChunk { messages: Vec::new(), ..page };
        let held = self.room.account();
        let mut pages = Pages { source: self, last, until, joining, ready: VecDeque::new(), held };
        pages.set_ready(ready);
        Body::Pages(PageSource::unfold(Some(pages), |pages| async move {
            let mut pages = pages?;
            match pages.piece().await {
                Ok(piece) => piece.map(|piece| (Ok(piece), Some(pages))),
                Err(error) => Some((Err(error), None)),
            }
        }))
    }
}

/// Whether `page` goes on where `last` ends, in the same stream, whatever its name is by now.
fn follows(page: &StreamChunk, last: &StreamChunk) -> bool {
    page.topic == last.topic && page.next > last.next
}

/// What is still to be given of a stream.
#[derive(Debug)]
struct Pages {
    source: Source,
    /// The page that was read last, without its messages.
    last: StreamChunk,
    until: Offset,
    joining: Joining,
    /// Pieces of what was read, and what they hold.
    ready: VecDeque<Bytes>,
    held: AnswerAccount,
}

impl Pages {
    /// The next piece; `None` behind the last.
    async fn piece(&mut self) -> io::Result<Option<Bytes>> {
        while self.ready.is_empty() && self.last.next < self.until {
            self.turn().await?;
        }
        let piece = self.ready.pop_front();
        self.held.set(self.held.bytes() - piece.as_ref().map_or(0, Bytes::len));
        Ok(piece)
    }

    fn set_ready(&mut self, pieces: VecDeque<Bytes>) {
        self.held.set(pieces.iter().map(Bytes::len).sum());
        self.ready = pieces;
    }

    /// Reads the next page.
    async fn turn(&mut self) -> io::Result<()> {
        let (topic, next) = (self.last.topic, self.last.next);
        let read = self.source.room.page(READ_BYTES_MAX);
        let page = self.source.page(ReadFrom::Offset(next), self.until, read.bytes()).await;
        let page = page.map_err(|problem| {
            self.source.streams.breaks_off(topic, next);
            io::Error::other(problem.code())
        })?;
        if !follows(&page.answer, &self.last) {
            return Err(io::Error::other("the stream that was read is gone"));
        }
        let pieces = self.joining.join(&page.answer.messages, page.answer.next >= self.until);
        self.set_ready(pieces.into());
        self.last = StreamChunk { messages: Vec::new(), ..page.answer };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_engine::StreamSettings;
    use sennit_model::TopicId;

    use super::*;

    fn chunk(topic: u32, next: u64) -> StreamChunk {
        StreamChunk {
            topic: TopicId(topic),
            first: Offset(0),
            next: Offset(next),
            is_up_to_date: false,
            is_closed: false,
            rest: None,
            messages: Vec::new(),
            settings: Arc::new(StreamSettings::of_topic()),
        }
    }

    #[test]
    fn an_answer_goes_on_in_its_own_stream_or_not_at_all() {
        assert!(follows(&chunk(7, 3), &chunk(7, 2)));
        assert!(!follows(&chunk(8, 3), &chunk(7, 2)), "another has its name");
        assert!(!follows(&chunk(7, 2), &chunk(7, 2)), "nothing comes");
    }
}
