//! What forks hold of their sources: a source that is deleted is gone as soon as no fork of it is left,
//! whatever became of those that were to be made.

use std::path::Path;

use sennit_engine::{Command, Origin, StreamCommand};
use sennit_journal::{
    LaneConfig,
    disk::{Access, RealDisk},
};
use sennit_model::{PartitionId, PartitionIndex, Timestamp, TopicId};
use sennit_protocol::{Reply, Request, control};
use sennit_server::Config;
use sennit_shard::{PackLengths, Settings, recover};
use tempfile::TempDir;

use crate::{
    browser::Browser,
    http_streams::{TEXT, ask, header, next, token_at},
    world::{Broker, config},
};

const OF_SOURCE: &str = "Stream-Forked-From: /v1/stream/source\r\n";

/// A broker with one shard and a stream.
fn with_source(folder: &TempDir) -> Broker {
    let broker = on_one_shard(folder);
    assert_eq!(ask(&mut Browser::of(&broker), "PUT", "source", TEXT, "text").status, 201);
    broker
}

fn on_one_shard(folder: &TempDir) -> Broker {
    Broker::start(Config { shards: Some(1), ..config(folder.path()) })
}

/// The source can be deleted, and is gone then: nothing holds it.
fn is_free(broker: &Broker, source: &str) {
    let http = &mut Browser::of(broker);
    assert_eq!(ask(http, "DELETE", source, "", "").status, 204);
    assert_eq!(ask(http, "GET", source, "", "").status, 404, "it is held");
}

/// The number of a topic.
fn topic(broker: &Broker, name: &str) -> TopicId {
    let open = control::OpenTopic { name: name.into(), create_if_missing: false };
    match broker.greeted().ask(&Request::OpenTopic(open)) {
        Reply::TopicOpened(opened) => TopicId(opened.topic_id),
        other => panic!("{other:?}"),
    }
}

fn number(folder: &Path, name: &str) -> u64 {
    let format = std::fs::read_to_string(folder.join("FORMAT")).unwrap();
    let line = format.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    line.unwrap().parse().unwrap()
}

/// Does to a stream of a broker that is stopped what one has done that was killed right behind it.
fn done_before_a_kill(folder: &Path, stream: TopicId, command: StreamCommand) {
    let lane = LaneConfig {
        directory: folder.join("lane-0"),
        lane: 0,
        segment_bytes: number(folder, "segment_bytes"),
        incarnation: number(folder, "incarnation"),
    };
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: 8,
        packs: PackLengths::default(),
        writes_superseded: false,
        replica: None,
    };
    let now = Timestamp(1);
    let disk = RealDisk::new(Access::Buffered);
    let mut parts = recover(&disk, lane, settings, now).unwrap();
    let partition = PartitionId { topic: stream, index: PartitionIndex(0) };
    let mut commands = vec![Command::Stream(Origin::default(), partition, command)];
    parts.shard.handle(&mut commands, now);
    let mut frames = Vec::new();
    parts.shard.take_frames(&mut frames);
    parts.lane.add_spare(parts.slots.make().unwrap());
    parts.lane.append(&frames).unwrap();
}

#[test]
fn a_fork_that_is_refused_holds_nothing() {
    let folder = TempDir::new().unwrap();
    let broker = with_source(&folder);
    let http = &mut Browser::of(&broker);
    let mut peer = broker.greeted();
    let config = control::TopicConfig { partitions: Some(1), durability: 2, ..<_>::default() };
    let create = control::CreateTopic { name: "quick".into(), config: Some(config), beside: None };
    let Reply::Done(_) = peer.ask(&Request::CreateTopic(create)) else { panic!("it is there") };
    // Those of a group are durable, and this topic is not.
    let grouped = format!("{OF_SOURCE}Stream-Storage: acid\r\nStream-Group: all\r\n");
    let refused = ask(http, "PUT", "quick", &grouped, "");
    assert_eq!(refused.status, 409, "{}", refused.body);
    is_free(&broker, "source");
    broker.stop();
}

#[test]
fn a_stream_that_was_to_be_a_fork_of_itself_can_be_deleted() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "source", "", "").status, 201);
    assert_eq!(ask(http, "PUT", "source", OF_SOURCE, "").status, 409);
    is_free(&broker, "source");
    broker.stop();
}

#[test]
fn a_fork_that_is_deleted_as_a_topic_holds_nothing() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "source", TEXT, "text").status, 201);
    assert_eq!(ask(http, "PUT", "fork", OF_SOURCE, "").status, 201);
    let delete = Request::DeleteTopic(control::DeleteTopic { name: "fork".into() });
    let Reply::Done(_) = broker.greeted().ask(&delete) else { panic!("it is gone") };
    is_free(&broker, "source");
    broker.stop();
}

