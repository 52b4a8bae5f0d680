//! `sennit auth role`: sets of rights.

use sennit_client::{AccessEntry, AccessKind, Client};
use serde_json::json;

use super::say;
use crate::{
    exit::Failure,
    output::{print_json, print_table},
};

/// The arguments of `sennit auth role`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Set all rights of a role; create it if it is not there
    Set {
        /// The role's name
        name: String,
        /// Its rights, each as 'publish,settle orders.>'
        #[arg(required = true, value_name = "RIGHT")]
        rights: Vec<String>,
    },
    /// List the roles with their rights
    List,
    /// Delete a role that no key and no user has
    Delete {
        /// The role's name
        name: String,
    },
}

impl Args {
    /// Runs the verb.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let access = client.access();
        match self.verb {
            Verb::Set { name, rights } => {
                access.set_role(&name, rights).await?;
                say(as_json, &format!("role {name}"), "is set")
            }
            Verb::Delete { name } => {
                access.delete(AccessKind::Roles, &name).await?;
                say(as_json, &format!("role {name}"), "is deleted")
            }
            Verb::List => list(&access.list(AccessKind::Roles).await?, as_json),
        }
    }
}

fn list(roles: &[AccessEntry], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return roles.iter().try_for_each(|role| {
            print_json(&json!({ "name": role.id, "rights": role.holder.rights }))
        });
    }
    let rows = roles.iter().map(|role| vec![role.id.clone(), role.holder.rights.join("; ")]);
    print_table(&["NAME", "RIGHTS"], &rows.collect::<Vec<_>>())
}
