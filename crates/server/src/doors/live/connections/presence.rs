//! Clients learn who else is subscribed to a topic. Each topic has a core that keeps that for all cores; connections tell it who
//! comes and goes, and it tells their cores.

use std::{collections::BTreeMap, hash::BuildHasher as _, sync::Arc};

use foldhash::fast::FixedState;
use sennit_centrifuge::{
    Answer, ClientInfo, Data, ErrorCode, PresenceResult, PresenceStatsResult, Push, PushKind,
    ReplyError, UnsubscribeCode, put_push,
};
use sennit_identity::Verb;
use sennit_model::TopicName;

use super::LiveConnections;
use crate::{
    doors::live::{
        channel::topic_of,
        connection_id::ConnectionId,
        core_requests::PresenceQuestion,
        dialect::{Dialect, put_centrifuge},
        format::Format,
        limits::{
            PRESENCE_CHANGES_MAX, PRESENCE_MAX, PRESENCE_PUSHES_MAX, TOLD_AT_ONCE_MAX,
            UNSENT_BYTES_MAX,
        },
        presence::{Change, Member, MemberId},
        relay::message::RelayKind,
        wse,
    },
    runtime::{core::Cores, index::CoreIndex},
};

impl LiveConnections {
    /// The core that keeps who is subscribed to a topic.
    pub(crate) fn presence_core(cores: &Cores, topic: &TopicName) -> CoreIndex {
        let cores = cores.inboxes.len() as u64;
        CoreIndex((FixedState::default().hash_one(topic) % cores) as u32)
    }

    /// A connection, as others see it.
    pub(super) fn client_info(&mut self, id: ConnectionId) -> ClientInfo {
        let client = self.client_id(id);
        let Some(connection) = self.get(id) else { return ClientInfo::default() };
        let info = connection.principal.info().map(|json| Data::of_payload(json.into()));
        ClientInfo {
            user: connection.principal.user_name(),
            client,
            connection_data: info.unwrap_or_default(),
            channel_data: Data::default(),
        }
    }

    /// A connection is subscribed to a topic that keeps presence.
    pub(super) fn join(&mut self, id: ConnectionId, topic: TopicName, is_told: bool, data: Data) {
        let info = ClientInfo { channel_data: data, ..self.client_info(id) };
        let member = Member { info, is_told };
        let member_id = MemberId { node: None, core: self.core.index, connection: id };
        let cores = &self.core.cores;
        Self::call(cores, Self::presence_core(cores, &topic), move |keeper| {
            keeper.announce(RelayKind::Joined, &topic, None, || vec![member.info.clone()]);
            keeper.presences.entry(topic.clone()).or_default().join(member_id, member);
            keeper.tell_presence(topic, false);
        });
    }

    /// It is not subscribed any more.
    pub(super) fn note_left(&self, id: ConnectionId, topic: TopicName) {
        let member_id = MemberId { node: None, core: self.core.index, connection: id };
        let client = self.client_id(id);
        let cores = &self.core.cores;
        Self::call(cores, Self::presence_core(cores, &topic), move |keeper| {
            if let Some(presence) = keeper.presences.get_mut(&topic) {
                presence.leave(member_id);
                let left = || vec![ClientInfo { client, ..ClientInfo::default() }];
                keeper.announce(RelayKind::Left, &topic, None, left);
                keeper.tell_presence(topic, false);
            }
        });
    }

    /// A topic keeps presence from now on, or does so no more.
    pub(super) fn change_presence(&mut self, number: u32) {
        let Some(broadcast) = self.broadcasts.get(&number) else { return };
        let Some(topic) = broadcast.topic().map(|topic| topic.name.clone()) else { return };
        let begins = broadcast.live().presence;
        for id in broadcast.subscribers.clone() {
            if !begins {
                self.note_left(id, topic.clone());
                continue;
            }
            let Some(connection) = self.get(id) else { continue };
            let mut subscriptions = connection.subscriptions.iter();
            let is_told = subscriptions.any(|held| held.broadcast == number && held.is_told);
            // What it has said of itself when it subscribed was for nobody, and is not kept.
            self.join(id, topic.clone(), is_told, Data::default());
        }
    }

    /// Time has passed: more is told of topics that many follow.
    pub(super) fn tell_presences(&mut self) {
        for topic in std::mem::take(&mut self.presences_to_tell) {
            self.tell_presence(topic, true);
        }
    }

    /// Tells who has come and gone: at once where few are told, else when it is time.
    pub(super) fn tell_presence(&mut self, topic: TopicName, is_time: bool) {
        let Some(presence) = self.presences.get_mut(&topic) else { return };
        let told = presence.told();
        if told > 0 && (is_time || told <= TOLD_AT_ONCE_MAX) {
            let most = (PRESENCE_PUSHES_MAX / told).clamp(1, PRESENCE_CHANGES_MAX);
            let changes: Arc<[Change]> = presence.tell(most).into();
            for core in presence.told_cores() {
                let (topic, changes) = (topic.clone(), changes.clone());
                Self::call(&self.core.cores, core, move |live| live.push_changes(&topic, &changes));
            }
        }
        if presence.has_untold() {
            self.presences_to_tell.insert(topic);
        } else if presence.is_empty() {
            self.presences.remove(&topic);
        }
    }

