//! The live connections there are, page by page, and having them end. It knows no topics.

use http::StatusCode;
use sennit_centrifuge::DisconnectCode;
use serde_json::{Value, json};

use super::{
    ApiDoor, json_answer,
    limits::{CONNECTIONS_PAGE, CONNECTIONS_PAGE_MAX, DISCONNECT_REASON_BYTES_MAX},
    query::Query,
    refusals::ApiRefusal,
    target_body::target,
};
use crate::{
    doors::live::{
        connection_id::{ClientId, ConnectionId},
        connections::{LiveConnections, targets::ConnectionView},
        target::Target,
    },
    http::response::Response,
    identity::principal::Principal,
};

impl ApiDoor {
    /// GET /api/v1/live/connections: a page of them.
    pub(super) async fn connections(&self, query: Option<&str>) -> Result<Response, ApiRefusal> {
        let query = Query::read(query, &["user", "limit", "from"])?;
        let target = match query.get("user") {
            Some(user) => target(Some(user), None, false)?,
            None => Target::All,
        };
        let most = match query.number("limit")? {
            None => CONNECTIONS_PAGE,
            Some(limit) if (1..=CONNECTIONS_PAGE_MAX as u64).contains(&limit) => limit as usize,
            Some(_) => {
                let detail = format!("limit is 1 to {CONNECTIONS_PAGE_MAX}, CONNECTIONS_PAGE_MAX");
                return Err(ApiRefusal::bad(detail));
            }
        };
        let from = query.get("from").map(str::parse::<ClientId>).transpose();
        let from = from.map_err(|error| ApiRefusal::bad(format!("from: {error}")))?;
        let (mut views, mut next) = (Vec::new(), None);
        for core in target.cores(&self.cores) {
            let slot = match from {
                Some(from) if core < from.core => continue,
                Some(from) if core == from.core => from.connection.slot,
                _ => 0,
            };
            let (left, of) = (most - views.len(), target.clone());
            let listed =
                LiveConnections::ask(&self.cores, core, move |live| live.list(&of, slot, left));
            let Some((more, next_slot)) = listed.await else { continue };
            views.extend(more.iter().map(json_of));
            if let Some(slot) = next_slot {
                let connection = ConnectionId { slot, generation: 0 };
                next = Some(ClientId { core, connection }.to_string());
                break;
            }
        }
        Ok(json_answer(StatusCode::OK, &json!({ "connections": views, "next": next })))
    }

    /// GET /api/v1/live/connections/{id}.
    pub(super) async fn connection(&self, id: &str) -> Result<Response, ApiRefusal> {
        let target = target(None, Some(id), false)?;
        for core in target.cores(&self.cores) {
            let of = target.clone();
            let listed = LiveConnections::ask(&self.cores, core, move |live| live.list(&of, 0, 1));
            if let Some((views, _)) = listed.await
                && let [view] = &views[..]
            {
                return Ok(json_answer(StatusCode::OK, &json_of(view)));
            }
        }
        Err(unknown_connection())
    }

    /// DELETE /api/v1/live/connections/{id}, or of all connections of `?user=`.
    pub(super) async fn disconnect(
        &self,
        principal: &Principal,
        id: Option<&str>,
        query: Option<&str>,
    ) -> Result<Response, ApiRefusal> {
        let known: &[_] =
            if id.is_some() { &["code", "reason"] } else { &["user", "code", "reason"] };
        let query = Query::read(query, known)?;
        let target = match (id, query.get("user")) {
            (None, None) => return Err(ApiRefusal::bad("name the user, as ?user=NAME")),
            (id, user) => target(user, id, false)?,
        };
        let (code, reason) = ending(&query)?;
        let mut ended = 0;
        for core in target.cores(&self.cores) {
            let (of, reason) = (target.clone(), reason.clone());
            let asked = LiveConnections::ask(&self.cores, core, move |live| {
                live.end_meant(&of, code, &reason)
            });
            ended += asked.await.unwrap_or_default();
        }
        let outcome = match id {
            Some(_) if ended == 0 => Err(unknown_connection()),
            _ => Ok(ended),
        };
        self.note(principal, "live disconnect", target.to_string(), &outcome);
        Ok(json_answer(StatusCode::OK, &json!({ "disconnected": outcome? })))
    }
}

fn unknown_connection() -> ApiRefusal {
    ApiRefusal::new(StatusCode::NOT_FOUND, "unknown_connection", "there is no such connection")
}

/// With which code, and which words, connections end.
fn ending(query: &Query) -> Result<(u16, String), ApiRefusal> {
    let force = DisconnectCode::ForceDisconnect;
    let code = match query.number("code")? {
        None => force.code(),
        Some(code) => u16::try_from(code)
            .ok()
            .filter(|code| {
                *code == force.code()
                    || *code == DisconnectCode::ForceReconnect.code()
                    || (4000..=4999).contains(code)
            })
            .ok_or_else(|| {
                ApiRefusal::bad(
                    "code is 3503, 3011 for clients that come back, or 4000 to 4999, of the application's own: \
                     clients come back after those below 4500",
                )
            })?,
    };
    let reason = query.get("reason").unwrap_or_else(|| match code {
        3011 => DisconnectCode::ForceReconnect.reason(),
        _ => force.reason(),
    });
    if reason.len() > DISCONNECT_REASON_BYTES_MAX {
        return Err(ApiRefusal::too_many(
            "DISCONNECT_REASON_BYTES_MAX",
            DISCONNECT_REASON_BYTES_MAX,
        ));
    }
    Ok((code, reason.to_owned()))
}

fn json_of(view: &ConnectionView) -> Value {
    let ConnectionView { id, user, address, dialect, since, channels, unsent } = view;
    json!({
        "id": id.to_string(),
        "user": user,
        "address": address.map(|address| address.to_string()),
        "protocol": dialect.name(),
        "since_ms": since.0,
        "channels": channels,
        "unsent_bytes": unsent,
    })
}
