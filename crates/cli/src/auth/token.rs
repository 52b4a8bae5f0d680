//! `sennit auth token`: mints a token (JWT) for development. It asks no broker.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use sennit_identity::{NewToken, SigningKey, SystemRandom, Zeroizing, limits::KEY_FILE_BYTES_MAX};
use sennit_model::Timestamp;
use serde_json::json;

use super::holder_options::GrantOptions;
use crate::{
    credential_options::secret_of,
    exit::{Exit, Failure},
    output::{print_json, print_text},
    quantity,
};

const EXAMPLES: &str = "\
Examples:
  openssl rand -hex 32 > secret && sennit serve --token-issuer dev --token-secret-file secret
  export SENNIT_KEY=$(sennit auth token ada --issuer dev --signing-secret-file secret --role viewer)
  openssl genpkey -algorithm ed25519 -out dev.pem && openssl pkey -in dev.pem -pubout -out dev-public.pem
  sennit auth token ada --issuer dev --signing-key-file dev.pem --right 'publish user.{sub}.>' --claim team=blue

In production an issuer of yours makes tokens, and the broker has its public keys alone. The token is
good for whoever has it until it expires; docs/reference/tokens.md says which tokens a broker takes.";

/// The arguments of `sennit auth token`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Who the owner of the token is (the claim sub)
    #[arg(value_name = "SUBJECT")]
    subject: String,
    /// The issuer that the broker trusts (the claim iss)
    #[arg(long, value_name = "ISSUER")]
    issuer: String,
    /// The audience that the broker demands (the claim aud)
    #[arg(long, value_name = "AUDIENCE", default_value = "sennit")]
    audience: String,
    /// The file with the secret of HS256, which the broker has too; - for standard input
    #[arg(long, value_name = "FILE", required_unless_present = "signing_key_file")]
    signing_secret_file: Option<PathBuf>,
    /// The file with a private key in PEM: Ed25519, P-256 or RSA
    #[arg(long, value_name = "FILE", conflicts_with = "signing_secret_file")]
    signing_key_file: Option<PathBuf>,
    /// The id of the key, which the token names (kid)
    #[arg(long, value_name = "ID")]
    key_id: Option<String>,
    /// The time for which the token is good
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = quantity::duration)]
    lifetime: Duration,
    #[command(flatten)]
    grant: GrantOptions,
    /// The tenant that the owner belongs to
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// A channel to which live connections of the owner are subscribed when they begin; may be given often
    #[arg(long = "channel", value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Another claim, for the places of patterns; may be given often
    #[arg(long = "claim", value_name = "NAME=TEXT", value_parser = claim)]
    claims: Vec<(String, String)>,
}

fn claim(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=TEXT".to_owned()),
    }
}

impl Args {
    /// Prints the token.
    ///
    /// # Errors
    /// The secret or the key is not taken, or the token would be too long.
    pub fn run(self, as_json: bool) -> Result<(), Failure> {
        let random = SystemRandom::new();
        let usage =
            |error: sennit_identity::MintError| Failure::new(Exit::Usage, error.to_string());
        let mut key = self.signing_key(&random)?;
        if let Some(id) = &self.key_id {
            key = key.with_id(id).map_err(usage)?;
        }
        let boxed = |texts: Vec<String>| texts.into_iter().map(Into::into).collect();
        let others = self.claims.into_iter().map(|(name, text)| (name.into(), text.into()));
        let token = NewToken {
            subject: self.subject.into(),
            issuer: self.issuer.into(),
            audience: self.audience.into(),
            lifetime: self.lifetime,
            tenant: self.tenant.map(Into::into),
            roles: boxed(self.grant.roles),
            rights: boxed(self.grant.rights),
            channels: boxed(self.channels),
            others: others.collect::<BTreeMap<_, _>>(),
            ..NewToken::default()
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timestamp::default().plus(since);
        let text = token.mint(&key, now, &random).map_err(usage)?;
        if as_json {
            let expires_ms = now.plus(self.lifetime).0;
            return print_json(&json!({ "token": *text, "expires_ms": expires_ms }));
        }
        print_text(&format!("{}\n", *text))
    }

    fn signing_key(&self, random: &SystemRandom) -> Result<SigningKey, Failure> {
        let (file, key) = match (&self.signing_secret_file, &self.signing_key_file) {
            (Some(file), _) => (file, SigningKey::from_secret(secret_of(file)?.as_bytes())),
            (None, Some(file)) => {
                let about = |error| Failure::from(error).about(file.display());
                let mut pem = Zeroizing::new(Vec::new());
                let opened = fs::File::open(file).map_err(about)?;
                let most = KEY_FILE_BYTES_MAX as u64 + 1;
                opened.take(most).read_to_end(&mut pem).map_err(about)?;
                (file, SigningKey::from_pem(&pem, random))
            }
            (None, None) => return Err(Failure::new(Exit::Usage, "give a secret or a key")),
        };
        key.map_err(|error| Failure::new(Exit::Usage, error.to_string()).about(file.display()))
    }
}
