//! The published vectors (`vectors.json`), which the modules for JavaScript and Python read too.
//! `SENNIT_WRITE_VECTORS=1 cargo test -p sennit-seal vectors` makes new ones, with new keys.

use std::{fmt::Write as _, fs, path::Path};

use serde_json::{Value, json};

use super::{new, ring};
use crate::{
    Key, KeyKind, KeyRing, MessageId, OpenError, Sealer, binding, envelope::Envelope, text_of,
};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors.json");

/// What is sealed: a name, the keys that seal and those that open, the topic and the payload.
type SealedCase<'c> = (&'c str, &'c [&'c str], &'c [&'c str], &'c str, &'c [u8]);

/// What is refused: a name, the keys that open, the topic, the payload, and the refusal.
type RefusedCase<'c> = (&'c str, &'c [&'c str], &'c str, Vec<u8>, &'c str);

/// All vectors.
pub fn read() -> Value {
    serde_json::from_str(&fs::read_to_string(Path::new(PATH)).unwrap()).unwrap()
}

pub fn hex(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} of {value}"))
}

fn ring_of(vectors: &Value, names: &Value) -> KeyRing {
    let mut ring = KeyRing::default();
    for name in names.as_array().unwrap() {
        let name = name.as_str().unwrap();
        ring.add(Key::from_text(text(&vectors["keys"][name], "text")).unwrap(), name).unwrap();
    }
    ring
}

#[test]
fn the_keys_of_the_vectors_have_their_ids() {
    let vectors = read();
    for (name, key) in vectors["keys"].as_object().unwrap() {
        let parsed = Key::from_text(text(key, "text")).unwrap();
        assert_eq!(parsed.id().to_string(), text(key, "id"), "{name}");
        assert_eq!(*parsed.to_text(), text(key, "text"), "{name}");
    }
}

#[test]
fn the_messages_of_the_vectors_are_opened() {
    let vectors = read();
    for vector in vectors["opened"].as_array().unwrap() {
        let name = text(vector, "name");
        let reader = ring_of(&vectors, &vector["open_with"]);
        let (topic, message) = (text(vector, "topic"), hex(text(vector, "message")));
        let opened = reader.open(topic, &message).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(to_hex(&opened.payload), text(vector, "payload"), "{name}");
        assert_eq!(opened.id.to_string(), text(vector, "id"), "{name}");
        assert_eq!(Some(opened.sent_at_ms), vector["sent_at_ms"].as_u64(), "{name}");
        let signed_by = opened.signed_by.map(|id| id.to_string());
        assert_eq!(signed_by.as_deref(), vector["signed_by"].as_str(), "{name}");
        assert_eq!(reader.open(topic, text(vector, "json").as_bytes()), Ok(opened), "{name}");
        let Some(secret) = vector["secret"].as_str() else { continue };
        // All between, for those who write it once more.
        let id = MessageId(hex(text(vector, "id")).try_into().unwrap());
        let key_and_nonce = binding::key_and_nonce(&hex(secret), id, topic).unwrap();
        assert_eq!(to_hex(&*key_and_nonce), text(vector, "key_and_nonce"), "{name}");
        let envelope = Envelope::read(&message).unwrap();
        assert_eq!(to_hex(envelope.head), text(vector, "head"), "{name}");
        assert_eq!(to_hex(&binding::content(topic, envelope.head)), text(vector, "aad"), "{name}");
        // Nothing of it is random but the id.
        let sealer = Sealer::new(&ring_of(&vectors, &vector["seal_with"])).unwrap();
        let again = sealer.seal_as(topic, &hex(text(vector, "payload")), opened_at(vector), id);
        assert_eq!(to_hex(&again.unwrap()), text(vector, "message"), "{name}");
    }
}

fn opened_at(vector: &Value) -> u64 {
    vector["sent_at_ms"].as_u64().unwrap()
}

#[test]
fn the_refusals_of_the_vectors_are_refused() {
    let vectors = read();
    for vector in vectors["refused"].as_array().unwrap() {
        let reader = ring_of(&vectors, &vector["open_with"]);
        let refused = reader.open(text(vector, "topic"), &hex(text(vector, "message")));
        let code = refused.map_err(|error: OpenError| error.code()).map(|_| "opened");
        assert_eq!(code, Err(text(vector, "code")), "{}", text(vector, "name"));
    }
}

