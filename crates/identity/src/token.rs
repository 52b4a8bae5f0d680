//! Tokens (JWT): the signature is checked with a key of the issuer, then the claims by the rules of the broker. Issuer,
//! audience and expiry are always checked. It knows no rights and no clock.

mod claims;
mod refusal;
#[cfg(test)]
mod tests;

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Validation, errors::ErrorKind};
use sennit_model::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};

pub use self::{claims::Claims, refusal::TokenRefusal};
use crate::{
    key_set::{KeySet, NoKey},
    limits::{KEY_ID_BYTES_MAX, TOKEN_BYTES_MAX, TOKEN_LEEWAY_MAX, TOKEN_LIFETIME_MAX},
    ring_provider,
    token_key::TokenAlgorithm,
};

/// The reason why rules are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRulesError {
    /// The issuer is empty.
    #[error("the issuer of tokens is empty: it is what the claim \"iss\" of each token says")]
    NoIssuer,
    /// The audience is empty.
    #[error(
        "the audience of tokens is empty: it is the name of this broker in the claim \"aud\" of each token"
    )]
    NoAudience,
    /// The leeway is too long.
    #[error("the leeway for clocks is at most {} s (TOKEN_LEEWAY_MAX)", TOKEN_LEEWAY_MAX.as_secs())]
    Leeway,
    /// The lifetime is zero or too long.
    #[error("the longest lifetime of tokens is 1 s to {} s (TOKEN_LIFETIME_MAX)", TOKEN_LIFETIME_MAX.as_secs())]
    Lifetime,
}

/// The demands of the broker on the tokens of an issuer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    issuer: Box<str>,
    audience: Box<str>,
    leeway: Duration,
    lifetime_max: Duration,
}

impl TokenRules {
    /// The leeway for clocks that differ, when nothing else is configured.
    pub const LEEWAY: Duration = Duration::from_secs(30);

    /// The longest lifetime of a token, when nothing else is configured.
    pub const LIFETIME_MAX: Duration = Duration::from_secs(24 * 3600);

    /// The rules for tokens of `issuer` that are meant for `audience`.
    ///
    /// # Errors
    /// One of them is empty.
    pub fn new(issuer: &str, audience: &str) -> Result<Self, TokenRulesError> {
        if issuer.is_empty() {
            return Err(TokenRulesError::NoIssuer);
        }
        if audience.is_empty() {
            return Err(TokenRulesError::NoAudience);
        }
        let (leeway, lifetime_max) = (Self::LEEWAY, Self::LIFETIME_MAX);
        Ok(Self { issuer: issuer.into(), audience: audience.into(), leeway, lifetime_max })
    }

    /// The same with another leeway for clocks that differ.
    ///
    /// # Errors
    /// It is too long.
    pub fn with_leeway(self, leeway: Duration) -> Result<Self, TokenRulesError> {
        if leeway > TOKEN_LEEWAY_MAX {
            return Err(TokenRulesError::Leeway);
        }
        Ok(Self { leeway, ..self })
    }

    /// The same with another longest lifetime. A token that is good for longer is refused: nobody can take it back.
    ///
    /// # Errors
    /// It is zero or too long.
    pub fn with_lifetime_max(self, lifetime_max: Duration) -> Result<Self, TokenRulesError> {
        if !(Duration::from_secs(1)..=TOKEN_LIFETIME_MAX).contains(&lifetime_max) {
            return Err(TokenRulesError::Lifetime);
        }
        Ok(Self { lifetime_max, ..self })
    }

