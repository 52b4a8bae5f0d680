//! POST /api/v1/publish: messages are published, and it is said of each where it lies, or why it does not. It knows no
//! connections.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    ApiDoor, json_answer,
    message_body::{self, Addressed, Messages},
    refusals::ApiRefusal,
};
use crate::{
    broker::control_request::ControlRefusal, hooks::topic_publisher::Published,
    http::response::Response, identity::principal::Principal,
};

impl ApiDoor {
    pub(super) async fn publish(
        &self,
        principal: &Principal,
        body: &Bytes,
    ) -> Result<Response, ApiRefusal> {
        match message_body::read(body)? {
            Messages::One(one) => {
                let Addressed { topic, destination, message } = *one;
                let published =
                    self.publisher.publish(principal, &topic, destination, &message).await;
                let published = published.map_err(|refusal| ApiRefusal::from(&refusal))?;
                Ok(json_answer(StatusCode::OK, &json_of(published)))
            }
            Messages::Many(many) => Ok(self.publish_all(principal, many).await),
        }
    }

    /// All are on their way, in their order, before the first is waited for: those of one partition are committed together.
    async fn publish_all(&self, principal: &Principal, many: Vec<Addressed>) -> Response {
        let mut under_way = Vec::with_capacity(many.len());
        let mut busy = None;
        for Addressed { topic, destination, message } in &many {
            let handed = match &busy {
                // One that had no room has waited for it; the others need not.
                Some(refusal) => Err(ControlRefusal::clone(refusal)),
                None => self.publisher.hand_over(principal, topic, *destination, message).await,
            };
            if let Err(refusal @ (ControlRefusal::Busy(_) | ControlRefusal::ShuttingDown)) = &handed
            {
                busy = Some(refusal.clone());
            }
            under_way.push(handed);
        }
        let mut results = Vec::with_capacity(many.len());
        let mut refused = 0;
        for (Addressed { topic, destination, message }, handed) in many.iter().zip(under_way) {
            let outcome = match handed {
                Ok(handed) => match self.publisher.committed(topic, handed).await {
                    // Its place was remembered: the name may be another topic's by now.
                    Err(ControlRefusal::UnknownTopic(_)) => {
                        self.publisher.publish(principal, topic, *destination, message).await
                    }
                    outcome => outcome,
                },
                Err(refusal) => Err(refusal),
            };
            results.push(match outcome {
                Ok(published) => json_of(published),
                Err(refusal) => {
                    refused += 1;
                    json!({ "error": ApiRefusal::from(&refusal).json() })
                }
            });
        }
        let status = if refused == 0 { StatusCode::OK } else { StatusCode::MULTI_STATUS };
        let published = results.len() - refused;
        let body = json!({ "published": published, "refused": refused, "results": results });
        json_answer(status, &body)
    }
}

fn json_of(published: Published) -> Value {
    let mut json = json!({
        "partition": published.partition.0,
        "offset": published.offset.map(|offset| offset.0),
    });
    if published.is_duplicate {
        json["duplicate"] = true.into();
    }
    json
}
