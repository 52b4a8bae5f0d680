//! `sennit auth`: who may do what: API keys, users, roles, rights and tenants; tokens for development.

mod holder_options;
mod key;
mod role;
mod tenant;
mod token;
mod user;

use sennit_client::{Client, PrincipalName, RightDecision};
use serde_json::json;

use self::holder_options::{GrantOptions, principal_name};
use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    output::{print_json, print_text, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit auth key create first --role admin           the first key; from then on all are asked
  sennit auth key create shop --right 'publish shop.>' --right 'consume,settle shop.orders'
  sennit auth key rotate 0w3ge1r70w3g --grace 24h
  sennit auth user create ada --role operator
  sennit auth user create billing --certificate cn:billing --right 'publish bills.>'
  sennit auth grant ada --right 'inspect orders.>'
  sennit auth can ada inspect orders.eu
  sennit auth tenant create acme
  sennit auth key create acme-app --tenant acme --right '* acme.>'

A right is `[deny] VERB[,VERB...] [PATTERN]`; docs/reference/identity.md has the verbs. In a pattern *
is one part and > all that follows; {sub}, {name} and {tenant} are the principal's own. The key or the
password that a verb shows to the broker comes from --key-file, SENNIT_KEY, or --user.";

/// The arguments of `sennit auth`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// API keys, for programs: create, list, rotate, delete
    Key(key::Args),
    /// Users, who log in with a password or a client certificate: create, list, password, certificates, delete
    User(user::Args),
    /// Roles, which are sets of rights: set, list, delete
    Role(role::Args),
    /// Tenants, whose topics' names begin with theirs: create, list, delete
    Tenant(tenant::Args),
    /// Mint a token (JWT) for development
    Token(token::Args),
    /// Give roles and rights to a key or user
    Grant {
        /// The id of the key, or the name of the user
        #[arg(value_name = "WHO", value_parser = principal_name)]
        who: PrincipalName,
        #[command(flatten)]
        grant: GrantOptions,
    },
    /// Take roles and rights from a key or user
    Revoke {
        /// The id of the key, or the name of the user
        #[arg(value_name = "WHO", value_parser = principal_name)]
        who: PrincipalName,
        #[command(flatten)]
        grant: GrantOptions,
    },
    /// Print whether a key or user may do something, and the right that decides; exit code 5 if not
    Can {
        /// The id of the key, the name of the user, or `me`
        #[arg(value_name = "WHO")]
        who: String,
        /// The verb
        #[arg(value_name = "VERB")]
        verb_name: String,
        /// The topic or the key of the configuration; none for the broker as a whole
        #[arg(default_value = "", hide_default_value = true)]
        name: String,
    },
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, or the broker cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, json, verb } = args;
    let verb = match verb {
        Verb::Token(args) => return args.run(json),
        verb => verb,
    };
    block_on(async {
        let client = connect.client().await?;
        match verb {
            Verb::Token(args) => args.run(json),
            Verb::Key(args) => args.run(&client, json).await,
            Verb::User(args) => args.run(&client, json).await,
            Verb::Role(args) => args.run(&client, json).await,
            Verb::Tenant(args) => args.run(&client, json).await,
            Verb::Grant { who, grant } => {
                let GrantOptions { roles, rights } = grant.checked()?;
                client.access().grant(&who, roles, rights).await?;
                say(json, &shown(&who), "has these roles and rights now")
            }
            Verb::Revoke { who, grant } => {
                let GrantOptions { roles, rights } = grant.checked()?;
                client.access().revoke(&who, roles, rights).await?;
                say(json, &shown(&who), "has these roles and rights no more")
            }
            Verb::Can { who, verb_name, name } => can(&client, json, &who, &verb_name, &name).await,
        }
    })
}

async fn can(
    client: &Client,
    as_json: bool,
    who: &str,
    verb: &str,
    name: &str,
) -> Result<(), Failure> {
    let principal = match who {
        "me" => None,
        who => Some(principal_name(who).map_err(|error| Failure::new(Exit::Usage, error))?),
    };
    let decided = client.access().decide(principal.as_ref(), verb, name).await?;
    let RightDecision { is_allowed, reason } = decided;
    if as_json {
        print_json(&json!({
            "who": who, "verb": verb, "name": name, "allowed": is_allowed, "reason": reason,
        }))?;
    } else {
        print_text(&format!("{}: {reason}\n", if is_allowed { "yes" } else { "no" }))?;
    }
    let what = format!("{verb} {name}");
    match is_allowed {
        true => Ok(()),
        false => Err(Failure::new(Exit::Forbidden, format!("{who} may not {}", what.trim_end()))),
    }
}

fn shown(who: &PrincipalName) -> String {
    match who {
        PrincipalName::Key(id) => format!("key {id}"),
        PrincipalName::User(name) => format!("user {name}"),
    }
}

/// Says what was done to something.
fn say(as_json: bool, name: &str, what: &str) -> Result<(), Failure> {
    if as_json {
        return print_json(&json!({ "name": name, "done": what }));
    }
    print_to_stderr(&format!("{name} {what}"));
    Ok(())
}
