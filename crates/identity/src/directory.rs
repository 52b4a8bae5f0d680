//! The directory: all keys, users, roles and tenants at one time. It changes by entries, one after the other, and says
//! which rights a holder has.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    api_key::ApiKeyId,
    certificate_name::CertificateName,
    entry::{EntryKey, Holder, KeyEntry, RoleEntry, TenantEntry, UserEntry, parse_entry},
    name::{RoleName, TenantName, UserName},
    right::{Right, RightEffect},
    rights::{RightSource, Rights},
    role::{ADMIN, STANDARD_ROLES},
    verb::Verb,
};

/// All keys, users, roles and tenants. A clone shares the entries.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    keys: BTreeMap<ApiKeyId, Arc<KeyEntry>>,
    users: BTreeMap<UserName, Arc<UserEntry>>,
    /// `None` for a role that cannot be read: whoever has it may do nothing.
    roles: BTreeMap<RoleName, Option<Arc<RoleEntry>>>,
    tenants: BTreeMap<TenantName, Arc<TenantEntry>>,
    /// The users that accept a certificate of this name.
    certificates: BTreeMap<CertificateName, Vec<UserName>>,
}

/// An entry that cannot be read. The thing that it is about counts as absent, or as without any right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the entry {name} cannot be read: {reason}")]
pub struct EntryError {
    /// The name of the entry.
    pub name: String,
    /// The reason.
    pub reason: String,
}

impl Directory {
    /// Takes the value of the entry of this name; `None` if it was deleted.
    ///
    /// # Errors
    /// The entry cannot be read.
    pub fn apply(&mut self, name: &str, value: Option<&[u8]>) -> Result<(), EntryError> {
        let wrong = |reason: String| EntryError { name: name.to_owned(), reason };
        let key = EntryKey::of_name(name).ok_or_else(|| wrong("its name is none".to_owned()))?;
        match key {
            EntryKey::Key(id) => put(&mut self.keys, id, value),
            EntryKey::User(user) => {
                self.forget_certificates(&user);
                let put = put(&mut self.users, user.clone(), value);
                self.note_certificates(&user);
                put
            }
            EntryKey::Tenant(tenant) => put(&mut self.tenants, tenant, value),
            EntryKey::Role(role) => match value.map(parse_entry::<RoleEntry>) {
                None => {
                    self.roles.remove(&role);
                    Ok(())
                }
                Some(Ok(entry)) => {
                    self.roles.insert(role, Some(Arc::new(entry)));
                    Ok(())
                }
                Some(Err(reason)) => {
                    self.roles.insert(role, None);
                    Err(reason)
                }
            },
        }
        .map_err(wrong)
    }

    fn forget_certificates(&mut self, user: &UserName) {
        let entry = self.users.get(user);
        for name in entry.iter().flat_map(|entry| &entry.certificates) {
            if let Some(users) = self.certificates.get_mut(name) {
                users.retain(|other| other != user);
                if users.is_empty() {
                    self.certificates.remove(name);
                }
            }
        }
    }

    fn note_certificates(&mut self, user: &UserName) {
        let entry = self.users.get(user);
        for name in entry.iter().flat_map(|entry| &entry.certificates) {
            let users = self.certificates.entry(name.clone()).or_default();
            if !users.contains(user) {
                users.push(user.clone());
            }
        }
    }

    /// The users that accept a certificate of this name: at most one, as far as changes are decided here.
    pub fn users_of_certificate(&self, name: &CertificateName) -> impl Iterator<Item = &UserName> {
        self.certificates.get(name).into_iter().flatten()
    }

    /// The user that a certificate with these names logs in, and those of the names that the user accepts. `None` if nobody
    /// accepts any of them, or more than one user does.
    #[must_use]
    pub fn user_of_certificate(
        &self,
        names: impl IntoIterator<Item = CertificateName>,
    ) -> Option<(UserName, Vec<CertificateName>)> {
        let mut found: Option<(UserName, Vec<CertificateName>)> = None;
        for name in names {
            for user in self.users_of_certificate(&name) {
                match &mut found {
                    None => found = Some((user.clone(), vec![name.clone()])),
                    Some((other, accepted)) if other == user => accepted.push(name.clone()),
                    Some(_) => return None,
                }
            }
        }
        found
    }

