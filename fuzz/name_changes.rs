//! Seeds of the target `name_change`: changes of names behind a 0 and answers behind a 1, one for each shape of fields.

use sennit_engine::{
    CatalogueCommand, Command, Effect, Encoded, OpenStream, Origin, Refusal, StreamAnswer,
    StreamCommand, StreamRefusal, StreamSettings, StreamStatus,
};
use sennit_model::{
    Durability, GroupConfig, Incarnation, Offset, PartitionId, StartAt, TopicConfig, TopicId,
    TopicKind,
};
use sennit_protocol::{Request, control};

use crate::{batch, messages, write};

const NOBODY: Origin = Origin { session: sennit_engine::SessionId(0), request: 0 };

pub fn write_all() {
    let (name, config) = ("t".parse().expect("a name"), TopicConfig::of_kind(TopicKind::Queue));
    let (incarnation, placed, is_stream) = (Incarnation(0), None, false);
    let create = CatalogueCommand::CreateTopic { name, config, incarnation, placed, is_stream };
    let create = Command::Catalogue(NOBODY, create);
    seed("create-topic", &[0, 1, 0], &of_command(&create));
    seed("create-topic-beside", b"\0\x01\x01\x01\0\0\0b", &of_command(&create));
    seed("find-or-create-topic", &[0, 2], &of_command(&create));
    seed("alter-topic", &[0, 3], &of_command(&create));
    seed("delete-topic", b"\0\x04\x01\0\0\0t", &[]);
    let group = CatalogueCommand::CreateGroup {
        topic: TopicId(0),
        name: "g".parse().expect("a name"),
        config: GroupConfig::default(),
        start: StartAt::Latest,
    };
    let group = Command::Catalogue(NOBODY, group);
    seed("create-group", b"\0\x05\x01\0\0\0t", &of_command(&group));
    seed("find-or-create-group", b"\0\x06\x01\0\0\0t\x01\0\0\0g", &[]);
    let config = control::GroupConfig { lease_ms: Some(5), ..control::GroupConfig::default() };
    let (topic, name, config) = ("t".into(), "g".into(), Some(config));
    let mut alter = Vec::new();
    Request::AlterGroup(control::AlterGroup { topic, name, config }).encode(0, &mut alter);
    seed("alter-group", &[0, 7], &alter);
    seed("dead-letter-topic", &[0, 9, 1, 0, 0, 0], &[]);
    let open = OpenStream {
        config: TopicConfig::of_kind(TopicKind::Stream),
        settings: StreamSettings::of_topic(),
        content: Some(batch(&messages()).into()),
        closes: true,
    };
    let open = StreamCommand::Open(Box::new(open));
    let open = of_command(&Command::Stream(NOBODY, PartitionId::default(), open));
    seed("create-stream", b"\0\x0a\x01\0\0\0s\0", &open);
    let fork = b"\0\x0a\x01\0\0\0s\x01\x01\0\0\0r\x01\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0";
    seed("fork-stream", fork, &[&[0; 8], &open[..]].concat());
    answers();
}

fn answers() {
    let head = [&[1][..], &[0; 16]].concat();
    let answer = |name: &str, fields: &[u8], effect: Option<Effect>| {
        let effect = effect.as_ref().map(of_effect).unwrap_or_default();
        seed(name, &head, &[fields, &effect[..]].concat());
    };
    answer("changed", &[1, 1, 0, 0, 0, 1, 2, 0, 0, 0, 1], None);
    let status = StreamStatus {
        settings: StreamSettings::of_topic().into(),
        start: Offset(0),
        next: Offset(5),
        is_closed: false,
        durability: Durability::Durable,
        is_opened: true,
    };
    let of_stream = |answer| Some(Effect::Stream(NOBODY, Box::new(answer)));
    let located = [&[2, 1][..], &[1, 0, 0, 0].repeat(3), &[9, 0, 0, 0, 0, 0, 0, 0]].concat();
    answer("stream", &located, of_stream(StreamAnswer::Status(status)));
    let refused = StreamAnswer::Refused(StreamRefusal::BeyondEnd { next: Offset(4) });
    answer("stream-refuses-at", &[17, 9, 0, 0, 0, 0, 0, 0, 0], of_stream(refused));
    answer("source-content-type", b"\x15\x01\0\0\0x", None);
    let refused = Effect::Refused { origin: NOBODY, refusal: Refusal::topics_max() };
    answer("engine-refuses", &[32], Some(refused));
    answer("unknown-group", b"\x22\x01\0\0\0t\x01\0\0\0g", None);
    let over = b"\x27\x06\0\0\0topics\x0a\0\0\0\0\0\0\0\0\x02\x07\0\0\0\0\0\0\0";
    answer("over-quota", over, None);
    answer("hook-refused", b"\x28\x02\0\0\0no", None);
}

fn seed(name: &str, head: &[u8], last: &[u8]) {
    write("name_change", name, &[head, last].concat());
}

fn of_command(command: &Command) -> Vec<u8> {
    let mut encoded = Encoded::default();
    command.encode(&mut encoded).expect("within the limits");
    encoded.to_bytes().to_vec()
}

fn of_effect(effect: &Effect) -> Vec<u8> {
    let mut encoded = Encoded::default();
    effect.encode(&mut encoded).expect("within the limits");
    encoded.to_bytes().to_vec()
}
