//! Sealed messages as a whole: what is sealed is opened by those who may, and by nobody else; what is altered is refused.

mod vectors;

use proptest::prelude::*;

use crate::{
    Key, KeyKind, KeyRing, KeyRingError, KeyTextError, OpenError, ReplayGuard, SealError, Sealer,
    binding, is_sealed, recipient, text_of,
};

/// A ring with these keys.
fn ring<'k>(keys: impl IntoIterator<Item = &'k Key>) -> KeyRing {
    let mut ring = KeyRing::default();
    keys.into_iter().for_each(|key| ring.add(key.clone(), "").unwrap());
    ring
}

fn new(kind: KeyKind) -> Key {
    Key::generate(kind).unwrap()
}

fn sealed(ring: &KeyRing, payload: &[u8]) -> Vec<u8> {
    Sealer::new(ring).unwrap().seal("news", payload, 7).unwrap()
}

#[test]
fn those_with_the_channel_key_read_and_others_do_not() {
    let channel = ring([&new(KeyKind::Channel)]);
    let message = sealed(&channel, b"hello");
    let opened = channel.open("news", &message).unwrap();
    assert_eq!((opened.payload.as_slice(), opened.sent_at_ms), (&b"hello"[..], 7));
    assert_eq!(opened.signed_by, None);
    let other = ring([&new(KeyKind::Channel), &new(KeyKind::RecipientPrivate)]);
    let id = channel.keys().next().unwrap().key.id();
    assert_eq!(other.open("news", &message), Err(OpenError::NoChannelKey(id)));
    assert_eq!(channel.open("weather", &message), Err(OpenError::Altered));
    assert!(!message.windows(5).any(|bytes| bytes == b"hello"));
}

#[test]
fn recipients_read_and_others_do_not() {
    let [ada, bob, eve] = [(); 3].map(|()| new(KeyKind::RecipientPrivate));
    let public = [ada.public().unwrap(), bob.public().unwrap()];
    let message = sealed(&ring(&public), b"hello");
    for reader in [&ada, &bob] {
        assert_eq!(ring([reader]).open("news", &message).unwrap().payload, b"hello");
        assert_eq!(ring([reader]).open("weather", &message), Err(OpenError::Altered));
    }
    assert_eq!(ring([&eve]).open("news", &message), Err(OpenError::NoRecipient(2)));
    // Who can seal for them cannot read.
    assert_eq!(ring(&public).open("news", &message), Err(OpenError::NoRecipient(2)));
}

#[test]
fn no_two_messages_have_a_key_or_an_id_in_common() {
    let channel = ring([&new(KeyKind::Channel)]);
    let [one, two] = [(); 2].map(|()| sealed(&channel, b"hello"));
    assert_ne!(one, two);
    let ids = [&one, &two].map(|message| channel.open("news", message).unwrap().id);
    assert_ne!(ids[0], ids[1]);
    let keys = ids.map(|id| binding::key_and_nonce(&[7; 32], id, "news").unwrap());
    assert_ne!(keys[0], keys[1]);
}

#[test]
fn a_signature_says_who_sent_it_and_has_to_be_there() {
    for kind in [KeyKind::Signing, KeyKind::SharedSigning] {
        let (channel, signer) = (new(KeyKind::Channel), new(kind));
        let checking = signer.public().unwrap_or_else(|| signer.clone());
        let reader = ring([&channel, &checking]);
        let message = sealed(&ring([&channel, &signer]), b"hello");
        assert_eq!(reader.open("news", &message).unwrap().signed_by, Some(signer.id()));
        // Whoever checks none is told of none.
        assert_eq!(ring([&channel]).open("news", &message).unwrap().signed_by, None);
        let unsigned = sealed(&ring([&channel]), b"hello");
        assert_eq!(reader.open("news", &unsigned), Err(OpenError::NotSigned));
        let other = new(kind);
        let by_other = sealed(&ring([&channel, &other]), b"hello");
        assert_eq!(reader.open("news", &by_other), Err(OpenError::UnknownSigner(other.id())));
    }
}

