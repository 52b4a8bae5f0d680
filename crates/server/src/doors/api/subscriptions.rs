//! POST /api/v1/live/subscribe and unsubscribe: a program makes and ends subscriptions of live connections. It knows no messages.

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use sennit_model::TopicName;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{ApiDoor, json_answer, refusals::ApiRefusal, target_body::target};
use crate::{
    doors::live::{
        connection_id::ClientId,
        connections::LiveConnections,
        group_channel::{GroupChannel, subscription_of},
        pending_subscriptions::Subscribed,
        target::Target,
    },
    http::response::Response,
    identity::principal::Principal,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscriptionBody<'a> {
    #[serde(borrow)]
    user: Option<Cow<'a, str>>,
    #[serde(borrow)]
    connection: Option<Cow<'a, str>>,
    #[serde(borrow)]
    channel: Cow<'a, str>,
}

/// Which connections are meant, and which channel with its topic.
pub(super) fn read(
    body: &[u8],
) -> Result<(Target, String, TopicName, Option<GroupChannel>), ApiRefusal> {
    let parsed: Result<SubscriptionBody<'_>, _> = serde_json::from_slice(body);
    let shape = "{\"user\": ..., \"channel\": ...}";
    let body = parsed.map_err(|error| ApiRefusal::invalid_json(shape, &error))?;
    let target = target(body.user.as_deref(), body.connection.as_deref(), false)?;
    let (topic, group) = subscription_of(&body.channel).map_err(|error| ApiRefusal {
        code: "invalid_name",
        ..ApiRefusal::bad(error.to_string())
    })?;
    Ok((target, body.channel.into_owned(), topic, group))
}

impl ApiDoor {
    pub(super) async fn subscribe(
        &self,
        principal: &Principal,
        body: &Bytes,
    ) -> Result<Response, ApiRefusal> {
        let (target, channel, topic, group) = read(body)?;
        let mut answers = Vec::new();
        for core in target.cores(&self.cores) {
            let (sender, answer) = oneshot::channel();
            let (target, channel) = (target.clone(), channel.clone());
            let (topic, group) = (topic.clone(), group.clone());
            LiveConnections::call(&self.cores, core, move |live| {
                live.subscribe_meant(&target, (&channel, &topic, group.as_ref()), sender);
            });
            answers.push(answer);
        }
        let mut all = Subscribed::default();
        for answer in answers {
            // A core without live connections has none that it could subscribe.
            let Subscribed { subscribed, refused, refusals } = answer.await.unwrap_or_default();
            all.subscribed += subscribed;
            all.refused += refused;
            all.refusals.extend(refusals);
        }
        self.note(
            principal,
            "live subscribe",
            format!("{target} to {channel}"),
            &Ok::<_, ApiRefusal>(()),
        );
        let json_of = |(id, reason): &(ClientId, String)| -> Value {
            json!({ "connection": id.to_string(), "detail": reason })
        };
        let refusals: Vec<_> = all.refusals.iter().map(json_of).collect();
        let (subscribed, refused) = (all.subscribed, all.refused);
        let body = json!({ "subscribed": subscribed, "refused": refused, "refusals": refusals });
        Ok(json_answer(StatusCode::OK, &body))
    }

    pub(super) async fn unsubscribe(
        &self,
        principal: &Principal,
        body: &Bytes,
    ) -> Result<Response, ApiRefusal> {
        let (target, channel, ..) = read(body)?;
        let mut ended = 0;
        for core in target.cores(&self.cores) {
            let (of, name) = (target.clone(), channel.clone());
            let asked = LiveConnections::ask(&self.cores, core, move |live| {
                live.unsubscribe_meant(&of, &name)
            });
            ended += asked.await.unwrap_or_default();
        }
        self.note(
            principal,
            "live unsubscribe",
            format!("{target} from {channel}"),
            &Ok::<_, ApiRefusal>(()),
        );
        Ok(json_answer(StatusCode::OK, &json!({ "unsubscribed": ended })))
    }
}
