//! The error codes: one table of number, name, consequences and meaning. A number never changes its meaning.
//! docs/reference/protocol.md repeats the table, and a test compares them.

use std::fmt;

macro_rules! error_codes {
    ($($code:ident = $number:literal, $name:literal, $retryable:ident, $closes:ident,
        $meaning:literal, $hint:literal;)*) => {
        /// The reason why a request was refused or a connection ended.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum ErrorCode {
            $(#[doc = concat!($meaning, ".")] $code = $number,)*
        }

        impl ErrorCode {
            /// All codes, by number.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// The code with this number; `None` if this version does not know it.
            #[must_use]
            pub fn of_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$code),)* _ => None }
            }

            /// The name in logs and on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$code => $name,)* }
            }

            /// Says in one line what was wrong.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$code => $meaning,)* }
            }

            /// Says in one line what a correct request looks like.
            #[must_use]
            pub fn hint(self) -> &'static str {
                match self { $(Self::$code => $hint,)* }
            }

            /// Returns whether the same request may succeed later.
            #[must_use]
            pub fn is_retryable(self) -> bool {
                match self { $(Self::$code => retry!($retryable),)* }
            }

            /// Returns whether the server closes the connection after the error.
            #[must_use]
            pub fn closes_connection(self) -> bool {
                match self { $(Self::$code => close!($closes),)* }
            }
        }
    };
}

macro_rules! retry {
    (retry) => {
        true
    };
    (final) => {
        false
    };
}

macro_rules! close {
    (close) => {
        true
    };
    (stay) => {
        false
    };
}

