//! What a script has decided, checked: a value that no message can have is an error of the script.

use std::time::Duration;

use bytes::Bytes;
use mlua::{MultiValue, Value};
use sennit_model::limits::{
    COST_MAX, DURATION_MAX, FAIR_KEY_BYTES_MAX, HOOK_HEADERS_MAX, NAME_BYTES_MAX, REASON_BYTES_MAX,
    WEIGHT_MAX,
};

use crate::script_error::ScriptError;

/// The decision about a message that is published. It is accepted as it is by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishDecision {
    /// The message is refused for this reason.
    pub refuse: Option<String>,
    /// Its fair key, at most [`FAIR_KEY_BYTES_MAX`] bytes.
    pub fair_key: Option<String>,
    /// The weight of its fair key, 1 to [`WEIGHT_MAX`].
    pub weight: Option<u32>,
    /// Its priority, 0 to 9.
    pub priority: Option<u32>,
    /// Its cost, 1 to [`COST_MAX`].
    pub cost: Option<u32>,
    /// Its throttle keys, with commas between them.
    pub throttle_keys: Option<String>,
    /// Its delay.
    pub delay: Option<Duration>,
    /// Its time to live.
    pub time_to_live: Option<Duration>,
    /// Headers to set, or, without a value, to remove.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// The decision about a failed attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FailureDecision {
    /// As the group's retry policy says.
    #[default]
    Default,
    /// The next attempt comes after this time.
    RetryAfter(Duration),
    /// The message goes to the dead letters, for this reason.
    DeadLetter(String),
    /// The message goes to the topic of this name.
    Route(String),
}

impl PublishDecision {
    /// Whether the message is accepted as it is.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        *self == Self::default()
    }

    /// Takes what the library hands over: the fields in this order, then names and values of headers.
    pub(crate) fn of_returned(returned: MultiValue) -> Result<Self, ScriptError> {
        let mut values = returned.into_iter();
        let mut next = || values.next().unwrap_or(Value::Nil);
        let mut decision = Self {
            refuse: text("refuse", next(), REASON_BYTES_MAX)?,
            fair_key: text("fair_key", next(), FAIR_KEY_BYTES_MAX)?,
            weight: number("weight", &next(), 1, WEIGHT_MAX)?,
            priority: number("priority", &next(), 0, 9)?,
            cost: number("cost", &next(), 1, COST_MAX)?,
            throttle_keys: text("throttle_keys", next(), 8 * (FAIR_KEY_BYTES_MAX + 1))?,
            delay: duration("delay_ms", &next())?,
            time_to_live: duration("time_to_live_ms", &next())?,
            headers: Vec::new(),
        };
        while let Some(name) = values.next() {
            if decision.headers.len() == HOOK_HEADERS_MAX {
                let reason = format!("HOOK_HEADERS_MAX is {HOOK_HEADERS_MAX}: too many headers");
                return Err(ScriptError::returned(reason));
            }
            let name = text("the name of a header", name, 255)?.filter(|name| !name.is_empty());
            let name = name
                .ok_or_else(|| ScriptError::returned("the name of a header has 1 to 255 bytes"))?;
            let value = values.next().unwrap_or(Value::Nil);
            decision.headers.push((name, header_value(value)?));
        }
        Ok(decision)
    }
}

impl FailureDecision {
    /// Takes what the library hands over: when to retry, the reason of a dead letter, or a topic.
    pub(crate) fn of_returned(returned: MultiValue) -> Result<Self, ScriptError> {
        let mut values = returned.into_iter();
        let mut next = || values.next().unwrap_or(Value::Nil);
        let after = duration("retry_after_ms", &next())?;
        let reason = text("dead_letter", next(), REASON_BYTES_MAX)?;
        let route = text("route", next(), NAME_BYTES_MAX)?;
        match (after, reason, route) {
            (Some(after), None, None) => Ok(Self::RetryAfter(after)),
            (None, Some(reason), None) => Ok(Self::DeadLetter(reason)),
            (None, None, Some(topic)) => Ok(Self::Route(topic)),
            (None, None, None) => Ok(Self::Default),
            _ => Err(ScriptError::returned(
                "retry_after_ms, dead_letter and route exclude each other",
            )),
        }
    }
}

fn text(field: &str, value: Value, bytes_max: usize) -> Result<Option<String>, ScriptError> {
    let text = match &value {
        Value::Nil => return Ok(None),
        Value::String(text) => text
            .to_str()
            .map(|text| text.to_owned())
            .map_err(|_| ScriptError::returned(format!("{field} is not UTF-8")))?,
        Value::Integer(number) => number.to_string(),
        other => {
            let reason = format!("{field} is text, not a {}", other.type_name());
            return Err(ScriptError::returned(reason));
        }
    };
    if text.len() > bytes_max {
        let reason = format!("{field} has at most {bytes_max} bytes, not {}", text.len());
        return Err(ScriptError::returned(reason));
    }
    Ok(Some(text))
}

fn whole(field: &str, value: &Value) -> Result<Option<i64>, ScriptError> {
    let number = match value {
        Value::Nil => return Ok(None),
        Value::Integer(number) => Some(*number),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
            Some(*number as i64)
        }
        Value::String(text) => text.to_str().ok().and_then(|text| text.trim().parse().ok()),
        _ => None,
    };
    match number {
        Some(number) => Ok(Some(number)),
        None => {
            let reason = format!("{field} is a whole number, not a {}", value.type_name());
            Err(ScriptError::returned(reason))
        }
    }
}

fn number(field: &str, value: &Value, least: u32, most: u32) -> Result<Option<u32>, ScriptError> {
    let Some(whole) = whole(field, value)? else { return Ok(None) };
    match u32::try_from(whole).ok().filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let reason = format!("{field} is a number from {least} to {most}, not {whole}");
            Err(ScriptError::returned(reason))
        }
    }
}

fn duration(field: &str, value: &Value) -> Result<Option<Duration>, ScriptError> {
    let Some(whole) = whole(field, value)? else { return Ok(None) };
    let span = u64::try_from(whole).ok().map(Duration::from_millis);
    match span.filter(|span| *span <= DURATION_MAX) {
        Some(span) => Ok(Some(span)),
        None => {
            let most = DURATION_MAX.as_millis();
            let reason = format!("{field} is a number from 0 to {most}, not {whole}");
            Err(ScriptError::returned(reason))
        }
    }
}

fn header_value(value: Value) -> Result<Option<Bytes>, ScriptError> {
    Ok(match value {
        Value::Boolean(false) | Value::Nil => None,
        Value::String(text) if text.as_bytes().len() > usize::from(u16::MAX) => {
            return Err(ScriptError::returned("the value of a header has at most 65535 bytes"));
        }
        Value::String(text) => Some(Bytes::copy_from_slice(&text.as_bytes())),
        Value::Integer(number) => Some(number.to_string().into()),
        Value::Number(number) => Some(number.to_string().into()),
        other => {
            let reason = format!(
                "the value of a header is text, a number or false, not a {}",
                other.type_name()
            );
            return Err(ScriptError::returned(reason));
        }
    })
}
