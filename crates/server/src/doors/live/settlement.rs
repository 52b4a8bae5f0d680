//! The call by which a live client settles deliveries of a group, and its answer. It settles nothing itself.

use std::{borrow::Cow, fmt::Write as _, time::Duration};

use sennit_centrifuge::{Answer, Data, ErrorCode, ReplyError, RpcResult};
use sennit_engine::{DeliveryRun, Settled, Verdict};
use sennit_model::limits::REASON_BYTES_MAX;
use serde::Deserialize;

use super::{connection_id::ConnectionId, group_channel::DeliveryTag, limits::SETTLED_AT_ONCE_MAX};

/// Methods that begin with this are the broker's.
pub(crate) const OWN_METHODS: &str = "sennit.";

/// What a client settles, and how.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settlement<'a> {
    /// The channel of the group, as it was subscribed to.
    #[serde(borrow)]
    pub(crate) channel: Cow<'a, str>,
    /// The tags `delivery` of publications.
    #[serde(borrow)]
    pub(crate) deliveries: Vec<Cow<'a, str>>,
    #[serde(skip)]
    verb: SettleVerb,
    delay_ms: Option<u64>,
    lease_ms: Option<u64>,
    #[serde(borrow)]
    reason: Option<Cow<'a, str>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SettleVerb {
    #[default]
    Ack,
    Retry,
    Reject,
    Extend,
    Started,
}

impl<'a> Settlement<'a> {
    /// What the broker says of deliveries that are handed over.
    pub(crate) fn ack() -> Self {
        Self::default()
    }

    /// Reads a call of one of the broker's own methods.
    ///
    /// # Errors
    /// There is no such method, or its data are others.
    pub(crate) fn of(method: &str, data: &'a [u8]) -> Result<Self, ReplyError> {
        use SettleVerb::{Ack, Extend, Reject, Retry, Started};
        let bad = |detail: String| ReplyError::new(ErrorCode::BadRequest, detail);
        let verb = match method.strip_prefix(OWN_METHODS) {
            Some("ack") => Ack,
            Some("retry") => Retry,
            Some("reject") => Reject,
            Some("extend") => Extend,
            Some("started") => Started,
            _ => {
                let detail = format!(
                    "{method:?} is no method: there are sennit.ack, sennit.retry, sennit.reject, sennit.extend and sennit.started"
                );
                return Err(ReplyError::new(ErrorCode::MethodNotFound, detail));
            }
        };
        let shape = "{\"channel\": ..., \"deliveries\": [...]}";
        let mut this: Self = serde_json::from_slice(data)
            .map_err(|error| bad(format!("{method} takes {shape}: {error}")))?;
        this.verb = verb;
        let count = this.deliveries.len();
        if !(1..=SETTLED_AT_ONCE_MAX).contains(&count) {
            return Err(bad(format!(
                "{method} takes 1 to {SETTLED_AT_ONCE_MAX} deliveries (SETTLED_AT_ONCE_MAX), not {count}"
            )));
        }
        let unfit = [
            ("delay_ms", this.delay_ms.is_some() && verb != Retry),
            ("lease_ms", this.lease_ms.is_some() != (verb == Extend)),
            ("reason", this.reason.is_some() && verb != Reject),
        ];
        if let Some((field, _)) = unfit.iter().find(|(_, is_unfit)| *is_unfit) {
            return Err(bad(format!(
                "{method} and {field:?}: sennit.retry may have delay_ms, sennit.extend has lease_ms, sennit.reject may have reason"
            )));
        }
        if this.reason.as_ref().is_some_and(|reason| reason.len() > REASON_BYTES_MAX) {
            return Err(bad(format!("REASON_BYTES_MAX is {REASON_BYTES_MAX}")));
        }
        Ok(this)
    }

    /// The same for the engine.
    pub(crate) fn verdict(&self) -> Verdict {
        let of_ms = |ms: Option<u64>| Duration::from_millis(ms.unwrap_or_default());
        match (self.verb, self.delay_ms) {
            (SettleVerb::Ack, _) => Verdict::Ack,
            (SettleVerb::Retry, None | Some(0)) => Verdict::Retry,
            (SettleVerb::Retry, delay) => Verdict::RetryAfter(of_ms(delay)),
            (SettleVerb::Reject, _) => {
                let reason = self.reason.as_deref().unwrap_or("rejected by a live client");
                Verdict::DeadLetter { reason: reason.to_owned() }
            }
            (SettleVerb::Extend, _) => Verdict::Extend(of_ms(self.lease_ms)),
            (SettleVerb::Started, _) => Verdict::Started,
        }
    }
}