// code = number, name, may it be retried, does the connection end, what was wrong, what would be right
error_codes! {
    BadPreface = 1, "bad-preface", final, close,
        "The connection does not begin with the preface",
        "send SENNIT, 0x00 and the version; check that this is the native port";
    UnsupportedVersion = 2, "unsupported-version", final, close,
        "The preface names a major version that the server does not speak",
        "use a client of the server's major version";
    FrameTooLarge = 3, "frame-too-large", final, close,
        "A frame's body exceeds the limit in force",
        "keep to frame_bytes_max of HelloOk, and to 16384 bytes before it";
    BadFrame = 4, "bad-frame", final, close,
        "A frame's bytes do not match its kind",
        "encode the frame as the protocol page says";
    UnknownKind = 5, "unknown-kind", final, stay,
        "A frame's kind is none that the server knows",
        "use features that HelloOk granted";
    HelloExpected = 6, "hello-expected", final, close,
        "The first frame is not Hello, or a second one came",
        "send Hello once, as the first frame";
    Unauthorized = 7, "unauthorized", final, close,
        "Credentials are missing, not valid, or do not count any more",
        "send a valid API key, or a user with the password, in Hello";
    ShuttingDown = 8, "shutting-down", retry, close,
        "The server is about to leave",
        "connect again, here or elsewhere, and send unanswered requests again";
    Internal = 9, "internal", final, stay,
        "The server met a fault of its own",
        "see the server's log; report it";
    LimitReached = 10, "limit-reached", final, stay,
        "A number has reached its limit",
        "stay below the limit that the message names";
    Busy = 11, "busy", retry, stay,
        "The server has no room for this now",
        "send it again after retry_after_ms";
    Forbidden = 12, "forbidden", final, stay,
        "The principal lacks the right that the message names; whether the topic exists is not said",
        "ask an admin for the right: sennit auth can WHO VERB TOPIC says what decides";
    UnknownPrincipal = 13, "unknown-principal", final, stay,
        "There is no such key, user, role or tenant",
        "list them with sennit auth key list, and the like";
    InvalidRight = 14, "invalid-right", final, stay,
        "A right, a name or a password is not one",
        "write a right as VERB[,VERB...] PATTERN, such as publish,settle orders.>";
    PrincipalConflict = 15, "principal-conflict", final, stay,
        "The change would leave nobody who can manage keys, or take away what is in use, or exists already; nothing was changed",
        "do what the message says first";
    QuotaExceeded = 16, "quota-exceeded", retry, stay,
        "A quota of the tenant is used up; nothing was done",
        "send it again after retry_after_ms, or ask the operator for more";
    TooManyLogins = 17, "too-many-logins", retry, close,
        "Too many logins from the client's address have failed",
        "wait for retry_after_ms, and show credentials that are valid";
    UnknownTopic = 20, "unknown-topic", final, stay,
        "There is no such topic, or no such partition of it",
        "create the topic, or open it again if it was created anew";
    UnknownGroup = 21, "unknown-group", final, stay,
        "The topic has no such group",
        "create the group";
    TopicExists = 22, "topic-exists", final, stay,
        "A topic or group of that name exists with other settings",
        "ask for the settings it has, alter it, or use another name";
    SettingFixed = 23, "setting-fixed", final, stay,
        "A setting cannot change after creation",
        "create another topic with that setting";
    InvalidConfig = 24, "invalid-config", final, stay,
        "A setting is out of bounds",
        "use a value that the message allows";
    InvalidName = 25, "invalid-name", final, stay,
        "A name is not one",
        "use 1 to 200 of a-z A-Z 0-9 _ - and . with no part empty; topics also / ~ and %XX";
    UnknownCursor = 26, "unknown-cursor", final, stay,
        "The topic has no such cursor",
        "set it, or read under its name and commit";
    InvalidFilter = 27, "invalid-filter", final, stay,
        "A filter is not one",
        "write it as the page on filters says; the message names the byte";
    InvalidPattern = 28, "invalid-pattern", final, stay,
        "A pattern of topics is not one",
        "use parts of names with dots between, * for any one and > as the last for all that follow";
    TopicReserved = 29, "topic-reserved", final, stay,
        "The topic is the broker's own: it can be read, and nothing else",
        "use a name that does not begin with __ds/";
    BatchInvalid = 30, "batch-invalid", final, stay,
        "A published batch is damaged or beyond a limit; nothing of it was appended",
        "encode messages as the protocol page says, within the limits of HelloOk";
    SequenceGap = 31, "sequence-gap", retry, stay,
        "A batch skips sequences: messages before it never arrived",
        "send the messages from expected_sequence on first";
    ProducerFenced = 32, "producer-fenced", final, stay,
        "A higher epoch of this producer has published",
        "stop, or take a higher epoch if this one is the rightful producer";
    SequenceOverlap = 33, "sequence-overlap", final, stay,
        "A batch holds both sequences that were appended and such that were not",
        "send batches again with the bounds they had first, or begin at expected_sequence";
    StorageFull = 34, "storage-full", retry, stay,
        "The disk has no room for more messages: nothing is published until space returns",
        "consume, delete or add space; acks, deletes and reads go on";
    OutcomeUnknown = 35, "outcome-unknown", retry, stay,
        "The journal failed before it said whether the request was committed",
        "send it again with the same sequence: a committed message is answered as a duplicate";
    OffsetMismatch = 36, "offset-mismatch", final, stay,
        "The partition's next offset is another than the one that was expected; nothing was appended",
        "read the messages published since, decide anew, and expect next_offset";
    StreamClosed = 37, "stream-closed", final, stay,
        "The topic is a stream that was closed: nothing is appended to it any more",
        "publish to another topic";
    KeyMissing = 38, "key-missing", final, stay,
        "The topic keeps the latest message of each key, and a message of the batch has none; nothing of it was appended",
        "give every message a key, or publish elsewhere";
    StaleSettle = 40, "stale-settle", final, stay,
        "The messages were delivered again since, or never delivered",
        "do nothing: the present holder settles them";
    UnknownSubscription = 41, "unknown-subscription", final, stay,
        "The connection has no subscription of that number",
        "subscribe first";
    SubscriptionExists = 42, "subscription-exists", final, stay,
        "The connection has a subscription of that number already",
        "choose another number, or unsubscribe first";
    NotLeased = 43, "not-leased", final, stay,
        "The messages were read, not leased: there is nothing to settle",
        "settle messages that a group's subscription has received";
    CursorHeld = 44, "cursor-held", final, stay,
        "Another reader has the cursor",
        "wait until it has ended, or take over";
    SlowConsumer = 46, "slow-consumer", retry, stay,
        "The reader has fallen behind, and would not wait",
        "read faster, or again from where it was, or with when_slow wait or skip";
    NoLeader = 47, "no-leader", retry, stay,
        "No replica leads the group of the partition just now; nothing was done",
        "send it again a moment later";
    NotDelayed = 50, "not-delayed", final, stay,
        "A message is not delayed by its publisher, or not any more; nothing was changed",
        "list the delayed messages: what is due, with a consumer or settled cannot be changed";
    UnknownMessage = 51, "unknown-message", final, stay,
        "The partition has no message of that offset: not published, or not kept any more",
        "name an offset between the partition's start and end";
    UnknownSchedule = 52, "unknown-schedule", final, stay,
        "There is no schedule of that name",
        "create it, or list the schedules";
    InvalidCron = 53, "invalid-cron", final, stay,
        "A cron pattern is not one, or never ticks",
        "write five fields, minute, hour, day of the month, month and day of the week; the message names the byte";
    UnknownZone = 54, "unknown-zone", final, stay,
        "A time zone is not one",
        "use a name of the IANA database, such as Europe/Berlin or UTC";
    HookRefused = 57, "hook-refused", final, stay,
        "The topic's hook has refused a message of the batch, for the reason that the message gives; nothing of it was appended",
        "publish what the hook accepts, or change the hook";
    HookInvalid = 58, "hook-invalid", final, stay,
        "A script is no hook, in the line that the message names, or the topic has no such version; nothing was changed",
        "correct the script; sennit hook check tries one";
    HookFailed = 59, "hook-failed", retry, stay,
        "The topic's hook has failed or rests after failures, and accepts no message that it has not seen; nothing was appended",
        "see sennit hook status, and correct the script or the message";
    RevisionMismatch = 60, "revision-mismatch", final, stay,
        "The entry of the configuration has another revision than the one that was expected; nothing was changed",
        "get the entry, decide anew, and expect its revision; 0 expects that there is none";
    InvalidKey = 61, "invalid-key", final, stay,
        "A key of the configuration is not one",
        "use 1 to 256 visible ASCII characters, ! to ~, without spaces";
    TopicFull = 62, "topic-full", retry, stay,
        "The partition holds as much as its topic's limit allows; nothing of the batch was appended",
        "consume, raise the limit, or have the topic drop the oldest messages";
    TopicsApart = 63, "topics-apart", final, stay,
        "Topics of an atomic publish lie on different shards of the broker; nothing was done",
        "create one of them beside the other: sennit topic create NAME --beside OTHER";
    StaleDelivery = 64, "stale-delivery", final, stay,
        "A delivery that an atomic publish acks is settled, was delivered again since, or never; nothing was done",
        "do nothing: the present holder of the message publishes, or has";
    AtomicInvalid = 65, "atomic-invalid", final, stay,
        "An atomic publish names a partition or a group twice, or was done before in part; nothing was done",
        "name each once, and send a step again as it was first";
    TlsRequired = 70, "tls-required", final, close,
        "The port speaks TLS, and the client does not",
        "connect with TLS: sennit takes --tls, the Rust client .tls(...)";
    NotDeadLetters = 75, "not-dead-letters", final, stay,
        "The topic is no dead-letter topic",
        "name the dead-letter topic, NAME.dead-letter, or use a verb for live messages";
    MessageLeased = 76, "message-leased", retry, stay,
        "A consumer has the message that is to be changed; it was left alone",
        "wait until the consumer has settled it or its lease ends";
}

impl ErrorCode {
    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
