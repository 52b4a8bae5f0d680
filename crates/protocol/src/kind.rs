//! The kinds of frames: one table of number, name and who sends it. It does not know their bodies.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $client:literal, $server:literal;)*) => {
        /// What a frame is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// Every kind, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name, as the page spells it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Whether a client sends it.
            #[must_use]
            pub fn is_request(self) -> bool {
                match self { $(Self::$name => $client,)* }
            }

            /// Whether a server sends it.
            #[must_use]
            pub fn is_reply(self) -> bool {
                match self { $(Self::$name => $server,)* }
            }
        }

        impl Kind {
            /// The kind of this number, if there is one.
            #[must_use]
            pub fn of_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

// name = number, sent by a client, sent by a server
kinds! {
    /// The first frame: who the client is and what it wants.
    Hello = 1, true, false;
    /// The greeting is accepted: who the server is and what is in force.
    HelloOk = 2, false, true;
    /// A frame was refused, or the connection ends.
    Error = 3, false, true;
    /// Are you there? Either side may ask.
    Ping = 4, true, true;
    /// Yes; repeats the number of the ping.
    Pong = 5, true, true;
    /// The server is about to leave.
    GoAway = 6, false, true;
    /// The client leaves on purpose: its deliveries return at once.
    Goodbye = 7, true, false;
    /// Create a topic, or find it.
    CreateTopic = 16, true, false;
    /// Give a topic other settings.
    AlterTopic = 17, true, false;
    /// Forget a topic.
    DeleteTopic = 18, true, false;
    /// How is a topic?
    DescribeTopic = 19, true, false;
    /// Which topics are there?
    ListTopics = 20, true, false;
    /// Create a group, or find it.
    CreateGroup = 21, true, false;
    /// Forget a group.
    DeleteGroup = 22, true, false;
    /// Which groups has a topic?
    ListGroups = 23, true, false;
    /// How is a group?
    DescribeGroup = 24, true, false;
    /// Have a named cursor be at an offset.
    SetCursor = 25, true, false;
    /// Forget a named cursor.
    DeleteCursor = 26, true, false;
    /// Which cursors has a topic?
    ListCursors = 27, true, false;
    /// Free the oldest messages of a topic.
    TrimTopic = 28, true, false;
    /// Give a group other settings.
    AlterGroup = 29, true, false;
    /// Make parked messages of a group ready again.
    RetryParked = 30, true, false;
    /// A change is committed.
    Done = 32, false, true;
    /// How a topic is.
    TopicDescription = 33, false, true;
    /// A page of topics.
    TopicList = 34, false, true;
    /// How a group is.
    GroupDescription = 35, false, true;
    /// The groups of a topic.
    GroupList = 36, false, true;
    /// The cursors of a topic.
    CursorList = 37, false, true;
    /// What must be known to publish to a topic?
    OpenTopic = 48, true, false;
    /// What must be known to publish to a topic.
    TopicOpened = 49, false, true;
    /// Take part in a group.
    Subscribe = 50, true, false;
    /// A subscription has begun.
    Subscribed = 51, false, true;
    /// End a subscription.
    Unsubscribe = 52, true, false;
    /// A subscription has ended without being asked to.
    SubscriptionEnded = 53, false, true;
    /// Read a topic by offset, without a group.
    Read = 54, true, false;
    /// Which topics does a pattern mean, now and from now on?
    Watch = 55, true, false;
    /// Topics that there are.
    Watching = 56, false, true;
    /// A topic is there, and may be read.
    TopicAppeared = 57, false, true;
    /// A topic was deleted.
    TopicGone = 58, false, true;
    /// Append a batch.
    Publish = 64, true, false;
    /// Batches are committed.
    Confirm = 65, false, true;
    /// Messages for a subscription.
    Deliver = 66, false, true;
    /// What a consumer says of its deliveries.
    Settle = 67, true, false;
    /// A settlement is committed, or parts of it were stale.
    Settled = 68, false, true;
    /// Replace a subscription's window.
    SetCredit = 69, true, false;
    /// Messages that a subscription does not get.
    Gap = 70, false, true;
    /// Messages that a reader has taken.
    Taken = 71, true, false;
    /// Append a batch at this offset or not at all.
    PublishAt = 72, true, false;
    /// The batch is committed there.
    PublishedAt = 73, false, true;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
