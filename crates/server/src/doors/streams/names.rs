//! The names of the protocol's headers.

use http::HeaderName;

use crate::http::browser_headers::PageHeaders;

/// The headers of requests that pages of other origins may send, and those of answers that they may read.
pub(crate) static PAGE_HEADERS: PageHeaders = PageHeaders::new(
    "content-type, authorization, if-none-match, last-event-id, stream-seq, \
    stream-ttl, stream-expires-at, stream-closed, stream-forked-from, stream-fork-offset, \
    stream-fork-sub-offset, stream-storage, stream-group, producer-id, producer-epoch, producer-seq",
    "etag, location, retry-after, stream-next-offset, stream-up-to-date, \
    stream-closed, stream-cursor, stream-ttl, stream-expires-at, stream-group, stream-storage, \
    stream-sse-data-encoding, producer-epoch, producer-seq, producer-expected-seq, producer-received-seq",
);

macro_rules! names {
    ($($name:ident = $text:literal;)*) => {
        $(pub(super) static $name: HeaderName = HeaderName::from_static($text);)*
    };
}

names! {
    NEXT_OFFSET = "stream-next-offset";
    UP_TO_DATE = "stream-up-to-date";
    CLOSED = "stream-closed";
    CURSOR = "stream-cursor";
    SEQUENCE = "stream-seq";
    TIME_TO_LIVE = "stream-ttl";
    EXPIRES_AT = "stream-expires-at";
    FORKED_FROM = "stream-forked-from";
    FORK_OFFSET = "stream-fork-offset";
    FORK_SUB_OFFSET = "stream-fork-sub-offset";
    DATA_ENCODING = "stream-sse-data-encoding";
    STORAGE = "stream-storage";
    GROUP = "stream-group";
    PRODUCER_ID = "producer-id";
    PRODUCER_EPOCH = "producer-epoch";
    PRODUCER_SEQUENCE = "producer-seq";
    PRODUCER_EXPECTED = "producer-expected-seq";
    PRODUCER_RECEIVED = "producer-received-seq";
    LAST_EVENT_ID = "last-event-id";
    ACCEL_BUFFERING = "x-accel-buffering";
}
