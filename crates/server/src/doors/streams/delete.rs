//! DELETE removes a stream, except the content that its forks need. It knows nothing else.

use http::StatusCode;
use sennit_model::TopicName;

use super::{StreamsDoor, refusals::Problem};
use crate::{
    http::{body::Body, response::Response},
    identity::principal::Principal,
};

impl StreamsDoor {
    pub(super) async fn delete(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<Response, Problem> {
        self.streams.delete(principal, name).await?;
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}