#[test]
fn new_vectors_are_made_on_request() {
    if std::env::var_os("SENNIT_WRITE_VECTORS").is_none() {
        return;
    }
    let (channel, old, shared) =
        (new(KeyKind::Channel), new(KeyKind::Channel), new(KeyKind::SharedSigning));
    let (ada, bob) = (new(KeyKind::RecipientPrivate), new(KeyKind::RecipientPrivate));
    let (signer, stranger) = (new(KeyKind::Signing), new(KeyKind::Signing));
    let [ada_public, bob_public] = [&ada, &bob].map(|key| key.public().unwrap());
    let [checking, strange] = [&signer, &stranger].map(|key| key.public().unwrap());
    let named = [
        ("channel", &channel),
        ("other channel", &old),
        ("shared signing", &shared),
        ("ada private", &ada),
        ("ada", &ada_public),
        ("bob private", &bob),
        ("bob", &bob_public),
        ("signing", &signer),
        ("verifying", &checking),
        ("other verifying", &strange),
    ];
    let key = |name: &str| named.iter().find(|(of, _)| *of == name).unwrap().1;
    let keys = named.iter().map(|(name, key)| {
        (name.to_string(), json!({ "text": *key.to_text(), "id": key.id().to_string() }))
    });
    let seal = |with: &[&str], topic: &str, payload: &[u8]| {
        let sealer = Sealer::new(&ring(with.iter().map(|name| key(name)))).unwrap();
        sealer.seal(topic, payload, 1_795_737_600_000).unwrap()
    };
    let json = "{\"text\":\"größe\"}".as_bytes();
    let cases: [SealedCase<'_>; 7] = [
        ("for a channel", &["channel"], &["other channel", "channel"], "news", b"hello"),
        (
            "nothing, in a topic whose name has signs",
            &["channel"],
            &["channel"],
            "chat%3Aindex",
            b"",
        ),
        ("signed by Ed25519", &["channel", "signing"], &["channel", "verifying"], "news", json),
        (
            "signed by HMAC-SHA256",
            &["channel", "shared signing"],
            &["channel", "other verifying", "shared signing"],
            "news",
            b"\x00\xff\xf8",
        ),
        ("signed, and not checked", &["channel", "signing"], &["channel"], "news", b"hello"),
        ("for one recipient", &["ada"], &["ada private"], "orders.eu", b"hello"),
        (
            "for two recipients, signed",
            &["ada", "bob", "signing"],
            &["bob private", "verifying"],
            "orders.eu",
            json,
        ),
    ];
    let mut messages = Vec::new();
    let opened: Vec<_> = cases
        .iter()
        .map(|(name, with, open_with, topic, payload)| {
            let message = seal(with, topic, payload);
            let envelope = Envelope::read(&message).unwrap();
            let reader = ring(open_with.iter().map(|name| key(name)));
            let opened = reader.open(topic, &message).unwrap();
            let mut vector = json!({
                "name": name, "topic": topic, "payload": to_hex(payload),
                "seal_with": with, "open_with": open_with,
                "id": opened.id.to_string(), "sent_at_ms": opened.sent_at_ms,
                "signed_by": opened.signed_by.map(|id| id.to_string()),
                "message": to_hex(&message), "json": text_of(&message),
            });
            if with.contains(&"channel") {
                let secret = key("channel").bytes();
                let key_and_nonce = binding::key_and_nonce(secret, opened.id, topic).unwrap();
                vector["secret"] = to_hex(secret).into();
                vector["key_and_nonce"] = to_hex(&*key_and_nonce).into();
                vector["head"] = to_hex(envelope.head).into();
                vector["aad"] = to_hex(&binding::content(topic, envelope.head)).into();
            }
            messages.push(message);
            vector
        })
        .collect();
    let flipped = |message: &[u8], at: usize| {
        let mut altered = message.to_vec();
        altered[at] ^= 1;
        altered
    };
    let plain = &messages[0];
    let for_ada = &messages[5];
    let forged = {
        // A member of the channel puts another payload behind the signature.
        let envelope = Envelope::read(&messages[2]).unwrap();
        let cipher = || binding::MessageCipher::new(channel.bytes(), envelope.id, "news").unwrap();
        let content = cipher().open("news", envelope.head, envelope.ciphertext).unwrap();
        let mut content = content.to_vec();
        *content.last_mut().unwrap() = b']';
        cipher().seal("news", envelope.head, &mut content).unwrap();
        [envelope.head, &content].concat()
    };
    let refusals: Vec<RefusedCase<'_>> = vec![
        ("some other payload", &["channel"], "news", b"hello".to_vec(), "not-sealed"),
        ("nothing", &["channel"], "news", vec![], "not-sealed"),
        (
            "a text that is not base64url",
            &["channel"],
            "news",
            b"{\"sealed\":\"+/\"}".to_vec(),
            "not-base64",
        ),
        ("cut in its head", &["channel"], "news", plain[..30].to_vec(), "truncated"),
        ("cut before its tag", &["channel"], "news", plain[..52].to_vec(), "truncated"),
        ("cut in its tag", &["channel"], "news", plain[..plain.len() - 1].to_vec(), "altered"),
        ("a byte more", &["channel"], "news", [plain, &b"\0"[..]].concat(), "altered"),
        ("another version", &["channel"], "news", flipped(plain, 1), "unknown-version"),
        ("flags", &["channel"], "news", flipped(plain, 3), "unknown-flags"),
        ("another time", &["channel"], "news", flipped(plain, 11), "altered"),
        ("another id", &["channel"], "news", flipped(plain, 12), "altered"),
        ("another ciphertext", &["channel"], "news", flipped(plain, 40), "altered"),
        ("another topic", &["channel"], "weather", plain.clone(), "altered"),
        ("another channel key", &["other channel"], "news", plain.clone(), "no-channel-key"),
        ("another recipient", &["bob private"], "orders.eu", for_ada.clone(), "no-recipient"),
        (
            "another encapsulated key",
            &["ada private"],
            "orders.eu",
            flipped(for_ada, 60),
            "altered",
        ),
        ("another wrapped secret", &["ada private"], "orders.eu", flipped(for_ada, 110), "altered"),
        (
            "for a recipient in another topic",
            &["ada private"],
            "orders",
            for_ada.clone(),
            "altered",
        ),
        (
            "too many recipients",
            &["ada private"],
            "orders.eu",
            {
                let mut many = for_ada.clone();
                many[2] = 65;
                many
            },
            "too-many-recipients",
        ),
        ("not signed", &["channel", "verifying"], "news", plain.clone(), "not-signed"),
        (
            "signed by a stranger",
            &["channel", "other verifying"],
            "news",
            messages[2].clone(),
            "unknown-signer",
        ),
        (
            "signed with a shared key that is not there",
            &["channel", "verifying"],
            "news",
            messages[3].clone(),
            "unknown-signer",
        ),
        (
            "signed content that a member has altered",
            &["channel", "verifying"],
            "news",
            forged,
            "wrong-signature",
        ),
    ];
    let refused: Vec<_> = refusals
        .iter()
        .map(|(name, open_with, topic, message, code)| {
            json!({ "name": name, "open_with": open_with, "topic": topic, "message": to_hex(message), "code": code })
        })
        .collect();
    let vectors = json!({
        "about": "Sealed messages, version 1 (docs/reference/sealed-messages.md). Bytes are hex. Open each of `opened` with its keys, and get payload, id, time and the signer whose signature was checked; `json` is the same message in its other form. Those with a secret can be sealed again, byte for byte, with the same id and time. Each of `refused` is refused with its code. `hpke` is the vector of RFC 9180 for base mode with DHKEM(P-256, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM.",
        "keys": keys.collect::<serde_json::Map<_, _>>(),
        "opened": opened,
        "refused": refused,
        "hpke": official(),
    });
    let written = serde_json::to_string_pretty(&vectors).unwrap() + "\n";
    fs::write(Path::new(PATH), written).unwrap();
}

/// The vector of RFC 9180, which stays.
fn official() -> Value {
    read()["hpke"].clone()
}
