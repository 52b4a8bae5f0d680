//! The live connections of a core, and the loop that serves them. It has one session at the shards, whose readers follow
//! topics.

mod admissions;
mod commands;
mod deliveries;
mod emulation;
mod goodbyes;
mod groups;
mod history;
pub(crate) mod messages;
mod patterns;
mod presence;
mod remote_presence;
mod server_subscriptions;
mod subscriptions;
pub(crate) mod targets;
mod timeouts;
mod writes;
mod wse;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    rc::Rc,
    time::Duration,
};

use foldhash::fast::RandomState;
use sennit_centrifuge::{DisconnectCode, UnsubscribeCode};
use sennit_engine::{Command as ShardCommand, Effect, ReaderChange, SessionId};
use sennit_model::{LiveSettings, TopicId, TopicName};
use sennit_websocket::{Decoder, DecoderLimits, Inflater};
use tokio::{
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};

pub(crate) use self::{
    commands::LIMITS,
    emulation::{EmulatedArrival, EmulationRefusal},
};
use self::{
    goodbyes::{GOODBYES_EVERY, Goodbyes},
    groups::Consumer,
    history::History,
    messages::Send as MessageSend,
    writes::ToFlush,
};
use super::{
    answer_pipe::PipeEvents,
    backend::{Backend, LiveBackend},
    broadcast::Broadcast,
    calls::Calls,
    connection::{Connection, Greeting, Subscription},
    connection_id::ConnectionId,
    core_requests::{Answers, CoreRequests},
    dialect::{Dialect, Scratch},
    limits::{GREETINGS_PER_ADDRESS_MAX, MESSAGE_BYTES_MAX},
    link::Link,
    presence::Presence,
    reader_numbers::ReaderNumbers,
    settlement::PendingSettlement,
    sink::LiveSink,
    source::SharedPattern,
    upgrade::LiveClient,
    users::Users,
};
use crate::{
    broker::{live_changes::LiveChanges, stream_request::Located},
    http::{thread_state::HttpThreadState, upgrade::Upgraded},
    identity::{authority::Authority, principal::Principal},
    runtime::{
        core::{CoreHandle, Cores},
        inbox::Message,
        index::CoreIndex,
        socket_events::{Interest, SocketEvent, Sockets},
    },
};

/// How often it is looked whether connections are there still.
const MIND_EVERY: Duration = Duration::from_millis(500);

/// A reader that catches up for one subscription.
#[derive(Clone, Copy, Debug)]
struct CatchUp {
    connection: ConnectionId,
    broadcast: u32,
}

/// What the broker is told of live connections when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveRules {
    /// Connections of all cores.
    pub(crate) connections_max: usize,
    /// How often a client is asked whether it is there.
    pub(crate) ping_interval: Duration,
    /// How long a client may take to say who it is.
    pub(crate) connect_timeout: Duration,
    /// Whether all subscribers are told who comes and goes, or those who ask for it.
    pub(crate) tells_all: bool,
    /// Whether other brokers send messages of topics.
    pub(crate) has_relay: bool,
}

/// What other tasks have the live connections of a core do: a service of the core.
pub(crate) type LiveCalls = Calls<LiveConnections>;

