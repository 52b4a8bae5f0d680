//! What a connection of the WSE protocol has to remember, and the events that answers, pushes and ends become. It knows no
//! connections.

use std::rc::Rc;

use sennit_centrifuge::{
    Answer, ClientInfo, Data, DisconnectCode, ErrorCode, HistoryResult, Push, PushKind, ReplyError,
    SubscribeResult,
};
use sennit_websocket::{Opcode, frame};
use sennit_wse::{Category, CloseCode, Event, MESSAGE_BYTES_MAX, MessageView, Position};

use super::{dialect::put_event, limits::SUBSCRIPTIONS_MAX};

/// A question of a client that is not answered.
#[derive(Debug)]
pub(crate) enum Asked {
    Subscribe(Rc<str>),
    Publish { topic: Rc<str>, correlation_id: Option<String> },
    Snapshot(Rc<str>),
}

impl Asked {
    fn topic(&self) -> &str {
        match self {
            Self::Subscribe(topic) | Self::Snapshot(topic) | Self::Publish { topic, .. } => topic,
        }
    }

    fn correlation_id(&self) -> Option<&str> {
        match self {
            Self::Publish { correlation_id, .. } => correlation_id.as_deref(),
            Self::Subscribe(_) | Self::Snapshot(_) => None,
        }
    }
}

/// What a connection of the protocol has to remember.
#[derive(Debug, Default)]
pub(crate) struct WseState {
    /// The number of the last question; the login has 0.
    asked_last: u32,
    asked: Vec<(u32, Asked)>,
    /// Snapshots that were sent since it was told that they are complete.
    pub(crate) snapshots: u32,
    /// The offset behind which a client had a subscription go on that it has, by topic.
    resumed: Vec<(Rc<str>, u64)>,
}

/// What becomes of a client that wants a subscription to go on elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resumption {
    /// It goes on there.
    There,
    /// The client was given the next message before, and did not take it: it goes on behind that one.
    BehindNext,
    /// It was asked before the client was given what it has now.
    Stale,
}

impl WseState {
    /// Notes a question; returns its number.
    pub(crate) fn ask(&mut self, asked: Asked) -> u32 {
        self.asked_last = self.asked_last.wrapping_add(1).max(1);
        self.asked.push((self.asked_last, asked));
        self.asked_last
    }

    fn answered(&mut self, number: u32) -> Option<Asked> {
        let at = self.asked.iter().position(|(of, _)| *of == number)?;
        Some(self.asked.swap_remove(at).1)
    }

    /// A client that misses a message asks for it, and may ask several times before it is there. One that cannot read a
    /// message would ask for ever.
    pub(crate) fn resume(&mut self, topic: &str, offset: u64) -> Resumption {
        match self.resumed.iter_mut().find(|(of, _)| &**of == topic) {
            Some((_, last)) if offset < *last => Resumption::Stale,
            Some((_, last)) if offset == *last => {
                *last += 1;
                Resumption::BehindNext
            }
            Some((_, last)) => {
                *last = offset;
                Resumption::There
            }
            None => {
                if self.resumed.len() >= SUBSCRIPTIONS_MAX {
                    self.resumed.clear();
                }
                self.resumed.push((topic.into(), offset));
                Resumption::There
            }
        }
    }

    /// A subscription has ended, or begins anew.
    pub(crate) fn forget(&mut self, topic: &str) {
        self.resumed.retain(|(of, _)| &**of != topic);
    }

