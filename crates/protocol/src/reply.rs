//! All frames that a server sends, typed, whether they answer a request or not.

use bytes::{BufMut, Bytes};

use crate::{
    confirm::Confirm, control, decode_error::DecodeError, deliver::Deliver,
    frame_header::FrameHeader, gap::Gap, kind::Kind, publish_at::PublishedAt,
    publish_note::PublishNote, settled::Settled,
};

/// A frame that a server sends.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the Kind of its name, documented there")]
pub enum Reply {
    HelloOk(control::HelloOk),
    Error(control::Error),
    Ping,
    Pong,
    GoAway(control::GoAway),
    Done(control::Done),
    TopicDescription(control::TopicDescription),
    TopicList(control::TopicList),
    GroupDescription(control::GroupDescription),
    GroupList(control::GroupList),
    CursorList(control::CursorList),
    TopicOpened(control::TopicOpened),
    Subscribed(control::Subscribed),
    Watching(control::Watching),
    TopicAppeared(control::TopicAppeared),
    TopicGone(control::TopicGone),
    SubscriptionEnded(control::SubscriptionEnded),
    Confirm(Confirm),
    Deliver(Deliver),
    Settled(Settled),
    Gap(Gap),
    PublishedAt(PublishedAt),
    PublishedAtomic(control::PublishedAtomic),
    ConfigurationValue(control::ConfigurationValue),
    ConfigurationChanged(control::ConfigurationChanged),
    ConfigurationList(control::ConfigurationList),
    WatchingConfiguration(control::WatchingConfiguration),
    ConfigurationChanges(control::ConfigurationChanges),
    HookChanged(control::HookChanged),
    HookDescription(control::HookDescription),
    HookList(control::HookList),
    Inspected(control::Inspected),
    Reworked(control::Reworked),
    /// What a batch has done to older messages.
    PublishNote(PublishNote),
    DelayedList(control::DelayedList),
    ScheduleList(control::ScheduleList),
    ScheduleChanged(control::ScheduleChanged),
    Explanations(control::Explanations),
    FairKeyList(control::FairKeyList),
    AccessChanged(control::AccessChanged),
    AccessList(control::AccessList),
    RightDecision(control::RightDecision),
}

