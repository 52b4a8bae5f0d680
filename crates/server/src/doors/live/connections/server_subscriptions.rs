//! Subscriptions that clients have not asked for: those that their tokens name, which begin before the connect is answered, and
//! those that programs make. What is delivered is as in others; it is the client that hears of them otherwise.

use std::{collections::BTreeMap, rc::Rc};

use sennit_centrifuge::{
    Data, DisconnectCode, ErrorCode, Push, PushKind, ReplyError, SubscribePush, SubscribeResult,
    UnsubscribeCode,
};
use sennit_model::TopicName;
use tokio::sync::oneshot;

use super::LiveConnections;
use crate::doors::live::{
    backend::CommandRefusal,
    connection::{Joining, Phase},
    connection_id::{ClientId, ConnectionId},
    core_requests::{Beginning, Cause, SubscriptionStart},
    group_channel::{GroupChannel, subscription_of},
    limits::SUBSCRIPTIONS_MAX,
    pending_subscriptions::{PendingSubscriptions, Subscribed},
    target::Target,
};

/// The push by which a client learns that it is subscribed.
pub(super) fn subscribed(channel: &str, result: SubscribeResult) -> Push {
    let SubscribeResult { recoverable, positioned, epoch, offset, data, .. } = result;
    let push = SubscribePush { recoverable, positioned, epoch, offset, data };
    Push { channel: channel.to_owned(), kind: PushKind::Subscribe(push) }
}

impl LiveConnections {
    /// A client is to be subscribed to these channels before its connect is answered.
    pub(super) fn begin_of_token(
        &mut self,
        id: ConnectionId,
        number: u32,
        channels: &[Box<str>],
        data: Data,
    ) {
        let tells_all = self.rules.tells_all;
        let Some(connection) = self.get(id) else { return };
        if channels.len() > SUBSCRIPTIONS_MAX {
            let detail =
                format!("the token names more channels: SUBSCRIPTIONS_MAX is {SUBSCRIPTIONS_MAX}");
            let error = ReplyError::new(ErrorCode::LimitExceeded, detail);
            return self.refuse_connect(id, number, error);
        }
        let mut positions = connection.positions.take().unwrap_or_default();
        let mut beginnings = Vec::new();
        for channel in channels {
            let (topic, group) = match subscription_of(channel) {
                Ok(meant) => meant,
                Err(error) => {
                    let error = ReplyError::new(ErrorCode::BadRequest, error.to_string());
                    return self.refuse_connect(id, number, error);
                }
            };
            beginnings.push(Beginning {
                command: number,
                channel: (&**channel).into(),
                topic,
                group,
                recovers: positions.remove(&**channel),
                rejects_unrecovered: false,
                is_told: tells_all,
                data: Data::default(),
                token: None,
                principal: None,
                answer: Data::default(),
                cause: Cause::Token,
                interest: None,
            });
        }
        let count = beginnings.len();
        connection.phase = Phase::Joining(Box::new(Joining { count, starts: Vec::new(), data }));
        connection.is_busy = true;
        let asker = self.asker(id);
        for beginning in beginnings {
            self.requests.begin(id, asker.clone(), beginning);
        }
    }

    /// It is known where a subscription begins that a token names, or that it does not.
    pub(super) fn hear_start(
        &mut self,
        id: ConnectionId,
        beginning: Beginning,
        start: Result<SubscriptionStart, CommandRefusal>,
    ) {
        let number = beginning.command;
        let Some(connection) = self.get(id) else { return };
        let Phase::Joining(joining) = &mut connection.phase else { return };
        match start {
            Ok(start) => joining.starts.push((beginning, start)),
            Err(CommandRefusal::Refused(error)) => return self.refuse_connect(id, number, error),
            Err(ends) => return connection.not_granted(number, ends),
        }
        if joining.starts.len() < joining.count {
            return;
        }
        let (starts, data) =
            (std::mem::take(&mut joining.starts), std::mem::take(&mut joining.data));
        let mut subscriptions: BTreeMap<String, SubscribeResult> = BTreeMap::new();
        for (beginning, start) in starts {
            let channel = beginning.channel.to_string();
            match self.begin_at(id, beginning, start) {
                Ok(result) => drop(subscriptions.insert(channel, result)),
                Err(error) => return self.refuse_connect(id, number, error),
            }
        }
        self.answer_connect(id, number, subscriptions, data);
    }

