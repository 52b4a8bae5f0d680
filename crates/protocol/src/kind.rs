//! The kinds of frames: one table of number, name and sender.

use std::fmt;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $client:literal, $server:literal;)*) => {
        /// The kind of a frame.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// All kinds, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name on the page.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// Returns whether clients send it.
            #[must_use]
            pub fn is_request(self) -> bool {
                match self { $(Self::$name => $client,)* }
            }

            /// Returns whether servers send it.
            #[must_use]
            pub fn is_reply(self) -> bool {
                match self { $(Self::$name => $server,)* }
            }
        }

        impl Kind {
            /// The kind with this number, if there is one.
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
    /// The first frame: introduces the client and asks for features.
    Hello = 1, true, false;
    /// Accepts the greeting: introduces the server and grants features and limits.
    HelloOk = 2, false, true;
    /// Refuses a request, or ends the connection.
    Error = 3, false, true;
    /// Asks the other side for a Pong. Either side may send it.
    Ping = 4, true, true;
    /// Answers a Ping and repeats its number.
    Pong = 5, true, true;
    /// The server is about to close the connection.
    GoAway = 6, false, true;
    /// The client closes the connection: its deliveries return at once.
    Goodbye = 7, true, false;
    /// Creates a topic if it does not exist.
    CreateTopic = 16, true, false;
    /// Replaces the settings of a topic.
    AlterTopic = 17, true, false;
    /// Deletes a topic.
    DeleteTopic = 18, true, false;
    /// Asks for the description of a topic.
    DescribeTopic = 19, true, false;
    /// Asks for a page of topics.
    ListTopics = 20, true, false;
    /// Creates a group if it does not exist.
    CreateGroup = 21, true, false;
    /// Deletes a group.
    DeleteGroup = 22, true, false;
    /// Asks for the groups of a topic.
    ListGroups = 23, true, false;
    /// Asks for the description of a group.
    DescribeGroup = 24, true, false;
    /// Sets a named cursor.
    SetCursor = 25, true, false;
    /// Deletes a named cursor.
    DeleteCursor = 26, true, false;
    /// Asks for the cursors of a topic.
    ListCursors = 27, true, false;
    /// Frees the oldest messages of a topic.
    TrimTopic = 28, true, false;
    /// Changes the settings of a group.
    AlterGroup = 29, true, false;
    /// Makes parked messages of a group ready again.
    RetryParked = 30, true, false;
    /// A change is committed.
    Done = 32, false, true;
    /// Describes a topic.
    TopicDescription = 33, false, true;
    /// A page of topics.
    TopicList = 34, false, true;
    /// Describes a group.
    GroupDescription = 35, false, true;
    /// The groups of a topic.
    GroupList = 36, false, true;
    /// The cursors of a topic.
    CursorList = 37, false, true;
    /// Asks for the numbers that publishing to a topic needs.
    OpenTopic = 48, true, false;
    /// The numbers that publishing to a topic needs.
    TopicOpened = 49, false, true;
    /// Joins a group.
    Subscribe = 50, true, false;
    /// A subscription has begun.
    Subscribed = 51, false, true;
    /// End a subscription.
    Unsubscribe = 52, true, false;
    /// The server has ended a subscription.
    SubscriptionEnded = 53, false, true;
    /// Reads a topic by offset, without a group.
    Read = 54, true, false;
    /// Asks for the topics that match a pattern, now and from now on.
    Watch = 55, true, false;
    /// A page of the matching topics.
    Watching = 56, false, true;
    /// A matching topic can be read.
    TopicAppeared = 57, false, true;
    /// A matching topic was deleted.
    TopicGone = 58, false, true;
    /// Append a batch.
    Publish = 64, true, false;
    /// Batches are committed.
    Confirm = 65, false, true;
    /// Messages for a subscription.
    Deliver = 66, false, true;
    /// A consumer's verdict on deliveries.
    Settle = 67, true, false;
    /// A settlement is committed, or parts of it were stale.
    Settled = 68, false, true;
    /// Replace a subscription's window.
    SetCredit = 69, true, false;
    /// Messages that a subscription does not receive.
    Gap = 70, false, true;
    /// Messages that a reader has taken.
    Taken = 71, true, false;
    /// Appends a batch if it gets this offset.
    PublishAt = 72, true, false;
    /// The conditional batch is committed.
    PublishedAt = 73, false, true;
    /// Asks for one entry of the configuration.
    GetConfiguration = 80, true, false;
    /// Sets one entry of the configuration.
    SetConfiguration = 81, true, false;
    /// Deletes one entry of the configuration.
    DeleteConfiguration = 82, true, false;
    /// Asks for a page of the configuration.
    ListConfiguration = 83, true, false;
    /// Asks for the entries of the configuration, and for each change of them.
    WatchConfiguration = 84, true, false;
    /// One entry of the configuration.
    ConfigurationValue = 85, false, true;
    /// A change of the configuration is committed.
    ConfigurationChanged = 86, false, true;
    /// A page of the configuration.
    ConfigurationList = 87, false, true;
    /// A watch of the configuration has begun.
    WatchingConfiguration = 88, false, true;
    /// Changes of the configuration for a watch.
    ConfigurationChanges = 89, false, true;
    /// Gives a topic's hook a new version of its script.
    SetHook = 90, true, false;
    /// Has a topic's hook use a version that it has, or none.
    UseHook = 91, true, false;
    /// Asks for the description of a topic's hook.
    DescribeHook = 92, true, false;
    /// Asks for a page of the hooks.
    ListHooks = 93, true, false;
    /// A change of a hook is committed.
    HookChanged = 94, false, true;
    /// Describes a topic's hook.
    HookDescription = 95, false, true;
    /// A page of the hooks.
    HookList = 96, false, true;
    /// Asks for a page of the messages that a group still has.
    Inspect = 100, true, false;
    /// A page of the messages that a group still has.
    Inspected = 101, false, true;
    /// Does something to messages that a group still has.
    Rework = 102, true, false;
    /// The outcome for a page of those messages.
    Reworked = 103, false, true;
    /// What a batch has done to older messages.
    PublishNote = 110, false, true;
    /// Publishes to several partitions and acks deliveries: all of it or nothing.
    PublishAtomic = 111, true, false;
    /// An atomic publish is committed.
    PublishedAtomic = 112, false, true;
    /// Asks for a page of the messages that their publisher has delayed.
    ListDelayed = 120, true, false;
    /// A page of delayed messages.
    DelayedList = 121, false, true;
    /// Cancels or changes the delay of messages.
    ChangeDelayed = 122, true, false;
    /// Creates, deletes, pauses, resumes or runs a schedule.
    ChangeSchedule = 123, true, false;
    /// Asks for one schedule, or for a page of them.
    ListSchedules = 124, true, false;
    /// Schedules.
    ScheduleList = 125, false, true;
    /// The change of a schedule is durable.
    ScheduleChanged = 126, false, true;
    /// Asks why a message or a fair key waits in a group.
    Explain = 128, true, false;
    /// Why a message or a fair key waits, by partition.
    Explanations = 129, false, true;
    /// Asks for the fair keys of a group with the most ready messages.
    ListFairKeys = 130, true, false;
    /// Fair keys of a group.
    FairKeyList = 131, false, true;
    /// Changes keys, users, roles, rights or tenants.
    ChangeAccess = 132, true, false;
    /// The change is durable and in force.
    AccessChanged = 133, false, true;
    /// Asks for a page of keys, users, roles or tenants.
    ListAccess = 134, true, false;
    /// A page of keys, users, roles or tenants.
    AccessList = 135, false, true;
    /// Asks whether a principal may do something.
    DecideRight = 136, true, false;
    /// Whether a principal may do something, and why.
    RightDecision = 137, false, true;
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
