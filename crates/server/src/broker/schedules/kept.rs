//! What the stream of schedules holds: a JSON text for each schedule that was made, each step of one, and each that
//! was deleted. The last text of a name counts, and a step changes the state of what was made. docs/reference/schedules.md
//! has the form. It knows no stream.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use sennit_model::{CatchUp, Header, HeaderKind, Overlap, ScheduleName};
use serde::{Deserialize, Serialize};

use super::{request::ScheduleConfig, state::ScheduleState};

/// One text of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Made(ScheduleName, Box<ScheduleConfig>, ScheduleState),
    Step(ScheduleName, ScheduleState),
    Deleted(ScheduleName),
}

/// Why a text of the stream is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeptFault {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its {0} is none")]
    Field(&'static str),
}

#[derive(Serialize, Deserialize)]
struct Text {
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<ConfigText>,
    /// Without it, the schedule was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<ScheduleState>,
}

/// The settings of a schedule as a text has them.
#[derive(Serialize, Deserialize)]
pub(super) struct ConfigText {
    topic: String,
    cron: String,
    zone: String,
    key: String,
    headers: Vec<(String, u8, String)>,
    payload: String,
    catch_up: String,
    overlap: String,
}

impl Kept {
    /// Its text.
    pub(super) fn encode(&self) -> Bytes {
        let (name, config, state) = match self {
            Self::Made(name, config, state) => (name, Some(config_text(config)), Some(state)),
            Self::Step(name, state) => (name, None, Some(state)),
            Self::Deleted(name) => (name, None, None),
        };
        let text = Text { name: name.to_string(), config, state: state.cloned() };
        serde_json::to_vec(&text).expect("texts and numbers are JSON").into()
    }

    /// What a text says.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn decode(text: &[u8]) -> Result<Self, KeptFault> {
        let Text { name, config, state } = serde_json::from_slice(text)?;
        let name = name.parse().map_err(|_| KeptFault::Field("name"))?;
        Ok(match (config, state) {
            (Some(config), Some(state)) => Self::Made(name, Box::new(config_of(config)?), state),
            (None, Some(state)) => Self::Step(name, state),
            (_, None) => Self::Deleted(name),
        })
    }
}

/// The text of settings.
pub(super) fn config_text(config: &ScheduleConfig) -> ConfigText {
    let header = |header: &Header| {
        (header.name.clone(), header.kind as u8, BASE64_STANDARD.encode(&header.value))
    };
    ConfigText {
        topic: config.topic.to_string(),
        cron: config.cron.clone(),
        zone: config.zone.clone(),
        key: BASE64_STANDARD.encode(&config.key),
        headers: config.headers.iter().map(header).collect(),
        payload: BASE64_STANDARD.encode(&config.payload),
        catch_up: config.catch_up.name().to_owned(),
        overlap: config.overlap.name().to_owned(),
    }
}

/// The settings that a text has.
///
/// # Errors
/// They are none.
pub(super) fn config_of(text: ConfigText) -> Result<ScheduleConfig, KeptFault> {
    let bytes = |text: &str, field| match BASE64_STANDARD.decode(text) {
        Ok(bytes) => Ok(Bytes::from(bytes)),
        Err(_) => Err(KeptFault::Field(field)),
    };
    let header = |(name, kind, value): (String, u8, String)| {
        let kind = header_kind(kind.into()).ok_or(KeptFault::Field("kind of a header"))?;
        Ok::<_, KeptFault>(Header { name, kind, value: bytes(&value, "header")? })
    };
    let catch_up = CatchUp::ALL.into_iter().find(|choice| choice.name() == text.catch_up);
    let overlap = Overlap::ALL.into_iter().find(|choice| choice.name() == text.overlap);
    Ok(ScheduleConfig {
        topic: text.topic.parse().map_err(|_| KeptFault::Field("topic"))?,
        key: bytes(&text.key, "key")?,
        headers: text.headers.into_iter().map(header).collect::<Result<_, _>>()?,
        payload: bytes(&text.payload, "payload")?,
        catch_up: catch_up.ok_or(KeptFault::Field("catch-up"))?,
        overlap: overlap.ok_or(KeptFault::Field("overlap"))?,
        cron: text.cron,
        zone: text.zone,
    })
}

/// The kind of a header by its number.
pub(crate) fn header_kind(number: u32) -> Option<HeaderKind> {
    let kinds = [HeaderKind::Text, HeaderKind::Binary, HeaderKind::Number, HeaderKind::Boolean];
    kinds.into_iter().find(|kind| *kind as u32 == number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::schedules::state::LastMessage;

    fn config() -> ScheduleConfig {
        ScheduleConfig {
            topic: "reports".parse().expect("a name"),
            cron: "0 9 * * MON-FRI".into(),
            zone: "Europe/Berlin".into(),
            key: Bytes::from_static(b"\xff"),
            headers: vec![Header::text("a", "b")],
            payload: Bytes::from_static(b"\x00payload"),
            catch_up: CatchUp::All,
            overlap: Overlap::Skip,
        }
    }

    #[test]
    fn what_is_kept_is_read_as_it_was_written() {
        let name: ScheduleName = "nightly".parse().expect("a name");
        let last = LastMessage { tick_ms: 5, topic: 1, partition: 2, offset: 3 };
        let state = ScheduleState {
            producer: u64::MAX,
            handled_ms: 7,
            is_paused: true,
            last: Some(last),
            published: 4,
            left_out: 2,
            failure: Some("why".into()),
        };
        for kept in [
            Kept::Made(name.clone(), Box::new(config()), ScheduleState::default()),
            Kept::Step(name.clone(), state),
            Kept::Deleted(name),
        ] {
            assert_eq!(Kept::decode(&kept.encode()).expect("it was written"), kept);
        }
    }

    #[test]
    fn a_text_that_is_none_is_told() {
        for text in ["", "{}", "{\"name\":\"a b\"}", "[]"] {
            assert!(Kept::decode(text.as_bytes()).is_err(), "{text}");
        }
    }
}
