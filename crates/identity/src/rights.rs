//! All rights of one principal, ready to decide. Nothing is allowed that no right allows; a right that denies counts
//! more than all that allow.

use std::sync::Arc;

use crate::{
    name::TenantName,
    pattern::FilledPattern,
    right::{Right, RightEffect},
    verb::{Subject, Verb, VerbSet},
};

/// The text of the right of whoever has a role that cannot be read. It cannot be given.
pub const DENY_ALL: &str = "deny everything, since the role cannot be read";

/// The place where a right was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RightSource {
    /// To the principal itself.
    Own,
    /// By a role of this name.
    Role(Arc<str>),
    /// By a claim of a token.
    Claim,
}

/// The reach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reach {
    /// The broker, or everything: of a right that denies and whose place has no value.
    All,
    /// Names that match.
    Pattern(FilledPattern),
}

/// A right in force.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    effect: RightEffect,
    verbs: VerbSet,
    reach: Reach,
    text: Box<str>,
    source: RightSource,
}

/// The rights of one principal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    rules: Vec<Rule>,
    tenant: Option<TenantName>,
}

/// The answer to whether a principal may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Whether it may.
    pub is_allowed: bool,
    /// The reason.
    pub reason: DecisionReason<'a>,
}

/// The reason of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionReason<'a> {
    /// A right says so: its text, and where it was given.
    Right(&'a str, &'a RightSource),
    /// No right allows it.
    NoRight,
    /// The name is not the tenant's.
    OtherTenant(&'a TenantName),
    /// The verb is about the broker as a whole, and the principal is a tenant's.
    NotForTenants,
}

impl Rights {
    /// No rights yet, of a principal that may belong to a tenant: then everything outside its namespace is denied.
    #[must_use]
    pub fn of_tenant(tenant: Option<TenantName>) -> Self {
        Self { rules: Vec::new(), tenant }
    }

