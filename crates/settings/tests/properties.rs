//! Any values can be written as a settings file and as an environment, and are read as the same; any bytes are read
//! without a panic.

use std::{ffi::OsString, path::Path, time::Duration};

use proptest::prelude::*;
use sennit_settings::{
    Assignments, Reload, SecretText, Source, assignments_of_environment, assignments_of_file,
    changes, resolve,
    sample::{SAMPLE, Sample},
    take_over, write_defaults,
};

fn sample(hosts: &'static str) -> impl Strategy<Value = Sample> {
    let numbers = (0..=1_u64 << 62, proptest::option::of(any::<u32>()), any::<u64>());
    let rest = (proptest::option::of(0..3_000_000_000_000_u64), any::<bool>(), any::<bool>());
    let texts = (".+", proptest::collection::vec(hosts, 0..4), proptest::option::of("[a-z]{1,9}"));
    (numbers, rest, texts).prop_map(|(numbers, (scrub, open, is_json), (name, hosts, token))| {
        let (connections, shards, cache) = numbers;
        let scrub = scrub.map(Duration::from_millis);
        Sample { name, connections, shards, cache, scrub, open, is_json, hosts, token }
    })
}

fn no_secret(_: &Path) -> Result<SecretText, String> {
    Err("there is none".to_owned())
}

/// Values that no test makes, so that each that was not read is seen.
fn others() -> Sample {
    Sample { connections: u64::MAX, ..Sample::default() }
}

fn values_of(layer: Assignments) -> Sample {
    let resolved = resolve(SAMPLE, others(), vec![layer], &no_secret);
    resolved.unwrap_or_else(|problems| panic!("{:?}", problems.lines())).values
}

/// A settings file with these values.
fn written(sample: &Sample) -> String {
    let mut text = String::new();
    for row in SAMPLE {
        if let Some(value) = (row.get)(sample).to_toml() {
            text.push_str(&format!("{}.{} = {value}\n", row.section, row.field));
        }
    }
    text
}

proptest! {
    #[test]
    fn values_that_are_written_to_a_file_are_read_as_the_same(sample in sample(".*")) {
        let text = written(&sample);
        prop_assert_eq!(values_of(assignments_of_file(SAMPLE, "a", text.as_bytes())), sample);
    }

    #[test]
    fn values_that_are_put_into_an_environment_are_read_as_the_same(sample in sample("[a-z:.]{1,20}")) {
        let variables = SAMPLE.iter().filter_map(|row| {
            let texts = (row.get)(&sample).texts();
            let is_nothing = texts.is_empty();
            (!is_nothing).then(|| (row.variable_name().into(), texts.join(",").into()))
        });
        let variables: Vec<(OsString, OsString)> = variables.collect();
        prop_assert_eq!(values_of(assignments_of_environment(SAMPLE, variables)), sample);
    }

    #[test]
    fn a_reload_to_any_values_leaves_those_that_need_a_restart(old in sample(".*"), new in sample(".*")) {
        let mut running = old.clone();
        take_over(SAMPLE, &mut running, &new);
        let are_all = |old: &Sample, new: &Sample, reload| {
            changes(SAMPLE, old, new).iter().all(|change| change.setting.reload == reload)
        };
        prop_assert!(are_all(&running, &new, Reload::Restart));
        prop_assert!(are_all(&old, &running, Reload::Applied));
    }

    #[test]
    fn the_defaults_that_are_printed_are_the_defaults(defaults in sample(".*")) {
        let text = write_defaults(SAMPLE, &defaults);
        prop_assert!(assignments_of_file(SAMPLE, "a", text.as_bytes()).list.is_empty());
        // Without the # before each field that has a value.
        let lines = text.lines().map(|line| match line.strip_prefix('#') {
            Some(field) if !field.starts_with(' ') && !field.contains("_file = ") => field,
            _ => line,
        });
        let text = lines.collect::<Vec<_>>().join("\n");
        let read = resolve(
            SAMPLE,
            Sample { shards: defaults.shards, token: defaults.token.clone(), ..others() },
            vec![assignments_of_file(SAMPLE, "a", text.as_bytes())],
            &no_secret,
        );
        prop_assert_eq!(read.unwrap().values, defaults);
    }

    #[test]
    fn any_text_is_read_and_each_problem_names_one_of_its_lines(
        text in "(\\[(http|log|htp)\\]\n|[a-z_.]{1,9} ?=? ?(1|'a'|\"\"\"|\\[|\\{|true)?\n|.{0,9}\n?){0,12}"
    ) {
        let found = assignments_of_file(SAMPLE, "a", text.as_bytes());
        let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
        for problem in found.problems.iter() {
            let Source::File { line, .. } = problem.source else { panic!("{problem}") };
            prop_assert!((1..=lines).contains(&line), "{}", problem);
            prop_assert!(!problem.text.contains('\n'));
        }
    }
}
