//! What nodes ask each other about schedules, and the answers, as JSON texts. Settings lie in them as they are kept; refusals of the broker
//! as `name_change` has them. Refusals of settings never travel: they are checked where the request arrives.

use bytes::Bytes;
use sennit_model::{ScheduleName, Timestamp, TopicName};
use serde::{Deserialize, Serialize};

use super::{
    kept::{ConfigText, KeptFault, config_of, config_text},
    led::{Asked, Outcome},
    request::{ScheduleAnswer, ScheduleChange, ScheduleRefusal, ToldSchedule},
    state::ScheduleState,
};
use crate::broker::{control_request::ControlRefusal, name_change::RefusalBytes};

/// The request.
#[derive(Serialize, Deserialize)]
enum AskedText {
    Get { name: String },
    List { after: String, most: u32 },
    Change { name: String, of: Option<String>, change: ChangeText },
}

#[derive(Serialize, Deserialize)]
enum ChangeText {
    Create(Box<ConfigText>),
    Delete,
    Pause,
    Resume,
    RunNow,
}

/// What becomes of it.
#[derive(Serialize, Deserialize)]
enum OutcomeText {
    /// The node that was asked does not lead.
    NotLed,
    Changed {
        schedule: Box<ScheduleText>,
        created: bool,
    },
    Page {
        schedules: Vec<ScheduleText>,
        more: bool,
    },
    IsOf {
        topic: String,
    },
    Unknown {
        name: String,
    },
    Differs {
        name: String,
        field: Box<str>,
        existing: String,
        requested: String,
    },
    TooMany,
    TooManyBytes,
    Unreadable,
    Refused {
        refusal: RefusalBytes,
    },
}

#[derive(Serialize, Deserialize)]
struct ScheduleText {
    name: String,
    config: ConfigText,
    state: ScheduleState,
    next_ms: Option<u64>,
}

/// The text of what is asked.
pub(super) fn encode_asked(asked: &Asked) -> Bytes {
    let text = match asked {
        Asked::Get(name) => AskedText::Get { name: name.to_string() },
        Asked::List { after, most } => {
            AskedText::List { after: after.clone(), most: u32::try_from(*most).unwrap_or(u32::MAX) }
        }
        Asked::Change { name, change, of } => AskedText::Change {
            name: name.to_string(),
            of: of.as_ref().map(TopicName::to_string),
            change: match change {
                ScheduleChange::Create(config) => ChangeText::Create(Box::new(config_text(config))),
                ScheduleChange::Delete => ChangeText::Delete,
                ScheduleChange::Pause => ChangeText::Pause,
                ScheduleChange::Resume => ChangeText::Resume,
                ScheduleChange::RunNow => ChangeText::RunNow,
            },
        },
    };
    written(&text)
}

/// What a text asks.
///
/// # Errors
/// The text is none of this version.
pub(super) fn decode_asked(text: &[u8]) -> Result<Asked, KeptFault> {
    Ok(match serde_json::from_slice(text)? {
        AskedText::Get { name } => Asked::Get(name_of(&name)?),
        AskedText::List { after, most } => Asked::List { after, most: most as usize },
        AskedText::Change { name, of, change } => Asked::Change {
            name: name_of(&name)?,
            of: of.as_deref().map(topic_of).transpose()?,
            change: match change {
                ChangeText::Create(config) => ScheduleChange::Create(Box::new(config_of(*config)?)),
                ChangeText::Delete => ScheduleChange::Delete,
                ChangeText::Pause => ScheduleChange::Pause,
                ChangeText::Resume => ScheduleChange::Resume,
                ChangeText::RunNow => ScheduleChange::RunNow,
            },
        },
    })
}

