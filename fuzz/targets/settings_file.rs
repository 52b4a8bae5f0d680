//! Any bytes as a settings file: assignments and problems, each with a line of the file, and values that are written and
//! read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_settings::{
    Assignments, PROBLEMS_MAX, SecretText, Source, assignments_of_file, resolve,
    sample::{SAMPLE, Sample},
};

fn resolved(layer: Assignments) -> Option<Sample> {
    let no_secret = |_: &std::path::Path| -> Result<SecretText, String> { Err("none".to_owned()) };
    let resolved = resolve(SAMPLE, Sample::default(), vec![layer], &no_secret);
    match resolved {
        Ok(resolved) => Some(resolved.values),
        Err(problems) => {
            assert!(!problems.is_empty() && problems.lines().len() <= PROBLEMS_MAX + 1);
            None
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let found = assignments_of_file(SAMPLE, "a.toml", data);
    let lines = 1 + data.iter().filter(|byte| **byte == b'\n').count();
    let sources = found.list.iter().map(|(_, assignment)| &assignment.source);
    for source in sources.chain(found.problems.iter().map(|problem| &problem.source)) {
        let Source::File { line, .. } = source else { panic!("{source}") };
        assert!((1..=lines).contains(line), "{source}");
    }
    let Some(values) = resolved(found) else { return };
    let mut text = String::new();
    for row in SAMPLE {
        if let Some(value) = (row.get)(&values).to_toml() {
            text.push_str(&format!("{}.{} = {value}\n", row.section, row.field));
        }
    }
    let again = resolved(assignments_of_file(SAMPLE, "a.toml", text.as_bytes()));
    assert_eq!(again, Some(values), "{text}");
});
