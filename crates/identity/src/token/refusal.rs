//! The reasons why a token is refused. The log gets the reason; the client gets a sentence that helps no attacker.

use std::time::Duration;

use crate::{
    limits::{RIGHTS_MAX, ROLES_MAX, TOKEN_BYTES_MAX, TOKEN_SUBJECT_BYTES_MAX},
    token_key::TokenAlgorithm,
};

/// The reason why a token is refused. It repeats neither the token nor its signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefusal {
    /// It is too long.
    #[error("a token of {length} bytes is too long: TOKEN_BYTES_MAX is {TOKEN_BYTES_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It is not a signed JWT.
    #[error("not a token: three parts in base64url, of which the first is JSON with \"alg\"")]
    Malformed,
    /// Its header demands an extension.
    #[error(
        "the token's header has \"crit\", \"b64\", \"zip\" or \"enc\", of which none is supported"
    )]
    Extension,
    /// It is a token of another kind.
    #[error("the token's \"typ\" is neither JWT nor at+jwt")]
    Kind,
    /// Its algorithm is not taken, as `none`.
    #[error("the token's algorithm is {name:?}: HS256, RS256, ES256 and EdDSA are taken")]
    Algorithm {
        /// The beginning of the name in the header.
        name: Box<str>,
    },
    /// None of the issuer's keys has the id that it names. A fresh key set may have it.
    #[error("no key has the id {id:?} that the token names")]
    UnknownKey {
        /// The id in the header.
        id: Box<str>,
    },
    /// The issuer has not been reached, or not for too long.
    #[error("the keys of the issuer are not known")]
    NoKeys,
    /// It names no key, and there are several.
    #[error("the token names no key (kid), and the issuer has several")]
    KeyIdMissing,
    /// The key that it names has another algorithm.
    #[error(
        "the token says {}, and the issuer's key for it has another algorithm",
        .algorithm.name()
    )]
    KeyOfOtherAlgorithm {
        /// The algorithm in the header.
        algorithm: TokenAlgorithm,
    },
    /// Its signature is not one of the issuer's key.
    #[error("the token's signature is wrong")]
    Signature,
    /// It is signed, and has no claims.
    #[error("the token's payload is not a JSON object, or a time in it is not a number")]
    NoClaims,
    /// A claim is missing.
    #[error("the token has no claim {claim:?}, which is required")]
    ClaimMissing {
        /// Its name.
        claim: &'static str,
    },
    /// A claim has a value that it cannot have.
    #[error("the token's claim {claim:?} is not {expected}")]
    Claim {
        /// Its name.
        claim: &'static str,
        /// What it would have to be.
        expected: &'static str,
    },
    /// The subject is empty, too long, or has control characters.
    #[error(
        "the token's subject has 1 to {TOKEN_SUBJECT_BYTES_MAX} bytes (TOKEN_SUBJECT_BYTES_MAX) and no control characters"
    )]
    Subject,
    /// It has too many roles or rights.
    #[error(
        "the token has more than {ROLES_MAX} roles or {RIGHTS_MAX} rights (ROLES_MAX, RIGHTS_MAX)"
    )]
    TooManyRights,
    /// It is another issuer's.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is meant for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come, or it says that it was issued in the future.
    #[error("the token is not valid yet, or was issued in the future: do the clocks differ?")]
    NotYetValid,
    /// It is good for too long.
    #[error("the token is good for more than {} s, which is the longest lifetime", .lifetime_max.as_secs())]
    LivesTooLong {
        /// The longest lifetime that is configured.
        lifetime_max: Duration,
    },
}

impl TokenRefusal {
    /// The sentence for the client. It says no more than that the token is not taken; the owner of a token with a good
    /// signature learns that it has expired, since a client has to get a new one then.
    #[must_use]
    pub fn public_message(&self) -> &'static str {
        match self {
            Self::Expired => "the token has expired",
            Self::NoKeys => "tokens cannot be checked at the moment",
            _ => "the token is not accepted",
        }
    }
}
