//! The configuration: a durable map of keys and values for the whole broker, on the first core. Changes are decided
//! one after the other; those that have gathered while the disk was busy are one append. Once that is durable,
//! each core gets the new snapshot, and then the changes are confirmed. It knows no protocol.
//!
//! In reading order: a `request` is decided by the `entries` as a `change`; the `store` keeps changes; a
//! `snapshot` and the `history` are what each core has of it.

mod beginning;
mod change;
mod entries;
mod follower;
mod history;
mod request;
mod snapshot;
mod store;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    path::PathBuf,
    pin::Pin,
    rc::Rc,
    sync::Arc,
};

use sennit_engine::{Command, Refusal};
use sennit_identity::{Directory, Verb};
use sennit_model::{
    ConfigurationKey, Offset, TopicId, TopicName, limits::CONFIGURATION_WAITING_BYTES_MAX,
};
use tokio::{
    sync::{Notify, oneshot, watch},
    task::spawn_local,
};

pub use self::change::{ConfigurationChange, KeptConfiguration, KeptConfigurationError};
use self::{
    beginning::Beginning,
    entries::{Draft, Entries},
    snapshot::throttle_rules,
    store::{APPENDED_BYTES, Store, appended_bytes},
};
pub(crate) use self::{
    request::{
        ConfigurationAnswer, ConfigurationRefusal, ConfigurationRequest, ListEntries, ToldEntry,
        Write,
    },
    snapshot::{ChangeListener, ConfigurationSnapshot, CurrentConfiguration},
};
use super::{
    audit, control_request::ControlRefusal, key_file, stream_request::StreamFailure,
    topic_listener::TopicListener,
};
use crate::{
    identity::{authority::Authority, key_uses::key_of_entry, principal::Principal},
    runtime::{
        core::{CoreHandle, Cores},
        inbox::Message,
        index::CoreIndex,
        own_topic::OwnStream,
    },
};

/// Most changes in one append.
const APPENDED_CHANGES: usize = 4096;

pub(crate) type Answer = Result<ConfigurationAnswer, ConfigurationRefusal>;

/// A change that waits to be decided.
#[derive(Debug)]
struct WaitingWrite {
    write: Write,
    principal: Principal,
    answer: oneshot::Sender<Answer>,
}

/// The configuration, on the first core.
#[derive(Debug)]
pub(crate) struct Configuration {
    core: CoreHandle,
    store: Store,
    entries: RefCell<Entries>,
    snapshot: RefCell<ConfigurationSnapshot>,
    /// Changes that wait to be decided, in the order in which they came.
    waiting: RefCell<VecDeque<WaitingWrite>>,
    waiting_bytes: Cell<usize>,
    /// Something waits, or another node has made the stream grow.
    has_more: Notify,
    state: Cell<State>,
    /// The directory that the entries make, and the authority that goes by it.
    directory: RefCell<Directory>,
    authority: Authority,
    /// The data directory, with the file of the broker's secrets.
    data: PathBuf,
    /// On a node of a cluster, the offset of the stream up to which all is in force here.
    followed: watch::Sender<Offset>,
    /// The stream is there.
    appeared: Notify,
}

/// Whether requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// What was kept is not read, or could not be.
    Unreadable,
    Serves,
    /// It is not known whether the last changes are durable: the broker is about to end.
    Unknown,
}

/// Asks the first core, on behalf of a principal. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    principal: Principal,
    request: ConfigurationRequest,
) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    let message = Message::call(move |configuration: &Rc<Configuration>| {
        configuration.answer(&principal, request, sender);
    });
    let _ = cores.inboxes[CoreIndex::FIRST].send(message);
    answer
}

impl TopicListener for Configuration {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            if self.core.cores.groups.is_some() {
                spawn_local(self.clone().follow());
                spawn_local(self.write());
            } else if self.load().await {
                spawn_local(self.write());
            }
        })
    }

    fn appeared(self: Rc<Self>, stream: &TopicName, topic: TopicId, _from: Offset) {
        if stream == self.store.name() {
            self.core.cores.own_topic.set(OwnStream::Configuration, topic);
            self.appeared.notify_one();
        }
    }

    fn gone(self: Rc<Self>, _stream: &TopicName, _topic: TopicId) {}
}

