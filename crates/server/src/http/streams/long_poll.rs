//! A read that waits for something to give, for a while. It knows no events.

use http::{Response, StatusCode, header};
use sennit_engine::StreamChunk;
use sennit_model::ReadFrom;
use tokio::time::timeout;

use super::{
    StreamsDoor,
    answers::{self, NO_STORE, TRUE},
    cursor, names,
    query::Asked,
    read::{self, READ_BYTES_MAX, Source},
    refusals::Problem,
};
use crate::{core::now, http::answer::Body};

impl StreamsDoor {
    pub(super) async fn long_poll(
        &self,
        source: &Source,
        asked: Asked,
    ) -> Result<Response<Body>, Problem> {
        let mut at = asked.at;
        if at == ReadFrom::Latest {
            // What comes from here on is waited for: the end has to stay where it is.
            let end = source.chunk(at, false, READ_BYTES_MAX).await?;
            at = ReadFrom::Offset(end.next);
        }
        let waiting = source.chunk(at, true, READ_BYTES_MAX);
        let waited = tokio::select! {
            chunk = timeout(self.settings.long_poll_timeout, waiting) => chunk.ok(),
            // The broker stops: there is nothing to wait for.
            () = self.hall.closing.begun() => None,
        };
        let chunk = match waited {
            Some(chunk) => chunk?,
            None => source.chunk(at, false, READ_BYTES_MAX).await?,
        };
        let random = getrandom::u64().unwrap_or_default();
        answer(&chunk, cursor::next(now(), asked.cursor, random))
    }
}

/// The answer with what has come, or with nothing.
fn answer(chunk: &StreamChunk, cursor: u64) -> Result<Response<Body>, Problem> {
    let mut response = if chunk.messages.is_empty() {
        let mut response = answers::at(StatusCode::NO_CONTENT, chunk.next, chunk.is_closed);
        let headers = response.headers_mut();
        headers.insert(names::UP_TO_DATE, TRUE);
        headers.insert(header::CACHE_CONTROL, NO_STORE);
        response
    } else {
        read::of_chunk(chunk)?
    };
    response.headers_mut().insert(names::CURSOR, cursor.into());
    Ok(response)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_engine::StreamSettings;
    use sennit_model::{BatchBuilder, Message, Offset, TopicId};

    use super::*;

    #[test]
    fn nothing_in_time_is_204_and_something_200() {
        let nothing = StreamChunk {
            topic: TopicId(7),
            first: Offset(5),
            next: Offset(5),
            is_up_to_date: true,
            is_closed: false,
            rest: None,
            messages: Vec::new(),
            settings: Arc::new(StreamSettings::of_topic()),
        };
        let response = answer(&nothing, 7).unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        assert_eq!(response.headers()[names::CURSOR], "7");
        assert_eq!(response.headers()[names::UP_TO_DATE], "true");
        assert_eq!(response.headers()[names::NEXT_OFFSET], "0000000000000005_0000000000000000");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");

        let closed = StreamChunk { is_closed: true, ..nothing.clone() };
        assert_eq!(answer(&closed, 7).unwrap().headers()[names::CLOSED], "true");

        let mut batch = BatchBuilder::new();
        batch.push(&Message::new("x")).unwrap();
        let messages = vec![batch.take().unwrap().bytes().clone()];
        let something = StreamChunk { next: Offset(6), messages, ..nothing };
        let response = answer(&something, 7).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[names::CURSOR], "7");
    }
}
