//! `sennit auth tenant`: namespaces with keys of their own.

use sennit_client::{AccessEntry, AccessKind, Client, Quotas};
use serde_json::json;

use super::say;
use crate::{
    exit::Failure,
    output::{print_json, print_table},
    quantity, time_argument,
};

/// The arguments of `sennit auth tenant`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a tenant: the names of its topics begin with its name and . or /
    Create {
        /// The tenant's name
        name: String,
        #[command(flatten)]
        quotas: QuotaOptions,
    },
    /// Set all quotas of a tenant; what is left out has no limit
    Quotas {
        /// The tenant's name
        name: String,
        #[command(flatten)]
        quotas: QuotaOptions,
    },
    /// List the tenants
    List,
    /// Delete a tenant that has no keys and no users; its topics stay
    Delete {
        /// The tenant's name
        name: String,
    },
}

/// The quotas of a tenant.
#[derive(Clone, Debug, clap::Args)]
struct QuotaOptions {
    /// Most messages published in a second
    #[arg(long, value_name = "N")]
    messages_per_second: Option<u64>,
    /// Most bytes published in a second
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    bytes_per_second: Option<u64>,
    /// Most bytes of messages that are kept in its topics and streams
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    stored_bytes: Option<u64>,
    /// Most topics and streams
    #[arg(long, value_name = "N")]
    topics: Option<u64>,
    /// Most connections of the native protocol at once
    #[arg(long, value_name = "N")]
    connections: Option<u64>,
}

impl QuotaOptions {
    fn quotas(self) -> Quotas {
        let Self { messages_per_second, bytes_per_second, stored_bytes, topics, connections } =
            self;
        Quotas { messages_per_second, bytes_per_second, stored_bytes, topics, connections }
    }
}

impl Args {
    /// Runs the verb.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let access = client.access();
        match self.verb {
            Verb::Quotas { name, quotas } => {
                access.set_quotas(&name, quotas.quotas()).await?;
                say(as_json, &format!("tenant {name}"), "has these quotas now")
            }
            Verb::Create { name, quotas } => {
                access.create_tenant(&name, quotas.quotas()).await?;
                say(as_json, &format!("tenant {name}"), "is created")
            }
            Verb::Delete { name } => {
                access.delete(AccessKind::Tenants, &name).await?;
                say(as_json, &format!("tenant {name}"), "is deleted")
            }
            Verb::List => list(&access.list(AccessKind::Tenants).await?, as_json),
        }
    }
}

fn list(tenants: &[AccessEntry], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return tenants.iter().try_for_each(|tenant| {
            let quotas = tenant.quotas;
            print_json(&json!({
                "name": tenant.id,
                "created_ms": tenant.created_at.0,
                "messages_per_second": quotas.messages_per_second,
                "bytes_per_second": quotas.bytes_per_second,
                "stored_bytes": quotas.stored_bytes,
                "topics": quotas.topics,
                "connections": quotas.connections,
                "bytes_stored": tenant.stored_bytes,
            }))
        });
    }
    let rows = tenants.iter().map(|tenant| {
        let Quotas { messages_per_second, bytes_per_second, stored_bytes, topics, connections } =
            tenant.quotas;
        let stored = [tenant.stored_bytes, stored_bytes];
        let quotas =
            [[messages_per_second, bytes_per_second], stored, [topics, connections]].into_iter();
        let mut row = vec![tenant.id.clone(), time_argument::show(tenant.created_at.0)];
        row.extend(
            quotas.flatten().map(|quota| quota.map_or("-".to_owned(), |most| most.to_string())),
        );
        row
    });
    let heads = [
        "NAME",
        "CREATED",
        "MESSAGES/S",
        "BYTES/S",
        "STORED",
        "STORED BYTES",
        "TOPICS",
        "CONNECTIONS",
    ];
    print_table(&heads, &rows.collect::<Vec<_>>())
}