    /// Returns whether anybody has credentials: then everybody is asked for them.
    #[must_use]
    pub fn has_credentials(&self) -> bool {
        !(self.keys.is_empty() && self.users.is_empty())
    }

    /// The key of this id.
    #[must_use]
    pub fn key(&self, id: &ApiKeyId) -> Option<&Arc<KeyEntry>> {
        self.keys.get(id)
    }

    /// The user of this name.
    #[must_use]
    pub fn user(&self, name: &UserName) -> Option<&Arc<UserEntry>> {
        self.users.get(name)
    }

    /// The tenant of this name.
    #[must_use]
    pub fn tenant(&self, name: &TenantName) -> Option<&Arc<TenantEntry>> {
        self.tenants.get(name)
    }

    /// The keys by id.
    pub fn keys(&self) -> impl Iterator<Item = (&ApiKeyId, &Arc<KeyEntry>)> {
        self.keys.iter()
    }

    /// The users by name.
    pub fn users(&self) -> impl Iterator<Item = (&UserName, &Arc<UserEntry>)> {
        self.users.iter()
    }

    /// The roles by name with their rights, those that every broker has included; without rights if they cannot be read.
    pub fn roles(&self) -> impl Iterator<Item = (String, Option<Vec<Right>>)> + '_ {
        let standard = STANDARD_ROLES.iter().map(|role| {
            let rights = role.rights.iter().filter_map(|text| text.parse().ok());
            (role.name.to_owned(), Some(rights.collect()))
        });
        let own = self.roles.iter().map(|(name, entry)| {
            (name.to_string(), entry.as_ref().map(|entry| entry.rights.clone()))
        });
        let mut all: Vec<_> = standard.chain(own).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter()
    }

    /// The tenants by name.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantName, &Arc<TenantEntry>)> {
        self.tenants.iter()
    }

    /// Returns whether there is a role of this name.
    #[must_use]
    pub fn has_role(&self, role: &RoleName) -> bool {
        is_standard_role(role) || self.roles.contains_key(role)
    }

    /// Returns whether any key or user has the role.
    #[must_use]
    pub fn uses_role(&self, role: &RoleName) -> bool {
        self.holders().any(|holder| holder.roles.contains(role))
    }

    /// Returns whether any key or user belongs to the tenant.
    #[must_use]
    pub fn uses_tenant(&self, tenant: &TenantName) -> bool {
        self.holders().any(|holder| holder.tenant.as_ref() == Some(tenant))
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        let keys = self.keys.values().map(|key| &key.holder);
        keys.chain(self.users.values().map(|user| &user.holder))
    }

    /// Returns whether somebody may manage all keys for good, beside the one that is left out. Users without a password do
    /// not count: whether certificates are asked for is a setting of each start.
    #[must_use]
    pub fn has_admin_beside(&self, left_out: Option<&EntryKey>) -> bool {
        let keys = self.keys.iter().filter(|(id, key)| {
            left_out != Some(&EntryKey::Key(**id))
                && key.expires_ms.is_none()
                && is_admin(&key.holder)
        });
        let users = self.users.iter().filter(|(name, user)| {
            left_out != Some(&EntryKey::User((*name).clone()))
                && user.password.is_some()
                && is_admin(&user.holder)
        });
        keys.count() + users.count() > 0
    }

    /// The rights of a key or user, whose places are filled with its name, its id (`sub`) and its tenant; `None` if it is
    /// not there.
    #[must_use]
    pub fn rights_of_entry(&self, who: &EntryKey) -> Option<Rights> {
        let (holder, sub, name) = match who {
            EntryKey::Key(id) => {
                let entry = self.keys.get(id)?;
                (&entry.holder, id.as_str(), entry.name.as_str())
            }
            EntryKey::User(user) => (&self.users.get(user)?.holder, user.as_str(), user.as_str()),
            EntryKey::Role(_) | EntryKey::Tenant(_) => return None,
        };
        let tenant = holder.tenant.as_ref().map(TenantName::as_str);
        Some(self.rights_of(holder, |place| match place {
            "sub" => Some(sub),
            "name" => Some(name),
            "tenant" => tenant,
            _ => None,
        }))
    }

    /// The rights of a holder; `value_of` fills the places of patterns. A role that is missing gives nothing.
    pub fn rights_of<'a>(
        &self,
        holder: &Holder,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) -> Rights {
        let mut rights = Rights::of_tenant(holder.tenant.clone());
        for right in &holder.rights {
            rights.add(right, RightSource::Own, &value_of);
        }
        for role in &holder.roles {
            let source = RightSource::Role(role.as_str().into());
            if let Some(standard) =
                STANDARD_ROLES.iter().find(|standard| standard.name == role.as_str())
            {
                for right in standard.rights.iter().filter_map(|text| text.parse().ok()) {
                    rights.add(&right, source.clone(), &value_of);
                }
                continue;
            }
            match self.roles.get(role) {
                None => {}
                Some(Some(entry)) => {
                    for right in &entry.rights {
                        rights.add(right, source.clone(), &value_of);
                    }
                }
                Some(None) => rights.deny_all(source),
            }
        }
        rights
    }
}

