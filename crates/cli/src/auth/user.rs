//! `sennit auth user`: users, who log in with a password or by a client certificate.

use std::path::PathBuf;

use sennit_client::{AccessEntry, AccessKind, Client, Holder};

use super::{
    holder_options::{HolderOptions, cells, holder_json},
    say,
};
use crate::{
    credential_options::{ask_password, secret_of},
    exit::{Exit, Failure},
    output::{print_json, print_table},
    time_argument,
};

/// The arguments of `sennit auth user`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a user
    Create {
        /// The user's name
        name: String,
        #[command(flatten)]
        holder: HolderOptions,
        /// The name of a client certificate that logs the user in: cn:NAME, dns:HOST, uri:URI,
        /// email:ADDRESS or sha256:FINGERPRINT; may be given often. A password is not asked for then
        #[arg(long = "certificate", value_name = "NAME")]
        certificates: Vec<String>,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Set the password of a user; connections made with the one before end
    Password {
        /// The user's name
        name: String,
        #[command(flatten)]
        password: NewPassword,
    },
    /// Set the client certificates that log a user in; connections made with others end
    Certificates {
        /// The user's name
        name: String,
        /// The names of the certificates, instead of those before; none for no certificate
        #[arg(value_name = "CERTIFICATE")]
        certificates: Vec<String>,
    },
    /// List the users
    List,
    /// Delete a user; the user's connections end
    Delete {
        /// The user's name
        name: String,
    },
}

/// The password to set.
#[derive(Debug, clap::Args)]
struct NewPassword {
    /// The file with the new password; - for standard input [default: asked for, twice]
    #[arg(long, value_name = "FILE")]
    new_password_file: Option<PathBuf>,
}

impl NewPassword {
    fn password(&self) -> Result<String, Failure> {
        if let Some(file) = &self.new_password_file {
            return secret_of(file);
        }
        let password = ask_password("new password: ")?;
        if ask_password("once more: ")? == password {
            return Ok(password);
        }
        Err(Failure::new(Exit::Usage, "the two are not the same"))
    }
}

impl Args {
    /// Runs the verb.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let access = client.access();
        match self.verb {
            Verb::Create { name, holder, certificates, password } => {
                let is_there = access.list(AccessKind::Users).await?.iter().any(|u| u.id == name);
                if is_there {
                    let text = format!("user {name} is there already: see `auth user password`");
                    return Err(Failure::new(Exit::Conflict, text));
                }
                let holder = holder.holder();
                let has_password = certificates.is_empty() || password.new_password_file.is_some();
                if has_password {
                    access.set_password(&name, &password.password()?, holder.clone()).await?;
                }
                if !certificates.is_empty() {
                    access.set_certificates(&name, certificates, holder).await?;
                }
                say(as_json, &format!("user {name}"), "is created")
            }
            Verb::Password { name, password } => {
                let is_there = access.list(AccessKind::Users).await?.iter().any(|u| u.id == name);
                if !is_there {
                    return Err(Failure::new(Exit::NotFound, format!("there is no user {name}")));
                }
                access.set_password(&name, &password.password()?, Holder::default()).await?;
                say(as_json, &format!("user {name}"), "has another password")
            }
            Verb::Certificates { name, certificates } => {
                let is_there = access.list(AccessKind::Users).await?.iter().any(|u| u.id == name);
                if !is_there {
                    return Err(Failure::new(Exit::NotFound, format!("there is no user {name}")));
                }
                access.set_certificates(&name, certificates, Holder::default()).await?;
                say(as_json, &format!("user {name}"), "has these certificates now")
            }
            Verb::Delete { name } => {
                access.delete(AccessKind::Users, &name).await?;
                say(as_json, &format!("user {name}"), "is deleted")
            }
            Verb::List => list(&access.list(AccessKind::Users).await?, as_json),
        }
    }
}

fn list(users: &[AccessEntry], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return users.iter().try_for_each(|user| {
            let mut json = holder_json(&user.holder);
            json["name"] = user.id.as_str().into();
            json["created_ms"] = user.created_at.0.into();
            json["password"] = (user.generation > 0).into();
            json["certificates"] = user.certificates.clone().into();
            print_json(&json)
        });
    }
    let rows = users.iter().map(|user| {
        let mut row = vec![user.id.clone(), time_argument::show(user.created_at.0)];
        row.push(logs_in_by(user));
        row.extend(cells(&user.holder));
        row
    });
    let head = ["NAME", "CREATED", "LOGIN", "TENANT", "ROLES", "RIGHTS"];
    print_table(&head, &rows.collect::<Vec<_>>())
}

/// The credentials that log a user in, for people.
fn logs_in_by(user: &AccessEntry) -> String {
    let password = (user.generation > 0).then_some("password");
    let certificates = user.certificates.iter().map(String::as_str);
    password.into_iter().chain(certificates).collect::<Vec<_>>().join(" ")
}