#[test]
fn a_member_of_a_channel_cannot_pass_off_its_message_as_that_of_another() {
    let (channel, ada) = (new(KeyKind::Channel), new(KeyKind::Signing));
    let reader = ring([&channel, &ada.public().unwrap()]);
    let message = sealed(&ring([&channel, &ada]), b"pay 10");
    // It opens the message, and seals the content again with another id, or another payload.
    let envelope = crate::envelope::Envelope::read(&message).unwrap();
    let secret = channel.bytes();
    let cipher = binding::MessageCipher::new(secret, envelope.id, "news").unwrap();
    let content = cipher.open("news", envelope.head, envelope.ciphertext).unwrap();
    for (id, replaced) in [(crate::MessageId([7; 16]), false), (envelope.id, true)] {
        let mut head = Vec::new();
        crate::envelope::put_head(0, envelope.sent_at_ms, id, &mut head);
        head.extend_from_slice(&channel.id().0);
        let mut content = content.to_vec();
        if replaced {
            *content.last_mut().unwrap() = b'9';
        }
        let cipher = binding::MessageCipher::new(secret, id, "news").unwrap();
        cipher.seal("news", &head, &mut content).unwrap();
        let forged = [head, content].concat();
        assert!(ring([&channel]).open("news", &forged).is_ok());
        assert_eq!(reader.open("news", &forged), Err(OpenError::WrongSignature(ada.id())));
    }
}

#[test]
fn every_byte_counts_and_so_does_the_length() {
    let (channel, signer) = (new(KeyKind::Channel), new(KeyKind::Signing));
    let ada = new(KeyKind::RecipientPrivate);
    let ada_public = ada.public().unwrap();
    for (from, to) in [([&channel, &signer], &channel), ([&ada_public, &signer], &ada)] {
        let reader = ring([to, &signer.public().unwrap()]);
        let message = sealed(&ring(from), b"hello");
        for at in 0..message.len() {
            let mut altered = message.clone();
            altered[at] ^= 1;
            let refused = reader.open("news", &altered).unwrap_err();
            assert!(refused != OpenError::NotSealed || at == 0, "{at}: {refused}");
            assert!(reader.open("news", &message[..at]).is_err(), "{at}");
        }
        let longer = [&message[..], b"\0"].concat();
        assert_eq!(reader.open("news", &longer), Err(OpenError::Altered));
    }
}

#[test]
fn a_key_that_was_replaced_opens_what_was_sealed_before() {
    let (old, new) = (new(KeyKind::Channel), new(KeyKind::Channel));
    let before = sealed(&ring([&old]), b"before");
    let mut rotated = ring([&old]);
    rotated.add_first(new.clone(), "2027").unwrap();
    let after = sealed(&rotated, b"after");
    assert_eq!(rotated.open("news", &before).unwrap().payload, b"before");
    assert_eq!(ring([&new]).open("news", &after).unwrap().payload, b"after");
    assert_eq!(ring([&old]).open("news", &after), Err(OpenError::NoChannelKey(new.id())));
    assert_eq!(rotated.label_of(new.id()), Some("2027"));
}

#[test]
fn a_message_is_sealed_for_a_channel_or_for_recipients() {
    let (channel, to) = (new(KeyKind::Channel), new(KeyKind::RecipientPrivate).public().unwrap());
    let refused = |keys: &[&Key]| Sealer::new(&ring(keys.iter().copied())).unwrap_err();
    assert_eq!(refused(&[]), SealError::NoAudience);
    assert_eq!(refused(&[&new(KeyKind::Signing)]), SealError::NoAudience);
    assert_eq!(refused(&[&channel, &to]), SealError::TwoAudiences);
    assert_eq!(refused(&[&to; 65]), SealError::TooManyRecipients(65));
    let long = "x".repeat(1 << 16);
    let sealer = Sealer::new(&ring([&channel])).unwrap();
    assert_eq!(sealer.seal(&long, b"", 0), Err(SealError::TopicTooLong));
}