/// The live connections of a core.
#[derive(Debug)]
pub(crate) struct LiveConnections {
    rules: LiveRules,
    core: CoreHandle,
    authority: Authority,
    thread_state: Rc<HttpThreadState>,
    sockets: Sockets,
    sink: Rc<LiveSink>,
    session: SessionId,
    answers: Rc<Answers>,
    requests: CoreRequests,
    calls: Rc<LiveCalls>,
    /// Topics whose settings have changed.
    changed_topics: Rc<LiveChanges>,
    pipe_events: Rc<PipeEvents>,
    /// By slot.
    connections: Vec<Option<Connection>>,
    free: Vec<u32>,
    users: Users,
    generations: u32,
    /// By the number of their reader.
    broadcasts: HashMap<u32, Broadcast, RandomState>,
    broadcasts_by_name: HashMap<TopicName, u32, RandomState>,
    /// The broadcasts of patterns.
    patterns: HashMap<SharedPattern, u32, RandomState>,
    catch_ups: HashMap<u32, CatchUp, RandomState>,
    histories: HashMap<u32, History, RandomState>,
    /// Parts in groups.
    consumers: HashMap<u32, Consumer, RandomState>,
    /// What clients settle, by the number of the request.
    settlements: HashMap<u64, PendingSettlement, RandomState>,
    settlements_begun: u64,
    /// The subscribers of topics for which this core keeps them, of all cores.
    presences: HashMap<TopicName, Presence, RandomState>,
    /// Those of which something is not told yet.
    presences_to_tell: HashSet<TopicName, RandomState>,
    numbers: ReaderNumbers,
    /// Behind the newest message that is known to be missing of a topic.
    gaps: HashMap<TopicId, u64, RandomState>,
    /// Broadcasts with news that their subscribers have not got.
    with_news: VecDeque<u32>,
    to_flush: ToFlush,
    /// Messages to connections, the oldest first.
    sends: VecDeque<MessageSend>,
    /// Connections whose sockets have gone.
    broken: Vec<ConnectionId>,
    /// Bytes that all rings hold.
    rings_bytes: usize,
    scratch: Scratch,
    inflater: Inflater,
    read: Vec<u8>,
    events: Vec<SocketEvent>,
    effects: Vec<Effect>,
    /// Connections that have something to be read.
    to_read: Vec<u32>,
    /// How far it is with telling them that the broker stops.
    goodbyes: Option<Goodbyes>,
}

impl LiveConnections {
    /// Opens the live door of a core.
    ///
    /// # Errors
    /// The kernel has no room.
    pub(crate) fn open(
        core: CoreHandle,
        thread_state: Rc<HttpThreadState>,
        authority: Authority,
        rules: LiveRules,
        backend: &LiveBackend,
    ) -> io::Result<Self> {
        let sockets = Sockets::new()?;
        let sink = Rc::new(LiveSink::default());
        let session = core.with(|core| core.open_own_session(sink.clone()));
        let answers = Rc::new(Answers::new(sink.notify.clone()));
        let requests = CoreRequests::new(
            core.clone(),
            authority.clone(),
            answers.clone(),
            Backend::of(backend),
            rules.has_relay,
        );
        let calls = Rc::new(LiveCalls::new(sink.notify.clone()));
        let pipe_events = Rc::new(PipeEvents::new(sink.notify.clone()));
        core.services.add(calls.clone());
        let changed_topics = Rc::new(LiveChanges::new(sink.notify.clone()));
        core.services.add(changed_topics.clone());
        let cores = core.cores.clone();
        thread_state.upgrade_entry.open(move || {
            let open = cores.metrics.iter().map(|metrics| metrics.live_connections.value());
            open.sum::<u64>() < rules.connections_max as u64
        });
        Ok(Self {
            rules,
            core,
            authority,
            thread_state,
            sockets,
            sink,
            session,
            answers,
            requests,
            calls,
            changed_topics,
            pipe_events,
            connections: Vec::new(),
            free: Vec::new(),
            users: Users::default(),
            // Drawn: clients of several brokers are seen side by side, and none has the id of another.
            generations: getrandom::u32().unwrap_or_default(),
            broadcasts: HashMap::default(),
            broadcasts_by_name: HashMap::default(),
            patterns: HashMap::default(),
            catch_ups: HashMap::default(),
            histories: HashMap::default(),
            consumers: HashMap::default(),
            settlements: HashMap::default(),
            // Behind all numbers of readers.
            settlements_begun: u32::MAX.into(),
            presences: HashMap::default(),
            presences_to_tell: HashSet::default(),
            numbers: ReaderNumbers::default(),
            gaps: HashMap::default(),
            with_news: VecDeque::new(),
            to_flush: ToFlush::default(),
            sends: VecDeque::new(),
            broken: Vec::new(),
            rings_bytes: 0,
            scratch: Scratch::default(),
            inflater: Inflater::new(),
            read: Vec::new(),
            events: Vec::new(),
            effects: Vec::new(),
            to_read: Vec::new(),
            goodbyes: None,
        })
    }