/// Returns whether the name is that of a role that every broker has.
#[must_use]
pub fn is_standard_role(role: &RoleName) -> bool {
    STANDARD_ROLES.iter().any(|standard| standard.name == role.as_str())
}

/// Returns whether the holder may manage all keys.
#[must_use]
pub fn is_admin(holder: &Holder) -> bool {
    let denies =
        |right: &Right| right.effect == RightEffect::Deny && right.verbs.has(Verb::Identity);
    holder.tenant.is_none()
        && holder.roles.iter().any(|role| role.as_str() == ADMIN)
        && !holder.rights.iter().any(denies)
}

/// Puts what the value is, or removes what there was.
fn put<K: Ord, T: serde::de::DeserializeOwned>(
    all: &mut BTreeMap<K, Arc<T>>,
    key: K,
    value: Option<&[u8]>,
) -> Result<(), String> {
    match value.map(parse_entry) {
        None => {
            all.remove(&key);
            Ok(())
        }
        Some(Ok(entry)) => {
            all.insert(key, Arc::new(entry));
            Ok(())
        }
        // One that cannot be read counts as absent: nobody gets in with an older one.
        Some(Err(reason)) => {
            all.remove(&key);
            Err(reason)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::DENY_ALL;

    const KEY: &str = "key.0w3ge1r70w3g";

    fn key(rest: &str) -> String {
        format!(r#"{{"name":"k","generation":1,"created_ms":0{rest}}}"#)
    }

    fn directory(entries: &[(&str, &str)]) -> Directory {
        let mut directory = Directory::default();
        for (name, value) in entries {
            directory.apply(name, Some(value.as_bytes())).unwrap();
        }
        directory
    }

    fn rights(directory: &Directory) -> Rights {
        let (_, key) = directory.keys().next().unwrap();
        directory.rights_of(&key.holder, |_| None)
    }

    #[test]
    fn rights_come_from_the_holder_and_its_roles_and_follow_changes() {
        let mut directory = directory(&[
            (KEY, &key(r#","roles":["ops","viewer","gone"],"rights":["publish a"]"#)),
            ("role.ops", r#"{"rights":["deny read b","read >"]}"#),
        ]);
        let before = rights(&directory);
        assert!(before.allow(Verb::Publish, "a") && before.allow(Verb::Read, "a"));
        assert!(before.allow(Verb::Monitor, "") && !before.allow(Verb::Read, "b"));
        directory.apply("role.ops", Some(br#"{"rights":[]}"#)).unwrap();
        assert!(!rights(&directory).allow(Verb::Read, "a"));
        directory.apply(KEY, None).unwrap();
        assert!(!directory.has_credentials());
    }

    #[test]
    fn what_cannot_be_read_gives_nothing() {
        let mut directory = directory(&[
            (KEY, &key(r#","roles":["ops","admin"]"#)),
            ("role.ops", r#"{"rights":["read >"]}"#),
        ]);
        assert!(rights(&directory).allow(Verb::Publish, "a"));
        let error = directory.apply("role.ops", Some(b"{")).unwrap_err();
        assert_eq!(error.name, "role.ops");
        let after = rights(&directory);
        assert!(Verb::ALL.iter().all(|verb| !after.allow(*verb, "a")));
        assert!(after.iter().any(|(text, _)| text == DENY_ALL && text.parse::<Right>().is_err()));
        assert!(directory.apply(KEY, Some(br#"{"name":"k"}"#)).is_err());
        assert!(!directory.has_credentials(), "an older entry does not stay");
        assert!(directory.apply("other.x", Some(b"{}")).is_err());
    }

    fn user(certificates: &str) -> String {
        format!(r#"{{"generation":0,"created_ms":0,"certificates":[{certificates}]}}"#)
    }

    #[test]
    fn a_certificate_logs_in_the_one_user_that_accepts_a_name_of_it() {
        let mut directory = directory(&[
            ("user.ada", &user(r#""cn:billing","dns:billing.internal""#)),
            ("user.bob", &user(r#""uri:spiffe://sennit/bob""#)),
        ]);
        let found = |directory: &Directory, names: &[&str]| {
            let names = names.iter().map(|name| name.parse().unwrap());
            directory.user_of_certificate(names).map(|(user, accepted)| {
                let accepted: Vec<_> = accepted.iter().map(ToString::to_string).collect();
                (user.to_string(), accepted.join(" "))
            })
        };
        let ada = |accepted: &str| Some(("ada".to_owned(), accepted.to_owned()));
        assert_eq!(found(&directory, &["cn:other", "cn:billing"]), ada("cn:billing"));
        let both = ["dns:Billing.internal", "cn:billing"];
        assert_eq!(found(&directory, &both), ada("dns:billing.internal cn:billing"));
        assert_eq!(found(&directory, &["cn:other", "dns:billing"]), None);
        // The kind counts: whoever may choose a URI cannot choose a common name by it.
        assert_eq!(found(&directory, &["uri:billing", "email:billing"]), None);
        assert_eq!(found(&directory, &["cn:billing", "uri:spiffe://sennit/bob"]), None);
        directory.apply("user.ada", Some(user(r#""cn:ada""#).as_bytes())).unwrap();
        assert_eq!(found(&directory, &both), None);
        assert_eq!(found(&directory, &["cn:ada"]), ada("cn:ada"));
        directory.apply("user.bob", Some(user(r#""cn:ada","cn:ada""#).as_bytes())).unwrap();
        assert_eq!(found(&directory, &["cn:ada"]), None, "two accept it");
        directory.apply("user.bob", Some(b"{")).unwrap_err();
        assert_eq!(found(&directory, &["cn:ada"]), ada("cn:ada"));
        directory.apply("user.ada", None).unwrap();
        assert_eq!(found(&directory, &["cn:ada"]), None);
        assert!(directory.certificates.is_empty());
    }

    #[test]
    fn an_admin_for_good_is_found() {
        let admin = key(r#","roles":["admin"]"#);
        let id = EntryKey::of_name(KEY).unwrap();
        assert!(directory(&[(KEY, &admin)]).has_admin_beside(None));
        assert!(!directory(&[(KEY, &admin)]).has_admin_beside(Some(&id)));
        let by_certificate =
            r#"{"generation":0,"created_ms":0,"certificates":["cn:a"],"roles":["admin"]}"#;
        assert!(!directory(&[("user.ada", by_certificate)]).has_admin_beside(None));
        let by_password = r#"{"password":"x","generation":1,"created_ms":0,"roles":["admin"]}"#;
        assert!(directory(&[("user.ada", by_password)]).has_admin_beside(None));
        for other in [
            key(r#","roles":["operator"]"#),
            key(r#","roles":["admin"],"expires_ms":9"#),
            key(r#","roles":["admin"],"tenant":"acme""#),
            key(r#","roles":["admin"],"rights":["deny identity"]"#),
        ] {
            assert!(!directory(&[(KEY, &other)]).has_admin_beside(None), "{other}");
        }
    }
}
