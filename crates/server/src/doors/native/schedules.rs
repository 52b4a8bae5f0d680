//! Requests of a session about schedules: bodies are checked and passed on to the first core, answers and refusals
//! become replies. It does not know how schedules are kept, nor when they tick.

use bytes::Bytes;
use sennit_model::{
    CatchUp, Header, NameError, Overlap, ScheduleName, TopicName, limits::SCHEDULES_LISTED_MAX,
};
use sennit_protocol::{ErrorCode, Reply, Request, control};

use super::{pending_request::PendingRequest, refusal_reply::control_reply, reply_size::fitting};
use crate::broker::{
    control_request::ControlRefusal,
    schedules::{
        self, ScheduleAnswer, ScheduleChange, ScheduleConfig, ScheduleRefusal, ScheduleRequest,
        ToldSchedule, header_kind,
    },
};

/// Why a body is no request, or the broker's refusal.
#[derive(Debug)]
enum Fault {
    Name(NameError),
    /// Says what is wrong with the body.
    Body(&'static str),
    Refused(ScheduleRefusal),
}

impl From<NameError> for Fault {
    fn from(error: NameError) -> Self {
        Self::Name(error)
    }
}

impl PendingRequest {
    /// Asks the first core, and tells the client what it says.
    pub(crate) async fn schedules(self, request: Request) {
        let reply = match self.ask_schedules(&request).await {
            Ok(answer) => reply(answer),
            Err(fault) => Reply::Error(fault_reply(&fault)),
        };
        self.controls.add_permits(self.permits);
        self.outbox.reply(&fitting(reply, self.outbox.frame_bytes_max()), self.number);
    }

