//! All frames that a client sends, typed. The server decides whether a request is allowed.

use bytes::{BufMut, Bytes};

use crate::{
    control, decode_error::DecodeError, frame_header::FrameHeader, kind::Kind, publish::Publish,
    publish_at::PublishAt, publish_atomic::PublishAtomic, set_credit::SetCredit, settle::Settle,
    taken::Taken,
};

/// Longest control body of a client, in bytes, but that of SetConfiguration and of Rework. A decoded body can take a dozen times its length in
/// memory; no useful one comes near this limit.
pub const CONTROL_REQUEST_BYTES_MAX: usize = 64 << 10;

/// Longest body of a Rework, in bytes: it may carry a new payload for a message.
pub const REWORK_REQUEST_BYTES_MAX: usize = 1 << 20;

/// A frame that a client sends.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant is the Kind of its name, documented there")]
pub enum Request {
    Hello(control::Hello),
    Ping,
    Pong,
    Goodbye,
    CreateTopic(control::CreateTopic),
    AlterTopic(control::AlterTopic),
    DeleteTopic(control::DeleteTopic),
    DescribeTopic(control::DescribeTopic),
    ListTopics(control::ListTopics),
    CreateGroup(control::CreateGroup),
    DeleteGroup(control::DeleteGroup),
    ListGroups(control::ListGroups),
    DescribeGroup(control::DescribeGroup),
    SetCursor(control::SetCursor),
    DeleteCursor(control::DeleteCursor),
    ListCursors(control::ListCursors),
    TrimTopic(control::TrimTopic),
    AlterGroup(control::AlterGroup),
    RetryParked(control::RetryParked),
    OpenTopic(control::OpenTopic),
    Subscribe(control::Subscribe),
    Read(control::Read),
    Watch(control::Watch),
    Unsubscribe(control::Unsubscribe),
    Publish(Publish),
    Settle(Settle),
    SetCredit(SetCredit),
    Taken(Taken),
    PublishAt(PublishAt),
    PublishAtomic(PublishAtomic),
    GetConfiguration(control::GetConfiguration),
    SetConfiguration(control::SetConfiguration),
    DeleteConfiguration(control::DeleteConfiguration),
    ListConfiguration(control::ListConfiguration),
    WatchConfiguration(control::WatchConfiguration),
    SetHook(control::SetHook),
    UseHook(control::UseHook),
    DescribeHook(control::DescribeHook),
    ListHooks(control::ListHooks),
    ListDelayed(control::ListDelayed),
    ChangeDelayed(control::ChangeDelayed),
    ChangeSchedule(control::ChangeSchedule),
    ListSchedules(control::ListSchedules),
    Inspect(control::Inspect),
    Rework(control::Rework),
    Explain(control::Explain),
    ListFairKeys(control::ListFairKeys),
    ChangeAccess(control::ChangeAccess),
    ListAccess(control::ListAccess),
    DecideRight(control::DecideRight),
}

