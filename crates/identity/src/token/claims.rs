//! The claims of a token whose signature is right. It knows no rules: what they say is checked elsewhere.

use std::collections::BTreeMap;

use sennit_model::Timestamp;
use serde_json::{Map, Value};

use super::TokenRefusal;
use crate::limits::{RIGHTS_MAX, ROLES_MAX, TOKEN_SUBJECT_BYTES_MAX};

/// The claims of a token about its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The owner (`sub`).
    pub subject: Box<str>,
    /// The issuer of the token (`iss`).
    pub issuer: Box<str>,
    /// The tenant whose names the owner uses (`tenant`).
    pub tenant: Option<Box<str>>,
    /// Names of roles (`roles`).
    pub roles: Vec<Box<str>>,
    /// Rights as text (`rights`), such as `allow publish user.{sub}.>`. Nobody has parsed them.
    pub rights: Vec<Box<str>>,
    /// When the broker does not take the token any more: `exp` and the leeway. What was opened with it ends then.
    pub expires_at: Timestamp,
    /// When the token's time begins (`nbf`).
    pub not_before: Option<Timestamp>,
    /// The id of the token (`jti`).
    pub id: Option<Box<str>>,
    /// What others may know of the owner (`info`): any JSON.
    pub info: Option<Box<str>>,
    /// Channels to which live connections of the owner are subscribed when they begin (`channels`, and the names in `subs`).
    pub channels: Vec<Box<str>>,
    /// All other claims that are texts or whole numbers, for the places of patterns. A value may be any text; the pattern
    /// that it fills makes one part of a name of it.
    pub others: BTreeMap<Box<str>, Box<str>>,
}

impl Claims {
    /// The claim with this name, as a text for a template: `sub`, `iss`, `tenant`, `jti`, or one of the others.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match name {
            "sub" => Some(&self.subject),
            "iss" => Some(&self.issuer),
            "tenant" => self.tenant.as_deref(),
            "jti" => self.id.as_deref(),
            _ => self.others.get(name).map(|text| &**text),
        }
    }
}

/// The claims with those that only the rules look at.
pub(super) struct ReadClaims {
    pub(super) claims: Claims,
    pub(super) issuer: Box<str>,
    pub(super) audiences: Vec<Box<str>>,
    pub(super) issued_at: Option<Timestamp>,
}

pub(super) fn read(mut map: Map<String, Value>) -> Result<ReadClaims, TokenRefusal> {
    let missing = |claim| TokenRefusal::ClaimMissing { claim };
    let issuer = text(&mut map, "iss")?.ok_or(missing("iss"))?;
    let audiences = texts(&mut map, "aud")?.ok_or(missing("aud"))?;
    let expires_at = time(&mut map, "exp")?.ok_or(missing("exp"))?;
    let not_before = time(&mut map, "nbf")?;
    let issued_at = time(&mut map, "iat")?;
    let subject = text(&mut map, "sub")?.ok_or(missing("sub"))?;
    let is_name = (1..=TOKEN_SUBJECT_BYTES_MAX).contains(&subject.len());
    if !is_name || subject.chars().any(char::is_control) {
        return Err(TokenRefusal::Subject);
    }
    let tenant = text(&mut map, "tenant")?;
    let id = text(&mut map, "jti")?;
    let roles = texts(&mut map, "roles")?.unwrap_or_default();
    let rights = texts(&mut map, "rights")?.unwrap_or_default();
    if roles.len() > ROLES_MAX || rights.len() > RIGHTS_MAX {
        return Err(TokenRefusal::TooManyRights);
    }
    let info = map.get("info").filter(|info| !info.is_null()).map(|info| info.to_string().into());
    let channels = channels(&mut map)?;
    let others = map.into_iter().filter_map(|(name, value)| {
        let value = match value {
            Value::String(text) => text,
            Value::Number(number) if number.is_u64() || number.is_i64() => number.to_string(),
            _ => return None,
        };
        Some((name.into(), value.into()))
    });
    let claims = Claims {
        subject,
        issuer: issuer.clone(),
        tenant,
        roles,
        rights,
        expires_at,
        not_before,
        id,
        info,
        channels,
        others: others.collect(),
    };
    Ok(ReadClaims { claims, issuer, audiences, issued_at })
}

/// The channels of `channels`, a list or a text, and of `subs`, an object by channel; each once.
fn channels(map: &mut Map<String, Value>) -> Result<Vec<Box<str>>, TokenRefusal> {
    let mut channels = texts(map, "channels")?.unwrap_or_default();
    match map.remove("subs") {
        None => {}
        Some(Value::Object(named)) => {
            channels.extend(named.into_iter().map(|(name, _)| name.into()))
        }
        Some(_) => {
            return Err(TokenRefusal::Claim { claim: "subs", expected: "an object by channel" });
        }
    }
    channels.sort_unstable();
    channels.dedup();
    Ok(channels)
}

fn text(
    map: &mut Map<String, Value>,
    claim: &'static str,
) -> Result<Option<Box<str>>, TokenRefusal> {
    match map.remove(claim) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.into())),
        Some(_) => Err(TokenRefusal::Claim { claim, expected: "a text" }),
    }
}

/// A text, or a list of texts.
fn texts(
    map: &mut Map<String, Value>,
    claim: &'static str,
) -> Result<Option<Vec<Box<str>>>, TokenRefusal> {
    let refused = TokenRefusal::Claim { claim, expected: "a text or a list of texts" };
    let list = match map.remove(claim) {
        None => return Ok(None),
        Some(Value::String(text)) => return Ok(Some(vec![text.into()])),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(refused),
    };
    let texts = list.into_iter().map(|value| match value {
        Value::String(text) => Ok(text.into()),
        _ => Err(refused.clone()),
    });
    texts.collect::<Result<_, _>>().map(Some)
}

/// Seconds since 1970, whole or with a fraction, as RFC 7519 has it.
fn time(
    map: &mut Map<String, Value>,
    claim: &'static str,
) -> Result<Option<Timestamp>, TokenRefusal> {
    /// The last second of the year 9999.
    const LAST: f64 = 253_402_300_799.0;
    let refused =
        TokenRefusal::Claim { claim, expected: "seconds since 1970, up to the year 9999" };
    match map.remove(claim) {
        None => Ok(None),
        Some(Value::Number(number)) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            Some(seconds) if (0.0..=LAST).contains(&seconds) => {
                Ok(Some(Timestamp((seconds * 1000.0) as u64)))
            }
            _ => Err(refused),
        },
        Some(_) => Err(refused),
    }
}
