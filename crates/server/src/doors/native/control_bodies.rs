//! Control bodies of the native protocol become requests of the control, and the control's answers become replies.
//! The control carries the requests out.

mod answers;
mod delayed;
mod explanations;
mod request_fault;
mod requests;
mod workbench;

use sennit_engine::SessionId;
use sennit_protocol::{Request, control};

use super::refusal_reply::control_reply;
use crate::{
    broker::{control as topic_control, control_request::ControlAnswer},
    identity::principal::Principal,
    runtime::core::Cores,
};

pub(crate) use self::answers::{reply, watched_topic};
use self::{request_fault::RequestFault, requests::control_request};

/// Asks the first core what a frame of a session asks for, on behalf of a principal. `None` if the broker stops.
pub(crate) async fn ask(
    cores: &Cores,
    session: SessionId,
    principal: &Principal,
    request: &Request,
) -> Option<Result<ControlAnswer, Box<control::Error>>> {
    let (request, fault) = match control_request(request) {
        Ok(request) => (request, None),
        Err(RequestFault::IfAccepted(request, fault)) => (*request, Some(fault)),
        Err(fault) => return Some(Err(Box::new((&fault).into()))),
    };
    let answer = topic_control::ask(cores, session, principal.clone(), request).await.ok()?;
    Some(match (answer, fault) {
        (Ok(_), Some(fault)) => Err(Box::new((&fault).into())),
        (Ok(answer), None) => Ok(answer),
        (Err(refusal), _) => Err(Box::new(control_reply(&refusal))),
    })
}