impl Request {
    /// The kind of the frame.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Ping => Kind::Ping,
            Self::Pong => Kind::Pong,
            Self::Goodbye => Kind::Goodbye,
            Self::CreateTopic(_) => Kind::CreateTopic,
            Self::AlterTopic(_) => Kind::AlterTopic,
            Self::DeleteTopic(_) => Kind::DeleteTopic,
            Self::DescribeTopic(_) => Kind::DescribeTopic,
            Self::ListTopics(_) => Kind::ListTopics,
            Self::CreateGroup(_) => Kind::CreateGroup,
            Self::DeleteGroup(_) => Kind::DeleteGroup,
            Self::ListGroups(_) => Kind::ListGroups,
            Self::DescribeGroup(_) => Kind::DescribeGroup,
            Self::SetCursor(_) => Kind::SetCursor,
            Self::DeleteCursor(_) => Kind::DeleteCursor,
            Self::ListCursors(_) => Kind::ListCursors,
            Self::TrimTopic(_) => Kind::TrimTopic,
            Self::AlterGroup(_) => Kind::AlterGroup,
            Self::RetryParked(_) => Kind::RetryParked,
            Self::OpenTopic(_) => Kind::OpenTopic,
            Self::Subscribe(_) => Kind::Subscribe,
            Self::Read(_) => Kind::Read,
            Self::Watch(_) => Kind::Watch,
            Self::Unsubscribe(_) => Kind::Unsubscribe,
            Self::Publish(_) => Kind::Publish,
            Self::Settle(_) => Kind::Settle,
            Self::SetCredit(_) => Kind::SetCredit,
            Self::Taken(_) => Kind::Taken,
            Self::PublishAt(_) => Kind::PublishAt,
            Self::PublishAtomic(_) => Kind::PublishAtomic,
            Self::GetConfiguration(_) => Kind::GetConfiguration,
            Self::SetConfiguration(_) => Kind::SetConfiguration,
            Self::DeleteConfiguration(_) => Kind::DeleteConfiguration,
            Self::ListConfiguration(_) => Kind::ListConfiguration,
            Self::WatchConfiguration(_) => Kind::WatchConfiguration,
            Self::SetHook(_) => Kind::SetHook,
            Self::UseHook(_) => Kind::UseHook,
            Self::DescribeHook(_) => Kind::DescribeHook,
            Self::ListHooks(_) => Kind::ListHooks,
            Self::ListDelayed(_) => Kind::ListDelayed,
            Self::ChangeDelayed(_) => Kind::ChangeDelayed,
            Self::ChangeSchedule(_) => Kind::ChangeSchedule,
            Self::ListSchedules(_) => Kind::ListSchedules,
            Self::Inspect(_) => Kind::Inspect,
            Self::Rework(_) => Kind::Rework,
            Self::Explain(_) => Kind::Explain,
            Self::ListFairKeys(_) => Kind::ListFairKeys,
            Self::ChangeAccess(_) => Kind::ChangeAccess,
            Self::ListAccess(_) => Kind::ListAccess,
            Self::DecideRight(_) => Kind::DecideRight,
        }
    }

    /// Appends the frame, header and body, to `out`, which must have room or grow. The caller
    /// observes the limit for frames.
    pub fn encode(&self, request: u64, out: &mut impl BufMut) {
        let kind = self.kind();
        match self {
            Self::Hello(body) => control::encode(kind, body, request, out),
            Self::Ping | Self::Pong | Self::Goodbye => {
                FrameHeader::new(kind, 0, request).encode(out);
            }
            Self::CreateTopic(body) => control::encode(kind, body, request, out),
            Self::AlterTopic(body) => control::encode(kind, body, request, out),
            Self::DeleteTopic(body) => control::encode(kind, body, request, out),
            Self::DescribeTopic(body) => control::encode(kind, body, request, out),
            Self::ListTopics(body) => control::encode(kind, body, request, out),
            Self::CreateGroup(body) => control::encode(kind, body, request, out),
            Self::DeleteGroup(body) => control::encode(kind, body, request, out),
            Self::ListGroups(body) => control::encode(kind, body, request, out),
            Self::DescribeGroup(body) => control::encode(kind, body, request, out),
            Self::SetCursor(body) => control::encode(kind, body, request, out),
            Self::DeleteCursor(body) => control::encode(kind, body, request, out),
            Self::ListCursors(body) => control::encode(kind, body, request, out),
            Self::TrimTopic(body) => control::encode(kind, body, request, out),
            Self::AlterGroup(body) => control::encode(kind, body, request, out),
            Self::RetryParked(body) => control::encode(kind, body, request, out),
            Self::OpenTopic(body) => control::encode(kind, body, request, out),
            Self::Subscribe(body) => control::encode(kind, body, request, out),
            Self::Read(body) => control::encode(kind, body, request, out),
            Self::Watch(body) => control::encode(kind, body, request, out),
            Self::Unsubscribe(body) => control::encode(kind, body, request, out),
            Self::Publish(body) => body.encode(request, out),
            Self::Settle(body) => body.encode(request, out),
            Self::SetCredit(body) => body.encode(request, out),
            Self::Taken(body) => body.encode(request, out),
            Self::PublishAt(body) => body.encode(request, out),
            Self::PublishAtomic(body) => body.encode(request, out),
            Self::GetConfiguration(body) => control::encode(kind, body, request, out),
            Self::SetConfiguration(body) => control::encode(kind, body, request, out),
            Self::DeleteConfiguration(body) => control::encode(kind, body, request, out),
            Self::ListConfiguration(body) => control::encode(kind, body, request, out),
            Self::WatchConfiguration(body) => control::encode(kind, body, request, out),
            Self::SetHook(body) => control::encode(kind, body, request, out),
            Self::UseHook(body) => control::encode(kind, body, request, out),
            Self::DescribeHook(body) => control::encode(kind, body, request, out),
            Self::ListHooks(body) => control::encode(kind, body, request, out),
            Self::ListDelayed(body) => control::encode(kind, body, request, out),
            Self::ChangeDelayed(body) => control::encode(kind, body, request, out),
            Self::ChangeSchedule(body) => control::encode(kind, body, request, out),
            Self::ListSchedules(body) => control::encode(kind, body, request, out),
            Self::Inspect(body) => control::encode(kind, body, request, out),
            Self::Rework(body) => control::encode(kind, body, request, out),
            Self::Explain(body) => control::encode(kind, body, request, out),
            Self::ListFairKeys(body) => control::encode(kind, body, request, out),
            Self::ChangeAccess(body) => control::encode(kind, body, request, out),
            Self::ListAccess(body) => control::encode(kind, body, request, out),
            Self::DecideRight(body) => control::encode(kind, body, request, out),
        }
    }

    /// Reads a client's frame. Bodies of the data path share `body`'s memory.
    ///
    /// # Errors
    /// A [`DecodeError`]. After [`DecodeError::UnknownKind`] the connection can continue.
    pub fn decode(header: &FrameHeader, body: Bytes) -> Result<Self, DecodeError> {
        let kind = header.known_kind()?;
        // Bodies of the data path, and the one whose value may fill the limit: it is not copied.
        let may_be_long = matches!(
            kind,
            Kind::Publish
                | Kind::Settle
                | Kind::SetCredit
                | Kind::Taken
                | Kind::PublishAt
                | Kind::PublishAtomic
                | Kind::SetConfiguration
        );
        let limit = match kind {
            Kind::Rework => REWORK_REQUEST_BYTES_MAX,
            _ => CONTROL_REQUEST_BYTES_MAX,
        };
        if !may_be_long && body.len() > limit {
            let size = header.size;
            return Err(DecodeError::FrameTooLarge { kind: header.kind, size, limit });
        }
        Ok(match kind {
            Kind::Hello => Self::Hello(control::decode(kind, body)?),
            Kind::Ping => control::decode_empty(kind, &body).map(|()| Self::Ping)?,
            Kind::Pong => control::decode_empty(kind, &body).map(|()| Self::Pong)?,
            Kind::Goodbye => control::decode_empty(kind, &body).map(|()| Self::Goodbye)?,
            Kind::CreateTopic => Self::CreateTopic(control::decode(kind, body)?),
            Kind::AlterTopic => Self::AlterTopic(control::decode(kind, body)?),
            Kind::DeleteTopic => Self::DeleteTopic(control::decode(kind, body)?),
            Kind::DescribeTopic => Self::DescribeTopic(control::decode(kind, body)?),
            Kind::ListTopics => Self::ListTopics(control::decode(kind, body)?),
            Kind::CreateGroup => Self::CreateGroup(control::decode(kind, body)?),
            Kind::DeleteGroup => Self::DeleteGroup(control::decode(kind, body)?),
            Kind::ListGroups => Self::ListGroups(control::decode(kind, body)?),
            Kind::DescribeGroup => Self::DescribeGroup(control::decode(kind, body)?),
            Kind::SetCursor => Self::SetCursor(control::decode(kind, body)?),
            Kind::DeleteCursor => Self::DeleteCursor(control::decode(kind, body)?),
            Kind::ListCursors => Self::ListCursors(control::decode(kind, body)?),
            Kind::TrimTopic => Self::TrimTopic(control::decode(kind, body)?),
            Kind::AlterGroup => Self::AlterGroup(control::decode(kind, body)?),
            Kind::RetryParked => Self::RetryParked(control::decode(kind, body)?),
            Kind::OpenTopic => Self::OpenTopic(control::decode(kind, body)?),
            Kind::Subscribe => Self::Subscribe(control::decode(kind, body)?),
            Kind::Read => Self::Read(control::decode(kind, body)?),
            Kind::Watch => Self::Watch(control::decode(kind, body)?),
            Kind::Unsubscribe => Self::Unsubscribe(control::decode(kind, body)?),
            Kind::Publish => Self::Publish(Publish::decode(body)?),
            Kind::Settle => Self::Settle(Settle::decode(body)?),
            Kind::SetCredit => Self::SetCredit(SetCredit::decode(body)?),
            Kind::Taken => Self::Taken(Taken::decode(body)?),
            Kind::PublishAt => Self::PublishAt(PublishAt::decode(body)?),
            Kind::PublishAtomic => Self::PublishAtomic(PublishAtomic::decode(body)?),
            Kind::GetConfiguration => Self::GetConfiguration(control::decode(kind, body)?),
            Kind::SetConfiguration => Self::SetConfiguration(control::decode(kind, body)?),
            Kind::DeleteConfiguration => Self::DeleteConfiguration(control::decode(kind, body)?),
            Kind::ListConfiguration => Self::ListConfiguration(control::decode(kind, body)?),
            Kind::WatchConfiguration => Self::WatchConfiguration(control::decode(kind, body)?),
            Kind::SetHook => Self::SetHook(control::decode(kind, body)?),
            Kind::UseHook => Self::UseHook(control::decode(kind, body)?),
            Kind::DescribeHook => Self::DescribeHook(control::decode(kind, body)?),
            Kind::ListHooks => Self::ListHooks(control::decode(kind, body)?),
            Kind::ListDelayed => Self::ListDelayed(control::decode(kind, body)?),
            Kind::ChangeDelayed => Self::ChangeDelayed(control::decode(kind, body)?),
            Kind::ChangeSchedule => Self::ChangeSchedule(control::decode(kind, body)?),
            Kind::ListSchedules => Self::ListSchedules(control::decode(kind, body)?),
            Kind::Inspect => Self::Inspect(control::decode(kind, body)?),
            Kind::Rework => Self::Rework(control::decode(kind, body)?),
            Kind::Explain => Self::Explain(control::decode(kind, body)?),
            Kind::ListFairKeys => Self::ListFairKeys(control::decode(kind, body)?),
            Kind::ChangeAccess => Self::ChangeAccess(control::decode(kind, body)?),
            Kind::ListAccess => Self::ListAccess(control::decode(kind, body)?),
            Kind::DecideRight => Self::DecideRight(control::decode(kind, body)?),
            Kind::HelloOk
            | Kind::Error
            | Kind::GoAway
            | Kind::Done
            | Kind::TopicDescription
            | Kind::TopicList
            | Kind::GroupDescription
            | Kind::GroupList
            | Kind::CursorList
            | Kind::TopicOpened
            | Kind::Subscribed
            | Kind::Watching
            | Kind::TopicAppeared
            | Kind::TopicGone
            | Kind::SubscriptionEnded
            | Kind::Confirm
            | Kind::Deliver
            | Kind::Settled
            | Kind::Gap
            | Kind::PublishedAt
            | Kind::PublishedAtomic
            | Kind::ConfigurationValue
            | Kind::ConfigurationChanged
            | Kind::ConfigurationList
            | Kind::WatchingConfiguration
            | Kind::ConfigurationChanges
            | Kind::HookChanged
            | Kind::HookDescription
            | Kind::HookList
            | Kind::Inspected
            | Kind::Reworked
            | Kind::PublishNote
            | Kind::DelayedList
            | Kind::ScheduleList
            | Kind::ScheduleChanged
            | Kind::Explanations
            | Kind::FairKeyList
            | Kind::AccessChanged
            | Kind::AccessList
            | Kind::RightDecision => return Err(DecodeError::Direction { kind }),
        })
    }
}
