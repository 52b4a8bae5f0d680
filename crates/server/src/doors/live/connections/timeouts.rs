//! Time passes for live connections: those that say nothing, or take nothing, are given up; those whose rights have changed
//! are told so.

use sennit_centrifuge::{DisconnectCode, UnsubscribeCode};
use sennit_identity::Verb;
use tokio::time::Instant;

use super::LiveConnections;
use crate::{
    doors::live::{
        connection::{Phase, Subscription},
        connection_id::ConnectionId,
        limits::{COMMANDS_A_SECOND_MAX, PONG_TIMEOUT},
        source::{MessageSource, SharedPattern},
    },
    runtime::clock,
};

impl LiveConnections {
    /// Looks at all connections.
    pub(super) fn mind(&mut self, now: Instant) {
        let wall = clock::now();
        let pong_timeout = PONG_TIMEOUT.min(self.rules.ping_interval);
        for slot in 0..self.connections.len() as u32 {
            let Some(connection) = self.at(slot) else { continue };
            let id = connection.id;
            // Whatever the client speaks, it greets no more.
            if !matches!(connection.phase, Phase::Greeting(_)) {
                connection.greeting_place = None;
            }
            if std::mem::take(&mut connection.begun) >= COMMANDS_A_SECOND_MAX / 2 {
                self.thread_state.metrics.live_commands_delayed.add(1);
                self.to_read.push(slot);
            }
            let Some(connection) = self.at(slot) else { continue };
            let has_ended =
                |of: &Subscription| of.principal.as_ref().is_some_and(|it| it.check(wall).is_err());
            let ended = connection.subscriptions.iter().filter(|held| has_ended(held));
            let ended: Vec<u32> = ended.map(|held| held.broadcast).collect();
            for broadcast in ended {
                self.unsubscribe_from(id, broadcast, UnsubscribeCode::Expired);
            }
            self.keep_in_if_due(id, wall);
            let Some(connection) = self.at(slot) else { continue };
            if connection.has_expired(wall) && !connection.is_ending() {
                connection.end(DisconnectCode::Expired);
                self.to_flush.add(id);
                continue;
            }
            if now < connection.due {
                continue;
            }
            match connection.phase {
                Phase::Greeting(_) | Phase::Joining(_) => connection.end(DisconnectCode::Stale),
                // What it was told last it does not take, or it does not end.
                Phase::Ending => {
                    self.part(slot);
                    continue;
                }
                Phase::Connected if connection.awaits_pong => {
                    connection.end(DisconnectCode::NoPong);
                    connection.due = now + pong_timeout;
                }
                Phase::Connected => {
                    connection.ping(wall);
                    connection.awaits_pong = true;
                    connection.due = now + pong_timeout;
                }
            }
            self.to_flush.add(id);
        }
        self.tell_presences();
        // Rings whose last reader has caught up since are let go.
        for (&number, broadcast) in &mut self.broadcasts {
            if !broadcast.has_news && broadcast.held() > 0 {
                broadcast.has_news = true;
                self.with_news.push_back(number);
            }
        }
        self.flush_some();
    }

    /// Its client is there.
    pub(super) fn heard_pong(&mut self, slot: u32) {
        let ping_interval = self.rules.ping_interval;
        if let Some(connection) = self.at(slot)
            && connection.awaits_pong
        {
            connection.awaits_pong = false;
            connection.due = Instant::now() + ping_interval;
        }
    }

    /// Somebody's rights, or credentials, are others now.
    pub(super) fn look_at_rights(&mut self) {
        for slot in 0..self.connections.len() as u32 {
            if let Some(id) = self.at(slot).map(|connection| connection.id) {
                self.look_at_rights_of(id);
            }
        }
    }

    /// The same of one connection.
    pub(super) fn look_at_rights_of(&mut self, id: ConnectionId) {
        let Some(connection) = self.get(id) else { return };
        if !matches!(connection.phase, Phase::Connected) {
            return;
        }
        let principal = connection.principal.clone();
        if principal.check(clock::now()).is_err() {
            connection.end(DisconnectCode::InvalidToken);
            return self.to_flush.add(id);
        }
        connection.expires = principal.expires();
        let mut looked_at = Vec::new();
        for held in &connection.subscriptions {
            let of = held.principal.as_deref().unwrap_or(&principal);
            if !of.is_unrestricted() {
                looked_at.push((held.broadcast, of.clone()));
            }
        }
        for (broadcast, of) in looked_at {
            let lost = match self.broadcasts.get(&broadcast).map(|held| &held.source) {
                Some(MessageSource::Topic(topic)) => {
                    let may = of.may(Verb::Subscribe, topic.name.as_str());
                    may.is_err().then_some(UnsubscribeCode::Server)
                }
                Some(MessageSource::Pattern(source)) => {
                    match SharedPattern::of(&source.shared.pattern, &of) {
                        Some((shared, _)) if shared == source.shared => None,
                        // Other topics are its own now: it subscribes anew.
                        Some(_) => Some(UnsubscribeCode::InsufficientState),
                        None => Some(UnsubscribeCode::Server),
                    }
                }
                None => self.topic_of_consumer(broadcast).and_then(|topic| {
                    let may = of.may(Verb::Consume, topic.as_str());
                    may.is_err().then_some(UnsubscribeCode::Server)
                }),
            };
            if let Some(code) = lost {
                self.unsubscribe_from(id, broadcast, code);
            }
        }
    }
}
