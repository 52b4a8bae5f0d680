//! Decisions about changes: data in, answers and entries out.

use super::*;

fn key(text: &str) -> ConfigurationKey {
    text.parse().expect("it is a key")
}

fn write(text: &str, value: Option<&str>, if_revision: Option<u64>) -> Write {
    let value = value.map(|value| value.to_owned().into());
    Write { key: key(text), value, if_revision, if_authority: None }
}

fn set(text: &str, value: &str) -> Write {
    write(text, Some(value), None)
}

fn changed(revision: u64, existed: bool) -> Result<ConfigurationAnswer, ConfigurationRefusal> {
    Ok(ConfigurationAnswer::Changed { revision, existed })
}

/// Decides all of them together, and applies what comes of it.
fn decide(
    entries: &mut Entries,
    writes: &[Write],
) -> Vec<Result<ConfigurationAnswer, ConfigurationRefusal>> {
    let mut draft = Draft::of(entries, 1);
    let answers = writes.iter().map(|write| draft.decide(write)).collect();
    let changes = draft.changes;
    changes.iter().for_each(|change| entries.apply(change));
    answers
}

fn page(entries: &Entries, list: (&str, &str, usize, usize)) -> (Vec<String>, bool) {
    let (prefix, after, entries_max, bytes_max) = list;
    let list = ListEntries { prefix: prefix.into(), after: after.into(), entries_max, bytes_max };
    match entries.list(&list, |_| true) {
        ConfigurationAnswer::Page { entries, more, .. } => {
            (entries.iter().map(|entry| entry.key.to_string()).collect(), more)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn revisions_count_all_changes_and_those_that_change_nothing_have_none() {
    let mut entries = Entries::default();
    let answers = decide(
        &mut entries,
        &[
            set("a", "1"),
            set("b", "1"),
            set("a", "2"),
            write("x", None, None),
            write("b", None, None),
        ],
    );
    let expected = [
        changed(1, false),
        changed(2, false),
        changed(3, true),
        changed(3, false),
        changed(4, true),
    ];
    assert_eq!(answers, expected);
    assert_eq!(entries.revision(), 4);
    let a = entries.get(&key("a")).expect("it is there");
    assert_eq!((a.revision, &a.value[..]), (3, &b"2"[..]));
    assert_eq!(entries.get(&key("b")), None);
    assert_eq!(entries.totals(), Totals { entries: 1, bytes: 2, throttles: 0 });
}

#[test]
fn of_changes_that_expect_one_revision_the_first_wins() {
    let mut entries = Entries::default();
    let mismatch = |expected, found| Err(ConfigurationRefusal::Revision { expected, found });
    let new = write("a", Some("1"), Some(0));
    assert_eq!(decide(&mut entries, &[new.clone(), new]), [changed(1, false), mismatch(0, 1)]);
    let next = |value| write("a", Some(value), Some(1));
    let answers = decide(&mut entries, &[next("2"), next("3"), write("a", None, Some(1))]);
    assert_eq!(answers, [changed(2, true), mismatch(1, 2), mismatch(1, 2)]);
    let answers = decide(
        &mut entries,
        &[
            write("a", None, Some(2)),
            write("a", None, Some(2)),
            write("a", None, Some(0)),
            write("a", Some("4"), Some(0)),
        ],
    );
    assert_eq!(answers, [changed(3, true), mismatch(2, 0), changed(3, false), changed(4, false)]);
    let refused = Draft::of(&entries, 1).decide(&write("a", Some(""), Some(9)));
    let text = refused.expect_err("it has another revision").to_string();
    assert_eq!(text, "the entry has revision 4, expected was 9");
}

#[test]
fn what_was_decided_on_another_directory_is_refused() {
    let entries = Entries::default();
    let mut draft = Draft::of(&entries, 7);
    let mut at = |authority| draft.decide(&Write { if_authority: authority, ..set("a", "1") });
    for other in [6, 8] {
        assert_eq!(at(Some(other)), Err(ConfigurationRefusal::OtherDirectory));
    }
    assert_eq!([at(Some(7)), at(None)], [changed(1, false), changed(2, true)]);
    assert_eq!(draft.changes.len(), 2);
}

#[test]
fn what_exceeds_a_limit_is_refused_with_its_name_and_changes_nothing() {
    let mut entries = Entries::default();
    let long = "x".repeat(CONFIGURATION_VALUE_BYTES_MAX);
    assert_eq!(decide(&mut entries, &[set("a", &long)]), [changed(1, false)]);
    let refused = decide(&mut entries, &[set("a", &format!("{long}x"))]).remove(0);
    let text = refused.expect_err("it is too long").to_string();
    assert_eq!(text, "the value has 65537 bytes: CONFIGURATION_VALUE_BYTES_MAX is 65536");
    let fit = CONFIGURATION_BYTES_MAX / (CONFIGURATION_VALUE_BYTES_MAX + 5) - 1;
    let writes: Vec<_> = (0..fit).map(|n| set(&format!("{n:05}"), &long)).collect();
    assert!(decide(&mut entries, &writes).iter().all(Result::is_ok));
    let more = [set("more1", &long), set("more2", &long), set("a", "short"), set("more3", "x")];
    let answers = decide(&mut entries, &more);
    assert!(
        matches!(answers[1], Err(ConfigurationRefusal::TooManyBytes(_)))
            && answers[2].is_ok()
            && answers[3].is_ok(),
        "{answers:?}"
    );
    assert!(entries.totals().bytes <= CONFIGURATION_BYTES_MAX);
}

#[test]
fn there_are_so_many_entries_and_no_more() {
    let mut entries = Entries::default();
    let writes: Vec<_> =
        (0..=CONFIGURATION_ENTRIES_MAX).map(|n| set(&format!("k{n}"), "")).collect();
    let answers = decide(&mut entries, &writes);
    let (last, others) = answers.split_last().expect("there are some");
    assert!(others.iter().all(Result::is_ok));
    assert_eq!(*last, Err(ConfigurationRefusal::TooManyEntries));
    let answers = decide(&mut entries, &[set("k0", "x"), write("k1", None, None), set("new", "")]);
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[test]
fn a_throttle_rule_is_checked_when_it_is_set() {
    let mut entries = Entries::default();
    let answers = decide(
        &mut entries,
        &[
            set("throttle.tenant:*", "10/s burst 20"),
            set("throttle.tenant:a", "fast"),
            set("throttle.a*b", "1/s"),
            set("throttle.", "1/s"),
            set("throttles", "fast"),
        ],
    );
    let refused =
        answers.iter().map(|answer| matches!(answer, Err(ConfigurationRefusal::Throttle(_))));
    assert_eq!(refused.collect::<Vec<_>>(), [false, true, true, true, false]);
    assert_eq!(entries.totals().throttles, 1);
    let rules: Vec<_> =
        (0..THROTTLE_RULES_MAX).map(|n| set(&format!("throttle.{n}"), "1/s")).collect();
    let answers = decide(&mut entries, &rules);
    assert_eq!(answers.last(), Some(&Err(ConfigurationRefusal::TooManyThrottles)));
    assert_eq!(entries.totals().throttles, THROTTLE_RULES_MAX);
}

#[test]
fn pages_are_in_the_order_of_the_keys_and_miss_none() {
    let mut entries = Entries::default();
    decide(&mut entries, &["b.2", "a", "b.1", "b", "c", "b.3"].map(|text| set(text, "1234")));
    let page = |list| page(&entries, list);
    let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect::<Vec<_>>();
    assert_eq!(page(("", "", 10, 1000)), (keys(&["a", "b", "b.1", "b.2", "b.3", "c"]), false));
    assert_eq!(page(("b.", "", 2, 1000)), (keys(&["b.1", "b.2"]), true));
    assert_eq!(page(("b.", "b.2", 2, 1000)), (keys(&["b.3"]), false));
    assert_eq!(page(("b.", "b.15", 1, 1000)), (keys(&["b.2"]), true));
    assert_eq!(page(("", "", 10, 73)), (keys(&["a"]), true), "a and b have 74 bytes");
    assert_eq!(page(("", "", 10, 74)), (keys(&["a", "b"]), true));
    assert_eq!(page(("b.", "", 10, 0)), (keys(&["b.1"]), true), "one is told, however large");
    assert_eq!(page(("b.", "c", 10, 1000)), (keys(&[]), false));
    assert_eq!(page(("x", "", 10, 1000)), (keys(&[]), false));
}

#[test]
fn what_is_read_back_in_the_order_of_the_stream_is_what_was_there() {
    let mut entries = Entries::default();
    let mut changes = Vec::new();
    for n in 0..200_u32 {
        let text = format!("k{}", n * 7 % 13);
        let value = (n % 5 != 0).then(|| n.to_string());
        let mut draft = Draft::of(&entries, 1);
        draft.decide(&write(&text, value.as_deref(), None)).expect("it is not refused");
        let new = draft.changes;
        new.iter().for_each(|change| entries.apply(change));
        changes.extend(new);
    }
    // All entries are written again behind the changes, once in part and once as a whole.
    let all: Vec<_> = entries
        .iter()
        .map(|(key, entry)| ConfigurationChange {
            key: key.clone(),
            revision: entry.revision,
            value: Some(entry.value.clone()),
        })
        .collect();
    for from in [0, 50, changes.len()] {
        let mut again = Entries::default();
        changes[from..].iter().chain(&all[..3]).chain(&all).for_each(|change| again.apply(change));
        again.skip_to(entries.revision());
        assert_eq!(again.by_key, entries.by_key);
        assert_eq!((again.revision, again.totals), (entries.revision, entries.totals));
    }
}
