//! The guard of a session: it holds whose session it is, and ends what that may do no more as soon as somebody's rights
//! or credentials change. Each core has the guards of its sessions. It knows no requests.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::{Rc, Weak},
    sync::Arc,
};

use sennit_engine::SessionId;
use sennit_identity::Verb;
use sennit_model::{TopicId, TopicName};
use sennit_protocol::{ErrorCode, control};
use tokio::sync::Notify;

use super::{outbox::Outbox, refusal_reply::control_reply, subscription_routes::Subscription};
use crate::{
    broker::configuration::ChangeListener,
    hooks::topic_settings::{self, Topics},
    identity::{
        key_uses::KeyConnection,
        principal::{MissingRight, Principal},
        tenant_meter::{ConnectionPlace, TenantMeter},
    },
    runtime::{clock::now, core::CoreHandle},
};

/// The guard of one session.
#[derive(Debug)]
pub(crate) struct SessionGuard {
    session: SessionId,
    core: CoreHandle,
    outbox: Rc<Outbox>,
    principal: RefCell<Principal>,
    /// The right that was found last: it is asked for with each batch.
    found: Cell<Option<Found>>,
    /// Rights to topics, with the revision at which each was found.
    rights: RefCell<HashMap<(TopicId, Verb), u64>>,
    /// Where what the session publishes is counted, as found at a revision.
    meter: RefCell<(u64, Option<Arc<TenantMeter>>)>,
    /// The place of the connection among those of its tenant.
    place: RefCell<Option<ConnectionPlace>>,
    /// Says that the principal's key is in use.
    key: RefCell<Option<KeyConnection>>,
    /// Changes of who may do what that the session has asked for and not heard of: it hears of them even if they end it.
    asked: Cell<u32>,
    /// Rung when the principal is another, or may have ended.
    changed: Notify,
}

/// A right to a topic, and the revision at which it was found.
type Found = (TopicId, Verb, u64);

/// Most rights that are remembered for a session; then it begins anew.
const RIGHTS_MAX: usize = 1024;

/// The guards of a core.
#[derive(Debug, Default)]
pub(crate) struct SessionGuards(RefCell<HashMap<SessionId, Weak<SessionGuard>>>);

impl ChangeListener for SessionGuards {
    fn changed(&self) {
        let guards: Vec<_> = self.0.borrow().values().filter_map(Weak::upgrade).collect();
        guards.iter().for_each(|guard| guard.look_again());
    }
}

impl SessionGuards {
    /// The guard of a session that has shown nothing yet.
    pub(crate) fn add(
        &self,
        session: SessionId,
        core: CoreHandle,
        outbox: Rc<Outbox>,
    ) -> Rc<SessionGuard> {
        let guard = Rc::new(SessionGuard {
            session,
            core,
            outbox,
            principal: RefCell::new(Principal::nobody()),
            found: Cell::default(),
            rights: RefCell::default(),
            meter: RefCell::default(),
            place: RefCell::default(),
            key: RefCell::default(),
            asked: Cell::new(0),
            changed: Notify::new(),
        });
        self.0.borrow_mut().insert(session, Rc::downgrade(&guard));
        guard
    }

    /// The session has ended.
    pub(crate) fn remove(&self, session: SessionId) {
        self.0.borrow_mut().remove(&session);
    }
}

impl SessionGuard {
    /// Whose session it is.
    pub(crate) fn principal(&self) -> Principal {
        self.principal.borrow().clone()
    }

    /// Says whose session it is.
    pub(crate) fn set_principal(&self, principal: Principal) {
        self.key.replace(principal.connect());
        self.principal.replace(principal);
        self.found.set(None);
        self.rights.borrow_mut().clear();
        self.changed.notify_one();
    }

