//! Writes the seeds for fuzzing in the present formats: `cargo run --manifest-path fuzz/Cargo.toml --example
//! seeds`, then commit fuzz/seeds. The seeds are small: one input for each shape.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::{
    CatalogueCommand, Command, Credit, DeadLetters, DeliveryRun, Engine, GroupSetting, Journal,
    Origin, Outbox, PartitionCommand, Payloads, Place, Publish, Record, SessionId, Settle,
    Subscribe, Verdict,
};
use sennit_identity::{ApiKey, ApiKeyId, MasterSecret, Secret};
use sennit_journal::{
    Fault, LaneConfig, PackWriter, Position, RecoveredLane, ReplayFrom, disk::MemoryDisk, recover,
};
use sennit_model::{
    Batch, BatchBuilder, Generation, GroupConfig, GroupId, Header, HeaderKind, Incarnation,
    Message, Offset, PartitionId, PartitionIndex, ProducerId, ProducerStamp, StartAt, Timestamp,
    TopicConfig, TopicId, TopicKind,
};
use sennit_server::check_archive;
use sennit_websocket::{Deflater, FrameHead, Opcode, WindowBits, client};
use xxhash_rust::xxh3::xxh3_64;

mod afar_seeds;
mod api_bodies;
mod group_messages;
mod group_records;
mod name_changes;
mod peer_frames;
mod sealed_messages;

fn write(target: &str, name: &str, seed: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(&folder).expect("the seeds' folder can be made");
    fs::write(folder.join(name), seed).expect("a seed can be written");
}

fn main() {
    message_batch();
    filters();
    afar_seeds::write_all();
    let (records, snapshots) = engine_life();
    for (kind, (name, body)) in records {
        write("record", &name, &[&[kind], &body[..]].concat());
    }
    group_messages::write_all();
    group_records::write_all();
    for (index, snapshot) in snapshots.iter().enumerate().skip(1).step_by(5) {
        write("snapshot", &format!("{index}"), snapshot);
    }
    wire();
    name_changes::write_all();
    peer_frames::write_all();
    lanes();
    packs();
    archives();
    requests();
    credentials();
    centrifuge();
    web_sockets();
    wse();
    api_bodies::write_all();
    sealed_messages::write_all();
}

fn messages() -> Vec<Message> {
    let header = |name: &str, kind, value: &'static [u8]| Header {
        name: name.into(),
        kind,
        value: Bytes::from_static(value),
    };
    vec![
        Message::new("hello"),
        Message {
            key: Bytes::from_static(b"k"),
            delay: Some(Duration::from_secs(5)),
            time_to_live: Some(Duration::from_secs(60)),
            ..Message::default()
        },
        Message {
            headers: vec![
                Header::text("type", "a/b"),
                header("n", HeaderKind::Number, b"12"),
                header("raw", HeaderKind::Binary, b"\x00\xff"),
                header("yes", HeaderKind::Boolean, b"true"),
            ],
            time_to_live: Some(Duration::from_secs(1)),
            ..Message::new("p")
        },
    ]
}

