//! Tokens of all algorithms, those of the RFCs, and those that must not be taken.

use std::time::Duration;

use proptest::prelude::*;
use ring::{hmac, rand::SystemRandom};
use serde_json::json;

use super::*;
use crate::{
    limits::{RIGHTS_MAX, ROLES_MAX},
    mint::{NewToken, SigningKey},
    token_key::TokenKey,
};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const SECRET: [u8; 32] = [7; 32];
const ED25519: &[u8] = include_bytes!("../../test_keys/ed25519.pem");
const P256: &[u8] = include_bytes!("../../test_keys/p256.pem");
const RSA: &[u8] = include_bytes!("../../test_keys/rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../../test_keys/rsa_public.pem");

fn rules() -> TokenRules {
    TokenRules::new("https://issuer.example", "sennit").unwrap()
}

fn signing_keys() -> Vec<SigningKey> {
    let mut keys = vec![SigningKey::from_secret(&SECRET).unwrap()];
    for pem in [ED25519, P256, RSA] {
        keys.push(SigningKey::from_pem(pem, &SystemRandom::new()).unwrap());
    }
    keys
}

fn hs256() -> KeySet {
    KeySet::new(vec![TokenKey::from_secret(&SECRET).unwrap()]).unwrap()
}

fn set_of(keys: &[&SigningKey]) -> KeySet {
    KeySet::new(keys.iter().map(|key| key.token_key().unwrap()).collect()).unwrap()
}

fn new_token() -> NewToken {
    NewToken {
        subject: "ada".into(),
        issuer: "https://issuer.example".into(),
        audience: "sennit".into(),
        lifetime: Duration::from_secs(60),
        ..NewToken::default()
    }
}

fn mint(token: &NewToken, key: &SigningKey) -> String {
    token.mint(key, NOW, &SystemRandom::new()).unwrap().to_string()
}

/// A token with these parts, signed with `SECRET`, whatever they say.
fn signed(header: &str, payload: &str) -> String {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(code))
}

fn usual_claims() -> Value {
    json!({
        "iss": "https://issuer.example",
        "aud": "sennit",
        "sub": "ada",
        "iat": NOW.0 / 1000,
        "exp": NOW.0 / 1000 + 60,
    })
}

/// What becomes of a token with the usual claims, and these instead.
fn verify_claims(changes: Value) -> Result<Claims, TokenRefusal> {
    let mut claims = usual_claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    let token = signed(r#"{"alg":"HS256"}"#, &claims.to_string());
    rules().verify(&hs256(), &token, NOW)
}

fn verify_header(header: &str) -> Result<Claims, TokenRefusal> {
    rules().verify(&hs256(), &signed(header, &usual_claims().to_string()), NOW)
}

#[test]
fn a_token_of_each_algorithm_is_taken() {
    for key in signing_keys() {
        let claims = rules().verify(&set_of(&[&key]), &mint(&new_token(), &key), NOW).unwrap();
        assert_eq!(&*claims.subject, "ada", "{key:?}");
        assert_eq!(claims.expires_at, NOW.plus(Duration::from_secs(60) + TokenRules::LEEWAY));
    }
}

#[test]
fn no_key_takes_the_token_of_another() {
    let keys = signing_keys();
    for (ours, key) in keys.iter().enumerate() {
        for (other, signer) in keys.iter().enumerate().filter(|(other, _)| *other != ours) {
            let refused = rules().verify(&set_of(&[key]), &mint(&new_token(), signer), NOW);
            let algorithm = signer.algorithm();
            let expected = TokenRefusal::KeyOfOtherAlgorithm { algorithm };
            assert_eq!(refused, Err(expected), "{ours} {other}");
        }
    }
    let other_secret = SigningKey::from_secret(&[8; 32]).unwrap();
    let refused = rules().verify(&hs256(), &mint(&new_token(), &other_secret), NOW);
    assert_eq!(refused, Err(TokenRefusal::Signature));
}

#[test]
fn each_changed_byte_of_a_token_is_found() {
    for key in signing_keys() {
        let token = mint(&new_token(), &key);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'Q' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(rules().verify(&set_of(&[&key]), &changed, NOW).is_err(), "{key:?} byte {at}");
        }
    }
}

