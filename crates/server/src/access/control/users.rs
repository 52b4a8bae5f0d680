//! Changes of users: their passwords, and the certificates that log them in.

use sennit_identity::{
    CertificateName, EntryKey, Holder, PasswordCost, PasswordHash, SALT_BYTES, UserEntry, UserName,
    Zeroizing, is_admin, limits::CERTIFICATES_OF_USER_MAX,
};

use super::{AccessControl, Answer, Ground, Scope, add_missing, changed, check_holder, random};
use crate::{
    access::request::AccessRefusal, broker::control_request::ControlRefusal, runtime::clock::now,
};

impl AccessControl {
    /// Creates a user with a password, or gives one another.
    pub(super) async fn set_password(
        &self,
        ground: &Ground,
        scope: &Scope,
        user: UserName,
        password: Zeroizing<String>,
        mut holder: Holder,
    ) -> Answer {
        let directory = &ground.directory;
        let key = EntryKey::User(user.clone());
        let before = directory.user(&user);
        let mut entry = match before {
            Some(entry) => {
                scope.check(directory, &key)?;
                UserEntry::clone(entry)
            }
            None => {
                scope.fit(&mut holder)?;
                check_holder(directory, &holder)?;
                if !directory.has_credentials() && !is_admin(&holder) {
                    return Err(AccessRefusal::FirstNotAdmin);
                }
                new_user(holder)
            }
        };
        let created = before.is_none();
        let salt: [u8; SALT_BYTES] = random()?;
        // Away from the core: it takes tens of milliseconds.
        let hash = move || PasswordHash::new(&password, salt, PasswordCost::DEFAULT);
        let hash = tokio::task::spawn_blocking(hash).await;
        let hash = hash.map_err(|_| ControlRefusal::ShuttingDown)??;
        entry.password = Some(hash.expose());
        entry.generation += 1;
        self.put(ground, &key, &entry, created).await?;
        Ok(changed(user.to_string(), created))
    }

    /// Certificates are from authorities that the whole broker trusts, so the operator alone says whose they are.
    pub(super) async fn set_certificates(
        &self,
        ground: &Ground,
        scope: &Scope,
        user: UserName,
        certificates: Vec<CertificateName>,
        holder: Holder,
    ) -> Answer {
        scope.check_operator()?;
        let directory = &ground.directory;
        let mut entry = match directory.user(&user) {
            Some(entry) => UserEntry::clone(entry),
            None => {
                check_holder(directory, &holder)?;
                if certificates.is_empty() {
                    return Err(AccessRefusal::NoCredential);
                }
                if !directory.has_credentials() {
                    return Err(AccessRefusal::FirstNotAdmin);
                }
                new_user(holder)
            }
        };
        if certificates.len() > CERTIFICATES_OF_USER_MAX {
            return Err(AccessRefusal::TooManyCertificates);
        }
        for name in &certificates {
            if let Some(other) = directory.users_of_certificate(name).find(|it| **it != user) {
                return Err(AccessRefusal::CertificateTaken(name.clone(), other.clone()));
            }
        }
        entry.certificates.clear();
        add_missing(&mut entry.certificates, certificates);
        let created = directory.user(&user).is_none();
        self.put(ground, &EntryKey::User(user.clone()), &entry, created).await?;
        Ok(changed(user.to_string(), created))
    }
}

/// A user who can log in by nothing yet.
fn new_user(holder: Holder) -> UserEntry {
    let created_ms = now().0;
    UserEntry { password: None, generation: 0, created_ms, certificates: Vec::new(), holder }
}