    /// Takes a place for the connection among those of the principal's tenant.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn take_place(&self, principal: &Principal) -> Result<(), Box<control::Error>> {
        let place = principal.meter().map(TenantMeter::connect).transpose();
        let place = place.map_err(|over| Box::new(control_reply(&over.into())))?;
        self.place.replace(place);
        Ok(())
    }

    /// The place, for a connection that goes on elsewhere.
    pub(crate) fn give_place(&self) -> Option<ConnectionPlace> {
        self.place.take()
    }

    /// Has a connection that comes from elsewhere keep its place.
    pub(crate) fn keep_place(&self, place: Option<ConnectionPlace>) {
        self.place.replace(place);
    }

    /// Counts a batch of so many messages and bytes: a look at a number where no quotas are.
    ///
    /// # Errors
    /// The error that says which quota is used up.
    pub(crate) fn take(&self, batch: (u64, u64)) -> Result<(), Box<control::Error>> {
        let principal = self.principal.borrow();
        let revision = principal.revision();
        let mut found = self.meter.borrow_mut();
        if found.0 != revision {
            *found = (revision, principal.meter());
        }
        let Some(meter) = &found.1 else { return Ok(()) };
        meter.take(batch, now()).map_err(|over| Box::new(control_reply(&over.into())))
    }

    /// Waits until the credentials do not count any more; the client is told.
    pub(crate) async fn wait_until_ended(&self) {
        loop {
            let principal = self.principal();
            if let Err(ended) = principal.check(now()) {
                if self.asked.get() > 0 {
                    self.changed.notified().await;
                    continue;
                }
                let error = control::Error::new(ErrorCode::Unauthorized, ended.to_string());
                return self.outbox.refused(0, error);
            }
            match principal.expires() {
                None => self.changed.notified().await,
                Some(at) => {
                    // The clock may be put forward meanwhile.
                    let left = at.since(now()).min(std::time::Duration::from_secs(60));
                    let _ = tokio::time::timeout(left, self.changed.notified()).await;
                }
            }
        }
    }

    /// The session asks for a change of who may do what.
    pub(crate) fn asks_for_change(&self) {
        self.asked.set(self.asked.get() + 1);
    }

    /// The session has been told of it.
    pub(crate) fn is_told(&self) {
        self.asked.set(self.asked.get().saturating_sub(1));
        self.changed.notify_one();
    }

    /// Somebody's rights or credentials are others now.
    fn look_again(&self) {
        let principal = self.principal();
        if principal.check(now()).is_err() {
            self.outbox.deliver_nothing_more();
            self.changed.notify_one();
            return;
        }
        // Its credentials may end at another time.
        self.changed.notify_one();
        let lost = {
            let mut routes = self.outbox.routes.borrow_mut();
            let lost: Vec<(u32, Verb)> = routes
                .topic_names
                .iter()
                .filter_map(|(number, topic)| {
                    let verb = verb_of(&routes.subscriptions.get(*number)?);
                    principal.may(verb, topic.as_str()).is_err().then_some((*number, verb))
                })
                .collect();
            let end = |(number, verb)| {
                routes.topic_names.remove(&number);
                Some((number, verb, routes.subscriptions.remove(number)?))
            };
            lost.into_iter().filter_map(end).collect::<Vec<_>>()
        };
        for (number, verb, subscription) in lost {
            self.outbox.subscription_forbidden(number, verb.name());
            let placement = &self.core.cores.placement;
            self.core.with(|core| {
                for (shard, partition) in subscription.each_partition(placement) {
                    core.command(shard, subscription.end(self.session, number, partition));
                }
                core.handle();
            });
        }
    }

    /// Whether the principal may do this to a topic, as far as is known: a look at a number, as a rule.
    pub(crate) fn knows(&self, topic: TopicId, verb: Verb) -> bool {
        let principal = self.principal.borrow();
        let revision = principal.revision();
        if self.found.get() == Some((topic, verb, revision)) {
            return true;
        }
        let is_known = principal.is_unrestricted()
            || self.rights.borrow().get(&(topic, verb)) == Some(&revision);
        if is_known {
            self.found.set(Some((topic, verb, revision)));
        }
        is_known
    }

    /// Checks that the principal may do this to a topic.
    ///
    /// # Errors
    /// The error that tells the client so.
    pub(crate) async fn check(&self, topic: TopicId, verb: Verb) -> Result<(), control::Error> {
        if self.knows(topic, verb) {
            return Ok(());
        }
        let principal = self.principal();
        let revision = principal.revision();
        let found = topic_settings::ask(&self.core.cores, Topics::Numbered(vec![topic])).await;
        let found = found.map_err(|refusal| control_reply(&refusal))?;
        let may = match found.into_iter().next() {
            Some(settings) => principal.may(verb, settings.name.as_str()),
            // Of a topic that is not there is said what is said of others.
            None => Err(MissingRight { verb, name: format!("number {}", topic.0) }),
        };
        may.map_err(|missing| control::Error::new(ErrorCode::Forbidden, missing.to_string()))?;
        let mut rights = self.rights.borrow_mut();
        if rights.len() >= RIGHTS_MAX {
            rights.clear();
        }
        rights.insert((topic, verb), revision);
        self.found.set(Some((topic, verb, revision)));
        Ok(())
    }

    /// Checks that a subscription to a topic may begin, and notes its name.
    ///
    /// # Errors
    /// The principal may not, or not any more.
    pub(crate) fn begin(
        &self,
        number: u32,
        subscription: &Subscription,
        topic: Option<TopicName>,
    ) -> Result<(), Box<control::Error>> {
        let principal = self.principal.borrow();
        if principal.is_unrestricted() {
            return Ok(());
        }
        let verb = verb_of(subscription);
        let Some(topic) = topic else { return Ok(()) };
        principal.may(verb, topic.as_str()).map_err(|missing| {
            Box::new(control::Error::new(ErrorCode::Forbidden, missing.to_string()))
        })?;
        self.outbox.routes.borrow_mut().topic_names.insert(number, topic);
        Ok(())
    }
}

/// The right that a subscription needs as long as it lasts.
fn verb_of(subscription: &Subscription) -> Verb {
    if subscription.is_reader() { Verb::Read } else { Verb::Consume }
}