    /// Writes the events that tell of an answer; the connection ends with the code that is returned, if one is.
    pub(crate) fn put_answer(
        &mut self,
        number: u32,
        user: &str,
        result: &Result<Answer, ReplyError>,
        out: &mut Vec<u8>,
    ) -> Option<CloseCode> {
        if number == 0 {
            return match result {
                Ok(Answer::Connect(result)) => {
                    put_event(&Event::Ready { connection: &result.client, user }, out);
                    None
                }
                Ok(_) => None,
                Err(error) => Some(refused_login(error)),
            };
        }
        let asked = self.answered(number)?;
        let topic = asked.topic();
        match (result, &asked) {
            (Ok(Answer::Subscribe(result)), _) => put_subscribed(topic, result, out),
            (Ok(Answer::History(result)), _) => self.snapshots += put_snapshot(topic, result, out),
            (Ok(_), asked) => {
                if let Some(correlation_id) = asked.correlation_id() {
                    put_event(&Event::Published { topic, correlation_id }, out);
                }
            }
            (Err(error), asked) => {
                if matches!(asked, Asked::Subscribe(_)) {
                    put_event(&Event::NotSubscribed { topic }, out);
                }
                put_event(
                    &Event::Error {
                        code: error_code(error),
                        message: &error.message,
                        is_retryable: error.temporary,
                        topic: Some(topic),
                        correlation_id: asked.correlation_id(),
                    },
                    out,
                );
            }
        }
        None
    }
}

fn put_subscribed(topic: &str, result: &SubscribeResult, out: &mut Vec<u8>) {
    let position =
        Position { epoch: &result.epoch, offset: result.offset, recovered: result.recovered };
    // One that cannot be recovered has no position to go on from.
    let position = result.positioned.then_some(position);
    put_event(&Event::Subscribed { topic, position }, out);
}

/// The newest message of a topic; how many there are of it.
fn put_snapshot(topic: &str, history: &HistoryResult, out: &mut Vec<u8>) -> u32 {
    let Some(newest) = history.publications.first() else { return 0 };
    let json = newest.data.shown_as_json();
    let message = MessageView {
        topic,
        payload: std::str::from_utf8(json.as_bytes()).unwrap_or("null"),
        position: None,
        category: Category::Snapshot,
    };
    let mut body = Vec::new();
    sennit_wse::put_message(&message, &mut body);
    if body.len() > MESSAGE_BYTES_MAX {
        return 0;
    }
    frame::put_frame(Opcode::Text, &body, out);
    1
}

/// Writes the events that tell of something that the client has not asked for.
pub(crate) fn put_push(push: &Push, out: &mut Vec<u8>) {
    match &push.kind {
        PushKind::Unsubscribe(ended) => {
            let topic = push.channel.as_str();
            put_event(&Event::NotSubscribed { topic }, out);
            put_event(
                &Event::Error {
                    code: "SUBSCRIPTION_ENDED",
                    message: &ended.reason,
                    is_retryable: false,
                    topic: Some(topic),
                    correlation_id: None,
                },
                out,
            );
        }
        PushKind::Join(client) => put_presence(true, &push.channel, client, out),
        PushKind::Leave(client) => put_presence(false, &push.channel, client, out),
        PushKind::Message(data) => {
            let (json, mut body) = (data.shown_as_json(), Vec::new());
            let payload = std::str::from_utf8(json.as_bytes()).unwrap_or("null");
            let category = Category::Update;
            let view = MessageView { topic: "message", payload, position: None, category };
            sennit_wse::put_message(&view, &mut body);
            frame::put_frame(Opcode::Text, &body, out);
        }
        PushKind::Subscribe(begun) => {
            let (epoch, offset) = (begun.epoch.as_str(), begun.offset);
            let position = Some(Position { epoch, offset, recovered: false });
            put_event(&Event::Subscribed { topic: &push.channel, position }, out);
        }
        // Clients of this protocol have no such thing.
        PushKind::Publication(_) | PushKind::Disconnect(_) | PushKind::Refresh(_) => {}
    }
}

/// What a client says of itself in a subscription counts more than what its token says of it.
fn put_presence(is_join: bool, topic: &str, client: &ClientInfo, out: &mut Vec<u8>) {
    let data = [&client.channel_data, &client.connection_data];
    let data = data.into_iter().find(|data| !data.is_absent()).map(Data::shown_as_json);
    let text = data.as_ref().and_then(|data| std::str::from_utf8(data.as_bytes()).ok());
    put_event(
        &Event::Presence {
            is_join,
            topic,
            user: &client.user,
            connection: &client.client,
            data: text.unwrap_or_default(),
        },
        out,
    );
}

