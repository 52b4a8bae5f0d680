//! Any text as a pattern and a throttle rule: an error, or a rule whose text is read as the same rule. Knows only the
//! model.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_model::{ConfigurationKey, ThrottlePattern, ThrottleRate, limits::THROTTLE_FILL_MAX};

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
    let rate = match ThrottleRate::parse(rule) {
        Ok(rate) => rate,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(rate.interval_ns > 0 && rate.burst > 0);
    let fill = u128::from(rate.interval_ns) * u128::from(rate.burst);
    assert!(fill <= THROTTLE_FILL_MAX.as_nanos());
    assert_eq!(ThrottleRate::parse(&rate.to_string()), Ok(rate), "{rate}");
    let of_pattern = pattern.exact().or(pattern.prefix()).expect("it is one of them");
    assert!(pattern.matches(of_pattern.as_bytes()));
});
