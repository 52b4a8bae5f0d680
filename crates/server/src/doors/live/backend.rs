//! The application behind live connections: it may be asked who a client is, and whether it may subscribe or publish, and it
//! answers calls of its methods. Requests and answers are JSON over HTTP, as Centrifugo's proxies have them. It knows no
//! connections.

use std::{fmt, io, str::FromStr, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use sennit_centrifuge::{Data, ErrorCode, ReplyError};
use sennit_identity::{FilledPattern, RightPattern};
use sennit_model::TopicName;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::limits::{BACKEND_ANSWER_BYTES_MAX, BACKEND_REQUESTS_MAX};
use crate::http::{
    client::{ClientFailure, HttpClient},
    client_url::{CLIENT_URL_BYTES_MAX, ClientUrl},
};

/// Headers of a client's handshake that the application is shown.
pub(crate) const SHOWN_HEADERS: [HeaderName; 8] = [
    header::COOKIE,
    header::ORIGIN,
    header::USER_AGENT,
    header::ACCEPT_LANGUAGE,
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
    HeaderName::from_static("x-request-id"),
];

/// The application that is asked about live connections, and what it is asked.
#[derive(Clone, Debug)]
pub struct LiveBackend {
    /// Where it answers; without it nothing is asked.
    pub url: Option<LiveBackendUrl>,
    /// What it is asked of all clients.
    pub asks: Vec<BackendAsk>,
    /// It is asked whether a client may subscribe to topics that match one of these.
    pub subscribe: Vec<RightPattern>,
    /// It is asked whether a client may publish to topics that match one of these.
    pub publish: Vec<RightPattern>,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Default for LiveBackend {
    fn default() -> Self {
        Self {
            url: None,
            asks: Vec::new(),
            subscribe: Vec::new(),
            publish: Vec::new(),
            timeout: Duration::from_secs(5),
        }
    }
}

/// Something that an application is asked of all clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendAsk {
    /// Who a client is that shows no credentials.
    Connect,
    /// Whether one whom it has let in may stay longer than it said.
    Refresh,
    /// To answer calls of methods.
    Rpc,
}

impl fmt::Display for BackendAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Refresh => "refresh",
            Self::Rpc => "rpc",
        })
    }
}

/// The text is nothing that an application can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "an application is asked connect, refresh or rpc; for topics, live.backend_subscribe and live.backend_publish name them"
)]
pub struct BackendAskError;

impl FromStr for BackendAsk {
    type Err = BackendAskError;

    fn from_str(text: &str) -> Result<Self, BackendAskError> {
        match text {
            "connect" => Ok(Self::Connect),
            "refresh" => Ok(Self::Refresh),
            "rpc" => Ok(Self::Rpc),
            _ => Err(BackendAskError),
        }
    }
}

/// The URL of an application: requests go to paths below it.
#[derive(Clone, PartialEq, Eq)]
pub struct LiveBackendUrl(ClientUrl);

/// The text is no URL of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not the URL of an application: write http(s)://HOST[:PORT]/PATH, without user, password, ? and #, in at most {CLIENT_URL_BYTES_MAX} bytes"
)]
pub struct LiveBackendUrlError;

impl FromStr for LiveBackendUrl {
    type Err = LiveBackendUrlError;

    fn from_str(text: &str) -> Result<Self, LiveBackendUrlError> {
        let url = ClientUrl::of(text).filter(|_| !text.contains('?'));
        url.map(Self).ok_or(LiveBackendUrlError)
    }
}

impl fmt::Display for LiveBackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for LiveBackendUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LiveBackendUrl({self})")
    }
}

/// A request to the application.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Question<'q> {
    /// The id of the connection.
    pub(crate) client: &'q str,
    /// The way on which it came, the protocol, and how the protocol is encoded.
    pub(crate) transport: &'q str,
    pub(crate) protocol: &'q str,
    pub(crate) encoding: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) user: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) address: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) name: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) version: &'q str,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) channel: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<&'q str>,
    #[serde(flatten)]
    pub(crate) data: SaidData,
}

/// Data in JSON: as it is, or other bytes in base64.
#[derive(Debug, Default, Serialize)]
pub(crate) struct SaidData {
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    b64data: Option<String>,
}

impl SaidData {
    pub(crate) fn of(data: &Data) -> Self {
        if data.is_absent() {
            return Self::default();
        }
        match serde_json::from_slice(data.as_bytes()) {
            Ok(json) => Self { data: Some(json), b64data: None },
            Err(_) => Self { data: None, b64data: Some(STANDARD.encode(data.as_bytes())) },
        }
    }
}

/// The application's answer. Fields that it does not give are empty; others are passed over.
#[derive(Debug, Default, Deserialize)]
struct Answer {
    result: Option<Granted>,
    error: Option<Refused>,
    disconnect: Option<Disconnect>,
}

