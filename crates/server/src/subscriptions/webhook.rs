//! Calls a webhook: one signed request, on a connection of its own to a checked address. Redirects are not
//! followed. It knows no subscriptions.

use std::cell::Cell;

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};

use super::request::{
    UrlRejected,
    limits::{LOOKUPS_UNDER_WAY_MAX, WEBHOOK_ANSWER_BYTES_MAX, WEBHOOK_TIMEOUT},
};
use super::{
    name_lookup::Lookups,
    url_guard::{LookupFailure, Target},
};
use crate::http::client::{ClientFailure, HttpClient};

/// What a webhook has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookAnswer {
    /// It has taken the wake and will say when it is done.
    Taken,
    /// It has done all that it was told of.
    Done,
}

/// Why a webhook was not told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WebhookFailure {
    /// Its address is not called any more.
    #[error(transparent)]
    Rejected(#[from] UrlRejected),
    /// Its name stands for nothing that may be called.
    #[error(transparent)]
    Lookup(#[from] LookupFailure),
    /// It was not reached, or does not speak HTTP.
    #[error(transparent)]
    Client(#[from] ClientFailure),
    /// The request could not be made.
    #[error("no request: {0}")]
    Request(#[from] http::Error),
    /// It has answered otherwise than with success.
    #[error("answered {0}")]
    Status(StatusCode),
    /// It took too long.
    #[error("no answer in {} s", WEBHOOK_TIMEOUT.as_secs())]
    TooLate,
}

/// Calls webhooks.
#[derive(Debug)]
pub(crate) struct Caller {
    /// For development: this machine may be called, and without TLS.
    pub(crate) allows_loopback: Cell<bool>,
    /// Those of names that are called, and those of names that somebody asks to have called: who asks
    /// for names that nobody knows is in the way of others who ask, and of no call.
    lookups: Lookups,
    checks: Lookups,
    client: HttpClient,
}

impl Caller {
    pub(crate) fn new(allows_loopback: bool) -> Self {
        Self {
            allows_loopback: Cell::new(allows_loopback),
            lookups: Lookups::new(LOOKUPS_UNDER_WAY_MAX),
            checks: Lookups::new(LOOKUPS_UNDER_WAY_MAX),
            client: HttpClient::default(),
        }
    }

    /// Whether `url` may be called, as far as that can be said today.
    pub(crate) async fn check(&self, url: &str) -> Result<(), UrlRejected> {
        match Target::parse(url, self.allows_loopback.get())?.look_up(&self.checks).await {
            Err(LookupFailure::Rejected(rejected)) => Err(rejected),
            // It may be there when it is called, and is looked at then.
            Ok(_) | Err(LookupFailure::Unknown(..)) => Ok(()),
        }
    }

    /// Tells the webhook at `url`.
    pub(crate) async fn call(
        &self,
        url: &str,
        body: Bytes,
        signature: &str,
    ) -> Result<WebhookAnswer, WebhookFailure> {
        let called = tokio::time::timeout(WEBHOOK_TIMEOUT, self.try_call(url, body, signature));
        called.await.unwrap_or(Err(WebhookFailure::TooLate))
    }

    async fn try_call(
        &self,
        url: &str,
        body: Bytes,
        signature: &str,
    ) -> Result<WebhookAnswer, WebhookFailure> {
        let target = Target::parse(url, self.allows_loopback.get())?;
        let addresses = target.look_up(&self.lookups).await?;
        let request = Request::post(&*target.path)
            .header(header::HOST, &*target.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("sennit/", env!("CARGO_PKG_VERSION")))
            .header("webhook-signature", signature)
            .body(Full::new(body))?;
        let (is_tls, host) = (target.is_tls, &target.host);
        let answer = self.client.send(is_tls, host, &addresses, request).await?;
        if !answer.response.status().is_success() {
            return Err(WebhookFailure::Status(answer.response.status()));
        }
        // One that cannot be read says nothing more than that it was taken.
        let body = answer.response.into_body();
        let body = Limited::new(body, WEBHOOK_ANSWER_BYTES_MAX).collect().await;
        drop(answer.connection);
        let said: Option<serde_json::Value> =
            body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
        let is_done = said.is_some_and(|said| said["done"] == true);
        Ok(if is_done { WebhookAnswer::Done } else { WebhookAnswer::Taken })
    }
}