/// A filter, a zero byte, and the batch that it looks at.
fn filters() {
    let batch = batch(&messages());
    for (name, text) in [
        ("comparisons", r#"header.n >= 1.20e1 and header.n != 13 or header.type = "a/b""#),
        ("exists", "exists header.raw and not (exists header.none or header.yes = false)"),
        ("patterns", r#"key prefix "k" or header.type glob "?/*" or header.'type' ~ '\\*\x2f'"#),
        ("deep", "not (not (not (key < 'z')))"),
        ("wrong", "header.n = and"),
    ] {
        write("filter", name, &[text.as_bytes(), b"\0", batch.bytes()].concat());
    }
}

fn batch(messages: &[Message]) -> Batch {
    let mut builder = BatchBuilder::new();
    for message in messages {
        builder.push(message).expect("within the limits");
    }
    builder.take().expect("not empty")
}

fn message_batch() {
    let messages = messages();
    write("message_batch", "plain", batch(&messages[..1]).bytes());
    write("message_batch", "timed", batch(&messages[1..2]).bytes());
    write("message_batch", "headers", batch(&messages[2..]).bytes());
    write("message_batch", "three", batch(&messages).bytes());
}

/// Keeps the first record of each kind.
#[derive(Default)]
struct Kept {
    records: BTreeMap<u8, (String, Vec<u8>)>,
    batches: Batches,
    end: u64,
}

/// The batches by their positions, to be delivered.
#[derive(Clone, Default)]
struct Batches(BTreeMap<u64, Bytes>);

impl Journal for Kept {
    fn append(&mut self, record: &Record) -> u64 {
        let mut body = Vec::new();
        record.encode_head(&mut body);
        let position = self.end + body.len() as u64;
        if let Some(batch) = record.batch() {
            body.extend_from_slice(batch.bytes());
            self.batches.0.insert(position, batch.bytes().clone());
        }
        self.end += body.len() as u64 + 1;
        let name = format!("{record:?}");
        let name = name.split([' ', '(']).next().unwrap_or_default().to_lowercase();
        self.records.entry(record.kind()).or_insert((name, body));
        position
    }
    fn keep(&mut self, _: &Batch) -> u64 {
        unreachable!("no topic is kept in memory")
    }
}

impl Payloads for Batches {
    fn batch(&mut self, _: PartitionId, place: Place) -> Option<Bytes> {
        self.0.get(&place.position).cloned()
    }
}

/// A short life of an engine: its records by kind, and its snapshots on the way.
fn engine_life() -> (BTreeMap<u8, (String, Vec<u8>)>, Vec<Vec<u8>>) {
    let mut now = Timestamp(1_000_000);
    let mut engine = Engine::new(Generation(1), now);
    let (mut journal, mut snapshots) = (Kept::default(), Vec::new());
    let origin = Origin { session: SessionId(1), request: 1 };
    let config = TopicConfig::of_kind(TopicKind::Queue);
    let group = GroupId(0);
    let setting =
        GroupSetting { id: group, config: GroupConfig::default(), start: StartAt::Earliest };
    let partition = |topic| PartitionId { topic: TopicId(topic), index: PartitionIndex(0) };
    let (orders, dead) = (partition(1), partition(2));
    let name = |text: &str| text.parse().expect("a good name");
    let catalogue = |command| Command::Catalogue(origin, command);
    let open = |partition, dead_letters| {
        let config = config.clone();
        let open = PartitionCommand::Open { config, groups: vec![setting.clone()], dead_letters };
        Command::Partition(origin, partition, open)
    };
    let publish = |first_sequence| {
        let producer = ProducerStamp { id: ProducerId(9), epoch: 1, first_sequence };
        let batch = batch(&messages());
        Command::Publish(Publish { origin, partition: orders, producer, batch })
    };
    let settle = |verdict, first, attempt| {
        let first = Offset(first);
        let run = DeliveryRun { first, count: 1, attempt, generation: Generation(1) };
        let (partition, runs, confirm) = (orders, vec![run], true);
        Command::Settle(Settle { origin, partition, group, verdict, runs, confirm })
    };
    let credit = Credit { messages: 10, bytes: 1 << 20 };
    let subscribe = Subscribe { origin, subscription: 1, partition: orders, group, credit };
    let incarnation = Incarnation(77);
    let topic = TopicId(0);
    let commands = [
        catalogue(CatalogueCommand::CreateTopic {
            name: name("orders"),
            config: config.clone(),
            incarnation,
            placed: None,
            is_stream: false,
        }),
        catalogue(CatalogueCommand::CreateDeadLetterTopic { source: topic, incarnation }),
        catalogue(CatalogueCommand::CreateGroup {
            topic,
            name: "mail".parse().expect("a good name"),
            config: GroupConfig::default(),
            start: StartAt::Latest,
        }),
        catalogue(CatalogueCommand::AlterTopic {
            topic,
            config: TopicConfig { time_to_live: Some(Duration::from_secs(9)), ..config.clone() },
        }),
        open(dead, DeadLetters::Stay),
        open(orders, DeadLetters::To(dead.topic)),
        publish(0),
        publish(3),
        Command::Subscribe(subscribe),
        settle(Verdict::Ack, 0, 1),
        settle(Verdict::RetryAfter(Duration::from_secs(3)), 2, 1),
        settle(Verdict::DeadLetter { reason: "no such order".into() }, 3, 1),
        catalogue(CatalogueCommand::DeleteGroup { topic, group: GroupId(1) }),
        catalogue(CatalogueCommand::DeleteTopic { topic }),
        Command::Partition(origin, dead, PartitionCommand::Drop),
    ];
    for command in commands {
        now = now.plus(Duration::from_millis(10));
        let mut out = Outbox::default();
        engine.handle(command, now, &mut journal, &mut out);
        for _ in 0..4 {
            engine.committed(journal.end);
            let mut batches = journal.batches.clone();
            engine.deliver(now, &mut journal, &mut batches, &mut out);
        }
        let mut snapshot = Vec::new();
        engine.encode_snapshot(&mut snapshot);
        snapshots.push(snapshot);
    }
    engine.advance(now.plus(Duration::from_secs(120)), &mut journal);
    (journal.records, snapshots)
}

/// Requests of HTTP/1 behind the length of the pieces that they come in.
fn requests() {
    let body = "3;a=b\r\nabc\r\n00A\r\n0123456789\r\n0\r\nA: b\r\n\r\n";
    let chunked = "POST /v1/stream/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    let length =
        "PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello";
    let old = "\r\nGET http://h:1/a?b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let last = "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let both =
        "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (name, text) in [
        ("chunked", format!("{chunked}{body}")),
        ("length", length.to_owned()),
        ("old", old.to_owned()),
        ("pipelined", format!("{length}{chunked}{body}{old}{last}")),
        ("both", both.to_owned()),
    ] {
        write("http1", name, &[&[7], text.as_bytes()].concat());
    }
}

/// What each end of a WebSocket sends: messages whole and in parts, compressed ones, control frames between, and closes.
/// The last ones are wrong. Behind the two bytes, or the one, that say who reads.
fn web_sockets() {
    let head = |opcode, is_final, is_compressed| FrameHead {
        is_final,
        is_compressed,
        ..FrameHead::whole(opcode, 0)
    };
    let text = "grüß dich, grüß dich, grüß dich".as_bytes();
    let mut deflater = Deflater::new();
    let deflated = deflater.deflate(text, WindowBits::MAX).expect("it is shorter").to_vec();
    let close = [&1000_u16.to_be_bytes(), &b"bye"[..]].concat();
    let lives = [
        (
            "whole",
            vec![
                (head(Opcode::Text, true, false), text),
                (head(Opcode::Binary, true, false), b"\xff"),
            ],
        ),
        (
            "empty",
            vec![(head(Opcode::Text, true, false), b""), (head(Opcode::Close, true, false), b"")],
        ),
        (
            "parts",
            vec![
                (head(Opcode::Text, false, false), &text[..3]),
                (head(Opcode::Ping, true, false), b"?"),
                (head(Opcode::Continuation, false, false), b""),
                (head(Opcode::Continuation, true, false), &text[3..]),
                (head(Opcode::Pong, true, false), b"!"),
                (head(Opcode::Close, true, false), &close),
            ],
        ),
        ("long", vec![(head(Opcode::Binary, true, false), &[7; 300])]),
        ("deflated", vec![(head(Opcode::Text, true, true), &deflated)]),
        (
            "deflated-parts",
            vec![
                (head(Opcode::Text, false, true), &deflated[..5]),
                (head(Opcode::Continuation, true, false), &deflated[5..]),
            ],
        ),
        ("not-text", vec![(head(Opcode::Text, true, false), b"a\xff")]),
        ("no-beginning", vec![(head(Opcode::Continuation, true, false), b"a")]),
        ("close-code", vec![(head(Opcode::Close, true, false), b"\x03\xec")]),
    ];
    for (name, frames) in lives {
        let (mut by_client, mut by_server) = (Vec::new(), Vec::new());
        for (frame, payload) in frames {
            client::put_fragment(frame, payload, [0x37, 0xfa, 0x21, 0x3d], &mut by_client);
            FrameHead { payload_len: payload.len() as u64, ..frame }.put(&mut by_server);
            by_server.extend_from_slice(payload);
        }
        write("websocket", &format!("{name}-of-client"), &[&[3, 2], &by_client[..]].concat());
        write("websocket", &format!("{name}-of-server"), &[&[3, 3], &by_server[..]].concat());
        write("websocket_twin", &format!("{name}-of-client"), &[&[0], &by_client[..]].concat());
        write("websocket_twin", &format!("{name}-of-server"), &[&[1], &by_server[..]].concat());
    }
    let request = "Upgrade: websocket\nConnection: keep-alive, Upgrade\nSec-WebSocket-Version: 13\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nSec-WebSocket-Protocol: a, b\n\
        Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits, permessage-deflate\n";
    write("websocket", "request", &[&[1, 4], request.as_bytes()].concat());
    let answer = "Upgrade: websocket\nConnection: Upgrade\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\nSec-WebSocket-Protocol: b\n\
        Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\n";
    write("websocket", "answer", &[&[1, 4], answer.as_bytes()].concat());
}

/// The bytes that `hex` spells.
fn unhex(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks_exact(2);
    pairs.filter_map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The vectors of the Centrifuge client protocol in both encodings, behind the byte that tells what they are.
fn centrifuge() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/centrifuge/vectors.json");
    let vectors = fs::read_to_string(vectors).expect("the vectors are readable");
    let vectors: Vec<BTreeMap<String, String>> = serde_json::from_str(&vectors).expect("JSON");
    for vector in &vectors {
        let kind = if vector["what"] == "command" { 0 } else { 4 };
        let name = vector["name"].replace(' ', "-");
        write(
            "centrifuge",
            &format!("{name}-json"),
            &[&[kind], vector["json"].as_bytes()].concat(),
        );
        let protobuf = [&[kind + 1], &unhex(&vector["protobuf"])[..]].concat();
        write("centrifuge", &format!("{name}-protobuf"), &protobuf);
    }
    let beside = br#"{"session":"s","node":"n","data":"{\"id\":1}\n{\"id\":2}"}"#;
    write("centrifuge", "beside-json", &[&[6], &beside[..]].concat());
    write("centrifuge", "beside-protobuf", b"\x07\x0a\x01n\x12\x01s\x1a\x01\x00");
}

/// Messages of the client, and what it is told.
fn wse() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/wse/vectors.json");
    let vectors = fs::read_to_string(vectors).expect("the vectors are readable");
    let vectors: serde_json::Value = serde_json::from_str(&vectors).expect("JSON");
    for side in ["from_client", "to_client"] {
        for vector in vectors[side].as_array().expect("a list") {
            let text = |field: &str| vector[field].as_str().expect("a text");
            let name = format!("{side}-{}", text("name").replace([' ', ','], "-"));
            write("wse", &name, text("message").as_bytes());
        }
    }
    write("wse", "topic-and-payload", b"ping\n{\"t\":\"batch\",\"p\":{}}");
}

