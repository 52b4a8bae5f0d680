//! HTTP requests of verbs: one connection at a time, one request at a time. A request that another node, or another
//! moment, may answer is sent again; other refusals become failures.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, body::Incoming, client::conn::http1::SendRequest,
    header,
};
use hyper_util::rt::TokioIo;
use sennit_tls::{TlsFault, TlsOptions};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{
    address::{BrokerAddresses, http_brokers},
    connect_options::{CONNECT_TIMEOUT, no_broker},
    credential_options::CredentialOptions,
    exit::{Exit, Failure},
    http_retry::{Refused, RetryLimit},
    tls_options::TlsArgs,
};

/// How long a lost broker is tried again.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);

/// The first and the longest delay between two attempts.
const TRY_AGAIN_MIN: Duration = Duration::from_millis(50);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(2);

/// How long the broker may take to answer, or to send more of an answer. Its long-polls take half a
/// minute by default.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// The broker's HTTP address.
#[derive(Clone, Debug, clap::Args)]
pub struct ConnectOptions {
    /// The broker's HTTP address, host and port; of a cluster several nodes' addresses with commas
    /// between
    #[arg(long, value_name = "ADDRESSES", default_value = "127.0.0.1:4437", env = "SENNIT_HTTP")]
    #[arg(global = true, value_parser = http_brokers)]
    pub http: BrokerAddresses,
    #[command(flatten)]
    tls: TlsArgs,
    #[command(flatten)]
    credential: CredentialOptions,
}

/// An answer.
pub struct Answer {
    /// Its status, which is a success.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// All of its body.
    pub body: Bytes,
}

/// An answer whose body is still coming.
pub struct StreamedAnswer {
    /// Its status and headers, without the body.
    pub answer: Answer,
    address: String,
    body: Incoming,
}

impl StreamedAnswer {
    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The body is incomplete.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = with_timeout(&self.address, self.body.frame()).await?;
            match frame {
                None => return Ok(None),
                Some(Err(error)) => {
                    let text = format!("the answer broke off: {error}");
                    return Err(Failure::new(Exit::Unreachable, text));
                }
                // Trailers say nothing here.
                Some(Ok(frame)) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    /// The answer with its whole body.
    async fn whole(mut self) -> Result<Answer, Failure> {
        let mut body = BytesMut::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
        }
        Ok(Answer { body: body.freeze(), ..self.answer })
    }
}

impl Answer {
    /// The value of a header, if it exists.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// A connection to a broker's HTTP port, and behind it one to another node's.
pub struct Http {
    /// The node's address.
    pub address: String,
    options: ConnectOptions,
    /// The credentials, as each request shows them.
    authorization: Option<String>,
    sender: SendRequest<Full<Bytes>>,
}

impl ConnectOptions {
    /// The value of the header `Authorization` with the credentials.
    ///
    /// # Errors
    /// A file cannot be read, or no password can be asked for.
    pub fn authorization(&self) -> Result<Option<String>, Failure> {
        self.credential.authorization()
    }

    /// A connection on which nothing was said, but for the handshake of TLS: with the first node that answers, in an
    /// order of chance. Returns its address as well.
    ///
    /// # Errors
    /// No server listens at any address, or no answer came in time.
    pub async fn stream(&self) -> Result<(String, Box<dyn Stream>), Failure> {
        self.stream_from(RandomState::new().hash_one(0_u8) as usize).await
    }

    /// A connection with the first node that answers, from the address of this number on.
    async fn stream_from(&self, number: usize) -> Result<(String, Box<dyn Stream>), Failure> {
        let all = &self.http.host_ports;
        let first = number % all.len();
        let mut tried = Vec::new();
        for address in all[first..].iter().chain(&all[..first]) {
            match self.stream_to(address).await {
                Ok(stream) => return Ok((address.clone(), stream)),
                Err(why) => tried.push((address.clone(), why)),
            }
        }
        Err(no_broker(&tried, "--http"))
    }

    async fn stream_to(&self, address: &str) -> Result<Box<dyn Stream>, String> {
        let tls = self.tls.options(self.http.is_tls);
        let connecting = async {
            let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
            let _ = stream.set_nodelay(true);
            match &tls {
                None => Ok(Box::new(stream) as Box<dyn Stream>),
                Some(options) => secured(stream, address, options).await,
            }
        };
        let connected = timeout(CONNECT_TIMEOUT, connecting).await;
        connected.unwrap_or_else(|_| Err(format!("nothing came for {CONNECT_TIMEOUT:?}")))
    }