#[test]
fn a_fork_that_a_kill_has_kept_from_being_opened_holds_nothing_after_the_next_start() {
    let folder = TempDir::new().unwrap();
    let broker = with_source(&folder);
    let source = topic(&broker, "source");
    // The catalogue has it, and nobody has opened it as a stream.
    let fork = broker.greeted().create_topic("fork", 1);
    broker.stop();
    done_before_a_kill(folder.path(), source, StreamCommand::AddFork(fork));
    let broker = on_one_shard(&folder);
    is_free(&broker, "source");
    broker.stop();
}

#[test]
fn a_fork_holds_its_source_beyond_a_start() {
    let folder = TempDir::new().unwrap();
    let broker = with_source(&folder);
    assert_eq!(ask(&mut Browser::of(&broker), "PUT", "fork", OF_SOURCE, "").status, 201);
    broker.stop();
    let broker = on_one_shard(&folder);
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "DELETE", "source", "", "").status, 204);
    assert_eq!(ask(http, "GET", "source", "", "").status, 410);
    assert_eq!(ask(http, "GET", "fork", "", "").body, "text");
    assert_eq!(ask(http, "DELETE", "fork", "", "").status, 204);
    assert_eq!(ask(http, "GET", "source", "", "").status, 404);
    broker.stop();
}

#[test]
fn a_fork_from_before_its_source_was_forked_has_what_lies_there_and_what_is_its_own() {
    let folder = TempDir::new().unwrap();
    let broker = with_source(&folder);
    let http = &mut Browser::of(&broker);
    for text in ["b", "c", "d"] {
        assert_eq!(ask(http, "POST", "source", TEXT, text).status, 204);
    }
    let fork = ask(http, "PUT", "fork", OF_SOURCE, "");
    assert_eq!(fork.status, 201);
    let at = token_at(2, &next(&fork));
    let of_fork = format!("Stream-Forked-From: /v1/stream/fork\r\nStream-Fork-Offset: {at}\r\n");
    assert_eq!(ask(http, "PUT", "second", &of_fork, "").status, 201);
    assert_eq!(ask(http, "POST", "second", TEXT, "own").status, 204);
    assert_eq!(ask(http, "GET", "second", "", "").body, "textbown");
    broker.stop();
}

#[test]
fn a_fork_whose_creator_says_only_parameters_of_a_type_is_read_as_its_source() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let json = "Content-Type: application/json\r\n";
    assert_eq!(ask(http, "PUT", "source", json, "[1,2]").status, 201);
    let fork = format!("{OF_SOURCE}Content-Type: ;charset=utf-8\r\n");
    assert_eq!(ask(http, "PUT", "fork", &fork, "").status, 201);
    assert_eq!(ask(http, "GET", "fork", "", "").body, "[1,2]");
    broker.stop();
}

#[test]
fn a_fork_from_within_what_is_not_kept_any_more_is_refused() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    assert_eq!(ask(http, "PUT", "source", TEXT, "text").status, 201);
    let more = ask(http, "POST", "source", TEXT, "more");
    assert_eq!(more.status, 204);
    let positions = vec![control::ReadPosition { partition: 0, offset: 1 }];
    let trim = control::TrimTopic { topic: "source".into(), positions };
    let Reply::Done(_) = broker.greeted().ask(&Request::TrimTopic(trim)) else { panic!("it is") };
    let within = |offset: &str| {
        format!("{OF_SOURCE}Stream-Fork-Offset: {offset}\r\nStream-Fork-Sub-Offset: 2\r\n")
    };
    let refused = ask(http, "PUT", "fork", &within("0_0"), "");
    assert_eq!(refused.status, 410, "{}", refused.body);
    assert!(refused.body.contains("offset_not_kept"));
    assert_eq!(ask(http, "GET", "fork", "", "").status, 404, "nothing is left of it");
    assert_eq!(ask(http, "PUT", "fork", &within(&token_at(1, &next(&more))), "").status, 201);
    is_free(&broker, "fork");
    broker.stop();
}

#[test]
fn a_fork_that_says_when_it_ends_has_no_time_to_live_of_its_source() {
    let (broker, _folder) = Broker::fresh();
    let http = &mut Browser::of(&broker);
    let source = format!("{TEXT}Stream-TTL: 600\r\n");
    assert_eq!(ask(http, "PUT", "source", &source, "text").status, 201);
    let ends = format!("{OF_SOURCE}Stream-Expires-At: 2999-01-31T12:00:00Z\r\n");
    assert_eq!(ask(http, "PUT", "ends", &ends, "").status, 201);
    assert_eq!(ask(http, "PUT", "fork", OF_SOURCE, "").status, 201);
    let spans = ["ends", "fork"].map(|name| {
        let head = ask(http, "HEAD", name, "", "");
        (header(&head, "stream-ttl").is_some(), header(&head, "stream-expires-at").is_some())
    });
    assert_eq!(spans, [(false, true), (true, false)]);
    broker.stop();
}
