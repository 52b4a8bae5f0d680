//! Stopping: sessions are notified, published messages are committed, waiting answers are sent, all within bounds.
//! Then the cores end.

use std::time::Duration;

use tokio::{
    sync::oneshot,
    time::{Instant, sleep},
};

use super::{
    core::{CoreHandle, Cores},
    inbox::Message,
};

/// How long sessions have to take what is theirs when the broker stops.
pub(crate) const DRAIN: Duration = Duration::from_secs(5);
/// The same when a journal has failed.
const DRAIN_FENCED: Duration = Duration::from_millis(100);
/// How often it is looked whether they have.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Tells every core to finish, waits until they have, within bounds, and ends them.
pub(crate) async fn all(cores: &Cores) {
    let mut waiting = Vec::new();
    for inbox in cores.inboxes.iter() {
        let (done, finished) = oneshot::channel();
        let _ = inbox.send(Message::Drain(done));
        waiting.push(finished);
    }
    let all = async {
        for finished in waiting {
            let _ = finished.await;
        }
    };
    if tokio::time::timeout(DRAIN + Duration::from_secs(1), all).await.is_err() {
        tracing::warn!("a core did not stop in time");
    }
    for inbox in cores.inboxes.iter() {
        let _ = inbox.send(Message::End);
    }
}

/// Says goodbye to the sessions of a core, and waits until its lane has written everything and
/// they have taken what is theirs.
pub(crate) async fn one(core: CoreHandle, done: oneshot::Sender<()>) {
    core.with(|core| {
        core.drain();
        core.sinks().for_each(|sink| sink.say_goodbye());
    });
    core.begin_to_close();
    let begin = Instant::now();
    loop {
        let (is_fenced, is_quiet, all_sent) = core.look(|core| {
            let all_sent = core.sinks().all(|sink| sink.has_sent_all());
            (core.is_fenced(), core.is_quiet(), all_sent)
        });
        let patience = if is_fenced { DRAIN_FENCED } else { DRAIN };
        if all_sent && core.has_closed() && (is_fenced || is_quiet) {
            break;
        }
        if begin.elapsed() >= patience {
            tracing::warn!(
                core = core.index.0,
                "some sessions did not take what was theirs in time"
            );
            break;
        }
        sleep(LOOK_AGAIN).await;
    }
    let _ = done.send(());
}
