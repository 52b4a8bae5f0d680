//! The first admin key, which a broker creates by itself if nobody has credentials yet. It is told once.

use std::{rc::Rc, sync::Arc, time::Duration};

use sennit_identity::{ADMIN, API_KEY_ID_RANDOM_BYTES, ApiKeyId, Holder, Zeroizing};
use tokio::{sync::oneshot, task::spawn_local, time::sleep};

use super::{
    super::request::{AccessAnswer, AccessChange, AccessRefusal, AccessRequest},
    AccessControl, ask, new_key,
};
use crate::{
    broker::{audit, control_request::ControlRefusal},
    identity::{authority::Authority, principal::Principal},
    runtime::{core::Cores, inbox::Message, index::CoreIndex},
};

/// The name of the first admin key.
const FIRST_ADMIN_NAME: &str = "first admin";

/// What the id of the first admin key of a cluster is made of. Its secret is another in each cluster.
const FIRST_ADMIN: [u8; API_KEY_ID_RANDOM_BYTES] = *b"FIRSTKEY";

/// How long to wait before it is tried again to create the first admin key of a cluster.
const AGAIN: Duration = Duration::from_millis(200);

/// Creates the first admin key, if nobody has credentials yet. It is told once.
pub(crate) async fn first_admin_key(
    cores: &Cores,
    authority: &Authority,
) -> Result<Option<Zeroizing<String>>, AccessRefusal> {
    if authority.directory().is_none_or(|directory| directory.has_credentials()) {
        return Ok(None);
    }
    let name = FIRST_ADMIN_NAME.to_owned();
    let change = AccessChange::CreateKey { name, holder: admin()?, expires_ms: None };
    let answer = ask(cores, Principal::broker(), AccessRequest::Change(change)).await;
    match answer.unwrap_or_else(|_| Err(ControlRefusal::ShuttingDown.into()))? {
        AccessAnswer::Changed { key, .. } => Ok(key),
        _ => Err(ControlRefusal::WrongAnswer.into()),
    }
}

/// The same on a node of a cluster, once it knows who has credentials: one node creates it, and tells it.
pub(crate) async fn first_admin_key_of_cluster(cores: Arc<Cores>, tell: fn(&str)) {
    loop {
        let (sender, created) = oneshot::channel();
        let message = Message::call(move |control: &Rc<AccessControl>| {
            let control = control.clone();
            spawn_local(async move {
                let _ = sender.send(control.create_first().await);
            });
        });
        let _ = cores.inboxes[CoreIndex::FIRST].send(message);
        match created.await {
            Ok(Ok(Some(key))) => return tell(&key),
            Ok(Ok(None)) => return,
            Ok(Err(refusal)) => tracing::debug!(%refusal, "this node has created no admin key"),
            // The broker stops.
            Err(_) => return,
        }
        sleep(AGAIN).await;
    }
}

impl AccessControl {
    /// Creates the first admin key of a cluster, if nobody has credentials yet.
    async fn create_first(&self) -> Result<Option<Zeroizing<String>>, AccessRefusal> {
        let _turn = self.turn.lock().await;
        let ground = self.ground().await?;
        if ground.directory.has_credentials() {
            return Ok(None);
        }
        let entry = new_key(FIRST_ADMIN_NAME.to_owned(), admin()?, None);
        let id = ApiKeyId::from_random(FIRST_ADMIN);
        let created = self.create_key(&ground, id, entry).await;
        audit::note(
            &self.core.cores,
            &Principal::broker(),
            "key create",
            FIRST_ADMIN_NAME.to_owned(),
            &created,
        );
        created.map(Some)
    }
}

/// Somebody who may do everything.
fn admin() -> Result<Holder, AccessRefusal> {
    Ok(Holder { roles: vec![ADMIN.parse()?], ..Holder::default() })
}
