//! Bodies of the workbench: requests are checked against its limits, and pages become replies.

use sennit_engine::{CountBy, Edit, FoundMessage, MessageState, Selection, WalkPage};
use sennit_model::{
    FilterError, Header, HeaderKind, Offset, OffsetRange, PartitionIndex, Timestamp, TopicName,
    limits::{
        WORKBENCH_EXAMINED_MAX, WORKBENCH_PAYLOAD_BYTES_MAX, WORKBENCH_RANGES_MAX,
        WORKBENCH_SHOWN_MAX, WORKBENCH_TEXT_BYTES_MAX,
    },
};
use sennit_protocol::{
    ErrorCode,
    control::{self, InspectVerb as AskedVerb, ReworkVerb as MeantVerb},
};

use super::request_fault::{RequestFault, changed_topic, name_in};
use crate::{
    broker::control_request::{
        ControlRequest, Inspect, InspectVerb, MeantMessages, PageOfMessages, Rework, ReworkVerb,
    },
    doors::native::refusal_reply,
};

/// Why a body of the workbench is none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WorkbenchFault {
    /// The filter is not one.
    Filter(FilterError),
    /// A number is beyond its limit.
    Limit { what: &'static str, limit: &'static str, most: u64, asked: u64 },
    /// Ranges of offsets that end before they begin, or are not in order.
    Offsets,
    /// There is no verb, or one of a later version.
    Verb,
    /// The move has no destination.
    NoDestination,
    /// A header is not one.
    Header(String),
}

impl From<&WorkbenchFault> for control::Error {
    fn from(fault: &WorkbenchFault) -> Self {
        let invalid = |text: &str| Self::new(ErrorCode::InvalidConfig, text);
        match fault {
            WorkbenchFault::Filter(error) => Self::new(ErrorCode::InvalidFilter, error.to_string()),
            WorkbenchFault::Limit { what, limit, most, asked } => {
                let text = format!("{what}: at most {limit}, {most}, not {asked}");
                Self::new(ErrorCode::LimitReached, text)
            }
            WorkbenchFault::Offsets => {
                invalid("ranges of offsets are in order, do not touch, and end behind their start")
            }
            WorkbenchFault::Verb => invalid("the request has no verb, or one of a later version"),
            WorkbenchFault::NoDestination => invalid("a move names the topic that it goes to"),
            WorkbenchFault::Header(name) => {
                let text = format!("header {name:?}: a name has 1 to 255 bytes, a kind is 0 to 3");
                Self::new(ErrorCode::InvalidConfig, text)
            }
        }
    }
}

impl From<WorkbenchFault> for RequestFault {
    fn from(fault: WorkbenchFault) -> Self {
        Self::Workbench(Box::new((&fault).into()))
    }
}

pub(super) fn inspect(body: &control::Inspect) -> Result<ControlRequest, RequestFault> {
    let topic: TopicName = body.topic.parse()?;
    let (matched_most, verb) = match body.verb() {
        AskedVerb::Unspecified => return Err(WorkbenchFault::Verb.into()),
        AskedVerb::Peek => {
            let (asked, most) = (body.payload_bytes_max, WORKBENCH_PAYLOAD_BYTES_MAX);
            let (what, limit) = ("bytes of a payload", "WORKBENCH_PAYLOAD_BYTES_MAX");
            check(what, limit, most.into(), asked.into())?;
            (WORKBENCH_SHOWN_MAX, InspectVerb::Peek { payload_bytes_max: asked as usize })
        }
        AskedVerb::Count => (WORKBENCH_EXAMINED_MAX, InspectVerb::Count(CountBy::Nothing)),
        AskedVerb::CountByKey => (WORKBENCH_EXAMINED_MAX, InspectVerb::Count(CountBy::Key)),
        AskedVerb::CountByReason => (WORKBENCH_EXAMINED_MAX, InspectVerb::Count(CountBy::Reason)),
        AskedVerb::CountByAge => (WORKBENCH_EXAMINED_MAX, InspectVerb::Count(CountBy::Age)),
        AskedVerb::CountByState => (WORKBENCH_EXAMINED_MAX, InspectVerb::Count(CountBy::State)),
    };
    let messages = MeantMessages {
        group: name_in(&topic, &body.group)?,
        topic,
        partition: PartitionIndex(body.partition),
        from: Offset(body.page_start),
        selection: selection(body.selection.as_ref())?,
        matched_max: matched_max(body.matched_max, matched_most)?,
    };
    Ok(ControlRequest::Inspect(Inspect { messages, verb }))
}