/// Each is refused for its claims, so its signature is right; and with another signature it is refused for that.
#[test]
fn the_tokens_of_the_rfcs_have_right_signatures() {
    let hs256 = TokenKey::from_secret(
        &URL_SAFE_NO_PAD
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap(),
    );
    let rs256 = json!({
        "kty": "RSA",
        "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
        "e": "AQAB",
    });
    let es256 = json!({
        "kty": "EC",
        "crv": "P-256",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    let eddsa = json!({
        "kty": "OKP",
        "crv": "Ed25519",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
    });
    let joe = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let missing = TokenRefusal::ClaimMissing { claim: "aud" };
    let of_json = |json: Value| TokenKey::from_json(&json.to_string()).unwrap();
    for (from, key, token, refused) in [
        (
            "RFC 7515, A.1",
            hs256.unwrap(),
            format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{joe}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            missing.clone(),
        ),
        (
            "RFC 7515, A.2",
            of_json(rs256),
            format!("eyJhbGciOiJSUzI1NiJ9.{joe}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"),
            missing.clone(),
        ),
        (
            "RFC 7515, A.3",
            of_json(es256),
            format!("eyJhbGciOiJFUzI1NiJ9.{joe}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"),
            missing,
        ),
        (
            "RFC 8037, A.4",
            of_json(eddsa),
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg".to_owned(),
            TokenRefusal::NoClaims,
        ),
    ] {
        let keys = KeySet::new(vec![key]).unwrap();
        assert_eq!(rules().verify(&keys, &token, NOW), Err(refused), "{from}");
        let (message, signature) = token.rsplit_once('.').unwrap();
        let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        signature[9] ^= 1;
        let wrong = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert_eq!(rules().verify(&keys, &wrong, NOW), Err(TokenRefusal::Signature), "{from}");
    }
}

#[test]
fn algorithm_none_is_refused_in_each_spelling() {
    let payload = URL_SAFE_NO_PAD.encode(usual_claims().to_string());
    for name in
        ["none", "None", "NONE", "nOnE", "", "HS384", "HS512", "ES384", "PS256", "RS512", "hs256"]
    {
        let header = URL_SAFE_NO_PAD.encode(format!(r#"{{"alg":"{name}"}}"#));
        for token in [format!("{header}.{payload}."), format!("{header}.{payload}.AAAA")] {
            let refused = rules().verify(&hs256(), &token, NOW);
            assert_eq!(refused, Err(TokenRefusal::Algorithm { name: name.into() }));
        }
    }
}

/// The classic confusion: the public key of RSA, which everybody knows, taken as the secret of HS256.
#[test]
fn a_public_key_is_no_secret() {
    let keys = KeySet::new(TokenKey::all_from_pem(RSA_PUBLIC).unwrap()).unwrap();
    let der = rustls_pki_types::pem::PemObject::from_pem_slice(RSA_PUBLIC)
        .map(|key: rustls_pki_types::SubjectPublicKeyInfoDer<'_>| key.to_vec())
        .unwrap();
    for secret in [RSA_PUBLIC, &der, &RSA_PUBLIC[..RSA_PUBLIC.len() - 1]] {
        let attacker = SigningKey::from_secret(secret).unwrap();
        let token = mint(&new_token(), &attacker);
        let algorithm = TokenAlgorithm::Hs256;
        let refused = TokenRefusal::KeyOfOtherAlgorithm { algorithm };
        assert_eq!(rules().verify(&keys, &token, NOW), Err(refused));
        let (message, _) = token.rsplit_once('.').unwrap();
        let (_, payload) = message.split_once('.').unwrap();
        let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
        let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#);
        let token = format!("{header}.{payload}.{}", URL_SAFE_NO_PAD.encode(code));
        assert_eq!(rules().verify(&keys, &token, NOW), Err(TokenRefusal::Signature));
    }
}

#[test]
fn the_header_may_name_a_key_and_demand_nothing() {
    assert!(verify_header(r#"{"alg":"HS256","typ":"JWT","jku":"https://evil.example","x5u":"https://evil.example"}"#).is_ok());
    assert!(verify_header(r#"{"alg":"HS256","typ":"application/at+jwt"}"#).is_ok());
    for header in [
        r#"{"alg":"HS256","crit":["exp"]}"#,
        r#"{"alg":"HS256","crit":[]}"#,
        r#"{"alg":"HS256","b64":false}"#,
        r#"{"alg":"HS256","zip":"DEF"}"#,
        r#"{"alg":"HS256","enc":"A128GCM"}"#,
    ] {
        assert_eq!(verify_header(header), Err(TokenRefusal::Extension), "{header}");
    }
    assert_eq!(verify_header(r#"{"alg":"HS256","typ":"logout+jwt"}"#), Err(TokenRefusal::Kind));
    for header in [
        "",
        "{}",
        "[]",
        "null",
        r#"{"alg":1}"#,
        r#"{"alg":"HS256","alg":"none"}"#,
        r#"{"alg":"HS256","kid":7}"#,
        &format!(r#"{{"alg":"HS256","kid":"{}"}}"#, "k".repeat(KEY_ID_BYTES_MAX + 1)),
    ] {
        assert_eq!(verify_header(header), Err(TokenRefusal::Malformed), "{header}");
    }
}

#[test]
fn a_token_is_checked_with_the_key_that_it_names() {
    let random = SystemRandom::new();
    let one = SigningKey::from_secret(&[1; 32]).unwrap().with_id("one").unwrap();
    let two = SigningKey::from_secret(&[2; 32]).unwrap().with_id("two").unwrap();
    let rsa = SigningKey::from_pem(RSA, &random).unwrap().with_id("one").unwrap();
    let nameless = SigningKey::from_secret(&[1; 32]).unwrap();
    let other = SigningKey::from_secret(&[3; 32]).unwrap().with_id("other").unwrap();
    let verify = |keys: &[&SigningKey], signer| {
        rules().verify(&set_of(keys), &mint(&new_token(), signer), NOW).map(|claims| claims.subject)
    };
    let ada = Ok("ada".into());
    assert_eq!(verify(&[&one, &two], &one), ada);
    assert_eq!(verify(&[&one, &two], &two), ada);
    assert_eq!(verify(&[&one, &two, &rsa], &rsa), ada, "one id may have a key for each algorithm");
    assert_eq!(
        verify(&[&one], &rsa),
        Err(TokenRefusal::KeyOfOtherAlgorithm { algorithm: TokenAlgorithm::Rs256 })
    );
    let unknown = TokenRefusal::UnknownKey { id: "other".into() };
    assert_eq!(verify(&[&one, &two], &other), Err(unknown));
    // A token that names no key is checked with the only one, or with those that have no name.
    assert_eq!(verify(&[&one], &nameless), ada);
    assert_eq!(verify(&[&one, &two], &nameless), Err(TokenRefusal::KeyIdMissing));
    let other_nameless = SigningKey::from_secret(&[4; 32]).unwrap();
    assert_eq!(verify(&[&two, &other_nameless, &nameless], &nameless), ada);
    assert_eq!(verify(&[&two, &other_nameless], &nameless), Err(TokenRefusal::Signature));
    assert_eq!(verify(&[&nameless], &one), ada, "a key from a file has no name, its tokens may");
    // A token with the name of one key is not checked with another.
    let thief = SigningKey::from_secret(&[1; 32]).unwrap().with_id("two").unwrap();
    assert_eq!(verify(&[&one, &two], &thief), Err(TokenRefusal::Signature));
}

#[test]
fn what_is_no_token_is_refused() {
    let keys = hs256();
    let verify = |token: &str| rules().verify(&keys, token, NOW).unwrap_err();
    let good = signed(r#"{"alg":"HS256"}"#, &usual_claims().to_string());
    for token in [
        "",
        ".",
        "..",
        "...",
        "a.b.c",
        "sennit_0w3ge1r70w3g_x",
        "ä.ö.ü",
        &format!("{good}."),
        &format!("{good}.x"),
        &format!(" {good}"),
        &good.replace('.', ".."),
    ] {
        assert_eq!(verify(token), TokenRefusal::Malformed, "{token}");
    }
    let long = format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX));
    assert_eq!(verify(&long), TokenRefusal::TooLong { length: long.len() });
    for payload in ["", "null", "[]", "7", "{", r#"{"exp":1}x"#, &"[".repeat(4000)] {
        let refused = verify(&signed(r#"{"alg":"HS256"}"#, payload));
        assert_eq!(refused, TokenRefusal::NoClaims, "{payload}");
    }
    // A signature with padding, or of the wrong length, is none.
    assert_eq!(verify(&format!("{good}=")), TokenRefusal::Malformed);
    let (message, _) = good.rsplit_once('.').unwrap();
    assert_eq!(verify(&format!("{message}.AAAA")), TokenRefusal::Signature);
    assert_eq!(verify(&good[..=good.rfind('.').unwrap()]), TokenRefusal::Signature);
}

#[test]
fn issuer_audience_and_expiry_are_always_checked() {
    assert!(verify_claims(json!({})).is_ok());
    for claim in ["iss", "aud", "exp", "sub"] {
        let refused = verify_claims(json!({ claim: null })).unwrap_err();
        assert_eq!(refused, TokenRefusal::ClaimMissing { claim });
    }
    for issuer in ["", "https://issuer.example/", "https://ISSUER.example", "https://evil.example"]
    {
        assert_eq!(verify_claims(json!({ "iss": issuer })), Err(TokenRefusal::Issuer));
    }
    for audience in [json!("other"), json!(["a", "b"]), json!([]), json!(""), json!("Sennit")] {
        assert_eq!(verify_claims(json!({ "aud": audience })), Err(TokenRefusal::Audience));
    }
    assert!(verify_claims(json!({ "aud": ["other", "sennit"] })).is_ok());
    for (claim, wrong) in [
        ("iss", json!(["https://issuer.example"])),
        ("aud", json!({ "sennit": true })),
        ("aud", json!(["sennit", 7])),
        ("exp", json!("1900000000")),
        ("exp", json!(-1)),
        ("exp", json!(1e300)),
        ("exp", json!([1_900_000_000])),
        ("nbf", json!("now")),
        ("iat", json!(true)),
        ("sub", json!(7)),
        ("tenant", json!(["a"])),
        ("roles", json!({ "admin": true })),
        ("roles", json!(["viewer", 1])),
        ("rights", json!(7)),
        ("jti", json!(1)),
        ("channels", json!([1])),
        ("channels", json!(7)),
        ("subs", json!(["news"])),
    ] {
        let refused = verify_claims(json!({ claim: wrong })).unwrap_err();
        // `jsonwebtoken` reads times too, and gives up at some of them.
        let is_of_claim =
            matches!(refused, TokenRefusal::Claim { claim: named, .. } if named == claim);
        assert!(is_of_claim || refused == TokenRefusal::NoClaims, "{claim} {refused}");
    }
}

#[test]
fn an_expired_token_stays_expired_and_clocks_may_differ_by_the_leeway() {
    let key = SigningKey::from_secret(&SECRET).unwrap();
    let token = mint(&new_token(), &key);
    let at = |ms: u64| rules().verify(&hs256(), &token, Timestamp(NOW.0 + ms)).map(drop);
    let end = 60_000 + u64::try_from(TokenRules::LEEWAY.as_millis()).unwrap();
    assert_eq!(at(end - 1), Ok(()));
    for ms in [end, end + 1, 1_000_000_000_000] {
        assert_eq!(at(ms), Err(TokenRefusal::Expired));
    }
    let strict = rules().with_leeway(Duration::ZERO).unwrap();
    assert_eq!(strict.verify(&hs256(), &token, Timestamp(NOW.0 + 59_999)).map(drop), Ok(()));
    let refused = strict.verify(&hs256(), &token, Timestamp(NOW.0 + 60_000));
    assert_eq!(refused, Err(TokenRefusal::Expired));
    assert_eq!(refused.unwrap_err().public_message(), "the token has expired");
    // A broker whose clock is behind by the leeway takes it; by more, it was issued in the future.
    let early = |ms: u64| rules().verify(&hs256(), &token, Timestamp(NOW.0 - ms)).map(drop);
    assert_eq!(early(30_000), Ok(()));
    assert_eq!(early(30_001), Err(TokenRefusal::NotYetValid));
}

#[test]
fn a_token_is_good_from_its_beginning_and_not_for_too_long() {
    let now = NOW.0 / 1000;
    assert!(verify_claims(json!({ "nbf": now + 30 })).is_ok());
    assert_eq!(verify_claims(json!({ "nbf": now + 31 })), Err(TokenRefusal::NotYetValid));
    assert_eq!(verify_claims(json!({ "iat": now + 31 })), Err(TokenRefusal::NotYetValid));
    assert!(verify_claims(json!({ "exp": now as f64 + 0.5 })).is_ok());
    let day = 24 * 3600;
    let too_long = Err(TokenRefusal::LivesTooLong { lifetime_max: TokenRules::LIFETIME_MAX });
    assert!(verify_claims(json!({ "exp": now + day })).is_ok());
    assert_eq!(verify_claims(json!({ "exp": now + day + 1 })), too_long);
    assert_eq!(verify_claims(json!({ "exp": now + day + 1, "iat": null })), too_long);
    assert_eq!(verify_claims(json!({ "exp": now + 60, "iat": now - day })), too_long);
    // A time of issue in the future, within the leeway, does not make the life longer.
    assert_eq!(verify_claims(json!({ "exp": now + day + 1, "iat": now + 30 })), too_long);
}

#[test]
fn channels_are_a_list_or_named_in_an_object_and_each_once() {
    let channels = |claims| verify_claims(claims).unwrap().channels;
    assert!(channels(json!({})).is_empty());
    assert_eq!(channels(json!({ "channels": "news" })), ["news".into()]);
    let both = json!({ "channels": ["news", "chat:index", "news"], "subs": { "chat:index": {} } });
    assert_eq!(channels(both), ["chat:index".into(), "news".into()]);
}

#[test]
fn claims_say_who_the_owner_is_and_what_templates_may_use() {
    let claims = verify_claims(json!({
        "tenant": "acme",
        "roles": ["viewer", "operator"],
        "rights": "allow publish user.{sub}.>",
        "jti": "t-1",
        "team": "blue",
        "level": 7,
        "offset": -7,
        "ratio": 0.5,
        "admin": true,
        "nested": { "a": 1 },
    }))
    .unwrap();
    assert_eq!(claims.tenant.as_deref(), Some("acme"));
    assert_eq!(claims.roles, ["viewer".into(), "operator".into()]);
    assert_eq!(claims.rights, ["allow publish user.{sub}.>".into()]);
    let texts =
        ["sub", "iss", "tenant", "jti", "team", "level", "offset"].map(|name| claims.text(name));
    let expected = ["ada", "https://issuer.example", "acme", "t-1", "blue", "7", "-7"];
    assert_eq!(texts, expected.map(Some));
    for name in ["ratio", "admin", "nested", "exp", "aud", "roles", "none"] {
        assert_eq!(claims.text(name), None, "{name}");
    }
    for subject in ["", "a\nb", "a\0b", &"s".repeat(256)] {
        assert_eq!(verify_claims(json!({ "sub": subject })), Err(TokenRefusal::Subject));
    }
    for (claim, count) in [("roles", ROLES_MAX + 1), ("rights", RIGHTS_MAX + 1)] {
        let refused = verify_claims(json!({ claim: vec!["x"; count] }));
        assert_eq!(refused, Err(TokenRefusal::TooManyRights));
    }
}

#[test]
fn a_client_learns_nothing_but_that_a_token_has_expired() {
    for refusal in [
        TokenRefusal::Signature,
        TokenRefusal::UnknownKey { id: "k".into() },
        TokenRefusal::Issuer,
        TokenRefusal::Audience,
        TokenRefusal::NotYetValid,
    ] {
        assert_eq!(refusal.public_message(), "the token is not accepted");
    }
    // An expired token with a wrong signature is refused for its signature.
    let key = SigningKey::from_secret(&[9; 32]).unwrap();
    let token = mint(&new_token(), &key);
    let refused = rules().verify(&hs256(), &token, Timestamp(NOW.0 * 2));
    assert_eq!(refused, Err(TokenRefusal::Signature));
}

#[test]
fn rules_have_bounds() {
    assert_eq!(TokenRules::new("", "a"), Err(TokenRulesError::NoIssuer));
    assert_eq!(TokenRules::new("a", ""), Err(TokenRulesError::NoAudience));
    let leeway = rules().with_leeway(TOKEN_LEEWAY_MAX + Duration::from_secs(1));
    assert_eq!(leeway, Err(TokenRulesError::Leeway));
    for lifetime in [Duration::ZERO, TOKEN_LIFETIME_MAX + Duration::from_secs(1)] {
        assert_eq!(rules().with_lifetime_max(lifetime), Err(TokenRulesError::Lifetime));
    }
}

prop_compose! {
    fn any_token()(
        subject in "[^\\x00-\\x1f\\x7f-\\u{9f}]{1,60}",
        lifetime in 1_u64..=24 * 3600,
        not_before in prop::option::of(0..=NOW.0 / 1000),
        id in prop::option::of(".{0,20}"),
        tenant in prop::option::of("[a-z]{1,20}"),
        roles in prop::collection::vec("[a-z]{1,10}", 0..5),
        rights in prop::collection::vec(".{0,30}", 0..5),
        channels in prop::collection::vec(".{0,20}", 0..5),
        others in prop::collection::btree_map("x_[a-z]{1,10}", ".{0,20}", 0..5),
    ) -> NewToken {
        let boxed = |texts: Vec<String>| texts.into_iter().map(Into::into).collect();
        NewToken {
            subject: subject.into(),
            lifetime: Duration::from_secs(lifetime),
            not_before: not_before.map(|seconds| Timestamp(seconds * 1000)),
            id: id.map(Into::into),
            tenant: tenant.map(Into::into),
            roles: boxed(roles),
            rights: boxed(rights),
            channels: boxed(channels),
            others: others.into_iter().map(|(name, text)| (name.into(), text.into())).collect(),
            ..new_token()
        }
    }
}

/// Each once, as the broker has them.
fn sorted(mut channels: Vec<Box<str>>) -> Vec<Box<str>> {
    channels.sort_unstable();
    channels.dedup();
    channels
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_minted_is_read(token in any_token(), which in 0..4_usize, named: bool) {
        let mut key = signing_keys().swap_remove(which);
        if named {
            key = key.with_id("k").unwrap();
        }
        let text = mint(&token, &key);
        let claims = rules().verify(&set_of(&[&key]), &text, NOW).unwrap();
        let expires_at = NOW.plus(token.lifetime + TokenRules::LEEWAY);
        prop_assert_eq!(claims, Claims {
            subject: token.subject,
            issuer: token.issuer,
            tenant: token.tenant,
            roles: token.roles,
            rights: token.rights,
            expires_at,
            not_before: token.not_before,
            id: token.id,
            info: None,
            channels: sorted(token.channels),
            others: token.others,
        });
    }

    #[test]
    fn any_text_is_refused_without_a_panic(text in r#"([A-Za-z0-9_=-]{0,40}\.){0,4}[ -~ö]{0,40}"#) {
        prop_assert!(rules().verify(&hs256(), &text, NOW).is_err());
    }

    #[test]
    fn any_signed_payload_is_refused_or_has_a_subject(
        payload in r#"\{("(iss|aud|sub|exp|nbf|iat|jti|roles)":("sennit"|"https://issuer.example"|1800000060|-1|1e99|null|\[\]|\["sennit"\]|\{\}),){0,8}"x":1\}"#
    ) {
        let token = signed(r#"{"alg":"HS256"}"#, &payload);
        if let Ok(claims) = rules().verify(&hs256(), &token, NOW) {
            prop_assert!(!claims.subject.is_empty());
        }
    }
}
