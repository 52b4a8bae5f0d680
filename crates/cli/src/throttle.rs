//! `sennit throttle`: throttle rules, which are entries of the configuration: set, list, delete.

use sennit_client::Error;
use sennit_model::{ConfigurationKey, THROTTLE_KEY_PREFIX, ThrottlePattern, ThrottleRule};
use serde_json::{Value, json};

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::{Exit, Failure},
    kv::shown,
    output::{print_json, print_table, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit throttle set 'tenant:*' 100/s
  sennit throttle set tenant:acme 2.5/s --burst 50
  sennit throttle list
  sennit throttle delete tenant:acme

A pattern is a throttle key, or its beginning and *. An exact key has precedence over a pattern,
a longer pattern over a shorter one. A rate is a decimal number of tokens in a second, minute or
hour (10/s, 0.5/m, 3/h). Rules are entries throttle.PATTERN of the configuration (`sennit kv`).";

/// The arguments of `sennit throttle`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON, one object for each rule
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create a rule, or give it another rate
    Set {
        /// The throttle keys that it is for
        pattern: ThrottlePattern,
        /// How many tokens each bucket gets in a second, minute or hour
        rate: String,
        /// How many tokens a bucket holds [default: those of one second, at least 1]
        #[arg(long, value_name = "N")]
        burst: Option<u32>,
    },
    /// Print the rules by pattern
    List,
    /// Delete a rule
    Delete {
        /// Its pattern
        pattern: ThrottlePattern,
    },
}

/// Runs the verb.
///
/// # Errors
/// The broker's refusal, there is no such rule, or the broker cannot be reached.
pub fn run(args: Args) -> Result<(), Failure> {
    match &args.verb {
        Verb::Set { pattern, rate, burst } => {
            let rule = rule(pattern, rate, *burst)?;
            set(&args, &rule)
        }
        Verb::List => list(&args),
        Verb::Delete { pattern } => delete(&args, pattern),
    }
}

fn rule(
    pattern: &ThrottlePattern,
    rate: &str,
    burst: Option<u32>,
) -> Result<ThrottleRule, Failure> {
    let text = match burst {
        Some(burst) => format!("{rate} burst {burst}"),
        None => rate.to_owned(),
    };
    let rule = ThrottleRule::parse(pattern.clone(), &text);
    rule.map_err(|error| Failure::new(Exit::Usage, error.to_string()).about(pattern))
}

fn key(pattern: &ThrottlePattern) -> ConfigurationKey {
    format!("{THROTTLE_KEY_PREFIX}{pattern}").parse().expect("a pattern makes a key")
}

fn about(error: Error, pattern: &ThrottlePattern) -> Failure {
    Failure::from(error).about(pattern)
}

fn set(args: &Args, rule: &ThrottleRule) -> Result<(), Failure> {
    let pattern = &rule.pattern;
    block_on(async {
        let configuration = args.connect.client().await?.configuration();
        let set = configuration.set(&key(pattern), rule.rate.to_string(), None).await;
        set.map_err(|error| about(error, pattern))?;
        if args.json {
            return print_json(&rule_json(rule));
        }
        print_to_stderr(&format!("{pattern}: {}", rule.rate));
        Ok(())
    })
}

fn delete(args: &Args, pattern: &ThrottlePattern) -> Result<(), Failure> {
    block_on(async {
        let configuration = args.connect.client().await?.configuration();
        let deleted = configuration.delete(&key(pattern), None).await;
        if !deleted.map_err(|error| about(error, pattern))?.existed {
            let none = Failure::new(Exit::NotFound, "there is no throttle rule of this pattern");
            return Err(none.about(pattern));
        }
        if args.json {
            return print_json(&json!({ "pattern": pattern.as_str(), "outcome": "deleted" }));
        }
        print_to_stderr(&format!("{pattern}: deleted"));
        Ok(())
    })
}

fn list(args: &Args) -> Result<(), Failure> {
    block_on(async {
        let configuration = args.connect.client().await?.configuration();
        let mut rows = Vec::new();
        for entry in configuration.list(THROTTLE_KEY_PREFIX).await? {
            let text = String::from_utf8_lossy(&entry.value);
            let pattern = entry.key.throttle_pattern().unwrap_or_default();
            let rule = pattern.parse().and_then(|pattern| ThrottleRule::parse(pattern, &text));
            match rule {
                Ok(rule) if args.json => print_json(&rule_json(&rule))?,
                Ok(rule) => {
                    rows.push(vec![
                        pattern.to_owned(),
                        rule.rate.rate_text(),
                        rule.rate.burst.to_string(),
                    ]);
                }
                // Another version of the broker has taken it for one.
                Err(error) => print_to_stderr(&format!(
                    "{pattern}: {} is not known here: {error}",
                    shown(&entry.value)
                )),
            }
        }
        if args.json { Ok(()) } else { print_table(&["PATTERN", "RATE", "BURST"], &rows) }
    })
}

fn rule_json(rule: &ThrottleRule) -> Value {
    json!({
        "pattern": rule.pattern.as_str(),
        "rate": rule.rate.rate_text(),
        "burst": rule.rate.burst,
        "interval_ns": rule.rate.interval_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_of_the_command_line_is_checked_before_the_broker_is_asked() {
        let pattern: ThrottlePattern = "tenant:*".parse().unwrap();
        let shown = |rate, burst| rule(&pattern, rate, burst).map(|rule| rule.rate.to_string());
        assert_eq!(shown("100/s", None).unwrap(), "100/s burst 100");
        assert_eq!(shown("2.5/s", Some(50)).unwrap(), "150/m burst 50");
        let refused = shown("fast", None).unwrap_err();
        assert_eq!(refused.exit as u8, 2);
        assert!(refused.to_string().contains("10/s burst 20"), "{refused}");
        assert!(shown("1/s", Some(0)).is_err());
    }

    #[test]
    fn the_longest_pattern_makes_a_key() {
        let longest = "x".repeat(sennit_model::limits::THROTTLE_PATTERN_BYTES_MAX);
        let key = key(&longest.parse().unwrap());
        assert_eq!(key.as_str().len(), sennit_model::limits::CONFIGURATION_KEY_BYTES_MAX);
    }
}