/// Frames out of the protocol's own examples.
fn wire() {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/protocol/vectors.json");
    let vectors = fs::read_to_string(vectors).expect("the protocol's vectors are readable");
    let mut stream = vec![0xff, 0xff, 7];
    for (index, rest) in vectors.split("\"hex\"").skip(1).enumerate() {
        let frame = unhex(rest.split('"').nth(1).unwrap_or_default());
        let Some((header, body)) = frame.split_at_checked(16) else { continue };
        let seed = [&header[4..5], body].concat();
        for target in ["protocol_request", "protocol_reply"] {
            write(target, &format!("{index:02}"), &seed);
        }
        stream.extend_from_slice(&frame);
    }
    write("frame_reader", "all", &stream);
}

/// A lane's life in slots of 16 KiB: three segments in one life, then a segment of the next, with
/// the first of them released and its slot used again. Each seed is the slots one after the other
/// behind a byte that says whether checksums are mended.
fn lanes() {
    let disk = MemoryDisk::default();
    let directory = PathBuf::from("lane-0");
    let config = LaneConfig {
        directory: directory.clone(),
        lane: 0,
        segment_bytes: 16 << 10,
        incarnation: 42,
    };
    let keep_without_headers = |name: &str, count: u32, rotten: &[u32]| {
        let slots = (0..count).flat_map(|number| {
            let path = directory.join(format!("slot-{number:05}.journal"));
            let mut slot = disk.bytes_of(&path).expect("the slot was made");
            slot[0] ^= u8::from(rotten.contains(&number));
            slot
        });
        let mut slots: Vec<u8> = slots.collect();
        // The target fills the last slot up with zeros.
        slots.truncate(slots.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1));
        write("journal_recovery", name, &[&[0], &slots[..]].concat());
        write("journal_recovery", &format!("{name}-mended"), &[&[1], &slots[..]].concat());
    };
    let keep = |name: &str, count: u32| keep_without_headers(name, count, &[]);
    let open = || recover(&disk, config.clone(), ReplayFrom::Newest, |_| Ok::<(), Fault>(()));

    let mut life = open().expect("a new lane");
    append(&mut life, 1, 9, true);
    keep("one-segment", 1);
    append(&mut life, 2, 9000, true);
    append(&mut life, 3, 9000, true);
    keep("three-segments", 3);
    keep_without_headers("two-headers-lost", 3, &[1, 2]);
    life.builder.start_segment();
    life.builder.set_replay_from(Position(config.segment_bytes));
    life.lane.release(0);
    append(&mut life, 4, 100, false);
    keep("slot-used-again", 3);
    let mut next = open().expect("a whole lane");
    append(&mut next, 5, 300, true);
    keep("second-life", 4);
}

