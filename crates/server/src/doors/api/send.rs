//! POST /api/v1/live/send: a message that is in no topic goes to live connections, and it is said how many have got it. It knows
//! no topics.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use sennit_centrifuge::Data;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::sync::oneshot;

use super::{
    ApiDoor, json_answer,
    limits::SEND_BYTES_MAX,
    message_body::{any_value, payload},
    refusals::ApiRefusal,
    target_body::target,
};
use crate::{
    doors::live::{
        connections::{LiveConnections, messages::Sent},
        target::Target,
    },
    http::response::Response,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SendBody<'a> {
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow)]
    connection: Option<Cow<'a, str>>,
    #[serde(default)]
    all: bool,
    #[serde(default, borrow, deserialize_with = "any_value")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    base64: Option<Cow<'a, str>>,
}

/// Which connections are meant, and what they get.
pub(super) fn read(body: &[u8]) -> Result<(Target, Bytes), ApiRefusal> {
    let parsed: Result<SendBody<'_>, _> = serde_json::from_slice(body);
    let body = parsed
        .map_err(|error| ApiRefusal::invalid_json("{\"user\": ..., \"data\": ...}", &error))?;
    let target = target(body.user.as_deref(), body.connection.as_deref(), body.all)?;
    let payload = payload(body.data, body.text, body.base64)?;
    if payload.len() > SEND_BYTES_MAX {
        return Err(ApiRefusal::too_many("SEND_BYTES_MAX", SEND_BYTES_MAX));
    }
    Ok((target, payload))
}

impl ApiDoor {
    pub(super) async fn send(&self, body: &Bytes) -> Result<Response, ApiRefusal> {
        let (target, payload) = read(body)?;
        let data = Data::of_payload(payload);
        let mut answers = Vec::new();
        for core in target.cores(&self.cores) {
            let (sender, answer) = oneshot::channel();
            let (target, data) = (target.clone(), data.clone());
            LiveConnections::call(&self.cores, core, move |live| live.send(&target, data, sender));
            answers.push(answer);
        }
        let (mut all, mut is_full) = (Sent::default(), None);
        for answer in answers {
            // A core without live connections has none that it could reach.
            match answer.await {
                Ok(Ok(sent)) => {
                    all.reached += sent.reached;
                    all.missed += sent.missed;
                }
                Ok(Err(full)) => is_full = Some(full),
                Err(_) => {}
            }
        }
        if let Some(full) = is_full {
            // Those of other cores may have got it.
            let refusal = ApiRefusal::new(StatusCode::TOO_MANY_REQUESTS, "busy", full.to_string());
            return Err(refusal.later(1));
        }
        let body = json!({ "reached": all.reached, "missed": all.missed });
        Ok(json_answer(StatusCode::OK, &body))
    }
}