    /// Connects.
    ///
    /// # Errors
    /// No server listens there, or no answer came in time.
    pub async fn connect(&self) -> Result<Http, Failure> {
        let authorization = self.authorization()?;
        let (address, stream) = self.stream().await?;
        let sender = sender_of(&address, stream).await?;
        Ok(Http { address, options: self.clone(), authorization, sender })
    }
}

/// What requests are sent through on a new connection with this address.
async fn sender_of(
    address: &str,
    stream: Box<dyn Stream>,
) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        shaken.map_err(|error| no_broker(&[(address.to_owned(), error.to_string())], "--http"))?;
    tokio::spawn(async move {
        // An error of the connection is seen by the request that waits for an answer.
        let _ = connection.await;
    });
    Ok(sender)
}

/// A request that was not done, or of which that is not known.
pub struct Unanswered {
    pub failure: Failure,
    /// After how long it may be sent again; nothing where that could do it twice, or does not help.
    pub again_after: Option<Duration>,
}

impl From<Failure> for Unanswered {
    fn from(failure: Failure) -> Self {
        Self { failure, again_after: None }
    }
}

impl Http {
    /// Sends a request, and waits for the whole answer.
    ///
    /// # Errors
    /// The broker did not answer, or refused: its problem is the failure's text.
    pub async fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Bytes,
    ) -> Result<Answer, Failure> {
        self.begin(method, path, headers, body).await?.whole().await
    }

    /// Sends a request, and waits for the head of the answer. One that may be answered elsewhere, or a moment later,
    /// is sent again, at the next node.
    ///
    /// # Errors
    /// As [`Http::ask`].
    pub async fn begin(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Bytes,
    ) -> Result<StreamedAnswer, Failure> {
        let limit = RetryLimit::of_request(Instant::now());
        loop {
            let Unanswered { failure, again_after } =
                match self.send(method, path, headers, body.clone()).await {
                    Ok(answer) => return Ok(answer),
                    Err(unanswered) => unanswered,
                };
            let may_wait = |delay: &Duration| limit.allows(*delay, Instant::now());
            let Some(delay) = again_after.filter(may_wait) else {
                return Err(failure);
            };
            tokio::time::sleep(delay).await;
            if self.connect_to_next().await.is_err() {
                return Err(failure);
            }
        }
    }

    /// Connects to the node behind this one in the list, or to the next that answers.
    async fn connect_to_next(&mut self) -> Result<(), Failure> {
        let here = self.options.http.host_ports.iter().position(|one| *one == self.address);
        let next = here.map_or(0, |here| here + 1);
        let (address, stream) = self.options.stream_from(next).await?;
        self.sender = sender_of(&address, stream).await?;
        self.address = address;
        Ok(())
    }

    /// Sends a request once, and waits for the head of the answer.
    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Bytes,
    ) -> Result<StreamedAnswer, Unanswered> {
        let mut request =
            Request::builder().method(method).uri(path).header(header::HOST, &self.address);
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
        let is_safe = request.method().is_safe();
        let answered = with_timeout(&self.address, self.sender.try_send_request(request)).await?;
        let response: Response<Incoming> = answered.map_err(|mut lost| {
            let was_sent = lost.take_message().is_none();
            let failure = no_answer(&self.address, &lost.into_error().to_string());
            let has_others = self.options.http.host_ports.len() > 1;
            let goes_on = has_others && (is_safe || !was_sent);
            Unanswered { failure, again_after: goes_on.then_some(TRY_AGAIN_MIN) }
        })?;
        let (head, body) = response.into_parts();
        let answer = Answer { status: head.status, headers: head.headers, body: Bytes::new() };
        let arriving = StreamedAnswer { answer, address: self.address.clone(), body };
        if !head.status.is_success() {
            let answer = arriving.whole().await?;
            let failure = refusal(head.status, &answer.body);
            let refused = Refused::of(head.status, &answer.headers, &answer.body);
            return Err(Unanswered { failure, again_after: refused.again_after(is_safe) });
        }
        Ok(arriving)
    }
}

