//! What the application behind live connections is asked, for them.

use http::HeaderMap;
use sennit_centrifuge::{
    Answer, ConnectRequest, Data, ErrorCode, ReplyError, RpcRequest, RpcResult,
};
use sennit_identity::Claims;
use sennit_model::{Timestamp, TopicName};
use tokio::task::spawn_local;

use super::{Asker, CoreRequests, Told};
use crate::{
    doors::live::{
        backend::{Backend, CommandRefusal, Granted, Question, SaidData},
        connection_id::ConnectionId,
    },
    identity::{login, principal::Principal},
    runtime::peer::Peer,
};

/// The issuer of what an application says of a client, in place of that of a token.
const ISSUER: &str = "live.backend";

/// A client that the application has let in.
#[derive(Debug)]
pub(crate) struct LetIn {
    pub(crate) principal: Principal,
    /// For the client.
    pub(crate) data: Data,
}

/// What the application says of a client that it has let in before.
#[derive(Debug)]
pub(crate) struct KeptIn {
    /// Whether it may not stay.
    pub(crate) has_expired: bool,
    /// Until when it may.
    pub(crate) expires: Timestamp,
    /// What others may know of it, as JSON, if that is new.
    pub(crate) info: Option<Box<str>>,
}

/// When the application wants to be asked again.
fn expires(granted: &Granted) -> Timestamp {
    let seconds = granted.expire_at.filter(|seconds| *seconds > 0);
    Timestamp(seconds.map_or(u64::MAX, |seconds| seconds.saturating_mul(1000)))
}

fn info(granted: &Granted) -> Option<Box<str>> {
    let json = granted.info()?.shown_as_json().into_payload();
    Some(String::from_utf8(json.to_vec()).ok()?.into())
}

fn claims(granted: Granted) -> Claims {
    let boxed = |texts: Vec<String>| texts.into_iter().map(String::into_boxed_str).collect();
    Claims {
        info: info(&granted),
        expires_at: expires(&granted),
        subject: granted.user.into(),
        issuer: ISSUER.into(),
        tenant: granted.tenant.map(Into::into),
        roles: boxed(granted.roles),
        rights: boxed(granted.rights),
        channels: boxed(granted.channels),
        not_before: None,
        id: None,
        others: Default::default(),
    }
}

impl CoreRequests {
    /// Asks the application who a client is.
    pub(crate) fn let_in(
        &self,
        connection: ConnectionId,
        command: u32,
        asker: Asker,
        request: ConnectRequest,
        (peer, headers): (Peer, HeaderMap),
    ) {
        let this = self.clone();
        spawn_local(async move {
            let Some(backend) = this.backend.clone() else { return };
            let address = peer.address().to_string();
            let question = Question {
                address: &address,
                name: &request.name,
                version: &request.version,
                data: SaidData::of(&request.data),
                ..asker.question()
            };
            let granted = backend.ask("connect", &headers, &question).await;
            let let_in = granted.and_then(|granted| {
                let data = granted.data().unwrap_or_default();
                let principal = login::claimed_principal(&this.authority, claims(granted));
                let principal = principal.map_err(|detail| {
                    tracing::warn!(%detail, "what the application says of a client does not count");
                    let error = ReplyError::new(
                        ErrorCode::PermissionDenied,
                        "the application's answer does not count",
                    );
                    CommandRefusal::Refused(error)
                })?;
                Ok(LetIn { principal, data })
            });
            this.answers.tell(connection, Told::LetIn(command, let_in));
        });
    }

    /// Asks the application whether a client that it has let in may stay.
    pub(crate) fn keep_in(&self, connection: ConnectionId, asker: Asker) {
        let this = self.clone();
        spawn_local(async move {
            let Some(backend) = this.backend.clone() else { return };
            let granted = backend.ask("refresh", &HeaderMap::new(), &asker.question()).await;
            let kept = granted.map(|granted| KeptIn {
                has_expired: granted.expired,
                expires: expires(&granted),
                info: info(&granted),
            });
            this.answers.tell(connection, Told::KeptIn(kept));
        });
    }

    /// Has the application answer a call.
    pub(crate) fn call(
        &self,
        connection: ConnectionId,
        command: u32,
        asker: Asker,
        request: RpcRequest,
    ) {
        let this = self.clone();
        spawn_local(async move {
            let Some(backend) = this.backend.clone() else { return };
            let question = Question {
                method: Some(&request.method),
                data: SaidData::of(&request.data),
                ..asker.question()
            };
            let answered = backend.ask("rpc", &HeaderMap::new(), &question).await;
            let answered = answered
                .map(|granted| Answer::Rpc(RpcResult { data: granted.data().unwrap_or_default() }));
            this.answers.tell(connection, Told::Done(command, answered));
        });
    }

    /// Asks the application about a topic, if it is to be asked.
    pub(super) async fn ask_application(
        &self,
        path: &str,
        asker: &Asker,
        (topic, channel): (&TopicName, &str),
        data: &Data,
    ) -> Result<Option<Granted>, CommandRefusal> {
        let is_asked = |backend: &Backend| match path {
            "publish" => backend.is_asked_to_publish(topic),
            _ => backend.is_asked_to_subscribe(topic),
        };
        let Some(backend) = self.backend.as_deref().filter(|backend| is_asked(backend)) else {
            return Ok(None);
        };
        let question = Question { channel, data: SaidData::of(data), ..asker.question() };
        backend.ask(path, &HeaderMap::new(), &question).await.map(Some)
    }
}