    /// Tells the clients of this core.
    fn push_changes(&mut self, topic: &TopicName, changes: &[Change]) {
        let Some(&number) = self.broadcasts_by_name.get(topic) else { return };
        let Some(broadcast) = self.broadcasts.get(&number) else { return };
        let frames = Format::ALL.map(|format| match broadcast.is_used(format) {
            true => frames_of(format, &broadcast.channel, changes),
            false => Vec::new(),
        });
        for id in broadcast.subscribers.clone() {
            let Some(connection) = self.get(id) else { continue };
            let is_told = |held: &super::Subscription| held.broadcast == number && held.is_told;
            if connection.is_ending() || !connection.subscriptions.iter().any(is_told) {
                continue;
            }
            if connection.unsent().len() >= UNSENT_BYTES_MAX {
                // It subscribes again, and asks who is there.
                self.unsubscribe_from(id, number, UnsubscribeCode::InsufficientState);
                continue;
            }
            let frame = &frames[connection.format().index()];
            connection.out().extend_from_slice(frame);
            self.to_flush.add(id);
        }
    }

    /// A client asks who is subscribed to a channel, or how many are.
    pub(super) fn presence(
        &mut self,
        id: ConnectionId,
        number: u32,
        channel: &str,
        counts_only: bool,
    ) {
        let Some(connection) = self.get(id) else { return };
        let topic = match topic_of(channel) {
            Ok(topic) => topic,
            Err(error) => {
                return connection.refuse(number, ErrorCode::BadRequest, error.to_string());
            }
        };
        let principal = connection.follower(channel).clone();
        if let Err(missing) = principal.may(Verb::Subscribe, topic.as_str()) {
            return connection.refuse(number, ErrorCode::PermissionDenied, missing.to_string());
        }
        connection.is_busy = true;
        let question = PresenceQuestion { command: number, topic, counts_only };
        self.requests.presence(id, &principal, question);
    }

    /// A client may know it: the core that keeps it is asked.
    pub(super) fn ask_presence(&self, id: ConnectionId, question: PresenceQuestion) {
        let (cores, asker) = (self.core.cores.clone(), self.core.index);
        let PresenceQuestion { command, topic, counts_only } = question;
        Self::call(&self.core.cores, Self::presence_core(&cores, &topic), move |keeper| {
            let answer = keeper.presence_of(&topic, counts_only);
            Self::call(&cores, asker, move |live| {
                let Some(connection) = live.get(id) else { return };
                connection.is_busy = false;
                connection.reply(command, answer);
                live.to_flush.add(id);
                live.to_read.push(id.slot);
            });
        });
    }

    fn presence_of(&mut self, topic: &TopicName, counts_only: bool) -> Result<Answer, ReplyError> {
        let Some(presence) = self.presences.get_mut(topic) else {
            return Ok(match counts_only {
                true => Answer::PresenceStats(PresenceStatsResult::default()),
                false => Answer::Presence(PresenceResult::default()),
            });
        };
        let (clients, users) = presence.counts();
        if counts_only {
            let [clients, users] = [clients, users].map(|count| count as u32);
            return Ok(Answer::PresenceStats(PresenceStatsResult { clients, users }));
        }
        if clients > PRESENCE_MAX {
            let detail = format!(
                "{clients} clients are subscribed, and PRESENCE_MAX is {PRESENCE_MAX}: ask for their number, by presence statistics"
            );
            return Err(ReplyError::new(ErrorCode::LimitExceeded, detail));
        }
        let listed = presence.list().into_iter();
        let listed = listed.map(|member| (member.info.client.clone(), member.info.clone()));
        let presence: BTreeMap<_, _> = listed.collect();
        Ok(Answer::Presence(PresenceResult { presence }))
    }
}

/// The frames with the pushes of changes, one behind the other.
fn frames_of(format: Format, channel: &str, changes: &[Change]) -> Vec<u8> {
    let mut framed = Vec::new();
    let pushes = changes.iter().map(|change| match change {
        Change::Joined(member) => PushKind::Join(member.info.clone()),
        Change::Left(member) => PushKind::Leave(member.info.clone()),
    });
    let pushes = pushes.map(|kind| Push { channel: channel.to_owned(), kind });
    match format.dialect {
        Dialect::Centrifuge(encoding) => {
            let mut body = Vec::new();
            put_centrifuge(encoding, &mut body, |encoding, out| {
                pushes.for_each(|push| put_push(encoding, &push, out));
            });
            format.put(&body, &mut framed);
        }
        Dialect::Wse => pushes.for_each(|push| wse::put_push(&push, &mut framed)),
    }
    framed
}
