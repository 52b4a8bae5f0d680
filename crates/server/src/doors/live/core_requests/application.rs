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

fn claims(granted: Granted) -> Claims {
    let boxed = |texts: Vec<String>| texts.into_iter().map(String::into_boxed_str).collect();
    let info = granted.info().map(|info| info.shown_as_json().into_payload());
    let expires_at = granted.expire_at.map_or(u64::MAX, |seconds| seconds.saturating_mul(1000));
    Claims {
        info: info.and_then(|json| String::from_utf8(json.to_vec()).ok()).map(Into::into),
        subject: granted.user.into(),
        issuer: ISSUER.into(),
        tenant: granted.tenant.map(Into::into),
        roles: boxed(granted.roles),
        rights: boxed(granted.rights),
        channels: boxed(granted.channels),
        expires_at: Timestamp(expires_at),
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