impl Reply {
    /// The kind of the frame.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::HelloOk(_) => Kind::HelloOk,
            Self::Error(_) => Kind::Error,
            Self::Ping => Kind::Ping,
            Self::Pong => Kind::Pong,
            Self::GoAway(_) => Kind::GoAway,
            Self::Done(_) => Kind::Done,
            Self::TopicDescription(_) => Kind::TopicDescription,
            Self::TopicList(_) => Kind::TopicList,
            Self::GroupDescription(_) => Kind::GroupDescription,
            Self::GroupList(_) => Kind::GroupList,
            Self::CursorList(_) => Kind::CursorList,
            Self::TopicOpened(_) => Kind::TopicOpened,
            Self::Subscribed(_) => Kind::Subscribed,
            Self::Watching(_) => Kind::Watching,
            Self::TopicAppeared(_) => Kind::TopicAppeared,
            Self::TopicGone(_) => Kind::TopicGone,
            Self::SubscriptionEnded(_) => Kind::SubscriptionEnded,
            Self::Confirm(_) => Kind::Confirm,
            Self::Deliver(_) => Kind::Deliver,
            Self::Settled(_) => Kind::Settled,
            Self::Gap(_) => Kind::Gap,
            Self::PublishedAt(_) => Kind::PublishedAt,
            Self::PublishedAtomic(_) => Kind::PublishedAtomic,
            Self::ConfigurationValue(_) => Kind::ConfigurationValue,
            Self::ConfigurationChanged(_) => Kind::ConfigurationChanged,
            Self::ConfigurationList(_) => Kind::ConfigurationList,
            Self::WatchingConfiguration(_) => Kind::WatchingConfiguration,
            Self::ConfigurationChanges(_) => Kind::ConfigurationChanges,
            Self::HookChanged(_) => Kind::HookChanged,
            Self::HookDescription(_) => Kind::HookDescription,
            Self::HookList(_) => Kind::HookList,
            Self::Inspected(_) => Kind::Inspected,
            Self::Reworked(_) => Kind::Reworked,
            Self::PublishNote(_) => Kind::PublishNote,
            Self::DelayedList(_) => Kind::DelayedList,
            Self::ScheduleList(_) => Kind::ScheduleList,
            Self::ScheduleChanged(_) => Kind::ScheduleChanged,
            Self::Explanations(_) => Kind::Explanations,
            Self::FairKeyList(_) => Kind::FairKeyList,
            Self::AccessChanged(_) => Kind::AccessChanged,
            Self::AccessList(_) => Kind::AccessList,
            Self::RightDecision(_) => Kind::RightDecision,
        }
    }

    /// Appends the frame, header and body, to `out`, which must have room or grow. The caller
    /// observes the limit for frames.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        let kind = self.kind();
        match self {
            Self::HelloOk(body) => control::encode(kind, body, request, out),
            Self::Error(body) => control::encode(kind, body, request, out),
            Self::Ping | Self::Pong => FrameHeader::new(kind, 0, request).encode(out),
            Self::GoAway(body) => control::encode(kind, body, request, out),
            Self::Done(body) => control::encode(kind, body, request, out),
            Self::TopicDescription(body) => control::encode(kind, body, request, out),
            Self::TopicList(body) => control::encode(kind, body, request, out),
            Self::GroupDescription(body) => control::encode(kind, body, request, out),
            Self::GroupList(body) => control::encode(kind, body, request, out),
            Self::CursorList(body) => control::encode(kind, body, request, out),
            Self::TopicOpened(body) => control::encode(kind, body, request, out),
            Self::Subscribed(body) => control::encode(kind, body, request, out),
            Self::Watching(body) => control::encode(kind, body, request, out),
            Self::TopicAppeared(body) => control::encode(kind, body, request, out),
            Self::TopicGone(body) => control::encode(kind, body, request, out),
            Self::SubscriptionEnded(body) => control::encode(kind, body, request, out),
            Self::Confirm(body) => body.encode(request, out),
            Self::Deliver(body) => body.encode(request, out),
            Self::Settled(body) => body.encode(request, out),
            Self::Gap(body) => body.encode(request, out),
            Self::PublishedAt(body) => body.encode(request, out),
            Self::PublishedAtomic(body) => control::encode(kind, body, request, out),
            Self::ConfigurationValue(body) => control::encode(kind, body, request, out),
            Self::ConfigurationChanged(body) => control::encode(kind, body, request, out),
            Self::ConfigurationList(body) => control::encode(kind, body, request, out),
            Self::WatchingConfiguration(body) => control::encode(kind, body, request, out),
            Self::ConfigurationChanges(body) => control::encode(kind, body, request, out),
            Self::HookChanged(body) => control::encode(kind, body, request, out),
            Self::HookDescription(body) => control::encode(kind, body, request, out),
            Self::HookList(body) => control::encode(kind, body, request, out),
            Self::Inspected(body) => control::encode(kind, body, request, out),
            Self::Reworked(body) => control::encode(kind, body, request, out),
            Self::PublishNote(body) => body.encode(request, out),
            Self::DelayedList(body) => control::encode(kind, body, request, out),
            Self::ScheduleList(body) => control::encode(kind, body, request, out),
            Self::ScheduleChanged(body) => control::encode(kind, body, request, out),
            Self::Explanations(body) => control::encode(kind, body, request, out),
            Self::FairKeyList(body) => control::encode(kind, body, request, out),
            Self::AccessChanged(body) => control::encode(kind, body, request, out),
            Self::AccessList(body) => control::encode(kind, body, request, out),
            Self::RightDecision(body) => control::encode(kind, body, request, out),
        }
    }

    /// Reads a server's frame. Bodies of the data path share `body`'s memory.
    ///
    /// # Errors
    /// A [`DecodeError`]. After [`DecodeError::UnknownKind`] the connection can continue: a client
    /// skips frames that it does not know.
    pub fn decode(header: &FrameHeader, body: Bytes) -> Result<Self, DecodeError> {
        let kind = header.known_kind()?;
        Ok(match kind {
            Kind::HelloOk => Self::HelloOk(control::decode(kind, body)?),
            Kind::Error => Self::Error(control::decode(kind, body)?),
            Kind::Ping => control::decode_empty(kind, &body).map(|()| Self::Ping)?,
            Kind::Pong => control::decode_empty(kind, &body).map(|()| Self::Pong)?,
            Kind::GoAway => Self::GoAway(control::decode(kind, body)?),
            Kind::Done => Self::Done(control::decode(kind, body)?),
            Kind::TopicDescription => Self::TopicDescription(control::decode(kind, body)?),
            Kind::TopicList => Self::TopicList(control::decode(kind, body)?),
            Kind::GroupDescription => Self::GroupDescription(control::decode(kind, body)?),
            Kind::GroupList => Self::GroupList(control::decode(kind, body)?),
            Kind::CursorList => Self::CursorList(control::decode(kind, body)?),
            Kind::TopicOpened => Self::TopicOpened(control::decode(kind, body)?),
            Kind::Subscribed => Self::Subscribed(control::decode(kind, body)?),
            Kind::Watching => Self::Watching(control::decode(kind, body)?),
            Kind::TopicAppeared => Self::TopicAppeared(control::decode(kind, body)?),
            Kind::TopicGone => Self::TopicGone(control::decode(kind, body)?),
            Kind::SubscriptionEnded => Self::SubscriptionEnded(control::decode(kind, body)?),
            Kind::Confirm => Self::Confirm(Confirm::decode(body)?),
            Kind::Deliver => Self::Deliver(Deliver::decode(body)?),
            Kind::Settled => Self::Settled(Settled::decode(body)?),
            Kind::Gap => Self::Gap(Gap::decode(body)?),
            Kind::PublishedAt => Self::PublishedAt(PublishedAt::decode(body)?),
            Kind::PublishedAtomic => Self::PublishedAtomic(control::decode(kind, body)?),
            Kind::ConfigurationValue => Self::ConfigurationValue(control::decode(kind, body)?),
            Kind::ConfigurationChanged => Self::ConfigurationChanged(control::decode(kind, body)?),
            Kind::ConfigurationList => Self::ConfigurationList(control::decode(kind, body)?),
            Kind::WatchingConfiguration => {
                Self::WatchingConfiguration(control::decode(kind, body)?)
            }
            Kind::ConfigurationChanges => Self::ConfigurationChanges(control::decode(kind, body)?),
            Kind::HookChanged => Self::HookChanged(control::decode(kind, body)?),
            Kind::HookDescription => Self::HookDescription(control::decode(kind, body)?),
            Kind::HookList => Self::HookList(control::decode(kind, body)?),
            Kind::Inspected => Self::Inspected(control::decode(kind, body)?),
            Kind::Reworked => Self::Reworked(control::decode(kind, body)?),
            Kind::PublishNote => Self::PublishNote(PublishNote::decode(body)?),
            Kind::DelayedList => Self::DelayedList(control::decode(kind, body)?),
            Kind::ScheduleList => Self::ScheduleList(control::decode(kind, body)?),
            Kind::ScheduleChanged => Self::ScheduleChanged(control::decode(kind, body)?),
            Kind::Explanations => Self::Explanations(control::decode(kind, body)?),
            Kind::FairKeyList => Self::FairKeyList(control::decode(kind, body)?),
            Kind::AccessChanged => Self::AccessChanged(control::decode(kind, body)?),
            Kind::AccessList => Self::AccessList(control::decode(kind, body)?),
            Kind::RightDecision => Self::RightDecision(control::decode(kind, body)?),
            Kind::Hello
            | Kind::Goodbye
            | Kind::CreateTopic
            | Kind::AlterTopic
            | Kind::DeleteTopic
            | Kind::DescribeTopic
            | Kind::ListTopics
            | Kind::CreateGroup
            | Kind::DeleteGroup
            | Kind::ListGroups
            | Kind::DescribeGroup
            | Kind::SetCursor
            | Kind::DeleteCursor
            | Kind::ListCursors
            | Kind::TrimTopic
            | Kind::AlterGroup
            | Kind::RetryParked
            | Kind::OpenTopic
            | Kind::Subscribe
            | Kind::Read
            | Kind::Watch
            | Kind::Unsubscribe
            | Kind::Publish
            | Kind::Settle
            | Kind::SetCredit
            | Kind::Taken
            | Kind::PublishAt
            | Kind::PublishAtomic
            | Kind::GetConfiguration
            | Kind::SetConfiguration
            | Kind::DeleteConfiguration
            | Kind::ListConfiguration
            | Kind::WatchConfiguration
            | Kind::SetHook
            | Kind::UseHook
            | Kind::DescribeHook
            | Kind::ListHooks
            | Kind::ListDelayed
            | Kind::ChangeDelayed
            | Kind::ChangeSchedule
            | Kind::ListSchedules
            | Kind::Inspect
            | Kind::Rework
            | Kind::Explain
            | Kind::ListFairKeys
            | Kind::ChangeAccess
            | Kind::ListAccess
            | Kind::DecideRight => return Err(DecodeError::Direction { kind }),
        })
    }
}
