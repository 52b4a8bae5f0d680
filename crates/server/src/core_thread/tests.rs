//! The first core of a node of a cluster whose replica of the catalogue is made anew, or has what is not committed.

use sennit_engine::{CatalogueCommand, Command, Origin, Refusal};
use sennit_model::{Incarnation, TopicConfig, TopicKind, TopicName};
use sennit_replication::{Body, Content, EntryId, Label, MessageKind};
use sennit_shard::{EntryBody, EntryContent, Standing};
use tokio::sync::{mpsc, oneshot};

use super::{shard_start::RecoveredShard, *};
use crate::{
    ClusterSettings,
    broker::{
        control::{Change, ask, ask_control, watch},
        control_request::{ControlRefusal, ControlRequest, ListTopics},
    },
    hooks::topic_settings::{self, Topics},
    identity::principal::Principal,
    runtime::{clock, placement::Placement},
    serve::{cores, groups, open_directory},
};

/// A node whose peers are not there.
fn config(data: &std::path::Path) -> Config {
    let peers = ["2=127.0.0.1:1", "3=127.0.0.1:1"].map(|peer| peer.parse().expect("it is a peer"));
    let listen = ([127, 0, 0, 1], 0).into();
    let cluster = ClusterSettings { listen, peers: peers.into(), cluster_id: Some(7) };
    let data = data.to_owned();
    Config {
        data,
        node_id: Some(1),
        cluster: Some(cluster),
        shards: Some(1),
        cores: Some(1),
        segment_bytes: Some(4 << 20),
        ..Config::default()
    }
}

/// Runs a test on the first core of a node.
fn on_first_core<F: Future<Output = ()>>(test: impl FnOnce(CoreHandle) -> F) {
    let folder = tempfile::tempdir().expect("there is a folder for a test");
    let config = config(folder.path());
    let directory = open_directory(&config).expect("the directory is new");
    let settings = *directory.settings();
    let (inbox, receiver) = async_mpsc::unbounded_channel();
    let placement = Placement::round_robin(1, 1);
    let cores = cores(&config, &settings, (placement, groups(&config, &settings)), vec![inbox]);
    let lane = LaneConfig {
        directory: directory.lane_directory(0),
        lane: 0,
        segment_bytes: settings.segment_bytes,
        incarnation: settings.incarnation,
    };
    let shard = RecoveredShard::recover(ShardIndex(0), lane, &config, &cores, true);
    let files = ShardFiles::closed(1);
    let started = shard.and_then(|shard| shard.start(&cores, &files));
    let (shard, workers) = started.expect("the shard starts");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("there is a runtime");
    let local = LocalSet::new();
    let core = CoreHandle::new(CoreIndex::FIRST, vec![shard], cores);
    local.block_on(&runtime, async move {
        let peers = core.cores.groups.clone().map(ControlPeers::new).map(Rc::new);
        let control = Control::new(core.clone(), Rc::new([]), None, peers);
        core.services.add(Rc::new(control));
        let (failed, _) = async_mpsc::unbounded_channel();
        spawn_local(take_messages(core.clone(), receiver, failed));
        test(core.clone()).await;
        core.look(|core| core.end_lanes());
        core.services.clear();
    });
    drop((local, files));
    for worker in workers {
        worker.join().expect("it ends");
    }
}

/// Lists all topics.
async fn list(core: &CoreHandle) -> Result<(), ControlRefusal> {
    let all = ListTopics { after: String::new(), topics_max: None };
    let session = core.cores.own_session(CoreIndex::FIRST);
    let list = ControlRequest::ListTopics(all);
    let answer = ask(&core.cores, session, Principal::broker(), list).await;
    answer.expect("it is answered").map(drop)
}

async fn watched(core: &CoreHandle) -> Result<(), ControlRefusal> {
    let (changes, _): (mpsc::Sender<Change>, _) = mpsc::channel(1);
    let pattern = ">".parse().expect("it is a pattern");
    let watched: oneshot::Receiver<_> = watch(&core.cores, Principal::broker(), pattern, changes);
    watched.await.expect("it is answered").map(drop)
}

async fn located(core: &CoreHandle) -> Result<(), ControlRefusal> {
    let name: TopicName = "orders".parse().expect("it is a name");
    ask_control(
        &core.cores,
        |control| async move { control.locate_each(vec![name]).await.map(drop) },
    )
    .await
}

async fn settings(core: &CoreHandle) -> Result<(), ControlRefusal> {
    let numbered = Topics::Numbered(vec![sennit_model::TopicId(0)]);
    topic_settings::ask(&core.cores, numbered).await.map(drop)
}