    async fn ask_schedules(&self, request: &Request) -> Result<ScheduleAnswer, Fault> {
        let request = schedule_request(request)?;
        let answer = schedules::ask(&self.core.cores, self.principal.clone(), request).await;
        let answer = answer.unwrap_or_else(|_| Err(ControlRefusal::ShuttingDown.into()));
        answer.map_err(Fault::Refused)
    }
}

/// The request that a frame carries.
fn schedule_request(request: &Request) -> Result<ScheduleRequest, Fault> {
    Ok(match request {
        Request::ListSchedules(body) => match &body.name {
            Some(name) => ScheduleRequest::Get(name.parse()?),
            None => {
                let most = match body.page_size as usize {
                    0 => SCHEDULES_LISTED_MAX,
                    most => most.min(SCHEDULES_LISTED_MAX),
                };
                ScheduleRequest::List { after: body.page_token.clone(), most }
            }
        },
        Request::ChangeSchedule(body) => {
            use control::change_schedule::Change;
            let name: ScheduleName = body.name.parse()?;
            let change = match &body.change {
                Some(Change::Create(body)) => ScheduleChange::Create(Box::new(config(body)?)),
                Some(Change::Delete(true)) => ScheduleChange::Delete,
                Some(Change::Pause(true)) => ScheduleChange::Pause,
                Some(Change::Resume(true)) => ScheduleChange::Resume,
                Some(Change::RunNow(true)) => ScheduleChange::RunNow,
                _ => return Err(Fault::Body("the change of the schedule is missing")),
            };
            ScheduleRequest::Change(name, change)
        }
        other => {
            tracing::error!(kind = ?other.kind(), "this is not for the schedules");
            return Err(Fault::Refused(ControlRefusal::WrongAnswer.into()));
        }
    })
}

fn config(body: &control::ScheduleConfig) -> Result<ScheduleConfig, Fault> {
    // Copies: the frame's memory is that of all that was read with it.
    let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    let header = |header: &control::ScheduleHeader| {
        let kind = header_kind(header.kind).ok_or(Fault::Body("the kind of a header is none"))?;
        Ok(Header { name: header.name.clone(), kind, value: copy(&header.value) })
    };
    let topic: TopicName = body.topic.parse()?;
    let catch_up = match control::CatchUp::try_from(body.catch_up) {
        Ok(control::CatchUp::Unspecified | control::CatchUp::One) => CatchUp::One,
        Ok(control::CatchUp::Skip) => CatchUp::Skip,
        Ok(control::CatchUp::All) => CatchUp::All,
        Err(_) => return Err(Fault::Body("catch_up is none: 1 skip, 2 one, 3 all")),
    };
    let overlap = match control::Overlap::try_from(body.overlap) {
        Ok(control::Overlap::Unspecified | control::Overlap::Allow) => Overlap::Allow,
        Ok(control::Overlap::Skip) => Overlap::Skip,
        Err(_) => return Err(Fault::Body("overlap is none: 1 allow, 2 skip")),
    };
    Ok(ScheduleConfig {
        topic,
        cron: body.cron.clone(),
        zone: if body.zone.is_empty() { "UTC".to_owned() } else { body.zone.clone() },
        key: copy(&body.key),
        headers: body.headers.iter().map(header).collect::<Result<_, Fault>>()?,
        payload: copy(&body.payload),
        catch_up,
        overlap,
    })
}

fn reply(answer: ScheduleAnswer) -> Reply {
    match answer {
        ScheduleAnswer::Changed { schedule, created } => {
            let schedule = Some(told(*schedule));
            Reply::ScheduleChanged(control::ScheduleChanged { schedule, created })
        }
        ScheduleAnswer::Page { schedules, more } => {
            let last = schedules.last().filter(|_| more);
            let next_page_token = last.map(|last| last.name.to_string()).unwrap_or_default();
            let schedules = schedules.into_iter().map(told).collect();
            Reply::ScheduleList(control::ScheduleList { schedules, next_page_token })
        }
    }
}

fn told(told: ToldSchedule) -> control::Schedule {
    let ToldSchedule { name, config, state, next } = told;
    let header = |header: Header| control::ScheduleHeader {
        name: header.name,
        kind: header.kind as u32,
        value: header.value,
    };
    let catch_up = match config.catch_up {
        CatchUp::Skip => control::CatchUp::Skip,
        CatchUp::One => control::CatchUp::One,
        CatchUp::All => control::CatchUp::All,
    };
    let overlap = match config.overlap {
        Overlap::Allow => control::Overlap::Allow,
        Overlap::Skip => control::Overlap::Skip,
    };
    let config = control::ScheduleConfig {
        topic: config.topic.to_string(),
        cron: config.cron,
        zone: config.zone,
        key: config.key,
        headers: config.headers.into_iter().map(header).collect(),
        payload: config.payload,
        catch_up: catch_up.into(),
        overlap: overlap.into(),
    };
    control::Schedule {
        name: name.to_string(),
        config: Some(config),
        paused: state.is_paused,
        next_ms: next.map(|at| at.0),
        last_ms: state.last.map(|last| last.tick_ms),
        last_partition: state.last.map(|last| last.partition),
        last_offset: state.last.map(|last| last.offset),
        published: state.published,
        left_out: state.left_out,
        failure: state.failure.unwrap_or_default(),
    }
}

fn fault_reply(fault: &Fault) -> control::Error {
    let refusal = match fault {
        Fault::Name(error) => return error.into(),
        Fault::Body(what) => return control::Error::new(ErrorCode::InvalidConfig, *what),
        Fault::Refused(refusal) => refusal,
    };
    let code = match refusal {
        ScheduleRefusal::Broker(refusal) => return control_reply(refusal),
        ScheduleRefusal::Unknown(_) => ErrorCode::UnknownSchedule,
        ScheduleRefusal::Differs { .. } => ErrorCode::TopicExists,
        ScheduleRefusal::Cron(_) => ErrorCode::InvalidCron,
        ScheduleRefusal::Zone(_) => ErrorCode::UnknownZone,
        ScheduleRefusal::Message(_) => ErrorCode::InvalidConfig,
        ScheduleRefusal::TooLong(_) | ScheduleRefusal::TooMany | ScheduleRefusal::TooManyBytes => {
            ErrorCode::LimitReached
        }
        ScheduleRefusal::Unreadable => ErrorCode::Internal,
    };
    control::Error::new(code, refusal.to_string())
}