    /// Has the live connections of another core, or of this one, do something. Nothing becomes of it where there are none.
    pub(crate) fn call(
        cores: &Cores,
        core: CoreIndex,
        act: impl FnOnce(&mut Self) + Send + 'static,
    ) {
        // A core that has ended has no connections.
        let _ =
            cores.inboxes[core].send(Message::call(move |calls: &Rc<LiveCalls>| calls.call(act)));
    }

    /// Messages of another broker are missing of a topic: whoever is subscribed to it is told, and subscribes again.
    fn miss(&mut self, topic: &TopicName) {
        let Some(&number) = self.broadcasts_by_name.get(topic) else { return };
        let Some(broadcast) = self.broadcasts.get(&number) else { return };
        let Some(source) = broadcast.topic() else { return };
        let (located, patterns) = (source.located, source.patterns.clone());
        patterns.into_iter().for_each(|(pattern, _)| self.end_pattern(pattern));
        self.reader(number, located, ReaderChange::End);
        self.lose(number, UnsubscribeCode::InsufficientState);
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        let thread_state = self.thread_state.clone();
        let (sink, mut changes) = (self.sink.clone(), self.authority.changes());
        let mut mind_at = Instant::now() + MIND_EVERY;
        loop {
            // However much there is to do: time passes.
            let now = Instant::now();
            if now >= mind_at {
                self.mind(now);
                mind_at = now + MIND_EVERY;
            }
            for upgraded in thread_state.upgrade_entry.arrived() {
                self.welcome(upgraded);
            }
            let mut has_more = self.take_events();
            self.take_pipe_events();
            for (connection, told) in self.answers.take() {
                self.hear(connection, told);
            }
            for (topic, live) in self.changed_topics.take() {
                self.change_settings(topic, live);
            }
            for act in self.calls.take() {
                act(&mut self);
            }
            has_more |= self.send_some();
            has_more |= self.serve_readable();
            self.take_effects();
            // What has come behind a change of rights goes to nobody who has lost them.
            if changes.has_changed().is_ok_and(|changed| changed) {
                changes.mark_unchanged();
                self.look_at_rights();
            }
            let is_closing = self.sink.is_closing() || thread_state.closing.has_begun();
            let are_some_left = is_closing && self.say_goodbyes(now);
            has_more |= self.flush_some();
            if is_closing && !are_some_left && self.to_flush.is_empty() {
                self.sink.note_all_told();
            }
            if has_more {
                yield_now().await;
                continue;
            }
            tokio::select! {
                () = thread_state.upgrade_entry.wait() => {}
                () = self.sockets.wait_for_events() => {}
                () = sink.notify.notified() => {}
                Ok(()) = changes.changed() => self.look_at_rights(),
                () = sleep_until(mind_at) => {}
                () = sleep(GOODBYES_EVERY), if are_some_left => {}
            }
        }
    }

    /// Takes a connection in.
    fn welcome(&mut self, upgraded: Upgraded) {
        let Upgraded { wire, place, upgrade, unread } = upgraded;
        let Some(client) = upgrade.state::<LiveClient>() else { return };
        let LiveClient { dialect, deflate, principal, greeting, wse } = client;
        let greeting_place = place.greet(GREETINGS_PER_ADDRESS_MAX);
        let slot = self.free_slot();
        if let Err(error) = self.sockets.add(&wire, slot, Interest::Changes) {
            tracing::warn!(%error, "a live connection could not be taken over");
            return self.free.push(slot);
        }
        let limits = DecoderLimits { message_bytes_max: MESSAGE_BYTES_MAX };
        let decoder = Decoder::of_server(limits, deflate.is_some());
        let link = Link::WebSocket { wire, decoder, _place: place };
        let id = self.enter(slot, (link, dialect), (principal, greeting));
        if let Some(connection) = self.get(id) {
            connection.greeting_place = greeting_place;
            if connection.greeting_place.is_none() {
                connection.end(DisconnectCode::TooManyRequests);
                self.thread_state.metrics.live_refused_greeting.add(1);
            }
        }
        if let Some(entry) = wse {
            self.welcome_wse(id, entry);
        }
        self.decode(slot, &unread);
        self.to_read.push(slot);
    }

