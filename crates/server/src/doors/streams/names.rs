//! The names of the protocol's headers.

use http::HeaderName;

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
