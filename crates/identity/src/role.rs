//! The roles that every broker has: named sets of rights.

/// A role that every broker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandardRole {
    /// Its name.
    pub name: &'static str,
    /// Says in one line whom it is for.
    pub meaning: &'static str,
    /// The texts of its rights.
    pub rights: &'static [&'static str],
}

/// The role that may do everything.
pub const ADMIN: &str = "admin";

/// The roles that every broker has, the weakest first.
pub const STANDARD_ROLES: [StandardRole; 3] = [
    StandardRole {
        name: "viewer",
        meaning: "sees topics, groups, counts and metrics, and no payload",
        rights: &["describe >", "monitor"],
    },
    StandardRole {
        name: "operator",
        meaning: "also creates, changes and deletes topics, redrives and moves messages, and sets the configuration; \
                  reads no payload",
        rights: &[
            "describe,create,configure,delete,rework,hook >",
            "kv-read,kv-write >",
            "monitor,webhook,live",
        ],
    },
    StandardRole {
        name: ADMIN,
        meaning: "may do everything",
        rights: &[
            "* >",
            "read,describe __ds/>",
            "kv-read,kv-write >",
            "monitor,backup,webhook,live,identity",
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        right::Right,
        verb::{Verb, VerbSet},
    };

    fn verbs(role: &StandardRole) -> VerbSet {
        let rights = role.rights.iter().map(|text| text.parse::<Right>().unwrap());
        rights.fold(VerbSet::default(), |verbs, right| verbs.or(right.verbs))
    }

    #[test]
    fn an_admin_has_every_verb_and_an_operator_reads_no_payload() {
        let [viewer, operator, admin] = &STANDARD_ROLES;
        assert!(Verb::ALL.iter().all(|verb| verbs(admin).has(*verb)));
        for verb in
            [Verb::Read, Verb::Consume, Verb::Inspect, Verb::Backup, Verb::Identity, Verb::Publish]
        {
            assert!(!verbs(operator).has(verb) && !verbs(viewer).has(verb), "{verb}");
        }
        assert!(verbs(viewer).iter().all(|verb| verbs(operator).has(verb)));
    }
}