/// The text of an outcome; without one, of that this node does not lead.
pub(super) fn encode_outcome(outcome: Option<&Outcome>) -> Bytes {
    let text = match outcome {
        None => OutcomeText::NotLed,
        Some(Outcome::Done(ScheduleAnswer::Changed { schedule, created })) => {
            let schedule = Box::new(schedule_text(schedule));
            OutcomeText::Changed { schedule, created: *created }
        }
        Some(Outcome::Done(ScheduleAnswer::Page { schedules, more })) => {
            let schedules = schedules.iter().map(schedule_text).collect();
            OutcomeText::Page { schedules, more: *more }
        }
        Some(Outcome::IsOf(topic)) => OutcomeText::IsOf { topic: topic.to_string() },
        Some(Outcome::Refused(refusal)) => refusal_text(refusal),
    };
    written(&text)
}

fn refusal_text(refusal: &ScheduleRefusal) -> OutcomeText {
    match refusal {
        ScheduleRefusal::Unknown(name) => OutcomeText::Unknown { name: name.to_string() },
        ScheduleRefusal::Differs { name, field, existing, requested } => {
            let (name, field) = (name.clone(), field.clone());
            let (existing, requested) = (existing.clone(), requested.clone());
            OutcomeText::Differs { name, field, existing, requested }
        }
        ScheduleRefusal::TooMany => OutcomeText::TooMany,
        ScheduleRefusal::TooManyBytes => OutcomeText::TooManyBytes,
        ScheduleRefusal::Unreadable => OutcomeText::Unreadable,
        ScheduleRefusal::Broker(refusal) => OutcomeText::Refused { refusal: (&**refusal).into() },
        ScheduleRefusal::Cron(_)
        | ScheduleRefusal::Zone(_)
        | ScheduleRefusal::Message(_)
        | ScheduleRefusal::TooLong(_) => {
            OutcomeText::Refused { refusal: (&ControlRefusal::WrongAnswer).into() }
        }
    }
}

/// The outcome that a text tells; nothing if the node that was asked does not lead.
///
/// # Errors
/// The text is none of this version.
pub(super) fn decode_outcome(text: &[u8]) -> Result<Option<Outcome>, KeptFault> {
    let refusal = match serde_json::from_slice(text)? {
        OutcomeText::NotLed => return Ok(None),
        OutcomeText::Changed { schedule, created } => {
            let schedule = Box::new(told_of(*schedule)?);
            return Ok(Some(Outcome::Done(ScheduleAnswer::Changed { schedule, created })));
        }
        OutcomeText::Page { schedules, more } => {
            let schedules = schedules.into_iter().map(told_of).collect::<Result<_, _>>()?;
            return Ok(Some(Outcome::Done(ScheduleAnswer::Page { schedules, more })));
        }
        OutcomeText::IsOf { topic } => return Ok(Some(Outcome::IsOf(topic_of(&topic)?))),
        OutcomeText::Unknown { name } => ScheduleRefusal::Unknown(name_of(&name)?),
        OutcomeText::Differs { name, field, existing, requested } => {
            ScheduleRefusal::Differs { name, field, existing, requested }
        }
        OutcomeText::TooMany => ScheduleRefusal::TooMany,
        OutcomeText::TooManyBytes => ScheduleRefusal::TooManyBytes,
        OutcomeText::Unreadable => ScheduleRefusal::Unreadable,
        OutcomeText::Refused { refusal } => {
            let refusal = ControlRefusal::try_from(refusal);
            refusal.map_err(|_| KeptFault::Field("refusal"))?.into()
        }
    };
    Ok(Some(Outcome::Refused(refusal)))
}

fn schedule_text(told: &ToldSchedule) -> ScheduleText {
    ScheduleText {
        name: told.name.to_string(),
        config: config_text(&told.config),
        state: told.state.clone(),
        next_ms: told.next.map(|next| next.0),
    }
}

fn told_of(text: ScheduleText) -> Result<ToldSchedule, KeptFault> {
    let (name, config) = (name_of(&text.name)?, config_of(text.config)?);
    Ok(ToldSchedule { name, config, state: text.state, next: text.next_ms.map(Timestamp) })
}

