//! The rules of a group for its fair keys: weight, limits and pauses. They are checked when they are parsed, and
//! trusted afterwards.

use std::{fmt, sync::Arc};

use crate::{
    config_error::ConfigError,
    limits::{KEY_CONCURRENCY_MAX, KEY_RULES_MAX, WEIGHT_MAX},
    throttle_rule::{ThrottlePattern, ThrottleRate},
};

/// A rule for the fair keys that a pattern means. It says nothing where a field is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeyRule {
    /// Which keys it is for.
    pub pattern: ThrottlePattern,
    /// The weight of each, whatever the messages say; 1 to [`WEIGHT_MAX`].
    pub weight: Option<u32>,
    /// How many messages of each consumers may hold at once; 1 to [`KEY_CONCURRENCY_MAX`].
    pub concurrency: Option<u32>,
    /// The rate of each.
    pub throttle: Option<ThrottleRate>,
    /// Whether messages of these keys are held back.
    pub is_paused: bool,
}

impl KeyRule {
    /// A rule that says nothing.
    #[must_use]
    pub fn new(pattern: ThrottlePattern) -> Self {
        Self { pattern, weight: None, concurrency: None, throttle: None, is_paused: false }
    }

    /// Whether the rule says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { pattern: _, weight, concurrency, throttle, is_paused } = self;
        weight.is_none() && concurrency.is_none() && throttle.is_none() && !is_paused
    }
}

/// As in `tenant-*: weight 2, concurrency 3, 10/s burst 1, paused`.
impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.weight.map(|weight| format!("weight {weight}")));
        parts.extend(self.concurrency.map(|limit| format!("concurrency {limit}")));
        parts.extend(self.throttle.map(|rate| rate.to_string()));
        parts.extend(self.is_paused.then(|| "paused".to_owned()));
        write!(f, "{}: {}", self.pattern, parts.join(", "))
    }
}

/// The rules of a group, by pattern. Of the rules that mean a key, the one with the greatest precedence counts,
/// and it alone. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyRules(Option<Arc<[KeyRule]>>);

impl KeyRules {
    /// These rules, sorted by pattern. They are not checked.
    #[must_use]
    pub fn new(mut rules: Vec<KeyRule>) -> Self {
        rules.sort_by(|a, b| a.pattern.cmp(&b.pattern));
        Self((!rules.is_empty()).then(|| rules.into()))
    }

    /// The rules, by pattern.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &KeyRule> {
        self.0.as_deref().unwrap_or_default().iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The rule that counts for a fair key. Costs a step for each rule.
    #[must_use]
    pub fn of(&self, key: &str) -> Option<&KeyRule> {
        let matching = self.iter().filter(|rule| rule.pattern.matches(key.as_bytes()));
        matching.max_by_key(|rule| rule.pattern.precedence())
    }

    /// The rules with `changes`: each takes the place of the one with its pattern, and removes it if it says
    /// nothing.
    #[must_use]
    pub fn with(&self, changes: &[KeyRule]) -> Self {
        if changes.is_empty() {
            return self.clone();
        }
        let mut rules: Vec<KeyRule> = self.iter().cloned().collect();
        for change in changes {
            rules.retain(|rule| rule.pattern != change.pattern);
            rules.extend(Some(change).filter(|change| !change.is_empty()).cloned());
        }
        Self::new(rules)
    }

    /// Checks the number of rules and every field.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.iter().len() > KEY_RULES_MAX {
            let allowed = format!(
                "0 to {KEY_RULES_MAX} (KEY_RULES_MAX); a pattern covers any number of keys"
            );
            let value = format!("{} rules", self.iter().len());
            return Err(ConfigError { field: "key_rules", value, allowed });
        }
        for rule in self.iter() {
            check("key_rules.weight", rule.weight, WEIGHT_MAX)?;
            check("key_rules.concurrency", rule.concurrency, KEY_CONCURRENCY_MAX)?;
            if rule.is_empty() {
                let (value, allowed) =
                    (rule.pattern.to_string(), "a rule that says something".into());
                return Err(ConfigError { field: "key_rules", value, allowed });
            }
        }
        let patterns = || self.iter().map(|rule| &rule.pattern);
        if let Some((twice, _)) = patterns().zip(patterns().skip(1)).find(|(a, b)| a == b) {
            let (value, allowed) = (format!("{twice} twice"), "one rule for each pattern".into());
            return Err(ConfigError { field: "key_rules", value, allowed });
        }
        Ok(())
    }
}

impl fmt::Display for KeyRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let rules: Vec<_> = self.iter().map(KeyRule::to_string).collect();
        f.write_str(&rules.join("; "))
    }
}

fn check(field: &'static str, value: Option<u32>, max: u32) -> Result<(), ConfigError> {
    match value {
        Some(value) if !(1..=max).contains(&value) => {
            Err(ConfigError { field, value: value.to_string(), allowed: format!("1 to {max}") })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(pattern: &str) -> KeyRule {
        KeyRule { weight: Some(2), ..KeyRule::new(pattern.parse().unwrap()) }
    }

    #[test]
    fn the_rule_with_the_greatest_precedence_counts_alone() {
        let limited = KeyRule { weight: None, concurrency: Some(3), ..rule("tenant-*") };
        let rules = KeyRules::default().with(&[rule("*"), limited, rule("tenant-a")]);
        let pattern = |key| rules.of(key).map(|rule| rule.pattern.as_str());
        assert_eq!(pattern("tenant-a"), Some("tenant-a"));
        assert_eq!(pattern("tenant-b"), Some("tenant-*"));
        assert_eq!(pattern("other"), Some("*"));
        assert_eq!(rules.of("tenant-b").and_then(|rule| rule.weight), None);
        let rules = rules.with(&[KeyRule::new("*".parse().unwrap())]);
        assert_eq!(rules.of("other"), None);
        assert_eq!(rules.to_string(), "tenant-*: concurrency 3; tenant-a: weight 2");
    }

    #[test]
    fn rules_that_cannot_be_are_refused() {
        let many = (0..=KEY_RULES_MAX).map(|n| rule(&format!("k{n}"))).collect();
        for (rules, field) in [
            (KeyRules::new(many), "key_rules"),
            (KeyRules::new(vec![rule("a"), rule("a")]), "key_rules"),
            (KeyRules::new(vec![KeyRule { weight: Some(0), ..rule("a") }]), "key_rules.weight"),
            (
                KeyRules::new(vec![KeyRule { concurrency: Some(0), ..rule("a") }]),
                "key_rules.concurrency",
            ),
            (KeyRules::new(vec![KeyRule::new("a".parse().unwrap())]), "key_rules"),
        ] {
            assert_eq!(rules.check().unwrap_err().field, field);
        }
    }
}