    /// Adds a right. `value_of` fills its places; one that allows and cannot be filled is left out, one that denies and
    /// cannot be filled denies its verbs everywhere.
    pub fn add<'a>(
        &mut self,
        right: &Right,
        source: RightSource,
        value_of: impl Fn(&str) -> Option<&'a str>,
    ) {
        let reach = match &right.pattern {
            None => Reach::All,
            Some(pattern) => match (pattern.fill(value_of), right.effect) {
                (Some(filled), _) => Reach::Pattern(filled),
                (None, RightEffect::Allow) => return,
                (None, RightEffect::Deny) => Reach::All,
            },
        };
        let Right { effect, verbs, .. } = *right;
        self.rules.push(Rule { effect, verbs, reach, text: right.to_string().into(), source });
    }

    /// Denies everything, because a role cannot be read: it may have denied anything.
    pub(crate) fn deny_all(&mut self, source: RightSource) {
        let verbs = Verb::ALL.iter().copied().collect();
        let (effect, reach, text) = (RightEffect::Deny, Reach::All, DENY_ALL.into());
        self.rules.push(Rule { effect, verbs, reach, text, source });
    }

    /// Decides about a verb, and the name of the topic or key that it is about; the name of what is about the broker is
    /// not looked at. Costs a walk over all rights.
    #[must_use]
    pub fn decide(&self, verb: Verb, name: &str) -> Decision<'_> {
        let no = |reason| Decision { is_allowed: false, reason };
        if let Some(tenant) = &self.tenant {
            match verb.subject() {
                Subject::Topic | Subject::Key if !tenant.owns(name) => {
                    return no(DecisionReason::OtherTenant(tenant));
                }
                // A tenant's administrator manages the tenant's keys, which is checked where that is done.
                Subject::Broker if verb != Verb::Identity => {
                    return no(DecisionReason::NotForTenants);
                }
                _ => {}
            }
        }
        let says = |rule: &Rule, verbs: VerbSet| {
            !rule.verbs.both(verbs).is_empty()
                && match &rule.reach {
                    Reach::All => true,
                    Reach::Pattern(pattern) => pattern.matches(name),
                }
        };
        let asked = [verb].into_iter().collect();
        // A principal that may do something to a topic may know that it is there.
        let allowing = match verb {
            Verb::Describe => VerbSet::of_subject(Subject::Topic),
            _ => asked,
        };
        let by = |effect, verbs| {
            self.rules.iter().find(|rule| rule.effect == effect && says(rule, verbs))
        };
        if let Some(rule) = by(RightEffect::Deny, asked) {
            return no(DecisionReason::Right(&rule.text, &rule.source));
        }
        match by(RightEffect::Allow, allowing) {
            Some(rule) => Decision {
                is_allowed: true,
                reason: DecisionReason::Right(&rule.text, &rule.source),
            },
            None => no(DecisionReason::NoRight),
        }
    }

    /// Returns whether it may.
    #[must_use]
    pub fn allow(&self, verb: Verb, name: &str) -> bool {
        self.decide(verb, name).is_allowed
    }

    /// Returns whether it may do this to all topics whose names begin with `prefix` and are longer, but for the broker's own, for
    /// as long as its rights are these. What is returned as no may be yes: for each topic by itself it is [`Self::allow`] that
    /// says it.
    #[must_use]
    pub fn allow_all_behind(&self, verb: Verb, prefix: &str) -> bool {
        if self.tenant.as_ref().is_some_and(|tenant| !tenant.owns(prefix)) {
            return false;
        }
        let asked = [verb].into_iter().collect();
        let mut rules = self.rules.iter().filter(|rule| !rule.verbs.both(asked).is_empty());
        let is_denied = rules.clone().any(|rule| {
            let may_match = match &rule.reach {
                Reach::All => true,
                Reach::Pattern(pattern) => pattern.may_match_behind(prefix),
            };
            rule.effect == RightEffect::Deny && may_match
        });
        let allows = |rule: &Rule| match &rule.reach {
            Reach::All => true,
            Reach::Pattern(pattern) => pattern.matches_all_behind(prefix),
        };
        !is_denied && rules.any(|rule| rule.effect == RightEffect::Allow && allows(rule))
    }

    /// Returns whether it may do this to some topic whose name begins with `prefix`. It may say so where there can be none.
    #[must_use]
    pub fn may_allow_behind(&self, verb: Verb, prefix: &str) -> bool {
        let asked = [verb].into_iter().collect();
        self.rules.iter().any(|rule| {
            let may_match = match &rule.reach {
                Reach::All => true,
                Reach::Pattern(pattern) => pattern.may_match_behind(prefix),
            };
            rule.effect == RightEffect::Allow && !rule.verbs.both(asked).is_empty() && may_match
        })
    }

    /// The texts of the rights, with where each was given.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RightSource)> {
        self.rules.iter().map(|rule| (&*rule.text, &rule.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(tenant: Option<&str>, texts: &[&str]) -> Rights {
        let mut rights = Rights::of_tenant(tenant.map(|name| name.parse().unwrap()));
        for text in texts {
            let value = |name: &str| (name == "sub").then_some("ada");
            rights.add(&text.parse().unwrap(), RightSource::Own, value);
        }
        rights
    }

    #[test]
    fn nothing_is_allowed_that_no_right_allows() {
        let none = rights(None, &[]);
        assert!(Verb::ALL.iter().all(|verb| !none.allow(*verb, "a")));
        let some = rights(None, &["publish orders.>", "monitor"]);
        for (verb, name, expected) in [
            (Verb::Publish, "orders.eu", true),
            (Verb::Publish, "other", false),
            (Verb::Read, "orders.eu", false),
            (Verb::Describe, "orders.eu", true),
            (Verb::Describe, "other", false),
            (Verb::Monitor, "", true),
            (Verb::Backup, "", false),
        ] {
            assert_eq!(some.allow(verb, name), expected, "{verb} {name}");
        }
    }

    #[test]
    fn a_right_that_denies_counts_more_wherever_it_stands() {
        for texts in
            [["deny read orders.secret", "* orders.>"], ["* orders.>", "deny read orders.secret"]]
        {
            let rights = rights(None, &texts);
            assert!(rights.allow(Verb::Read, "orders.eu"));
            let decision = rights.decide(Verb::Read, "orders.secret");
            let by = DecisionReason::Right("deny read orders.secret", &RightSource::Own);
            assert_eq!(decision, Decision { is_allowed: false, reason: by });
            assert!(
                rights.allow(Verb::Describe, "orders.secret"),
                "reading is denied, not knowing"
            );
        }
        let hidden = rights(None, &["* orders.>", "deny describe orders.secret"]);
        assert!(!hidden.allow(Verb::Describe, "orders.secret"));
    }

    #[test]
    fn places_are_the_principals_and_fail_closed() {
        let rights =
            rights(None, &["read user.{sub}.>", "read team.{team}.>", "deny read x.{team}"]);
        assert!(!rights.allow(Verb::Read, "user.ada.a"), "a deny that cannot be filled denies all");
        assert!(rights.allow(Verb::Describe, "user.ada.a"));
        assert!(!rights.allow(Verb::Describe, "team..a"));
        assert_eq!(rights.iter().count(), 2);
    }

    #[test]
    fn all_names_behind_a_prefix_are_allowed_if_one_right_says_so_and_none_denies_any() {
        for (tenant, texts, prefix, expected) in [
            (None, &["subscribe >"][..], "", true),
            (None, &["subscribe chat.>"], "chat.", true),
            (None, &["subscribe chat.>"], "chat.a.", true),
            (None, &["subscribe chat.>"], "", false),
            (None, &["subscribe chat.>"], "chats.", false),
            (None, &["subscribe chat.*"], "chat.", false),
            (None, &["subscribe user.{sub}.>"], "user.ada.", true),
            (None, &["subscribe user.{sub}.>"], "user.bob.", false),
            (None, &["publish >"], "", false),
            (None, &["subscribe >", "deny subscribe chat.secret"], "chat.", false),
            (None, &["subscribe >", "deny subscribe chat.secret"], "news.", true),
            (None, &["subscribe >", "deny subscribe *.secret"], "news.", false),
            (None, &["subscribe >", "deny publish chat.secret"], "chat.", true),
            (None, &["subscribe >", "deny subscribe x.{team}"], "news.", false),
            (Some("acme"), &["subscribe >"], "", false),
            (Some("acme"), &["subscribe >"], "acme.", true),
            (Some("acme"), &["subscribe >"], "acme", false),
            (Some("acme"), &["subscribe >"], "other.", false),
        ] {
            let rights = rights(tenant, texts);
            assert_eq!(
                rights.allow_all_behind(Verb::Subscribe, prefix),
                expected,
                "{texts:?} {prefix}"
            );
            // What is allowed of all is allowed of each.
            let may = rights.may_allow_behind(Verb::Subscribe, prefix);
            for name in ["a", "secret", "a.b", "a/b", "secret.dead-letter"] {
                let name = format!("{prefix}{name}");
                assert!(may || !rights.allow(Verb::Subscribe, &name), "{texts:?} {name}");
                assert!(!expected || rights.allow(Verb::Subscribe, &name), "{texts:?} {name}");
            }
        }
    }

    #[test]
    fn a_tenant_stays_within_its_names_whatever_its_rights_say() {
        let rights = rights(Some("acme"), &["* >", "kv-write >", "monitor,backup,identity"]);
        for (verb, name, expected) in [
            (Verb::Publish, "acme.orders", true),
            (Verb::Publish, "other.orders", false),
            (Verb::Create, "acme", false),
            (Verb::KvWrite, "acme.limit", true),
            (Verb::KvWrite, "throttle.x", false),
            (Verb::Monitor, "", false),
            (Verb::Backup, "", false),
            (Verb::Identity, "", true),
        ] {
            assert_eq!(rights.allow(verb, name), expected, "{verb} {name}");
        }
    }
}
