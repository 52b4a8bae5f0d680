//! API keys, the credentials of programs: `sennit_<id>_<secret>`. The secret is derived from the broker's master secret, so the
//! broker stores nothing of a key that has to be hidden: the id, and the generation that counts. It knows no rights.

use std::{fmt, str::FromStr};

use ring::digest;
use zeroize::Zeroizing;

use crate::{
    base32,
    secret::{MasterSecret, SECRET_BYTES, Secret},
};

/// The first characters of each API key. Scanners for secrets find keys by them.
pub const API_KEY_PREFIX: &str = "sennit_";

/// Characters of the id of an API key.
pub const API_KEY_ID_CHARACTERS: usize = 12;

/// Random bytes that an id is made of.
pub const API_KEY_ID_RANDOM_BYTES: usize = 8;

/// Bytes of the checksum behind the secret: mistyped keys are told from wrong ones, and a scanner may check what it has found.
const CHECKSUM_BYTES: usize = 3;

/// Characters of the secret and its checksum.
const SECRET_CHARACTERS: usize = (SECRET_BYTES + CHECKSUM_BYTES) * 8 / 5;

/// Characters of an API key.
pub const API_KEY_CHARACTERS: usize =
    API_KEY_PREFIX.len() + API_KEY_ID_CHARACTERS + 1 + SECRET_CHARACTERS;

/// The purpose in the messages from which secrets are derived. The master secret may have other purposes later.
const PURPOSE: &[u8] = b"sennit api key v1\0";

/// The reason why a text is not an API key. It never repeats the text, which may be a key with a typing error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApiKeyError {
    /// It begins otherwise.
    #[error("an API key begins with {API_KEY_PREFIX:?}")]
    Prefix,
    /// It is cut off or has more than a key.
    #[error("an API key has {API_KEY_CHARACTERS} characters, this one has {length}")]
    Length {
        /// Its length in bytes.
        length: usize,
    },
    /// It has other parts than a key.
    #[error(
        "an API key is {API_KEY_PREFIX}ID_SECRET, with an ID of {API_KEY_ID_CHARACTERS} characters; each character is a digit or a lower-case letter without i, l, o and u"
    )]
    Characters,
    /// The checksum is another one.
    #[error("the checksum of the API key is wrong: a character is mistyped or missing")]
    Checksum,
    /// It is not the id of a key.
    #[error(
        "the id of an API key has {API_KEY_ID_CHARACTERS} characters, each a digit or a lower-case letter without i, l, o and u"
    )]
    Id,
}

/// The id of an API key: its public name, as it stands in lists and logs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiKeyId([u8; API_KEY_ID_CHARACTERS]);

impl ApiKeyId {
    /// The id that is made of these random bytes. It uses 60 of their bits.
    #[must_use]
    pub fn from_random(bytes: [u8; API_KEY_ID_RANDOM_BYTES]) -> Self {
        let mut text = String::with_capacity(16);
        base32::encode(&[&bytes[..], &[0, 0]].concat(), &mut text);
        let mut characters = [0; API_KEY_ID_CHARACTERS];
        characters.copy_from_slice(&text.as_bytes()[..API_KEY_ID_CHARACTERS]);
        Self(characters)
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl FromStr for ApiKeyId {
    type Err = ApiKeyError;

    fn from_str(text: &str) -> Result<Self, ApiKeyError> {
        let characters = text.as_bytes().try_into().map_err(|_| ApiKeyError::Id)?;
        if base32::is_base32(text) { Ok(Self(characters)) } else { Err(ApiKeyError::Id) }
    }
}

impl fmt::Display for ApiKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ApiKeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKeyId({self})")
    }
}

/// An API key: presented by a client, or derived to be shown once. Debug shows the id alone.
#[derive(Clone, Debug)]
pub struct ApiKey {
    id: ApiKeyId,
    secret: Secret,
}

impl ApiKey {
    /// Whether `text` means to be an API key, and not a token or a password.
    #[must_use]
    pub fn is_meant_by(text: &str) -> bool {
        text.starts_with(API_KEY_PREFIX)
    }

    /// The key with this id and generation, as the owner of the master secret can make it. A rotation is the next
    /// generation: the key has the same id and another secret.
    #[must_use]
    pub fn derive(master: &MasterSecret, id: ApiKeyId, generation: u64) -> Self {
        Self { id, secret: master.derive(&message(id, generation)) }
    }

    /// The key that `text` is. Says nothing about whether the broker knows it.
    ///
    /// # Errors
    /// The text is not a key: it is mistyped, cut off, or something else.
    pub fn parse(text: &str) -> Result<Self, ApiKeyError> {
        let rest = text.strip_prefix(API_KEY_PREFIX).ok_or(ApiKeyError::Prefix)?;
        if text.len() != API_KEY_CHARACTERS {
            return Err(ApiKeyError::Length { length: text.len() });
        }
        let (id, secret) = rest.split_once('_').ok_or(ApiKeyError::Characters)?;
        let id: ApiKeyId = id.parse().map_err(|_| ApiKeyError::Characters)?;
        let mut bytes = Zeroizing::new([0; SECRET_BYTES + CHECKSUM_BYTES]);
        base32::decode(secret, &mut bytes[..]).ok_or(ApiKeyError::Characters)?;
        let mut key = [0; SECRET_BYTES];
        key.copy_from_slice(&bytes[..SECRET_BYTES]);
        let key = Self { id, secret: Secret::new(key) };
        if key.checksum() != bytes[SECRET_BYTES..] {
            return Err(ApiKeyError::Checksum);
        }
        Ok(key)
    }

    /// The public name of the key.
    #[must_use]
    pub fn id(&self) -> ApiKeyId {
        self.id
    }

