//! The stream of the audit, which can be read as any other. Acts are appended in order as fast as the disk takes them. It
//! knows no acts.

use std::{rc::Rc, time::Duration};

use sennit_engine::{Content, StreamAppend, StreamNote, StreamRefusal, StreamSettings};
use sennit_model::{
    BatchBuilder, Durability, Message, Retention, TopicConfig, TopicKind, TopicName,
};

use super::{
    audit::Audit,
    control,
    control_request::{ControlRefusal, ControlRequest},
    stream_request::{CreateStream, StreamFailure},
    streams::Streams,
};
use crate::{identity::principal::Principal, runtime::core::CoreHandle};

/// The name of the stream.
const STREAM: &str = "__ds/audit";

/// How long acts are kept, and how many bytes of them.
const KEPT: Duration = Duration::from_secs(90 * 86_400);
const KEPT_BYTES: u64 = 256 << 20;

/// Bytes that are appended at once.
const APPENDED_BYTES: usize = 1 << 20;

/// How long the audit rests after an append that failed.
const REST: Duration = Duration::from_secs(1);

/// The stream of the audit.
#[derive(Debug)]
pub(crate) struct AuditStream {
    core: CoreHandle,
    streams: Rc<Streams>,
    name: TopicName,
}

impl AuditStream {
    /// The stream, which is created with the first act.
    pub(crate) fn new(core: CoreHandle) -> Self {
        let name = STREAM.parse().expect("the name of the broker's own stream is one");
        Self { streams: Streams::new(core.clone()), core, name }
    }

    /// Keeps acts for ever.
    pub(crate) async fn keep(self, audit: Rc<Audit>) {
        loop {
            audit.wait().await;
            let acts = next(&audit);
            while let Err(failure) = self.append(&acts).await {
                tracing::warn!(%failure, "the audit cannot be kept now");
                tokio::time::sleep(REST).await;
            }
        }
    }

    async fn append(&self, append: &StreamAppend) -> Result<(), StreamFailure> {
        match self.try_append(append).await {
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) => {
                self.create().await?;
                self.try_append(append).await
            }
            appended => appended,
        }
    }

    async fn try_append(&self, append: &StreamAppend) -> Result<(), StreamFailure> {
        let append = || Some(Box::new(append.clone()));
        self.streams.append(&Principal::broker(), &self.name, append).await.map(drop)
    }

    async fn create(&self) -> Result<(), StreamFailure> {
        let create = CreateStream {
            name: self.name.clone(),
            durability: Durability::Durable,
            settings: StreamSettings {
                content_type: "application/json".into(),
                ..StreamSettings::of_topic()
            },
            content: None,
            closes: false,
            fork: None,
        };
        self.streams.create(&Principal::broker(), create).await?;
        let retention =
            Retention { age: Some(KEPT), bytes: Some(KEPT_BYTES), ..Retention::FOREVER };
        let config = TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) };
        let alter = ControlRequest::AlterTopic { name: self.name.clone(), config };
        let session = self.core.cores.own_session(self.core.index);
        let altered = control::ask(&self.core.cores, session, Principal::broker(), alter).await;
        altered.map_err(|_| ControlRefusal::ShuttingDown)??;
        Ok(())
    }
}

/// The acts that are appended together.
fn next(audit: &Audit) -> StreamAppend {
    let mut batch = BatchBuilder::for_append(APPENDED_BYTES);
    audit.give(|act| batch.push(&Message::new(act.to_vec())).is_ok());
    let content = batch.take().map(Content::from);
    StreamAppend { content, content_type: None, note: StreamNote::default() }
}
