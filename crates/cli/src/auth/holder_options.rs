//! The options for the tenant, the roles and the rights of a key or user, and how these are printed.

use sennit_client::{Holder, PrincipalName};
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};

/// Roles and rights to give or to take.
#[derive(Clone, Debug, clap::Args)]
pub struct GrantOptions {
    /// A role; may be given often
    #[arg(long = "role", value_name = "NAME")]
    pub roles: Vec<String>,
    /// A right, as 'publish,settle orders.>'; may be given often
    #[arg(long = "right", value_name = "RIGHT")]
    pub rights: Vec<String>,
}

impl GrantOptions {
    /// The same, if there is anything in it.
    ///
    /// # Errors
    /// Neither a role nor a right was given.
    pub fn checked(self) -> Result<Self, Failure> {
        if self.roles.is_empty() && self.rights.is_empty() {
            return Err(Failure::new(Exit::Usage, "give --role or --right"));
        }
        Ok(self)
    }
}

/// The tenant, roles and rights of a new key or user.
#[derive(Clone, Debug, clap::Args)]
pub struct HolderOptions {
    #[command(flatten)]
    grant: GrantOptions,
    /// The tenant that it belongs to: it can use that tenant's topics only
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl HolderOptions {
    /// The holder that they describe.
    pub fn holder(self) -> Holder {
        let Self { grant: GrantOptions { roles, rights }, tenant } = self;
        Holder { tenant, roles, rights }
    }
}

/// A key or user as it is named: the id of a key, the name of a user, or `key:ID` or `user:NAME`.
///
/// # Errors
/// A text for people.
pub fn principal_name(text: &str) -> Result<PrincipalName, String> {
    // As ids of keys are made.
    let is_key = |text: &str| {
        let is_character =
            |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() && !"ilou".contains(c);
        text.len() == 12 && text.chars().all(is_character)
    };
    match text.split_once(':') {
        Some(("key", id)) => Ok(PrincipalName::Key(id.into())),
        Some(("user", name)) => Ok(PrincipalName::User(name.into())),
        Some(_) => Err("write the id of a key, the name of a user, key:ID or user:NAME".into()),
        None if is_key(text) => Ok(PrincipalName::Key(text.into())),
        None => Ok(PrincipalName::User(text.into())),
    }
}

/// The cells of a table with tenant, roles and rights.
pub fn cells(holder: &Holder) -> [String; 3] {
    let tenant = holder.tenant.clone().unwrap_or_default();
    [tenant, holder.roles.join(" "), holder.rights.join("; ")]
}

/// Tenant, roles and rights as JSON.
pub fn holder_json(holder: &Holder) -> Value {
    json!({ "tenant": holder.tenant, "roles": holder.roles, "rights": holder.rights })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_is_a_key_if_its_name_looks_like_an_id() {
        let key = |id: &str| Ok(PrincipalName::Key(id.into()));
        let user = |name: &str| Ok(PrincipalName::User(name.into()));
        assert_eq!(principal_name("0w3ge1r70w3g"), key("0w3ge1r70w3g"));
        assert_eq!(principal_name("ada"), user("ada"));
        assert_eq!(principal_name("user:0w3ge1r70w3g"), user("0w3ge1r70w3g"));
        assert!(principal_name("role:x").is_err());
    }
}