    /// A client does not get what its token says: it is told why, and does not stay without it.
    fn refuse_connect(&mut self, id: ConnectionId, number: u32, error: ReplyError) {
        let Some(connection) = self.get(id) else { return };
        let code = if error.temporary {
            DisconnectCode::ServerError
        } else {
            DisconnectCode::PermissionDenied
        };
        connection.reply(number, Err(error));
        connection.end(code);
        self.to_flush.add(id);
    }

    /// Subscribes connections to a channel, as a program wants it.
    pub(crate) fn subscribe_meant(
        &mut self,
        target: &Target,
        (channel, topic, group): (&str, &TopicName, Option<&GroupChannel>),
        answer: oneshot::Sender<Subscribed>,
    ) {
        let awaited = Rc::new(PendingSubscriptions::new(answer));
        let tells_all = self.rules.tells_all;
        for id in self.meant(target) {
            let client = ClientId { core: self.core.index, connection: id };
            let Some(connection) = self.get(id) else { continue };
            if connection.subscription(channel).is_some() {
                awaited.note(client, Ok(()));
                continue;
            }
            let beginning = Beginning {
                command: 0,
                channel: channel.into(),
                topic: topic.clone(),
                group: group.cloned(),
                recovers: None,
                rejects_unrecovered: false,
                is_told: tells_all,
                data: Data::default(),
                token: None,
                principal: None,
                answer: Data::default(),
                cause: Cause::Program(awaited.clone()),
                interest: None,
            };
            if let Err(error) = beginning.check_rights(&connection.principal) {
                awaited.note(client, Err(error.message));
                continue;
            }
            let asker = self.asker(id);
            self.requests.begin(id, asker, beginning);
        }
    }

    /// It is known where a subscription begins that a program wants, or that it does not.
    pub(super) fn begin_for_program(
        &mut self,
        id: ConnectionId,
        beginning: Beginning,
        start: Result<SubscriptionStart, CommandRefusal>,
    ) {
        let Cause::Program(awaited) = beginning.cause.clone() else { return };
        let client = ClientId { core: self.core.index, connection: id };
        let channel = beginning.channel.clone();
        let Some(connection) = self.get(id) else { return };
        if !matches!(connection.phase, Phase::Connected) {
            return awaited.note(client, Err("it has ended".to_owned()));
        }
        if connection.subscription(&channel).is_some() {
            return awaited.note(client, Ok(()));
        }
        let begun = match start {
            Ok(start) => self.begin_at(id, beginning, start),
            Err(CommandRefusal::Refused(error)) => Err(error),
            Err(CommandRefusal::Ends { code, reason }) => {
                awaited.note(client, Err(reason.clone()));
                return connection.not_granted(0, CommandRefusal::Ends { code, reason });
            }
        };
        awaited.note(client, begun.as_ref().map(drop).map_err(|error| error.message.clone()));
        let (Ok(result), Some(connection)) = (begun, self.get(id)) else { return };
        connection.push(&subscribed(&channel, result));
    }

    /// Ends the subscriptions of connections to a channel, whoever made them; says how many there were.
    pub(crate) fn unsubscribe_meant(&mut self, target: &Target, channel: &str) -> usize {
        let mut ended = 0;
        for id in self.meant(target) {
            let Some(connection) = self.get(id) else { continue };
            let Some(at) = connection.subscription(channel) else { continue };
            let broadcast = connection.subscriptions[at].broadcast;
            self.unsubscribe_from(id, broadcast, UnsubscribeCode::Server);
            ended += 1;
        }
        ended
    }
}
