//! The owner of a token: who it is, and what the claims give it. It knows no signature and no time.

use sennit_identity::{
    Claims, Directory, Holder, IdentityNameError, Right, RightError, RightSource, Rights, RoleName,
    TenantName,
};
use sennit_model::Timestamp;

/// The reason why the claims of a token with a right signature say nothing that counts.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClaimError {
    /// The tenant has no possible name.
    #[error("the token's tenant: {0}")]
    Tenant(IdentityNameError),
    /// There is no such tenant.
    #[error("there is no tenant {0}")]
    UnknownTenant(TenantName),
    /// It is not known yet what counts.
    #[error("the broker cannot tell yet what counts")]
    NotReady,
    /// A right is none. It is not left out: it may have been one that denies.
    #[error("a right of the token: {0}")]
    Right(RightError),
}

/// The owner of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenOwner {
    claims: Claims,
    holder: Holder,
}

impl TokenOwner {
    /// The owner that the claims are about. Roles whose names no role can have are left out: an issuer has others, for other
    /// services.
    ///
    /// # Errors
    /// The tenant has no possible name, or a right is none.
    pub(super) fn new(claims: Claims) -> Result<Self, ClaimError> {
        let tenant = claims.tenant.as_deref().map(str::parse).transpose();
        let rights = claims.rights.iter().map(|text| text.parse::<Right>());
        let roles = claims.roles.iter().filter_map(|name| name.parse::<RoleName>().ok());
        let holder = Holder {
            tenant: tenant.map_err(ClaimError::Tenant)?,
            roles: roles.collect(),
            rights: rights.collect::<Result<_, _>>().map_err(ClaimError::Right)?,
        };
        Ok(Self { claims, holder })
    }

    /// The same owner, who counts until then, and of whom others may know this, if it is said anew.
    pub(super) fn renewed(&self, expires_at: Timestamp, info: Option<Box<str>>) -> Self {
        let mut owner = self.clone();
        owner.claims.expires_at = expires_at;
        owner.claims.info = info.or(owner.claims.info);
        owner
    }

    pub(crate) fn subject(&self) -> &str {
        &self.claims.subject
    }

    /// What the claim `info` says of it, as JSON.
    pub(crate) fn info(&self) -> Option<&str> {
        self.claims.info.as_deref()
    }

    /// The channels to which live connections of it are subscribed when they begin.
    pub(super) fn channels(&self) -> &[Box<str>] {
        &self.claims.channels
    }

    /// The tenant, the roles and the rights that the claims give.
    pub(super) fn holder(&self) -> &Holder {
        &self.holder
    }

    /// The time from which the token does not count.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.claims.expires_at
    }

    /// The rights of the owner: those of the claims and of roles, whose places are filled with claims. `{name}` is the subject.
    pub(super) fn rights(&self, directory: &Directory) -> Rights {
        let value_of = |place: &str| match place {
            "name" => Some(self.subject()),
            place => self.claims.text(place),
        };
        let of_roles = Holder { rights: Vec::new(), ..self.holder.clone() };
        let mut rights = directory.rights_of(&of_roles, value_of);
        for right in &self.holder.rights {
            rights.add(right, RightSource::Claim, value_of);
        }
        rights
    }
}