/// The carrier of a connection.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Speaks TLS on a connection with the broker at `address`; says why not.
async fn secured(
    stream: TcpStream,
    address: &str,
    options: &TlsOptions,
) -> Result<Box<dyn Stream>, String> {
    let said = |fault: &TlsFault| match fault.is_not_tls() {
        true => "the broker does not speak TLS there: leave out --tls and https://".to_owned(),
        false => fault.to_string(),
    };
    let settings = options.client_settings(&[b"http/1.1"]).map_err(|fault| said(&fault))?;
    let name = options.name_of(address).map_err(|fault| said(&fault))?;
    let shaken = tokio_rustls::TlsConnector::from(settings).connect(name, stream).await;
    let stream = shaken.map_err(|error| {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        cause.map_or_else(|| error.to_string(), |cause| said(&cause.clone().into()))
    })?;
    Ok(Box::new(stream))
}

/// Limits the attempts to reach a lost broker. It starts anew with each answer.
#[derive(Default)]
pub struct RetryTimer {
    lost_at: Option<Instant>,
    tries: u32,
}

impl RetryTimer {
    /// Waits until the next attempt, if `failure` says that the broker cannot be reached.
    ///
    /// # Errors
    /// The failure, if it says something else, or if the time is over.
    pub async fn wait(&mut self, failure: Failure) -> Result<(), Failure> {
        let lost_at = *self.lost_at.get_or_insert_with(Instant::now);
        if failure.exit != Exit::Unreachable || lost_at.elapsed() >= RETRY_TIME_MAX {
            return Err(failure);
        }
        let rest = TRY_AGAIN_MIN.saturating_mul(2_u32.saturating_pow(self.tries));
        self.tries += 1;
        tokio::time::sleep(rest.min(TRY_AGAIN_MAX)).await;
        Ok(())
    }
}

async fn with_timeout<T>(address: &str, awaited: impl Future<Output = T>) -> Result<T, Failure> {
    let late = |_| no_answer(address, &format!("nothing came for {ANSWER_TIMEOUT:?}"));
    timeout(ANSWER_TIMEOUT, awaited).await.map_err(late)
}

fn no_answer(address: &str, why: &str) -> Failure {
    Failure::new(Exit::Unreachable, format!("the broker at {address} fell silent: {why}"))
}

/// The failure that an answer with this status and body is.
pub fn refusal(status: StatusCode, body: &[u8]) -> Failure {
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    // Subscriptions say it as their protocol does.
    let said = problem["detail"].as_str().or_else(|| problem["error"]["message"].as_str());
    let detail = match said {
        Some(detail) => detail.to_owned(),
        // To who asks how a stream is nothing is said but the status.
        None if status == StatusCode::NOT_FOUND => "there is no such stream".to_owned(),
        None if status == StatusCode::GONE => "the stream is deleted".to_owned(),
        None => format!("the answer was {status}"),
    };
    Failure::new(exit_of(status), detail)
}

fn exit_of(status: StatusCode) -> Exit {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Exit::NotFound,
        StatusCode::CONFLICT => Exit::Conflict,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Exit::Forbidden,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => Exit::Usage,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_end_with_the_code_that_the_help_names() {
        for (status, exit) in [(404, 3), (410, 3), (409, 4), (400, 2), (503, 6), (507, 1)] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(exit_of(status) as u8, exit, "{status}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_broker_is_tried_again_for_a_minute_and_a_refusal_is_not() {
        let lost = || Failure::new(Exit::Unreachable, "nobody is there");
        let (mut patience, begun, mut tries) = (RetryTimer::default(), Instant::now(), 0);
        while patience.wait(lost()).await.is_ok() {
            tries += 1;
        }
        assert!(
            (RETRY_TIME_MAX..2 * RETRY_TIME_MAX).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        assert!((20..50).contains(&tries), "{tries}");
        let refused = Failure::new(Exit::NotFound, "no such stream");
        assert!(RetryTimer::default().wait(refused).await.is_err());
    }

    #[test]
    fn a_refusal_says_what_the_broker_said() {
        let failure = refusal(StatusCode::NOT_FOUND, br#"{"detail":"there is no such stream"}"#);
        assert_eq!(failure.to_string(), "sennit: there is no such stream");
        let body = br#"{"error":{"code":"FENCED","message":"it is another's"}}"#;
        assert_eq!(refusal(StatusCode::CONFLICT, body).to_string(), "sennit: it is another's");
        let other = refusal(StatusCode::BAD_GATEWAY, b"<html>");
        assert_eq!(other.to_string(), "sennit: the answer was 502 Bad Gateway");
    }
}