#[test]
fn both_forms_are_the_same_message() {
    let channel = ring([&new(KeyKind::Channel)]);
    let message = sealed(&channel, b"\xff\x00");
    let text = text_of(&message);
    for form in [message.as_slice(), text.as_bytes(), format!(" {text}\n").as_bytes()] {
        assert!(is_sealed(form));
        assert_eq!(channel.open("news", form).unwrap().payload, b"\xff\x00");
    }
    for (other, refused) in [
        (&b""[..], OpenError::NotSealed),
        (b"hello", OpenError::NotSealed),
        (b"{\"sealed\":7}", OpenError::NotSealed),
        (b"{\"sealed\":\"\",\"more\":1}", OpenError::NotSealed),
        (b"{\"sealed\":\"a+b\"}", OpenError::NotBase64),
        (b"{\"sealed\":\"\"}", OpenError::NotSealed),
        (b"\xf8", OpenError::Truncated),
        (b"\xf8\x02", OpenError::UnknownVersion(2)),
    ] {
        assert_eq!(channel.open("news", other), Err(refused), "{other:?}");
    }
}

#[test]
fn a_file_of_keys_is_what_was_written_and_never_shown() {
    let mut written = KeyRing::default();
    for kind in KeyKind::ALL {
        let key = Key::generate(kind).unwrap();
        written.add(key.clone(), "of ada").unwrap();
        if let Some(public) = key.public() {
            assert_eq!(public.id(), key.id());
            assert!(!public.kind().is_secret());
            written.add(public, "").unwrap();
        }
        let secret = key.to_text();
        let (_, bytes) = secret.split_once(':').unwrap();
        assert!(!format!("{key:?} {written:?}").contains(&bytes[..8]));
    }
    let text = format!("# keys\n\n{}", *written.to_text());
    assert_eq!(KeyRing::from_text(&text), Ok(written));
}

#[test]
fn a_line_that_is_no_key_is_refused_by_its_number_and_not_shown() {
    let key = new(KeyKind::RecipientPrivate).to_text();
    let (head, _) = key.split_at(key.len() - 2);
    let mut pair = new(KeyKind::RecipientPrivate).bytes().to_vec();
    pair[..32].copy_from_slice(&new(KeyKind::RecipientPrivate).bytes()[..32]);
    let is = |kind: KeyKind, bytes| KeyTextError::Length { kind, bytes };
    for (line, error) in [
        ("hello", KeyTextError::UnknownKind),
        ("sennit-key:AAAA", KeyTextError::UnknownKind),
        ("sennit-channel-key:AAAA", is(KeyKind::Channel, 3)),
        ("sennit-channel-key:****", KeyTextError::NotBase64(KeyKind::Channel)),
        (head, is(KeyKind::RecipientPrivate, 96)),
    ] {
        let refused = KeyRing::from_text(&format!("\n{line}")).unwrap_err();
        assert_eq!(refused, KeyRingError::Line { line: 2, error });
        assert!(!refused.to_string().contains("AAAA"));
    }
    let impossible = Err(KeyTextError::Impossible(KeyKind::RecipientPrivate));
    assert_eq!(Key::of(KeyKind::RecipientPrivate, &pair), impossible);
    let nowhere = [&[4_u8][..], &[7; 64]].concat();
    let impossible = Err(KeyTextError::Impossible(KeyKind::Recipient));
    assert_eq!(Key::of(KeyKind::Recipient, &nowhere), impossible);
}

