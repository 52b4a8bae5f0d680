//! The HTTP port: is the broker alive, is it ready, what does it count; and its backup.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use http_body_util::{Either, Full};
use hyper::{Method, Request, Response, StatusCode, body::Bytes, header, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::{
    backup::{Archive, Backups, NoBackup},
    metrics::{self, CoreMetrics},
};

/// Connections that the port serves at once.
const CONNECTIONS_MAX: usize = 256;

/// What the port tells.
#[derive(Debug)]
pub(crate) struct Status {
    /// Whether the journals are still read.
    pub(crate) recovering: AtomicBool,
    /// Whether the broker is about to stop.
    pub(crate) draining: AtomicBool,
    /// Whether a journal has failed.
    pub(crate) fenced: AtomicBool,
    /// What is counted, for people and for [`Status::ready`].
    registry: Registry,
    cores: Vec<Arc<CoreMetrics>>,
    backups: Arc<Backups>,
}

/// What is answered: a text, or the archive of a backup.
type Answer = Response<Either<Full<Bytes>, Archive>>;

impl Status {
    /// Of a broker that has just started.
    pub(crate) fn recovering(cores: Vec<Arc<CoreMetrics>>, backups: Arc<Backups>) -> Self {
        Self {
            recovering: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            registry: metrics::registry(cores.clone()),
            cores,
            backups,
        }
    }

    fn ready(&self) -> (StatusCode, String) {
        let reasons = [
            (&self.recovering, "recovering"),
            (&self.draining, "draining"),
            (&self.fenced, "journal failed"),
        ];
        let reasons: Vec<&str> = reasons
            .into_iter()
            .filter_map(|(flag, reason)| flag.load(Relaxed).then_some(reason))
            .collect();
        let ready = reasons.is_empty();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut body = serde_json::json!({ "ready": ready, "reasons": reasons });
        // The rest is served; that something is not has to be seen all the same.
        type Of = fn(&CoreMetrics) -> u64;
        let quarantined: [(&str, Of); 5] = [
            ("batches", |core| core.damaged_batches.value()),
            ("journal_places", |core| core.journal_damage.value()),
            ("doubtful_partitions", |core| core.doubtful_partitions.value()),
            ("scrubbed_places", |core| core.scrub_damage.value()),
            ("lost_files", |core| core.lost_files.value()),
        ];
        for (name, of) in quarantined {
            let sum: u64 = self.cores.iter().map(|core| of(core)).sum();
            if sum > 0 {
                body["quarantined"][name] = sum.into();
            }
        }
        (status, body.to_string() + "\n")
    }

    fn metrics(&self) -> (StatusCode, String) {
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    async fn answer(&self, method: &Method, path: &str) -> Answer {
        let json = "application/json";
        let ((status, body), kind) = match (method, path) {
            (&Method::GET | &Method::HEAD, "/healthz") => {
                ((StatusCode::OK, "{\"alive\":true}\n".to_owned()), json)
            }
            (&Method::GET | &Method::HEAD, "/readyz") => (self.ready(), json),
            (&Method::GET | &Method::HEAD, "/metrics") => {
                (self.metrics(), "application/openmetrics-text; version=1.0.0; charset=utf-8")
            }
            (&Method::GET, BACKUP) => match self.backup().await {
                Ok(archive) => return archive_answer(archive),
                Err(error) => (problem(status_of(&error), &error.to_string()), PROBLEM),
            },
            (_, "/healthz" | "/readyz" | "/metrics") => {
                (problem(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD"), PROBLEM)
            }
            (_, BACKUP) => (problem(StatusCode::METHOD_NOT_ALLOWED, "only GET"), PROBLEM),
            _ => {
                let known = "there are /healthz, /readyz, /metrics and /v1/admin/backup";
                (problem(StatusCode::NOT_FOUND, known), PROBLEM)
            }
        };
        let mut response = Response::new(Either::Left(Full::new(Bytes::from(body))));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response
    }

    async fn backup(&self) -> Result<Archive, NoBackup> {
        if [&self.recovering, &self.draining, &self.fenced].iter().any(|flag| flag.load(Relaxed)) {
            return Err(NoBackup::NotServing);
        }
        self.backups.clone().begin().await
    }
}

/// Where the archive of a backup is.
const BACKUP: &str = "/v1/admin/backup";

fn archive_answer(archive: Archive) -> Answer {
    let length = header::HeaderValue::from(archive.bytes());
    let mut response = Response::new(Either::Right(archive));
    let headers = response.headers_mut();
    let kind = header::HeaderValue::from_static("application/x-tar");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CONTENT_LENGTH, length);
    response
}

fn status_of(no_backup: &NoBackup) -> StatusCode {
    match no_backup {
        NoBackup::UnderWay => StatusCode::CONFLICT,
        NoBackup::NotServing => StatusCode::SERVICE_UNAVAILABLE,
        NoBackup::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        NoBackup::Disk(_) | NoBackup::System(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

const PROBLEM: &str = "application/problem+json";

fn problem(status: StatusCode, detail: &str) -> (StatusCode, String) {
    let title = status.canonical_reason().unwrap_or_default();
    let body = serde_json::json!({ "status": status.as_u16(), "title": title, "detail": detail });
    (status, body.to_string() + "\n")
}

/// Serves the port for ever.
pub(crate) async fn serve(listener: TcpListener, status: Arc<Status>) {
    let room = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting on the HTTP port failed");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                continue;
            }
        };
        let status = status.clone();
        tokio::task::spawn_local(async move {
            let service = service_fn(|request: Request<hyper::body::Incoming>| {
                let status = status.clone();
                async move {
                    let (method, path) = (request.method(), request.uri().path());
                    Ok::<_, Infallible>(status.answer(method, path).await)
                }
            });
            let served = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(std::time::Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "an HTTP connection ended early");
            }
            drop(place);
        });
    }
}