    fn free_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        })
    }

    /// A connection begins at a free slot.
    fn enter(
        &mut self,
        slot: u32,
        way: (Link, Dialect),
        client: (Principal, Greeting),
    ) -> ConnectionId {
        self.generations = self.generations.wrapping_add(1);
        let id = ConnectionId { slot, generation: self.generations };
        let due = Instant::now() + self.rules.connect_timeout;
        self.connections[slot as usize] = Some(Connection::new(id, way, client, due));
        self.thread_state.metrics.live_connections.add(1);
        id
    }

    fn get(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let held = self.connections.get_mut(id.slot as usize)?.as_mut();
        held.filter(|held| held.id == id)
    }

    fn at(&mut self, slot: u32) -> Option<&mut Connection> {
        self.connections.get_mut(slot as usize)?.as_mut()
    }

    /// Lets a connection go, with all that it is subscribed to.
    fn part(&mut self, slot: u32) {
        let Some(connection) = self.connections[slot as usize].take() else { return };
        self.users.remove(&connection.principal.user_name(), connection.id);
        for subscription in &connection.subscriptions {
            self.leave(
                connection.id,
                connection.format(),
                subscription.broadcast,
                subscription.place,
            );
        }
        if let Link::WebSocket { wire, .. } = &connection.link {
            self.sockets.remove(wire);
        }
        self.free.push(slot);
        self.thread_state.metrics.live_connections.less(1);
    }

    /// The number of a reader, of a pattern, or of a part in a group, that begins now.
    fn next_number(&mut self) -> u32 {
        let Self { numbers, broadcasts, catch_ups, histories, consumers, .. } = self;
        numbers.begin(|number| {
            broadcasts.contains_key(&number)
                || catch_ups.contains_key(&number)
                || histories.contains_key(&number)
                || consumers.contains_key(&number)
        })
    }

    /// Has a shard do something for a reader of this door.
    fn reader(&mut self, reader: u32, located: Located, change: ReaderChange) {
        if matches!(change, ReaderChange::End) {
            self.numbers.end(reader);
        }
        let (partition, home) = located.place();
        let shard = self.core.cores.placement.shard_of(home, partition.index);
        let session = self.session;
        let command = ShardCommand::Reader { session, subscription: reader, partition, change };
        self.core.with(|core| core.command(shard, command));
    }

    /// Takes what the sockets say; says whether there may be more.
    fn take_events(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.events);
        let has_more = self.sockets.take(&mut events);
        for event in events.drain(..) {
            if event.is_gone {
                self.part(event.number);
                continue;
            }
            let Some(connection) = self.at(event.number) else { continue };
            let (reads, writes) = (event.is_readable, event.is_writable);
            if reads && !connection.is_readable {
                connection.is_readable = true;
                self.to_read.push(event.number);
            }
            let Some(connection) = self.at(event.number) else { continue };
            if writes && std::mem::take(&mut connection.is_blocked) {
                let id = connection.id;
                self.to_flush.add(id);
            }
        }
        self.events = events;
        has_more
    }

    /// A topic has other settings for live connections: they count at once.
    fn change_settings(&mut self, topic: TopicId, live: LiveSettings) {
        let is_it = |held: &Broadcast| held.located().is_some_and(|of| of.topic == topic);
        let Some((&number, broadcast)) = self.broadcasts.iter_mut().find(|(_, held)| is_it(held))
        else {
            return;
        };
        let (before, had_presence) = (broadcast.held(), broadcast.live().presence);
        broadcast.set_live(live);
        self.rings_bytes = self.rings_bytes + broadcast.held() - before;
        // Those who are behind find other places.
        if !std::mem::replace(&mut broadcast.has_news, true) {
            self.with_news.push_back(number);
        }
        if live.presence != had_presence {
            self.change_presence(number);
        }
    }
}
