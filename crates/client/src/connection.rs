//! (being built)
use crate::{
    link::Command,
    outbox::Outbox,
    reconnect::Reconnect,
    session::{Greeting, Session},
};
use std::sync::Arc;
use tokio::sync::mpsc;
pub(crate) struct Connection;
impl Connection {
    pub(crate) fn new(
        _: Greeting,
        _: Reconnect,
        _: Arc<Outbox>,
        _: mpsc::UnboundedReceiver<Command>,
    ) -> Self {
        Self
    }
    pub(crate) async fn run(self, _session: Session) {}
}
