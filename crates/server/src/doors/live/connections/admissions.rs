//! Clients that the application has let in for a while: before that is over it is asked whether they may stay.

use sennit_centrifuge::DisconnectCode;
use sennit_model::Timestamp;

use super::LiveConnections;
use crate::{
    doors::live::{
        backend::{BackendAsk, CommandRefusal},
        connection::{Connection, time_to_refresh},
        connection_id::ConnectionId,
        core_requests::KeptIn,
        limits::BACKEND_ASKED_AGAIN,
    },
    runtime::clock::now,
};

impl LiveConnections {
    /// The application is asked again before its word on a client ends, if it is to be asked.
    pub(super) fn ask_before_end(&mut self, id: ConnectionId) {
        let backend = self.requests.backend();
        let is_asked = backend.is_some_and(|backend| backend.is_asked(BackendAsk::Refresh));
        let Some(connection) = self.get(id).filter(|_| is_asked) else { return };
        let ends = connection.expires.filter(|at| at.0 < u64::MAX);
        let ask_in_ms = |at| u64::from(time_to_refresh(at, now())) * 1000;
        let ask_at = ends.map(|at| Timestamp(now().0.saturating_add(ask_in_ms(at))));
        if let Some(admission) = &mut connection.admission {
            admission.ask_at = ask_at;
        }
    }

    /// Time has passed: the application may have to be asked.
    pub(super) fn keep_in_if_due(&mut self, id: ConnectionId, now: Timestamp) {
        let Some(connection) = self.get(id).filter(|it| !it.is_ending()) else { return };
        let Some(admission) = &mut connection.admission else { return };
        if admission.ask_at.is_some_and(|at| at <= now) {
            admission.ask_at = None;
            let asker = self.asker(id);
            self.requests.keep_in(id, asker);
        }
    }

    /// The application has said whether a client may stay.
    pub(super) fn hear_kept_in(&mut self, id: ConnectionId, kept: Result<KeptIn, CommandRefusal>) {
        let Some(connection) = self.get(id).filter(|it| !it.is_ending()) else { return };
        match kept {
            Ok(KeptIn { has_expired: true, .. }) => connection.end(DisconnectCode::Expired),
            Ok(KeptIn { expires, info, .. }) => {
                if let Some(principal) = connection.principal.renewed(expires, info) {
                    connection.set_principal(principal);
                }
                self.ask_before_end(id);
                self.look_at_rights_of(id);
            }
            Err(refusal @ CommandRefusal::Ends { .. }) => connection.not_granted(0, refusal),
            // What it said before counts until it ends.
            Err(CommandRefusal::Refused(_)) => ask_again(connection),
        }
    }
}

fn ask_again(connection: &mut Connection) {
    let after_ms = BACKEND_ASKED_AGAIN.as_millis() as u64;
    if let Some(admission) = &mut connection.admission {
        admission.ask_at = Some(Timestamp(now().0.saturating_add(after_ms)));
    }
}