    /// The issuer.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The audience.
    #[must_use]
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The claims of `token`, if a key of the issuer has signed it and these rules are kept at `now`. Costs one check of a
    /// signature: HS256 a few microseconds, EdDSA, ES256 and RS256 about 50 to 100. Never more than
    /// [`KEYS_WITHOUT_ID_MAX`](crate::limits::KEYS_WITHOUT_ID_MAX) of them.
    ///
    /// # Errors
    /// The token is not taken, with the reason for the log; [`TokenRefusal::public_message`] is for the client.
    pub fn verify(
        &self,
        keys: &KeySet,
        token: &str,
        now: Timestamp,
    ) -> Result<Claims, TokenRefusal> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenRefusal::TooLong { length: token.len() });
        }
        let (id, algorithm) = read_header(token)?;
        let candidates =
            keys.candidates(id.as_deref(), algorithm).map_err(|no_key| match no_key {
                NoKey::UnknownId => TokenRefusal::UnknownKey { id: id.clone().unwrap_or_default() },
                NoKey::IdMissing => TokenRefusal::KeyIdMissing,
                NoKey::OtherAlgorithm => TokenRefusal::KeyOfOtherAlgorithm { algorithm },
            })?;
        ring_provider::install();
        let validation = signature_only(algorithm);
        for key in candidates {
            match jsonwebtoken::decode::<Map<String, Value>>(token, &key.key, &validation) {
                Ok(decoded) => return self.check(decoded.claims, now),
                Err(error) => match error.kind() {
                    ErrorKind::InvalidSignature => {}
                    ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
                        return Err(TokenRefusal::NoClaims);
                    }
                    _ => return Err(TokenRefusal::Malformed),
                },
            }
        }
        Err(TokenRefusal::Signature)
    }

    fn check(&self, claims: Map<String, Value>, now: Timestamp) -> Result<Claims, TokenRefusal> {
        let read = claims::read(claims)?;
        if *read.issuer != *self.issuer {
            return Err(TokenRefusal::Issuer);
        }
        if !read.audiences.iter().any(|audience| **audience == *self.audience) {
            return Err(TokenRefusal::Audience);
        }
        let mut claims = read.claims;
        if now.0 >= claims.expires_at.plus(self.leeway).0 {
            return Err(TokenRefusal::Expired);
        }
        let starts = [claims.not_before, read.issued_at].into_iter().flatten().max();
        if starts.is_some_and(|start| start > now.plus(self.leeway)) {
            return Err(TokenRefusal::NotYetValid);
        }
        // A token without a time of issue is taken as issued now.
        let issued_at = read.issued_at.unwrap_or(now).min(now);
        if claims.expires_at.since(issued_at) > self.lifetime_max {
            return Err(TokenRefusal::LivesTooLong { lifetime_max: self.lifetime_max });
        }
        claims.expires_at = claims.expires_at.plus(self.leeway);
        Ok(claims)
    }
}

/// Has `jsonwebtoken` check the signature and nothing else: its clock is the system's.
fn signature_only(algorithm: TokenAlgorithm) -> Validation {
    let mut validation = Validation::new(algorithm.of_jsonwebtoken());
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    validation
}

/// The id of the key and the algorithm that the header names.
fn read_header(token: &str) -> Result<(Option<Box<str>>, TokenAlgorithm), TokenRefusal> {
    #[derive(Deserialize)]
    struct Header {
        alg: Box<str>,
        kid: Option<Box<str>>,
        typ: Option<Box<str>>,
        crit: Option<serde::de::IgnoredAny>,
        b64: Option<serde::de::IgnoredAny>,
        zip: Option<serde::de::IgnoredAny>,
        enc: Option<serde::de::IgnoredAny>,
    }
    let mut parts = token.split('.');
    let (Some(header), Some(_), Some(_), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(TokenRefusal::Malformed);
    };
    let header = URL_SAFE_NO_PAD.decode(header).map_err(|_| TokenRefusal::Malformed)?;
    let header: Header = serde_json::from_slice(&header).map_err(|_| TokenRefusal::Malformed)?;
    if [header.crit, header.b64, header.zip, header.enc].iter().any(Option::is_some) {
        return Err(TokenRefusal::Extension);
    }
    let kind = header.typ.as_deref().unwrap_or("JWT").to_ascii_lowercase();
    let kind = kind.strip_prefix("application/").unwrap_or(&kind);
    if !["jwt", "at+jwt"].contains(&kind) {
        return Err(TokenRefusal::Kind);
    }
    let algorithm = header
        .alg
        .parse()
        .map_err(|_| TokenRefusal::Algorithm { name: header.alg.chars().take(32).collect() })?;
    if header.kid.as_ref().is_some_and(|id| id.len() > KEY_ID_BYTES_MAX) {
        return Err(TokenRefusal::Malformed);
    }
    Ok((header.kid, algorithm))
}
