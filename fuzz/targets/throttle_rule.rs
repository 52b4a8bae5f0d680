//! Any text as a pattern and a throttle rule: an error, or a rule whose text is read as the same rule. Knows only the
//! model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_model::{
    ConfigurationKey, ThrottlePattern, ThrottleRule, limits::THROTTLE_FILL_MAX, throttle_rule_of,
};

// The pattern ends at the first newline; the rule follows.
fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (pattern, rule) = text.split_once('\n').unwrap_or(("tenant:*", text));
    let pattern = match pattern.parse::<ThrottlePattern>() {
        Ok(pattern) => pattern,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let key: ConfigurationKey =
        format!("throttle.{pattern}").parse().expect("a pattern makes a key");
    assert_eq!(key.throttle_pattern(), Some(pattern.as_str()));
    let rule = match ThrottleRule::parse(pattern.clone(), rule) {
        Ok(rule) => rule,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(rule.interval_ns > 0 && rule.burst > 0);
    let fill = u128::from(rule.interval_ns) * u128::from(rule.burst);
    assert!(fill <= THROTTLE_FILL_MAX.as_nanos());
    let again = ThrottleRule::parse(pattern.clone(), &rule.to_string());
    assert_eq!(again.as_ref(), Ok(&rule), "{rule}");
    let of_pattern = pattern.exact().or(pattern.prefix()).expect("it is one of them");
    let rules = [rule];
    assert_eq!(throttle_rule_of(&rules, of_pattern.as_bytes()), Some(&rules[0]));
});
