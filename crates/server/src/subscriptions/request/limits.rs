//! The limits and periods of subscriptions. docs/reference/http-streams.md describes each of them; a refusal names
//! the limit that was reached.

use std::time::Duration;

/// Subscriptions of a broker.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 10_000;

/// Streams that one subscription is linked to.
pub(crate) const SUBSCRIPTION_LINKS_MAX: usize = 10_000;

/// Links of all subscriptions together.
pub(crate) const LINKS_IN_ALL_MAX: usize = 100_000;

/// Longest id of a subscription, in bytes.
pub(crate) const SUBSCRIPTION_ID_BYTES_MAX: usize = 128;

/// Longest pattern, in bytes.
pub(crate) const PATTERN_BYTES_MAX: usize = 256;

/// Longest address of a webhook, in bytes.
pub(crate) const WEBHOOK_URL_BYTES_MAX: usize = 2048;

/// Longest description, in bytes.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 1024;

/// Longest name that a worker gives itself, in bytes.
pub(crate) const WORKER_BYTES_MAX: usize = 256;

/// Longest body of a request about subscriptions, in bytes.
pub(crate) const SUBSCRIPTION_BODY_BYTES_MAX: usize = 1 << 20;

/// Changes of subscriptions that wait to be durable; beyond that, requests are refused.
pub(crate) const CHANGES_WAITING_MAX: usize = 16_384;

/// Webhooks that are being told at once; the others wait.
pub(crate) const WEBHOOKS_UNDER_WAY_MAX: usize = 256;

/// How long a webhook has to answer.
pub(crate) const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);

/// Bytes of a webhook's answer that are read.
pub(crate) const WEBHOOK_ANSWER_BYTES_MAX: usize = 64 << 10;

/// How long the name of a webhook's host may take to be looked up.
pub(crate) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// Lookups under way for webhooks that are told, and as many for those that somebody asks for.
pub(crate) const LOOKUPS_UNDER_WAY_MAX: usize = 128;

/// Shortest, usual and longest lease, in milliseconds.
pub(crate) const LEASE_MS_MIN: u64 = 1_000;
pub(crate) const LEASE_MS_DEFAULT: u64 = 30_000;
pub(crate) const LEASE_MS_MAX: u64 = 600_000;

/// How long after a failed attempt the next one comes, in milliseconds: twice as long each time.
pub(crate) const RETRY_MS_MIN: u64 = 1_000;
pub(crate) const RETRY_MS_MAX: u64 = 60_000;

/// How long a token is good for, whatever becomes of its lease, in milliseconds.
pub(crate) const TOKEN_SPAN_MS: u64 = 24 * 3_600_000;

/// How long a request waits for what it has changed to be durable.
pub(crate) const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
