//! `sennit auth tenant`: namespaces with keys of their own.

use sennit_client::{AccessEntry, AccessKind, Client};
use serde_json::json;

use super::say;
use crate::{
    exit::Failure,
    output::{print_json, print_table},
    time_argument,
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
    },
    /// List the tenants
    List,
    /// Delete a tenant that has no keys and no users; its topics stay
    Delete {
        /// The tenant's name
        name: String,
    },
}

impl Args {
    /// Runs the verb.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let access = client.access();
        match self.verb {
            Verb::Create { name } => {
                access.create_tenant(&name).await?;
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
            print_json(&json!({ "name": tenant.id, "created_ms": tenant.created_at.0 }))
        });
    }
    let rows = tenants.iter().map(|it| vec![it.id.clone(), time_argument::show(it.created_at.0)]);
    print_table(&["NAME", "CREATED"], &rows.collect::<Vec<_>>())
}