impl Configuration {
    /// None yet: it is read when the broker starts.
    pub(crate) fn new(core: CoreHandle, authority: Authority, data: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            directory: RefCell::default(),
            authority,
            data,
            store: Store::new(core.clone()),
            core,
            entries: RefCell::default(),
            snapshot: RefCell::default(),
            waiting: RefCell::default(),
            waiting_bytes: Cell::new(0),
            has_more: Notify::new(),
            state: Cell::new(State::Unreadable),
            followed: watch::Sender::default(),
            appeared: Notify::new(),
        })
    }

    /// Reads what was kept and sends it to each core; says whether that was done. What cannot be read is not
    /// taken for nothing: then nobody is answered, nothing is written, and what lies there stays as it is.
    async fn load(&self) -> bool {
        let name = self.store.name();
        let topic =
            self.core.look(|core| core.catalogue().topic_named(name).map(|topic| topic.id()));
        if let Some(topic) = topic {
            self.core.cores.own_topic.set(OwnStream::Configuration, topic);
        }
        let mut begins = Beginning::default();
        if let Err(failure) = self.store.read(|found| begins.take(found)).await {
            tracing::error!(%failure, "the configuration cannot be read: nobody gets any of it");
            return false;
        }
        self.begin(begins).await;
        true
    }

    /// Puts all that was read in force.
    async fn begin(&self, Beginning { entries, history }: Beginning) {
        let snapshot = ConfigurationSnapshot::of(entries.revision(), entries.iter());
        self.entries.replace(entries);
        self.snapshot.replace(snapshot.clone());
        self.count(0);
        self.set_throttles();
        self.read_directory();
        self.tell_cores(move |current| current.begin(snapshot.clone(), history.clone())).await;
        self.state.set(State::Serves);
    }

    fn answer(
        &self,
        principal: &Principal,
        request: ConfigurationRequest,
        answer: oneshot::Sender<Answer>,
    ) {
        let refusal = match self.state.get() {
            State::Serves => check_right(principal, &request).err(),
            State::Unreadable => Some(ConfigurationRefusal::Unreadable),
            State::Unknown => {
                Some(ConfigurationRefusal::Broker(Box::new(ControlRefusal::ShuttingDown)))
            }
        };
        let answered = match (refusal, request) {
            (Some(refusal), ConfigurationRequest::Write(write)) => {
                let refused = Err(refusal);
                self.note(principal, &write, &refused);
                refused
            }
            (Some(refusal), _) => Err(refusal),
            (None, ConfigurationRequest::Get { key }) => {
                let entries = self.entries.borrow();
                let (entry, revision) = (entries.get(&key), entries.revision());
                Ok(ConfigurationAnswer::Entry { entry, revision })
            }
            (None, ConfigurationRequest::List(list)) => {
                Ok(self.entries.borrow().list(&list, |key| may_read(principal, key)))
            }
            (None, ConfigurationRequest::Write(write)) => {
                let bytes = self.waiting_bytes.get() + write.bytes();
                if bytes <= CONFIGURATION_WAITING_BYTES_MAX {
                    self.waiting_bytes.set(bytes);
                    let principal = principal.clone();
                    let waiting = WaitingWrite { write, principal, answer };
                    self.waiting.borrow_mut().push_back(waiting);
                    return self.has_more.notify_one();
                }
                Err(ConfigurationRefusal::Busy)
            }
        };
        let _ = answer.send(answered);
    }

    fn note(&self, principal: &Principal, write: &Write, answer: &Answer) {
        let act = if write.value.is_some() { "kv set" } else { "kv delete" };
        audit::note(&self.core.cores, principal, act, write.key.as_str(), answer);
    }

    /// Keeps the changes that wait, and writes the stream again when it has grown, for ever.
    async fn write(self: Rc<Self>) {
        loop {
            if self.waiting.borrow().is_empty() {
                self.has_more.notified().await;
            }
            self.write_waiting().await;
            self.write_again_if_grown().await;
        }
    }

    /// Decides and keeps the changes that wait, as many as are appended together.
    async fn write_waiting(&self) {
        let writes = self.take();
        if writes.is_empty() {
            return;
        }
        let (kept, answers) = match &self.core.cores.groups {
            None => self.decide_and_keep(&writes).await,
            Some(_) => Box::pin(self.write_in_cluster(&writes)).await,
        };
        let bytes: usize = writes.iter().map(|waiting| waiting.write.bytes()).sum();
        self.waiting_bytes.set(self.waiting_bytes.get() - bytes);
        for (WaitingWrite { write, principal, answer }, decided) in writes.into_iter().zip(answers)
        {
            // A decision on the ground of changes that are not kept does not count either.
            let decided = kept.clone().and(decided);
            self.note(&principal, &write, &decided);
            let _ = answer.send(decided);
        }
    }

    async fn decide_and_keep(
        &self,
        writes: &[WaitingWrite],
    ) -> (Result<(), ConfigurationRefusal>, Vec<Answer>) {
        let (changes, answers) = {
            let entries = self.entries.borrow();
            let mut draft = Draft::of(&entries, self.authority.revision());
            let answers: Vec<_> =
                writes.iter().map(|waiting| draft.decide(&waiting.write)).collect();
            (draft.changes, answers)
        };
        (self.keep(changes).await, answers)
    }

    /// The next changes that are appended together.
    fn take(&self) -> Vec<WaitingWrite> {
        let mut waiting = self.waiting.borrow_mut();
        let mut bytes = 0;
        let fit =
            waiting.iter().take(APPENDED_CHANGES).take_while(|WaitingWrite { write, .. }| {
                let is_first = bytes == 0;
                bytes += appended_bytes(write.key.as_str(), write.value.as_ref());
                is_first || bytes <= APPENDED_BYTES
            });
        let count = fit.count();
        waiting.drain(..count).collect()
    }

    /// Has changes be durable, and be seen by each core.
    async fn keep(&self, changes: Vec<ConfigurationChange>) -> Result<(), ConfigurationRefusal> {
        if changes.is_empty() {
            return Ok(());
        }
        if let Err(failure) = self.store.append(&changes).await {
            tracing::warn!(%failure, "changes of the configuration are refused");
            if !is_refusal(&failure) {
                self.state.set(State::Unknown);
            }
            return Err(refusal_of(failure));
        }
        self.put_in_force(changes).await;
        Ok(())
    }

    /// Has changes that are durable be seen by each core.
    async fn put_in_force(&self, changes: Vec<ConfigurationChange>) {
        {
            let mut entries = self.entries.borrow_mut();
            changes.iter().for_each(|change| entries.apply(change));
        }
        let snapshot = self.snapshot.borrow().after(&changes);
        self.snapshot.replace(snapshot.clone());
        self.count(changes.len() as u64);
        if changes.iter().any(|change| change.key.throttle_pattern().is_some()) {
            self.set_throttles();
        }
        self.change_directory(&changes);
        let changes: Arc<[_]> = changes.into();
        self.tell_cores(move |current| current.change(snapshot.clone(), &changes)).await;
    }

    /// Makes the directory of the entries that were kept, and puts it in force.
    fn read_directory(&self) {
        let mut directory = Directory::default();
        for (key, entry) in self.entries.borrow().iter() {
            match key.identity_entry().and_then(key_of_entry) {
                Some(id) => self.authority.key_uses().read(&id, &entry.value),
                None => apply(&mut directory, key, Some(&entry.value)),
            }
        }
        if directory.keys().next().is_some() {
            match key_file::read(&self.data) {
                Ok(Some(secrets)) => self.authority.set_master(key_file::master(&secrets)),
                Ok(None) => {
                    tracing::error!("the broker's secrets are missing: no API key is valid")
                }
                Err(error) => tracing::error!(%error, "no API key is valid"),
            }
        }
        self.directory.replace(directory.clone());
        self.authority.set(directory);
    }

    /// Puts changes of the directory in force, before a core is told and before they are confirmed.
    fn change_directory(&self, changes: &[ConfigurationChange]) {
        let is_of_directory = |change: &&ConfigurationChange| {
            change.key.identity_entry().is_some_and(|name| key_of_entry(name).is_none())
        };
        let mut changes = changes.iter().filter(is_of_directory).peekable();
        if changes.peek().is_none() {
            return;
        }
        let mut directory = self.directory.borrow_mut();
        for change in changes {
            apply(&mut directory, &change.key, change.value.as_deref());
        }
        self.authority.set(directory.clone());
    }

    /// Has each core do something with what it has of the configuration, and waits until all have.
    async fn tell_cores(&self, tell: impl Fn(&CurrentConfiguration) + Clone + Send + 'static) {
        let told: Vec<_> = self
            .core
            .cores
            .inboxes
            .iter()
            .map(|inbox| {
                let (done, told) = oneshot::channel();
                let tell = tell.clone();
                let _ = inbox.send(Message::call(move |current: &Rc<CurrentConfiguration>| {
                    tell(current);
                    let _ = done.send(());
                }));
                told
            })
            .collect();
        for told in told {
            // A core that has ended serves nobody.
            let _ = told.await;
        }
    }

    /// Writes all of it again if the stream has grown to a multiple of it. In a cluster any node does: of those that try, one appends
    /// first, and the others read that it is done.
    async fn write_again_if_grown(&self) {
        let (revision, entries) = {
            let entries = self.entries.borrow();
            if self.state.get() != State::Serves || !self.store.has_grown(entries.totals().bytes) {
                return;
            }
            let all = entries.iter().map(|(key, entry)| ConfigurationChange {
                key: key.clone(),
                revision: entry.revision,
                value: Some(entry.value.clone()),
            });
            (entries.revision(), all.collect())
        };
        let at = self.core.cores.groups.is_some().then(|| *self.followed.borrow());
        if let Err(failure) = self.store.write_again(revision, entries, at).await {
            tracing::warn!(%failure, "the configuration is written again later");
        }
    }

    /// Says in the metrics how it is, after so many changes.
    fn count(&self, changes: u64) {
        let metrics = &self.core.cores.metrics[self.core.index];
        let totals = self.entries.borrow().totals();
        metrics.configuration_entries.set(totals.entries as u64);
        metrics.configuration_bytes.set(totals.bytes as u64);
        metrics.configuration_changes.add(changes);
    }

    /// The throttle rules are others now, or those that the broker has started with.
    fn set_throttles(&self) {
        let rules = throttle_rules(&self.snapshot.borrow());
        let metrics = &self.core.cores.metrics[self.core.index];
        metrics.throttle_rules.set(rules.len() as u64);
        // Before the others are told: what they ask from now on is answered by these.
        self.core.cores.throttles.set_rules(&rules);
        self.core.with(|core| {
            for shard in self.core.cores.placement.all_shards() {
                core.command(shard, Command::SetThrottles(rules.clone()));
            }
            core.handle();
        });
    }
}

