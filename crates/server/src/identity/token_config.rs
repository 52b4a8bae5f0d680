//! The settings of a broker about tokens: the issuer that it trusts, and where the issuer's keys are. It knows no
//! token.

use std::{
    fmt, fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use sennit_identity::{
    KeySet, KeySetError, TokenKey, TokenKeyError, TokenRules, TokenRulesError,
    limits::KEY_FILE_BYTES_MAX,
};

use super::key_set_fetch::{KeySetUrl, KeySetUrlError};

/// The settings about tokens. Without an issuer the broker takes none.
#[derive(Clone, Debug)]
pub struct TokenConfig {
    /// The issuer whose tokens are taken: their claim `iss`. With one, everybody is asked for credentials.
    pub issuer: Option<String>,
    /// The audience that tokens have to name: their claim `aud`.
    pub audience: String,
    /// The public keys of the issuer.
    pub keys: Option<TokenKeySource>,
    /// The secret of HS256, for an issuer without public keys.
    pub secret: Option<TokenKey>,
    /// The time by which clocks may differ.
    pub leeway: Duration,
    /// The longest lifetime of a token.
    pub lifetime_max: Duration,
}

impl Default for TokenConfig {
    fn default() -> Self {
        Self {
            issuer: None,
            audience: "sennit".to_owned(),
            keys: None,
            secret: None,
            leeway: TokenRules::LEEWAY,
            lifetime_max: TokenRules::LIFETIME_MAX,
        }
    }
}

/// Where the public keys of an issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenKeySource {
    /// In a file in PEM.
    File(PathBuf),
    /// At a URL (JWKS), from which they are fetched again and again.
    Url(KeySetUrl),
}

impl FromStr for TokenKeySource {
    type Err = KeySetUrlError;

    fn from_str(text: &str) -> Result<Self, KeySetUrlError> {
        match text.split_once("://") {
            Some(_) => Ok(Self::Url(text.parse()?)),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl fmt::Display for TokenKeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Url(url) => write!(f, "{url}"),
        }
    }
}