#[test]
fn a_message_is_taken_once_while_it_is_fresh_and_never_after() {
    let channel = ring([&new(KeyKind::Channel)]);
    let sealer = Sealer::new(&channel).unwrap();
    let at = |sent_at_ms| {
        let message = sealer.seal("news", b"", sent_at_ms).unwrap();
        channel.open("news", &message).unwrap()
    };
    let mut guard = ReplayGuard::new(1000, 2);
    let code = |taken: Result<(), crate::ReplayRefusal>| taken.map_err(|refusal| refusal.code());
    let (first, second, third) = (at(5000), at(5500), at(5600));
    assert_eq!(code(guard.take(&first, 5500)), Ok(()));
    assert_eq!(code(guard.take(&first, 5500)), Err("replayed"));
    assert_eq!(code(guard.take(&second, 5500)), Ok(()));
    assert_eq!(code(guard.take(&third, 5600)), Err("full"));
    // The first is forgotten, and too old to be taken again.
    assert_eq!(code(guard.take(&third, 6001)), Ok(()));
    assert_eq!(code(guard.take(&first, 6001)), Err("too-old"));
    assert_eq!(code(guard.take(&second, 6001)), Err("replayed"));
    assert_eq!(code(guard.take(&at(70_000), 6001)), Err("from-the-future"));
}

#[test]
fn the_example_of_the_page_is_sealed_so() {
    let page = include_str!("../../../docs/reference/sealed-messages.md");
    let (_, example) = page.split_once("### Example").unwrap();
    let lines = example.split("```").nth(1).unwrap().lines();
    let written: String = lines.filter_map(|line| line.split_whitespace().next()).collect();
    let channel = ring([&Key::of(KeyKind::Channel, &[0; 32]).unwrap()]);
    let id = crate::MessageId(std::array::from_fn(|at| at as u8));
    let message = Sealer::new(&channel).unwrap().seal_as("news", b"hello", 0, id).unwrap();
    assert_eq!(vectors::hex(&written), message);
}

#[test]
fn hpke_is_that_of_the_standard() {
    // RFC 9180's test vector for base mode with DHKEM(P-256, HKDF-SHA256), HKDF-SHA256 and AES-256-GCM; the vector has
    // associated data, of which a sealed message has none, so its crate is asked.
    use hpke::{Deserializable as _, Kem as _, OpModeR, aead::AesGcm256, kdf::HkdfSha256};
    type Kem = hpke::kem::DhP256HkdfSha256;
    let vectors = vectors::read();
    let official = &vectors["hpke"];
    let bytes = |name: &str| vectors::hex(official[name].as_str().unwrap());
    let private = <Kem as hpke::Kem>::PrivateKey::from_bytes(&bytes("skRm")).unwrap();
    let encapsulated = <Kem as hpke::Kem>::EncappedKey::from_bytes(&bytes("enc")).unwrap();
    let opened = hpke::single_shot_open::<AesGcm256, HkdfSha256, Kem>(
        &OpModeR::Base,
        &private,
        &encapsulated,
        &bytes("info"),
        &bytes("ct"),
        &bytes("aad"),
    );
    assert_eq!(opened.unwrap(), bytes("pt"));
    assert!(recipient::check_pair(&bytes("skRm"), &bytes("pkRm")).is_ok());
    let derived = Kem::derive_keypair(&bytes("ikmR")).0;
    assert!(Kem::sk_to_pk(&derived) == Kem::sk_to_pk(&private));
}

proptest! {
    #[test]
    fn any_payload_comes_out_as_it_went_in(payload: Vec<u8>, topic in "[a-z./%]{1,40}", sent_at_ms: u64) {
        let channel = ring([&new(KeyKind::Channel), &new(KeyKind::SharedSigning)]);
        let message = Sealer::new(&channel).unwrap().seal(&topic, &payload, sent_at_ms).unwrap();
        let opened = channel.open(&topic, &message).unwrap();
        prop_assert_eq!(opened.payload, payload);
        prop_assert_eq!(opened.sent_at_ms, sent_at_ms);
    }

    #[test]
    fn any_bytes_are_refused(bytes: Vec<u8>, magic in any::<bool>()) {
        let channel = ring([&new(KeyKind::Channel)]);
        let bytes = if magic { [&[0xf8, 1][..], &bytes].concat() } else { bytes };
        prop_assert!(channel.open("news", &bytes).is_err());
    }
}