/// Packs without records and with some, behind a byte as for lanes. Frames fill at a megabyte, so
/// there is one in each; more than 64 KiB the fuzzer does not take.
fn packs() {
    let directory = PathBuf::from("lane-0");
    let config = LaneConfig { directory, lane: 0, segment_bytes: 16 << 10, incarnation: 42 };
    for (name, lengths) in [("empty", &[][..]), ("one", &[5]), ("several", &[0, 100, 9000, 7])] {
        let disk = MemoryDisk::default();
        recover(&disk, config.clone(), ReplayFrom::Newest, |_| Ok::<(), Fault>(()))
            .expect("a new lane");
        let mut writer = PackWriter::create(&disk, &config, 1, 3).expect("memory takes it");
        for length in lengths {
            writer.push(7, &[&vec![7; *length]]).expect("it fits");
        }
        writer.finish().expect("memory takes it");
        let path = config.directory.join("pack-0000000001.pack");
        let bytes = disk.bytes_of(&path).expect("it was made");
        write("pack", name, &[&[0], &bytes[..]].concat());
        write("pack", &format!("{name}-mended"), &[&[1], &bytes[..]].concat());
    }
}

/// Commits two frames with a record each, the second of which says that the first is durable.
fn append(life: &mut RecoveredLane<MemoryDisk>, kind: u8, length: usize, makes_slot: bool) {
    for length in [length, 8] {
        life.builder.push(kind, &[&vec![kind; length]]).expect("it fits");
        let frame = life.builder.seal().expect("a record was pushed");
        if frame.first_of_segment && makes_slot {
            let slot = life.slots.make().expect("memory has room");
            life.lane.add_spare(slot);
        }
        let end = life.lane.append(&[frame]).expect("memory takes it");
        life.builder.set_durable(end);
    }
}

