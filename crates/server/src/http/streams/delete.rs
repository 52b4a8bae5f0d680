//! DELETE: a stream is gone, but for what its forks need. It knows nothing else.

use http::{Response, StatusCode};
use sennit_model::TopicName;

use super::{StreamsDoor, refusals::Problem};
use crate::http::answer::Body;

impl StreamsDoor {
    pub(super) async fn delete(&self, name: &TopicName) -> Result<Response<Body>, Problem> {
        self.streams.delete(name).await?;
        let mut response = Response::new(Body::Empty);
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}