/// Checks that the principal may do this. What is about who may do what is nobody's but the broker's.
fn check_right(
    principal: &Principal,
    request: &ConfigurationRequest,
) -> Result<(), ConfigurationRefusal> {
    let (verb, key) = match request {
        ConfigurationRequest::Get { key } => (Verb::KvRead, key),
        ConfigurationRequest::Write(write) => (Verb::KvWrite, &write.key),
        // It lists the entries that the principal may read.
        ConfigurationRequest::List(_) => return Ok(()),
    };
    if key.identity_entry().is_some() && !principal.is_broker() {
        return Err(ConfigurationRefusal::OfIdentity);
    }
    principal
        .may(verb, key.as_str())
        .map_err(|missing| ConfigurationRefusal::Broker(Box::new(missing.into())))
}

/// Whether the principal may read the entry of this key.
pub(crate) fn may_read(principal: &Principal, key: &ConfigurationKey) -> bool {
    key.identity_entry().is_none() && principal.may(Verb::KvRead, key.as_str()).is_ok()
}

/// Has the directory take an entry, if it is about who may do what.
fn apply(directory: &mut Directory, key: &ConfigurationKey, value: Option<&[u8]>) {
    if let Some(name) = key.identity_entry()
        && let Err(error) = directory.apply(name, value)
    {
        tracing::error!(%error, "it counts as if it were not there");
    }
}

/// Whether a failed append has certainly changed nothing.
fn is_refusal(failure: &StreamFailure) -> bool {
    match failure {
        StreamFailure::Broker(refusal) => matches!(
            **refusal,
            ControlRefusal::Busy(_) | ControlRefusal::Engine(Refusal::StorageFull)
        ),
        other => other.refusal().is_some(),
    }
}

fn refusal_of(failure: StreamFailure) -> ConfigurationRefusal {
    let refusal = match failure {
        StreamFailure::Broker(refusal) => refusal,
        _ => Box::new(ControlRefusal::WrongAnswer),
    };
    ConfigurationRefusal::Broker(refusal)
}