/// A settlement that is not committed in all partitions.
#[derive(Debug)]
pub(crate) struct PendingSettlement {
    pub(crate) connection: ConnectionId,
    /// The number of the command.
    pub(crate) command: u32,
    /// Partitions that have not answered.
    awaited: usize,
    applied: u64,
    /// Deliveries that were settled before, or given to others meanwhile.
    stale: Vec<DeliveryTag>,
    refusal: Option<String>,
}

impl PendingSettlement {
    /// The settlement that a command asks for, in so many partitions.
    pub(crate) fn new(connection: ConnectionId, command: u32, awaited: usize) -> Self {
        let (applied, stale, refusal) = Default::default();
        Self { connection, command, awaited, applied, stale, refusal }
    }

    /// A partition has answered.
    pub(crate) fn note(&mut self, outcome: Result<Settled, String>) {
        self.awaited = self.awaited.saturating_sub(1);
        match outcome {
            Ok(Settled { partition, applied, stale, .. }) => {
                self.applied += applied;
                for run in stale {
                    self.stale.extend((0..run.count).map(|index| {
                        let first = run.first.plus(index.into());
                        let run = DeliveryRun { first, count: 1, ..run };
                        DeliveryTag { partition: partition.index, run }
                    }));
                }
            }
            Err(refusal) => self.refusal = Some(refusal),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.awaited == 0
    }

    /// What its client is told.
    pub(crate) fn answer(self) -> Result<Answer, ReplyError> {
        if let Some(refusal) = self.refusal {
            return Err(ReplyError::new(ErrorCode::BadRequest, refusal));
        }
        let mut json = format!("{{\"applied\":{},\"stale\":[", self.applied);
        for (index, tag) in self.stale.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // A string takes all that is written.
            let _ = write!(json, "{comma}\"{tag}\"");
        }
        json.push_str("]}");
        Ok(Answer::Rpc(RpcResult { data: Data::of_payload(json.into_bytes().into()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &str, data: &str) -> Result<Verdict, String> {
        let settlement = Settlement::of(method, data.as_bytes()).map_err(|error| error.message)?;
        Ok(settlement.verdict())
    }

    #[test]
    fn a_call_is_a_verdict_on_deliveries() {
        let ms = Duration::from_millis;
        for (method, more, expected) in [
            ("sennit.ack", "", Verdict::Ack),
            ("sennit.retry", "", Verdict::Retry),
            ("sennit.retry", r#","delay_ms":1500"#, Verdict::RetryAfter(ms(1500))),
            ("sennit.reject", r#","reason":"bad"#, Verdict::DeadLetter { reason: "bad".into() }),
            ("sennit.extend", r#","lease_ms":60000"#, Verdict::Extend(ms(60_000))),
            ("sennit.started", "", Verdict::Started),
        ] {
            let close = if more.ends_with("bad") { "\"" } else { "" };
            let data =
                format!(r#"{{"channel":"jobs?group=a","deliveries":["0.1.1.1"]{more}{close}}}"#);
            assert_eq!(verdict(method, &data), Ok(expected), "{method} {data}");
        }
    }

    #[test]
    fn a_call_that_is_wrong_is_refused_with_what_would_be_right() {
        let one = r#""channel":"jobs?group=a","deliveries":["0.1.1.1"]"#;
        let many = vec!["\"0.1.1.1\""; SETTLED_AT_ONCE_MAX + 1].join(",");
        for (method, data, told) in [
            ("sennit.acknowledge", "{}".to_owned(), "sennit.ack"),
            ("sennit.ack", String::new(), "\"deliveries\""),
            ("sennit.ack", "[]".to_owned(), "\"deliveries\""),
            ("sennit.ack", r#"{"channel":"a","deliveries":[]}"#.to_owned(), "1 to 1024"),
            ("sennit.ack", format!(r#"{{"channel":"a","deliveries":[{many}]}}"#), "1 to 1024"),
            ("sennit.ack", format!(r#"{{{one},"delay_ms":1}}"#), "sennit.retry may have delay_ms"),
            ("sennit.extend", format!("{{{one}}}"), "sennit.extend has lease_ms"),
            ("sennit.ack", format!(r#"{{{one},"offset":1}}"#), "unknown field"),
            (
                "sennit.reject",
                format!(r#"{{{one},"reason":"{}"}}"#, "x".repeat(REASON_BYTES_MAX + 1)),
                "REASON_BYTES_MAX",
            ),
        ] {
            let refusal = verdict(method, &data).unwrap_err();
            assert!(refusal.contains(told), "{method}: {refusal}");
        }
    }
}