/// The reason why the broker cannot take tokens as it is told.
#[derive(Debug, thiserror::Error)]
pub enum TokenConfigError {
    /// There are keys, and nobody to whom they belong.
    #[error(
        "a key or secret of tokens is given, and no issuer: --token-issuer names it, as the claim \"iss\" of its tokens does"
    )]
    NoIssuer,
    /// There is an issuer, and nothing to check its tokens with.
    #[error(
        "an issuer of tokens is given, and no key: --token-keys names a PEM file or a JWKS URL, --token-secret-file a file with the secret of HS256"
    )]
    NoKey,
    /// There are both, and one would do.
    #[error(
        "give either public keys (--token-keys) or a secret (--token-secret-file) for tokens, not both"
    )]
    TwoKeys,
    /// The file cannot be read.
    #[error("the token keys {} cannot be read: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The file has no keys that can be used.
    #[error("the token keys {}: {error}", .path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: TokenKeyError,
    },
    /// There are too many keys.
    #[error("the token keys: {0}")]
    KeySet(#[from] KeySetError),
    /// What is demanded of tokens is not possible.
    #[error(transparent)]
    Rules(#[from] TokenRulesError),
}

/// The demands on tokens, and the keys that check them.
#[derive(Clone, Debug)]
pub(crate) struct TokenSettings {
    pub(crate) rules: TokenRules,
    pub(crate) keys: TokenKeys,
}

/// The keys of an issuer, or where they are.
#[derive(Clone, Debug)]
pub(crate) enum TokenKeys {
    Known(KeySet),
    At(KeySetUrl),
}

impl TokenConfig {
    /// The rules and keys that they come to; `None` if no tokens are taken. Reads the file with keys.
    ///
    /// # Errors
    /// Something is missing or too much, or the file has no keys.
    pub(crate) fn settings(&self) -> Result<Option<TokenSettings>, TokenConfigError> {
        let Some(issuer) = &self.issuer else {
            let has_keys = self.keys.is_some() || self.secret.is_some();
            return if has_keys { Err(TokenConfigError::NoIssuer) } else { Ok(None) };
        };
        let keys = match (&self.keys, &self.secret) {
            (None, None) => return Err(TokenConfigError::NoKey),
            (Some(_), Some(_)) => return Err(TokenConfigError::TwoKeys),
            (None, Some(secret)) => TokenKeys::Known(KeySet::new(vec![secret.clone()])?),
            (Some(TokenKeySource::File(path)), None) => TokenKeys::Known(read(path)?),
            (Some(TokenKeySource::Url(url)), None) => TokenKeys::At(url.clone()),
        };
        let rules = TokenRules::new(issuer, &self.audience)?
            .with_leeway(self.leeway)?
            .with_lifetime_max(self.lifetime_max)?;
        Ok(Some(TokenSettings { rules, keys }))
    }
}

/// The keys in a PEM file.
fn read(path: &Path) -> Result<KeySet, TokenConfigError> {
    let file = |error| TokenConfigError::File { path: path.to_owned(), error };
    let mut pem = Vec::new();
    let opened = fs::File::open(path).map_err(file)?;
    opened.take(KEY_FILE_BYTES_MAX as u64 + 1).read_to_end(&mut pem).map_err(file)?;
    let keys = TokenKey::all_from_pem(&pem);
    let keys = keys.map_err(|error| TokenConfigError::Key { path: path.to_owned(), error })?;
    Ok(KeySet::new(keys)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> TokenConfig {
        let secret = TokenKey::from_secret(&[7; 32]).unwrap();
        TokenConfig { issuer: Some("dev".into()), secret: Some(secret), ..<_>::default() }
    }

    #[test]
    fn an_issuer_has_keys_of_one_kind() {
        assert!(TokenConfig::default().settings().unwrap().is_none());
        assert!(config().settings().unwrap().is_some());
        let refused = |config: TokenConfig| config.settings().unwrap_err();
        let no_issuer = TokenConfig { issuer: None, ..config() };
        assert!(matches!(refused(no_issuer), TokenConfigError::NoIssuer));
        let no_key = TokenConfig { secret: None, ..config() };
        assert!(matches!(refused(no_key), TokenConfigError::NoKey));
        let url = "https://issuer.example/keys".parse().unwrap();
        let two = TokenConfig { keys: Some(url), ..config() };
        assert!(matches!(refused(two), TokenConfigError::TwoKeys));
        let nameless = TokenConfig { issuer: Some(String::new()), ..config() };
        assert!(matches!(refused(nameless), TokenConfigError::Rules(TokenRulesError::NoIssuer)));
        let long = TokenConfig { leeway: Duration::from_secs(301), ..config() };
        assert!(matches!(refused(long), TokenConfigError::Rules(TokenRulesError::Leeway)));
    }

    #[test]
    fn keys_are_in_a_file_or_at_a_url() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.pem");
        let source: TokenKeySource = path.to_str().unwrap().parse().unwrap();
        assert_eq!(source, TokenKeySource::File(path.clone()));
        let config = TokenConfig { keys: Some(source), secret: None, ..config() };
        assert!(matches!(config.settings(), Err(TokenConfigError::File { .. })));
        fs::write(&path, "no keys").unwrap();
        assert!(matches!(config.settings(), Err(TokenConfigError::Key { .. })));
        // RFC 8032, section 7.1, test 1.
        let pem = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n-----END PUBLIC KEY-----\n";
        fs::write(&path, pem).unwrap();
        assert!(matches!(
            config.settings(),
            Ok(Some(TokenSettings { keys: TokenKeys::Known(_), .. }))
        ));
        let url: TokenKeySource = "https://issuer.example/keys".parse().unwrap();
        assert_eq!(url.to_string(), "https://issuer.example/keys");
        assert!("http://issuer.example/keys".parse::<TokenKeySource>().is_err());
    }
}
