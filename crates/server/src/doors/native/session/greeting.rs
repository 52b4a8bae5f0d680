//! The greeting of a session: what its client wants, what it gets, and the end of the session that it replaces.

use sennit_protocol::{ErrorCode, Features, Reply, control, negotiated_frame_bytes_max};

use super::{Flow, Session};
use crate::{
    broker::session_replacement::replace_session,
    identity::login::{Credential, LoginRefusal, log_in},
    runtime::{clock::now, session_takeover::SessionToken},
};

impl Session {
    pub(super) async fn hello(&mut self, hello: &control::Hello, request: u64) -> Flow {
        if self.greeted {
            return self.refuse(request, ErrorCode::HelloExpected, "Hello was said before");
        }
        let credential = match (&hello.token, &hello.user) {
            (Some(key), _) => Credential::Key(key.clone()),
            (None, Some(user)) => {
                let password = hello.password.clone().unwrap_or_default();
                Credential::Password { user: user.clone(), password }
            }
            (None, None) => Credential::None,
        };
        let peer = std::mem::take(&mut self.peer);
        let metrics = &self.core.cores.metrics[self.core.index];
        let login = log_in(&self.authority, &credential, &peer, metrics, now());
        let principal = match login.await {
            Ok(principal) => principal,
            Err(refusal) => {
                let mut error = control::Error::new(code_of(refusal), refusal.to_string());
                if let LoginRefusal::TooMany(retry_after) = refusal {
                    error.retry_after_ms =
                        u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX).max(1);
                }
                self.outbox.refused(request, error);
                return Flow::Broken;
            }
        };
        if let Err(error) = self.guard.take_place(&principal) {
            self.outbox.refused(request, *error);
            return Flow::Broken;
        }
        self.guard.set_principal(principal);
        self.greeted = true;
        let limit = negotiated_frame_bytes_max(hello.frame_bytes_max);
        self.frames.set_limit(limit);
        let features = Features::of_names(&hello.features);
        self.greeted_with(limit, features);
        if let Some(token) = hello.replaces {
            replace_session(&self.core, SessionToken(token)).await;
        }
        let token = SessionToken::draw(self.id.0);
        self.core.with(|core| core.name_session(self.id, token));
        let grace = self.core.cores.session_grace.as_millis();
        let hello = control::HelloOk {
            server_name: "sennit".to_owned(),
            server_version: env!("CARGO_PKG_VERSION").to_owned(),
            features: features.names(),
            limits: Some(control::Limits::new(limit)),
            session_id: self.id.0,
            reconnect_grace_ms: u64::try_from(grace).unwrap_or(u64::MAX),
            now_ms: now().0,
            session_token: token.0,
        };
        self.outbox.reply(&Reply::HelloOk(hello), request);
        Flow::GoOn
    }

    pub(super) fn greeted_with(&mut self, frame_bytes_max: usize, features: Features) {
        self.frame_bytes_max = frame_bytes_max;
        self.outbox.set_frame_bytes_max(frame_bytes_max);
        self.outbox.set_features(features);
    }
}

fn code_of(refusal: LoginRefusal) -> ErrorCode {
    match refusal {
        LoginRefusal::TooMany(_) => ErrorCode::TooManyLogins,
        // Clients try again, here or at another node.
        LoginRefusal::NotReady => ErrorCode::NoLeader,
        LoginRefusal::Missing | LoginRefusal::Invalid | LoginRefusal::Expired => {
            ErrorCode::Unauthorized
        }
    }
}