/// A tar of these entries.
fn tar(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (name, bytes) in entries {
        let mut header = [0; 512];
        let mut put = |at: usize, field: &str| {
            header[at..at + field.len()].copy_from_slice(field.as_bytes());
        };
        put(0, name);
        put(100, "0000600");
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{:011o}", bytes.len()));
        put(136, "00000000000");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\u{0}00");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\u{0} ").as_bytes());
        tar.extend(header);
        tar.extend(bytes);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

fn archives() {
    let format = "sennit data directory\nformat = 1\nshards = 2\nsegment_bytes = 20971520\n\
                  incarnation = 42\n";
    let files = [
        ("lane-0/slot-00000.journal", vec![7; 700]),
        ("lane-1/slot-00003.journal", Vec::new()),
        ("lane-1/pack-0000000001.pack", vec![9; 512]),
    ];
    for (name, count) in [("empty", 0), ("files", files.len())] {
        let mut entries = vec![
            ("BACKUP".to_owned(), b"sennit backup\nformat = 1\n".to_vec()),
            ("FORMAT".to_owned(), format.as_bytes().to_vec()),
        ];
        entries
            .extend(files[..count].iter().map(|(name, bytes)| ((*name).to_owned(), bytes.clone())));
        let lines = entries
            .iter()
            .map(|(name, bytes)| format!("{:016x} {} {name}\n", xxh3_64(bytes), bytes.len()));
        let lines: String = lines.collect();
        let text = format!("sennit backup is whole\nentries = {}\n{lines}", entries.len());
        let whole = format!("{text}checksum = {:016x}\n", xxh3_64(text.as_bytes()));
        entries.push(("WHOLE".to_owned(), whole.into_bytes()));
        let tar = tar(&entries);
        let summary = check_archive(&tar[..]).expect("a seed is a whole archive");
        assert_eq!(summary.files, count as u64);
        write("archive", name, &[&[0], &tar[..]].concat());
        write("archive", &format!("{name}-mended"), &[&[1], &tar[..]].concat());
    }
}