pub(super) fn rework(body: &control::Rework) -> Result<ControlRequest, RequestFault> {
    let topic = changed_topic(&body.topic)??;
    let to = if body.to.is_empty() { None } else { Some(changed_topic(&body.to)??) };
    let edit = body.edit.as_ref().map(edit).transpose()?;
    let verb = match body.verb() {
        MeantVerb::Unspecified => return Err(WorkbenchFault::Verb.into()),
        MeantVerb::Redrive => ReworkVerb::Redrive { to, redrive: body.redrive, edit },
        MeantVerb::Cancel => ReworkVerb::Cancel,
        MeantVerb::Move => ReworkVerb::Move { to: to.ok_or(WorkbenchFault::NoDestination)?, edit },
        MeantVerb::Undo => ReworkVerb::Undo,
    };
    let messages = MeantMessages {
        group: name_in(&topic, &body.group)?,
        topic,
        partition: PartitionIndex(body.partition),
        from: Offset(body.page_start),
        selection: selection(body.selection.as_ref())?,
        matched_max: matched_max(body.matched_max, WORKBENCH_EXAMINED_MAX)?,
    };
    Ok(ControlRequest::Rework(Rework { messages, verb, dry_run: body.dry_run }))
}

fn check(
    what: &'static str,
    limit: &'static str,
    most: u64,
    asked: u64,
) -> Result<(), WorkbenchFault> {
    if asked > most { Err(WorkbenchFault::Limit { what, limit, most, asked }) } else { Ok(()) }
}

fn matched_max(asked: u32, most: u64) -> Result<u64, WorkbenchFault> {
    let limit =
        if most == WORKBENCH_SHOWN_MAX { "WORKBENCH_SHOWN_MAX" } else { "WORKBENCH_EXAMINED_MAX" };
    check("messages of a page", limit, most, asked.into())?;
    Ok(if asked == 0 { most } else { asked.into() })
}

fn selection(body: Option<&control::MessageSelection>) -> Result<Selection, WorkbenchFault> {
    let Some(body) = body else { return Ok(Selection::default()) };
    let ranges = body.offsets.len() as u64;
    check("ranges of offsets", "WORKBENCH_RANGES_MAX", WORKBENCH_RANGES_MAX as u64, ranges)?;
    let mut offsets = Vec::with_capacity(body.offsets.len());
    let mut before = None;
    for range in &body.offsets {
        if range.start >= range.end || before.is_some_and(|before| range.start < before) {
            return Err(WorkbenchFault::Offsets);
        }
        before = Some(range.end);
        offsets.push(OffsetRange { start: Offset(range.start), end: Offset(range.end) });
    }
    let text = |what, text: &str| {
        let most = WORKBENCH_TEXT_BYTES_MAX as u64;
        check(what, "WORKBENCH_TEXT_BYTES_MAX", most, text.len() as u64)?;
        Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
    };
    let filter = Some(&body.filter).filter(|filter| !filter.is_empty());
    let fair_key = body.fair_key.as_deref();
    fair_key.map(|key| text("a fair key", key)).transpose()?;
    let time = |ms: u64| (ms > 0).then_some(Timestamp(ms));
    Ok(Selection {
        offsets,
        filter: filter.map(|filter| filter.parse()).transpose().map_err(WorkbenchFault::Filter)?,
        reason: text("a reason", &body.reason)?,
        text: text("a text", &body.text)?,
        since: time(body.since_ms),
        before: time(body.before_ms),
        fair_key: fair_key.map(str::to_owned),
        redrive: (body.redrive > 0).then_some(body.redrive),
    })
}