#[test]
fn while_the_catalogue_is_made_anew_a_node_says_that_it_cannot_tell() {
    on_first_core(|core| async move {
        assert_eq!(list(&core).await, Ok(()));
        assert_eq!(watched(&core).await, Ok(()));
        assert_eq!(located(&core).await, Ok(()));
        assert_eq!(settings(&core).await, Ok(()));
        core.with(|core| core.poison_catalogue());
        let refused = Err(ControlRefusal::Engine(Refusal::NoLeader));
        assert_eq!(list(&core).await, refused);
        assert_eq!(watched(&core).await, refused);
        assert_eq!(located(&core).await, refused);
        assert_eq!(settings(&core).await, refused);
    });
}

/// The leader of the catalogue's group, which has created a topic; it has no lane's thread.
fn leader(folder: &std::path::Path) -> sennit_shard::Shard {
    let config = Config { node_id: Some(2), ..config(folder) };
    let directory = open_directory(&config).expect("the directory is new");
    let settings = directory.settings();
    let lane = LaneConfig {
        directory: directory.lane_directory(0),
        lane: 0,
        segment_bytes: settings.segment_bytes,
        incarnation: settings.incarnation,
    };
    let settings = sennit_shard::Settings {
        cache_bytes: 1 << 20,
        journal_segments: 8,
        packs: sennit_shard::PackLengths::default(),
        writes_superseded: false,
        replica: Some(sennit_shard::Replica { group: 1, id: 2, is_alone: false }),
    };
    let disk = sennit_journal::disk::RealDisk::new(config.access);
    let recovered = sennit_shard::recover(&disk, lane, settings, clock::now());
    let mut shard = recovered.expect("the directory is new").shard;
    let voters = (1..=3).collect();
    let members = sennit_shard::Membership { voters, ..Default::default() };
    shard.join_group(&members, clock::now());
    shard.keep_vote(2, 2);
    shard.append_made(sennit_shard::EntryId { term: 2, index: 2 }, None);
    shard.stand(Standing::Leader { term: 2, may_give: true }, clock::now());
    let create = CatalogueCommand::CreateTopic {
        name: "orders".parse().expect("it is a name"),
        config: TopicConfig::of_kind(TopicKind::Queue),
        incarnation: Incarnation(5),
        placed: None,
        is_stream: false,
    };
    shard.handle(&mut vec![Command::Catalogue(Origin::default(), create)], clock::now());
    shard.take_frames(&mut Vec::new());
    shard
}

/// Has the first core hear a message of the leader, with the entry of this index.
fn hears(core: &CoreHandle, leader: &sennit_shard::Shard, index: u64, commit: u64) {
    let labels = leader.labels().expect("it is a replica");
    let id = |index| EntryId { term: labels.term(index).expect("it is there"), index };
    let label = labels.get(index).expect("it is there");
    let body = match leader.entry_body(index).expect("it is there") {
        EntryBody::Here(body) => body,
        EntryBody::InLane(_) => panic!("no lane has written it"),
    };
    let (content, body) = match label.content {
        EntryContent::TermBegan => (Content::TermBegan, None),
        _ => {
            let (length, checksum) = (label.body.bytes, label.body.checksum);
            (Content::Records(Body { length, checksum, records: label.body.records }), Some(body))
        }
    };
    let label = Some(Label { id: id(index), content });
    let kind = MessageKind::Append { before: id(index - 1), commit, label };
    say(core, kind, body);
}

fn say(core: &CoreHandle, kind: MessageKind, body: Option<bytes::Bytes>) {
    let message = sennit_replication::Message { group: 1, from: 2, to: 1, term: 2, kind };
    assert!(core.with(|core| core.hear(ShardIndex::CATALOGUE, &message, body)));
}

/// Whether the node says that there is a topic `orders`.
async fn has_orders(core: &CoreHandle) -> Result<bool, ControlRefusal> {
    let name: TopicName = "orders".parse().expect("it is a name");
    let known = |control: Rc<Control>| async move { control.locate_known(&name).await };
    ask_control(&core.cores, known).await.map(|located| located.is_some())
}

#[test]
fn a_name_that_is_not_committed_is_shown_to_nobody() {
    let folder = tempfile::tempdir().expect("there is a folder for a test");
    let leader = leader(folder.path());
    on_first_core(|core| async move {
        hears(&core, &leader, 2, 1);
        hears(&core, &leader, 3, 2);
        let name: TopicName = "orders".parse().expect("it is a name");
        assert!(core.look(|core| core.catalogue().topic_named(&name).is_some()), "it is applied");
        let refused = Err(ControlRefusal::Engine(Refusal::NoLeader));
        assert_eq!(has_orders(&core).await, refused);
        let last = EntryId { term: 2, index: 3 };
        say(&core, MessageKind::Append { before: last, commit: 3, label: None }, None);
        assert_eq!(has_orders(&core).await, Ok(true));
    });
}