/// What clients show: a key, hashes of passwords, tokens as header and payload, key sets and a certificate.
fn credentials() {
    let master = MasterSecret::new(&Secret::new([1; 32]));
    let key = ApiKey::derive(&master, ApiKeyId::from_random([7; 8]), 3);
    write("api_key", "key", key.expose().as_bytes());
    write("api_key", "id", key.id().as_str().as_bytes());
    let tail = "$BQUFBQUFBQUFBQUFBQUFBQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    for (name, head) in [
        ("default", "$argon2id$v=19$m=19456,t=2,p=1"),
        ("huge", "$argon2id$v=19$m=4294967295,t=4294967295,p=1"),
        ("other", "$argon2i$v=16$m=19456,t=2,p=4,keyid=AAAA,data=AAAA"),
    ] {
        write("password_hash", name, format!("{head}{tail}").as_bytes());
    }
    let usual = r#""iss":"https://issuer.example","aud":["sennit"],"sub":"ada","exp":1800000060"#;
    for (name, header, payload) in [
        ("usual", r#"{"alg":"HS256"}"#, format!("{{{usual}}}")),
        (
            "all",
            r#"{"alg":"HS256","typ":"at+jwt","kid":"k"}"#,
            format!(
                r#"{{{usual},"iat":1800000000,"nbf":1.8e9,"jti":"t","tenant":"acme","roles":["viewer"],"rights":["allow publish user.{{sub}}.>"],"team":7}}"#
            ),
        ),
        ("none", r#"{"alg":"none","crit":["exp"]}"#, "{}".to_owned()),
        ("confused", r#"{"alg":"RS256"}"#, format!("{{{usual}}}")),
    ] {
        write("token", name, format!("{header}\n{payload}").as_bytes());
    }
    let ed25519 = r#"{"kty":"OKP","crv":"Ed25519","use":"sig","alg":"EdDSA","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    let p256 = r#"{"kty":"EC","crv":"P-256","key_ops":["verify"],"x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
    let document =
        format!(r#"{{"keys":[{ed25519},{p256},{{"kty":"RSA","n":"AQAB","e":"AQAB"}}]}}"#);
    write("key_set", "document", document.as_bytes());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/identity/test_keys");
    let read = |name: &str| fs::read(folder.join(name)).expect("a key of the tests");
    for name in ["ed25519_public", "p256_public", "rsa_public"] {
        write("key_set", name, &read(&format!("{name}.pem")));
    }
    for name in ["billing", "two_names", "no_name"] {
        write("certificate", name, &read(&format!("{name}.der")));
    }
}