/// The application grants what was asked.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Granted {
    /// The user, of a connect; empty if it is nobody in particular.
    pub(crate) user: String,
    /// When it wants to be asked again, in seconds since 1970.
    pub(crate) expire_at: Option<u64>,
    /// Whether the client may not stay, of a refresh.
    pub(crate) expired: bool,
    pub(crate) tenant: Option<String>,
    pub(crate) roles: Vec<String>,
    pub(crate) rights: Vec<String>,
    /// To which the client is subscribed, of a connect.
    pub(crate) channels: Vec<String>,
    info: Option<Box<RawValue>>,
    b64info: Option<String>,
    data: Option<Box<RawValue>>,
    b64data: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Refused {
    code: u32,
    message: String,
    temporary: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Disconnect {
    code: u16,
    reason: String,
}

fn data_of(json: Option<&RawValue>, base64: Option<&str>) -> Option<Data> {
    let decoded = base64.and_then(|text| STANDARD.decode(text).ok());
    let bytes = decoded.or_else(|| json.map(|json| json.get().as_bytes().to_vec()))?;
    Some(Data::of_payload(bytes.into()))
}

impl Granted {
    /// Data for the client, if the application gives some.
    pub(crate) fn data(&self) -> Option<Data> {
        data_of(self.data.as_deref(), self.b64data.as_deref())
    }

    /// What others may know of the client, if the application says something.
    pub(crate) fn info(&self) -> Option<Data> {
        data_of(self.info.as_deref(), self.b64info.as_deref())
    }
}

/// A command is not granted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CommandRefusal {
    /// The command is refused.
    Refused(ReplyError),
    /// The connection is to end, with this code.
    Ends { code: u16, reason: String },
}

impl From<ReplyError> for CommandRefusal {
    fn from(error: ReplyError) -> Self {
        Self::Refused(error)
    }
}

/// The reason why the application has not answered.
#[derive(Debug, thiserror::Error)]
enum BackendFailure {
    #[error("the name was not found: {0}")]
    Lookup(io::Error),
    #[error("no request: {0}")]
    Request(#[from] http::Error),
    #[error(transparent)]
    Client(#[from] ClientFailure),
    #[error("answered {0}")]
    Status(StatusCode),
    #[error(
        "the answer is longer than {BACKEND_ANSWER_BYTES_MAX} bytes (BACKEND_ANSWER_BYTES_MAX)"
    )]
    TooLong,
    #[error("the answer broke off: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("the answer is not what was agreed: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the answer has neither result, error nor disconnect")]
    Empty,
    #[error("no whole answer within live.backend_timeout, {0:?}")]
    TooSlow(Duration),
}

/// Asks an application.
#[derive(Debug)]
pub(crate) struct Backend {
    url: ClientUrl,
    asks: Vec<BackendAsk>,
    subscribe: Vec<FilledPattern>,
    publish: Vec<FilledPattern>,
    timeout: Duration,
    client: HttpClient,
    requests: Semaphore,
}

impl Backend {
    /// The application that the settings name, if they do.
    pub(crate) fn of(settings: &LiveBackend) -> Option<Self> {
        let LiveBackendUrl(url) = settings.url.clone()?;
        // A place in a pattern is filled for a principal: here there is none, and the pattern matches nothing.
        let filled = |patterns: &[RightPattern]| -> Vec<FilledPattern> {
            patterns.iter().filter_map(|pattern| pattern.fill(|_| None)).collect()
        };
        Some(Self {
            url,
            asks: settings.asks.clone(),
            subscribe: filled(&settings.subscribe),
            publish: filled(&settings.publish),
            timeout: settings.timeout,
            client: HttpClient::default(),
            requests: Semaphore::new(BACKEND_REQUESTS_MAX),
        })
    }

    pub(crate) fn is_asked(&self, ask: BackendAsk) -> bool {
        self.asks.contains(&ask)
    }

    pub(crate) fn is_asked_to_subscribe(&self, topic: &TopicName) -> bool {
        self.subscribe.iter().any(|pattern| pattern.matches(topic.as_str()))
    }

    pub(crate) fn is_asked_to_publish(&self, topic: &TopicName) -> bool {
        self.publish.iter().any(|pattern| pattern.matches(topic.as_str()))
    }

    /// Asks the application at a path below its URL, with these headers of the client.
    ///
    /// # Errors
    /// It refuses, or does not answer as was agreed: then the client may ask again.
    pub(crate) async fn ask(
        &self,
        path: &str,
        headers: &HeaderMap,
        question: &Question<'_>,
    ) -> Result<Granted, CommandRefusal> {
        let asked = async {
            let Ok(_permit) = self.requests.acquire().await else {
                return Err(BackendFailure::TooSlow(self.timeout));
            };
            self.try_ask(path, headers, question).await
        };
        let asked = tokio::time::timeout(self.timeout, asked).await;
        let answer = asked.unwrap_or(Err(BackendFailure::TooSlow(self.timeout)));
        let answer = answer.and_then(|answer| outcome(answer).ok_or(BackendFailure::Empty));
        answer.unwrap_or_else(|failure| {
            tracing::warn!(%failure, path, "the application behind live connections did not answer");
            let detail = "the application behind this broker did not answer";
            let mut error = ReplyError::new(ErrorCode::Internal, detail);
            error.temporary = true;
            Err(CommandRefusal::Refused(error))
        })
    }

