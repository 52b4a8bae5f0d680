//! Tokens of an issuer that rotates its keys, removes one, goes away, and comes back. The clock runs only while everybody
//! waits, so days take milliseconds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use sennit_identity::{NewToken, SigningKey, SystemRandom};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::{Instant, sleep},
};

use super::*;

fn issuer_of(keys: TokenKeys) -> TokenIssuer {
    let rules = TokenRules::new("https://issuer.example", "sennit").unwrap();
    TokenIssuer::new(&TokenSettings { rules, keys })
}

/// The key pair of a seed. Its name has the seed.
fn pair(seed: u8) -> SigningKey {
    // PKCS #8 with an Ed25519 key: a head that is always the same, then the seed.
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend([seed; 32]);
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der)
    );
    let key = SigningKey::from_pem(pem.as_bytes(), &SystemRandom::new()).unwrap();
    key.with_id(&format!("key-{seed}")).unwrap()
}

/// The document with the public keys of these seeds.
fn document(seeds: &[u8]) -> String {
    let key = |seed: &u8| {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[*seed; 32]).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key());
        serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "kid": format!("key-{seed}"), "x": x })
    };
    let keys: Vec<_> = seeds.iter().map(key).collect();
    serde_json::json!({ "keys": keys }).to_string()
}

/// An issuer, with what it publishes, and a token issuer that fetches it.
struct World {
    start: Instant,
    /// `None`: the issuer is away.
    published: Arc<Mutex<Option<String>>>,
    fetches: Arc<AtomicU64>,
    issuer: TokenIssuer,
}

impl World {
    async fn new(seeds: &[u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let published = Arc::new(Mutex::new(Some(document(seeds))));
        let fetches = Arc::new(AtomicU64::new(0));
        let issuer = issuer_of(TokenKeys::At(url.parse().unwrap()));
        let world = Self { start: Instant::now(), published, fetches, issuer };
        let (published, fetches) = (world.published.clone(), world.fetches.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                fetches.fetch_add(1, Ordering::Relaxed);
                let _ = stream.read(&mut [0; 4096]).await;
                let body = published.lock().unwrap().clone();
                let Some(body) = body else { continue };
                let length = body.len();
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        let (issuer, start) = (world.issuer.clone(), world.start);
        tokio::spawn(async move { issuer.keep_fetching(|| clock(start)).await });
        world
    }

    fn publish(&self, seeds: Option<&[u8]>) {
        *self.published.lock().unwrap() = seeds.map(document);
    }

    fn fetches(&self) -> u64 {
        self.fetches.load(Ordering::Relaxed)
    }

    /// What becomes of a token that is signed now with the key of this seed.
    fn verify(&self, seed: u8) -> Result<(), TokenRefusal> {
        let token = NewToken {
            subject: "ada".into(),
            issuer: "https://issuer.example".into(),
            audience: "sennit".into(),
            lifetime: Duration::from_secs(600),
            ..NewToken::default()
        };
        let now = clock(self.start);
        let token = token.mint(&pair(seed), now, &SystemRandom::new()).unwrap();
        self.issuer.verify(&token, now).map(drop)
    }
}

fn clock(start: Instant) -> Timestamp {
    Timestamp(1_800_000_000_000).plus(start.elapsed())
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

fn unknown(seed: u8) -> Result<(), TokenRefusal> {
    Err(TokenRefusal::UnknownKey { id: format!("key-{seed}").into() })
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_known_soon_and_a_removed_one_is_not_good_any_more() {
    let world = World::new(&[1]).await;
    assert_eq!(world.verify(1), Err(TokenRefusal::NoKeys), "nothing was fetched yet");
    seconds(1).await;
    assert_eq!(world.verify(1), Ok(()));
    world.publish(Some(&[1, 2]));
    assert_eq!(world.verify(2), unknown(2));
    seconds(31).await;
    assert_eq!((world.verify(1), world.verify(2)), (Ok(()), Ok(())));
    world.publish(Some(&[2]));
    assert_eq!(world.verify(1), Ok(()), "nobody has said so yet");
    seconds(300).await;
    assert_eq!((world.verify(1), world.verify(2)), (unknown(1), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn keys_outlive_an_issuer_that_is_away_and_not_for_ever() {
    let world = World::new(&[1]).await;
    seconds(1).await;
    for published in [None, Some("<html>".to_owned())] {
        *world.published.lock().unwrap() = published;
        seconds(11 * 3600).await;
        assert_eq!(world.verify(1), Ok(()));
    }
    seconds(3 * 3600).await;
    assert_eq!(world.verify(1), Err(TokenRefusal::NoKeys));
    world.publish(Some(&[3]));
    seconds(121).await;
    assert_eq!((world.verify(1), world.verify(3)), (unknown(1), Ok(())));
}

#[tokio::test(start_paused = true)]
async fn tokens_with_unknown_keys_do_not_make_the_broker_fetch_often() {
    let world = World::new(&[1]).await;
    for _ in 0..600 {
        seconds(1).await;
        assert!(world.verify(9).is_err());
    }
    let fetches = world.fetches();
    assert!((10..=21).contains(&fetches), "{fetches} fetches in 600 s");
    assert_eq!(world.verify(1), Ok(()));
}

#[tokio::test]
async fn an_issuer_with_keys_of_files_fetches_nothing() {
    let keys = KeySet::new(vec![pair(1).token_key().unwrap()]).unwrap();
    let issuer = issuer_of(TokenKeys::Known(keys));
    issuer.keep_fetching(|| Timestamp(0)).await;
    assert_eq!(issuer.verify("x", Timestamp(0)), Err(TokenRefusal::Malformed));
}