/// Writes the event by which a client learns why its connection ends.
pub(crate) fn put_end(code: CloseCode, message: &str, out: &mut Vec<u8>) {
    put_event(
        &Event::Error {
            code: code.error_code(),
            message,
            is_retryable: code.reconnects(),
            topic: None,
            correlation_id: None,
        },
        out,
    );
}

/// The code with which a connection ends.
pub(crate) fn close_code(code: DisconnectCode) -> CloseCode {
    use DisconnectCode as Code;
    match code {
        Code::Shutdown | Code::ForceReconnect | Code::ConnectionClosed => CloseCode::Drain,
        Code::Expired | Code::SubscriptionExpired => CloseCode::AuthExpired,
        Code::InvalidToken | Code::PermissionDenied | Code::ForceDisconnect => {
            CloseCode::AuthFailed
        }
        Code::BadRequest | Code::InappropriateProtocol | Code::TooManyErrors => {
            CloseCode::InvalidMessage
        }
        Code::NoPong | Code::Stale | Code::WriteError => CloseCode::Timeout,
        Code::Slow => CloseCode::Slow,
        Code::ConnectionLimit | Code::ChannelLimit | Code::TooManyRequests => {
            CloseCode::RateLimited
        }
        Code::ServerError
        | Code::InsufficientState
        | Code::StateInvalidated
        | Code::NotAvailable => CloseCode::Overload,
    }
}

/// The code with which a login that is refused ends the connection.
fn refused_login(error: &ReplyError) -> CloseCode {
    let is = |code: ErrorCode| error.code == code.code();
    if is(ErrorCode::TokenExpired) {
        CloseCode::AuthExpired
    } else if is(ErrorCode::TooManyRequests) {
        CloseCode::RateLimited
    } else if is(ErrorCode::Internal) {
        CloseCode::Overload
    } else {
        CloseCode::AuthFailed
    }
}

/// The word by which clients know an error.
fn error_code(error: &ReplyError) -> &'static str {
    const CODES: [(ErrorCode, &str); 6] = [
        (ErrorCode::PermissionDenied, "PERMISSION_DENIED"),
        (ErrorCode::UnknownChannel, "UNKNOWN_TOPIC"),
        (ErrorCode::TooManyRequests, "RATE_LIMITED"),
        (ErrorCode::LimitExceeded, "LIMIT_EXCEEDED"),
        (ErrorCode::BadRequest, "INVALID_REQUEST"),
        (ErrorCode::NotAvailable, "NOT_AVAILABLE"),
    ];
    let found = CODES.iter().find(|(code, _)| code.code() == error.code);
    found.map_or("SERVER_ERROR", |(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_asks_again_and_again_for_a_message_it_cannot_read_is_taken_past_it() {
        let mut state = WseState::default();
        assert_eq!(state.resume("news", 4), Resumption::There);
        assert_eq!(state.resume("chat", 4), Resumption::There, "each topic by itself");
        assert_eq!(state.resume("news", 4), Resumption::BehindNext);
        assert_eq!(state.resume("news", 4), Resumption::Stale, "it was sent before");
        assert_eq!(state.resume("news", 5), Resumption::BehindNext, "nor can it read the next");
        assert_eq!(state.resume("news", 9), Resumption::There);
        state.forget("news");
        assert_eq!(state.resume("news", 2), Resumption::There);
    }

    #[test]
    fn no_end_of_a_connection_is_one_that_clients_take_for_the_end_of_all() {
        for code in CloseCode::ALL {
            assert!((4000..5000).contains(&code.code()), "{code:?}");
            assert!(code.reason().len() <= 123, "{code:?}");
        }
        assert_eq!(close_code(DisconnectCode::Shutdown).code(), 4300);
        assert_eq!(close_code(DisconnectCode::InvalidToken).code(), 4401);
    }
}