fn edit(body: &control::MessageEdit) -> Result<Edit, WorkbenchFault> {
    let header = |header: &control::EditedHeader| {
        let kind = match header.kind {
            0 => HeaderKind::Text,
            1 => HeaderKind::Binary,
            2 => HeaderKind::Number,
            3 => HeaderKind::Boolean,
            _ => return Err(WorkbenchFault::Header(header.name.clone())),
        };
        if !(1..=255).contains(&header.name.len()) {
            return Err(WorkbenchFault::Header(header.name.clone()));
        }
        Ok(Header { name: header.name.clone(), kind, value: header.value.clone() })
    };
    Ok(Edit {
        payload: body.replaces_payload.then(|| body.payload.clone()),
        set: body.set_headers.iter().map(header).collect::<Result<_, _>>()?,
        remove: body.remove_headers.clone(),
    })
}

pub(super) fn inspected(answer: &PageOfMessages) -> control::Inspected {
    let WalkPage { next, examined, matched, leased, damaged, messages, rows, other, .. } =
        &answer.page;
    let row = |row: &sennit_engine::CountRow| control::CountRow {
        name: row.name.clone(),
        count: row.count,
        oldest_ms: row.oldest.0,
    };
    control::Inspected {
        next: next.map(|next| next.0),
        examined: *examined,
        matched: *matched,
        leased: *leased,
        damaged: *damaged,
        messages: messages.iter().map(message).collect(),
        rows: rows.iter().map(row).collect(),
        other: *other,
        partitions: answer.partitions,
    }
}

fn message(found: &FoundMessage) -> control::InspectedMessage {
    use control::MessageState as State;
    let (state, until_ms, reason) = match &found.state {
        MessageState::Ready => (State::Ready, 0, String::new()),
        MessageState::Delayed { until } => (State::Delayed, until.0, String::new()),
        MessageState::Retrying { until } => (State::Retrying, until.0, String::new()),
        MessageState::Dead { failed_at, reason } => (State::Dead, failed_at.0, reason.to_string()),
        MessageState::Leased { until } => (State::Leased, until.0, String::new()),
    };
    control::InspectedMessage {
        offset: found.offset.0,
        appended_at_ms: found.appended_at.0,
        state: state.into(),
        until_ms,
        failed: found.failed,
        reason,
        key: found.key.clone(),
        headers: found.headers.clone(),
        payload: found.payload.clone(),
        payload_bytes: found.payload_bytes,
    }
}

pub(super) fn reworked(answer: &PageOfMessages) -> control::Reworked {
    let WalkPage { next, examined, matched, leased, damaged, homeless, done, refusal, .. } =
        &answer.page;
    control::Reworked {
        next: next.map(|next| next.0),
        examined: *examined,
        matched: *matched,
        done: *done,
        leased: *leased,
        damaged: *damaged,
        homeless: *homeless,
        partitions: answer.partitions,
        refusal: refusal.as_ref().map(refusal_reply::reply),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(body: control::MessageSelection) -> Result<Selection, WorkbenchFault> {
        selection(Some(&body))
    }

    fn range(start: u64, end: u64) -> control::SelectedOffsets {
        control::SelectedOffsets { start, end }
    }

    #[test]
    fn ranges_of_offsets_are_in_order_and_hold_something() {
        let of =
            |offsets: Vec<_>| selected(control::MessageSelection { offsets, ..<_>::default() });
        assert!(of(vec![range(1, 3), range(3, 4)]).is_ok());
        assert_eq!(of(vec![range(3, 3)]), Err(WorkbenchFault::Offsets));
        assert_eq!(of(vec![range(3, 5), range(4, 9)]), Err(WorkbenchFault::Offsets));
        let many = (0..=WORKBENCH_RANGES_MAX as u64).map(|n| range(2 * n, 2 * n + 1)).collect();
        assert!(matches!(of(many), Err(WorkbenchFault::Limit { asked: 257, .. })));
    }

    #[test]
    fn what_is_empty_selects_everything() {
        assert_eq!(selected(control::MessageSelection::default()), Ok(Selection::default()));
    }

    #[test]
    fn a_filter_that_is_none_and_a_text_that_is_too_long_are_refused() {
        let filter = control::MessageSelection { filter: "header.".into(), ..<_>::default() };
        assert!(matches!(selected(filter), Err(WorkbenchFault::Filter(_))));
        let text = "x".repeat(WORKBENCH_TEXT_BYTES_MAX + 1);
        let long = control::MessageSelection { text, ..<_>::default() };
        assert!(matches!(selected(long), Err(WorkbenchFault::Limit { asked: 1025, .. })));
    }
}