    /// Whether the key is the one of this generation. Takes the same time for all secrets: it computes the right one and
    /// compares in constant time. About a microsecond.
    #[must_use]
    pub fn verify(&self, master: &MasterSecret, generation: u64) -> bool {
        master.verify(&message(self.id, generation), &self.secret)
    }

    /// The whole key as text, to show it once to its owner or to send it. The text is zeroed when it is dropped.
    #[must_use]
    pub fn expose(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(API_KEY_CHARACTERS));
        text.push_str(API_KEY_PREFIX);
        text.push_str(self.id.as_str());
        text.push('_');
        let mut bytes = Zeroizing::new([0; SECRET_BYTES + CHECKSUM_BYTES]);
        bytes[..SECRET_BYTES].copy_from_slice(self.secret.expose());
        bytes[SECRET_BYTES..].copy_from_slice(&self.checksum());
        base32::encode(&bytes[..], &mut text);
        text
    }

    /// The first bytes of the SHA-256 of the id and the secret.
    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&self.id.0);
        context.update(self.secret.expose());
        let hash = context.finish();
        let mut checksum = [0; CHECKSUM_BYTES];
        checksum.copy_from_slice(&hash.as_ref()[..CHECKSUM_BYTES]);
        checksum
    }
}

/// The message from which the secret of a key is derived. The id has a fixed length, so no two pairs make one message.
fn message(id: ApiKeyId, generation: u64) -> Vec<u8> {
    [PURPOSE, &id.0, &generation.to_be_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn master(byte: u8) -> MasterSecret {
        MasterSecret::new(&Secret::new([byte; 32]))
    }

    fn key() -> ApiKey {
        ApiKey::derive(&master(1), ApiKeyId::from_random([7; 8]), 3)
    }

    /// The keys that owners have must be good for ever: neither the text nor the derivation may change.
    #[test]
    fn a_key_is_the_same_in_all_versions() {
        let text = key().expose();
        assert_eq!(key().id().as_str(), "0w3ge1r70w3g");
        assert_eq!(
            *text,
            "sennit_0w3ge1r70w3g_5vhfc0vwa4ayatehfaqd1gbjf6s9my8jdmt2cy8fnj24mkfhyww3pwh7"
        );
        assert_eq!(text.len(), API_KEY_CHARACTERS);
    }

    #[test]
    fn a_key_is_good_for_its_generation_and_its_master_alone() {
        let presented = ApiKey::parse(&key().expose()).unwrap();
        assert!(presented.verify(&master(1), 3));
        assert!(!presented.verify(&master(1), 2) && !presented.verify(&master(1), 4));
        assert!(!presented.verify(&master(2), 3));
    }

    #[test]
    fn the_secret_of_one_key_is_not_that_of_another_id() {
        let mut other = key();
        other.id = ApiKeyId::from_random([8; 8]);
        let presented = ApiKey::parse(&other.expose()).unwrap();
        assert!(!presented.verify(&master(1), 3));
    }

    #[test]
    fn each_mistyped_character_is_found() {
        let text = key().expose();
        for at in 0..text.len() {
            for other in [b'0', b'z', b'Q', b'_', b' '] {
                let mut changed = text.as_bytes().to_vec();
                if changed[at] != other {
                    changed[at] = other;
                    assert!(ApiKey::parse(std::str::from_utf8(&changed).unwrap()).is_err(), "{at}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_says_which_part_is_wrong_and_repeats_nothing() {
        let text = key().expose();
        let swapped = text.replace("0w3ge1r70w3g_", "0w3ge1r70w3h_");
        for (wrong, error) in [
            ("", ApiKeyError::Prefix),
            ("eyJhbGciOi", ApiKeyError::Prefix),
            ("sennit_", ApiKeyError::Length { length: 7 }),
            (&text[..text.len() - 1], ApiKeyError::Length { length: API_KEY_CHARACTERS - 1 }),
            (&text.to_uppercase().replace("SENNIT", "sennit"), ApiKeyError::Characters),
            (&text.replace("0w3ge1r70w3g_", "0w3ge1r70w3g0"), ApiKeyError::Characters),
            (&swapped, ApiKeyError::Checksum),
        ] {
            let refused = ApiKey::parse(wrong).unwrap_err();
            assert_eq!(refused, error, "{wrong}");
            assert!(!refused.to_string().contains("0w3g"));
        }
        assert!("0w3ge1r70w3".parse::<ApiKeyId>().is_err());
        assert!("0w3ge1r70w3G".parse::<ApiKeyId>().is_err());
    }

    #[test]
    fn debug_shows_the_id_and_no_secret() {
        let shown = format!("{:?}", key());
        assert_eq!(shown, "ApiKey { id: ApiKeyId(0w3ge1r70w3g), secret: Secret(..) }");
    }

    proptest! {
        #[test]
        fn a_key_is_read_as_it_was_written(
            random: [u8; 8], secret: [u8; 32], generation: u64, other: u64
        ) {
            let master = MasterSecret::new(&Secret::new(secret));
            let id = ApiKeyId::from_random(random);
            prop_assert_eq!(id.as_str().parse(), Ok(id));
            let key = ApiKey::derive(&master, id, generation);
            let read = ApiKey::parse(&key.expose()).unwrap();
            prop_assert_eq!(read.expose(), key.expose());
            prop_assert!(read.verify(&master, generation));
            prop_assert_eq!(read.verify(&master, other), generation == other);
        }

        #[test]
        fn any_text_is_read_without_a_panic(text in "(sennit_)?[0-9a-zA-Zö_]{0,90}") {
            if let Ok(key) = ApiKey::parse(&text) {
                prop_assert_eq!(&*key.expose(), &text);
            }
        }
    }
}