    async fn try_ask(
        &self,
        path: &str,
        headers: &HeaderMap,
        question: &Question<'_>,
    ) -> Result<Answer, BackendFailure> {
        let url = &self.url;
        let found = tokio::net::lookup_host((&*url.host, url.port)).await;
        let addresses: Vec<_> = found.map_err(BackendFailure::Lookup)?.collect();
        let body = serde_json::to_vec(question)?;
        let mut request = Request::post(format!("{}/{path}", url.path.trim_end_matches('/')))
            .header(header::HOST, &*url.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Full::new(Bytes::from(body)))?;
        for (name, value) in headers {
            request.headers_mut().append(name.clone(), value.clone());
        }
        let answer = self.client.send(url.is_tls, &url.host, &addresses, request).await?;
        let status = answer.response.status();
        if status != StatusCode::OK {
            return Err(BackendFailure::Status(status));
        }
        let body = Limited::new(answer.response.into_body(), BACKEND_ANSWER_BYTES_MAX);
        let body = body.collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                BackendFailure::TooLong
            } else {
                BackendFailure::Body(error)
            }
        })?;
        drop(answer.connection);
        Ok(serde_json::from_slice(&body.to_bytes())?)
    }
}

/// The outcome that an answer tells, if it does. A refusal counts more than a grant.
fn outcome(answer: Answer) -> Option<Result<Granted, CommandRefusal>> {
    let Answer { result, error, disconnect } = answer;
    if let Some(Disconnect { code, reason }) = disconnect {
        return Some(Err(CommandRefusal::Ends { code, reason }));
    }
    if let Some(Refused { code, message, temporary }) = error {
        let message =
            if message.is_empty() { "refused by the application".into() } else { message };
        let mut error = ReplyError::new(ErrorCode::PermissionDenied, message);
        if code != 0 {
            error.code = code;
        }
        error.temporary = temporary;
        return Some(Err(CommandRefusal::Refused(error)));
    }
    result.map(Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Result<Granted, CommandRefusal>> {
        outcome(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn an_answer_grants_refuses_or_ends() {
        let granted =
            read(r#"{"result": {"user": "ada", "info": {"a": [1]}, "data": "x", "other": 1}}"#);
        let granted = granted.unwrap().unwrap();
        assert_eq!(granted.user, "ada");
        assert_eq!(granted.info().unwrap().as_bytes(), br#"{"a": [1]}"#);
        assert_eq!(granted.data().unwrap().as_bytes(), b"\"x\"");
        let bytes = read(r#"{"result": {"b64data": "/w=="}}"#).unwrap().unwrap();
        assert_eq!(bytes.data().unwrap().as_bytes(), [255]);
        let refused = read(r#"{"error": {"code": 1000, "message": "no"}, "result": {}}"#);
        match refused {
            Some(Err(CommandRefusal::Refused(error))) => assert_eq!(error.code, 1000),
            other => panic!("{other:?}"),
        }
        let ends = CommandRefusal::Ends { code: 4500, reason: "gone".into() };
        assert_eq!(
            read(r#"{"disconnect": {"code": 4500, "reason": "gone"}}"#).unwrap().err(),
            Some(ends)
        );
        assert!(read("{}").is_none(), "it says nothing");
    }

    #[test]
    fn data_is_shown_as_json_or_else_in_base64() {
        let said = |bytes: &[u8]| {
            let data = Data::of_payload(bytes.to_vec().into());
            let question = Question { data: SaidData::of(&data), ..Question::default() };
            serde_json::to_value(question).unwrap()
        };
        assert_eq!(said(br#"{"a":1}"#)["data"]["a"], 1);
        assert_eq!(said(&[255])["b64data"], "/w==");
        let none = Question { data: SaidData::of(&Data::default()), ..Question::default() };
        let none = serde_json::to_value(none).unwrap();
        assert!(none.get("data").is_none() && none.get("b64data").is_none());
    }

    #[test]
    fn a_url_of_an_application_has_a_path_and_no_more() {
        for text in ["http://localhost:3000", "https://app.example/live"] {
            assert_eq!(text.parse::<LiveBackendUrl>().unwrap().to_string(), text);
        }
        for text in ["", "localhost", "ftp://a", "http://a?b", "http://a#b", "http://u:p@a"] {
            assert_eq!(text.parse::<LiveBackendUrl>(), Err(LiveBackendUrlError), "{text}");
        }
    }
}