fn name_of(text: &str) -> Result<ScheduleName, KeptFault> {
    text.parse().map_err(|_| KeptFault::Field("name"))
}

fn topic_of(text: &str) -> Result<TopicName, KeptFault> {
    text.parse().map_err(|_| KeptFault::Field("topic"))
}

fn written(text: &impl Serialize) -> Bytes {
    serde_json::to_vec(text).expect("texts and numbers are JSON").into()
}

#[cfg(test)]
mod tests {
    use sennit_engine::Refusal;
    use sennit_model::{CatchUp, Header, Overlap};

    use super::*;
    use crate::broker::schedules::{request::ScheduleConfig, state::LastMessage};

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

    fn name() -> ScheduleName {
        "nightly".parse().expect("a name")
    }

    fn told() -> ToldSchedule {
        let last = Some(LastMessage { tick_ms: 5, topic: 1, partition: 2, offset: u64::MAX });
        let state = ScheduleState { producer: u64::MAX, last, ..ScheduleState::default() };
        ToldSchedule { name: name(), config: config(), state, next: Some(Timestamp(9000)) }
    }

    #[test]
    fn what_is_asked_comes_as_it_was_asked() {
        let of = || Some("reports".parse().expect("a name"));
        let change = |change| Asked::Change { name: name(), change, of: of() };
        for asked in [
            Asked::Get(name()),
            Asked::List { after: "a".into(), most: 100 },
            change(ScheduleChange::Create(Box::new(config()))),
            change(ScheduleChange::Delete),
            change(ScheduleChange::Pause),
            change(ScheduleChange::Resume),
            Asked::Change { name: name(), change: ScheduleChange::RunNow, of: None },
        ] {
            assert_eq!(decode_asked(&encode_asked(&asked)).expect("it was written"), asked);
        }
    }

    #[test]
    fn an_outcome_comes_as_it_was_told_and_so_does_that_a_node_does_not_lead() {
        let differs = ScheduleRefusal::Differs {
            name: "nightly".into(),
            field: "cron".into(),
            existing: "a".into(),
            requested: "b".into(),
        };
        let refused: Vec<ScheduleRefusal> = vec![
            ScheduleRefusal::Unknown(name()),
            differs,
            ScheduleRefusal::TooMany,
            ScheduleRefusal::TooManyBytes,
            ScheduleRefusal::Unreadable,
            ControlRefusal::from(Refusal::OutcomeUnknown).into(),
            ControlRefusal::UnknownTopic("reports".parse().expect("a name")).into(),
            ControlRefusal::HookRefused("not today".into()).into(),
        ];
        let changed = ScheduleAnswer::Changed { schedule: Box::new(told()), created: true };
        let page = ScheduleAnswer::Page { schedules: vec![told(), told()], more: true };
        let outcomes = refused.into_iter().map(Outcome::Refused).chain([
            Outcome::Done(changed),
            Outcome::Done(page),
            Outcome::IsOf("reports".parse().expect("a name")),
        ]);
        for outcome in outcomes.map(Some).chain([None]) {
            let text = encode_outcome(outcome.as_ref());
            assert_eq!(decode_outcome(&text).expect("it was written"), outcome);
        }
    }

    #[test]
    fn a_text_that_nobody_writes_is_refused() {
        for text in ["", "{}", "7", "{\"Get\":{\"name\":\"a b\"}}", "{\"Get\":{}}"] {
            assert!(decode_asked(text.as_bytes()).is_err(), "{text}");
        }
        let refused = "{\"Refused\":{\"refusal\":[200]}}";
        for text in ["", "{}", "\"Led\"", "{\"IsOf\":{\"topic\":\"a b\"}}", refused] {
            assert!(decode_outcome(text.as_bytes()).is_err(), "{text}");
        }
    }
}
