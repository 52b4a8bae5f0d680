//! Patterns match as those of Lua do, and hostile ones end.

use proptest::prelude::*;

use super::*;

fn found(pattern: &str, subject: &str) -> Option<(usize, usize, Vec<String>)> {
    let budget = Budget::default();
    budget.begin();
    let pattern = Pattern::parse(pattern.as_bytes()).unwrap();
    let found = find(&pattern, subject.as_bytes(), 0, None, &budget).unwrap()?;
    let captures = found.captures.iter().map(|capture| match *capture {
        Capture::Text { start, end } => subject[start..end].to_owned(),
        Capture::Position(at) => format!("@{at}"),
        Capture::Open { .. } => "open".to_owned(),
    });
    Some((found.start, found.end, captures.collect()))
}

#[test]
fn patterns_match_as_those_of_lua_do() {
    for (pattern, subject, start, end, captures) in [
        ("", "abc", 0, 0, &[][..]),
        ("b", "abc", 1, 2, &[]),
        ("a.c", "abc", 0, 3, &[]),
        ("^(%w+)=(%d*)$", "plan=42", 0, 7, &["plan", "42"]),
        ("(a*(.)%w(%s*))", "aab  x", 0, 5, &["aab  ", "a", "  "]),
        ("a-b", "aaab", 0, 4, &[]),
        ("a?b", "ab", 0, 2, &[]),
        ("x?", "ab", 0, 0, &[]),
        ("()ll()", "hello", 2, 4, &["@2", "@4"]),
        ("(['\"])(.-)%1", "say 'hi' now", 4, 8, &["'", "hi"]),
        ("%b()", "f(a(b)c) d", 1, 8, &[]),
        ("%f[%w]%w+", "  word", 2, 6, &[]),
        ("[%-a-c]+", "x-ab-y", 1, 5, &[]),
        ("[^%s]+", "  ab ", 2, 4, &[]),
        ("[]x]", "a]", 1, 2, &[]),
        ("[a-]+", "-a-", 0, 3, &[]),
        ("%S+$", "one two", 4, 7, &[]),
        ("a$b", "a$b", 0, 3, &[]),
        ("%.%%", "a.%", 1, 3, &[]),
    ] {
        let captures: Vec<_> = captures.iter().map(|text| (*text).to_owned()).collect();
        assert_eq!(found(pattern, subject), Some((start, end, captures)), "{pattern} in {subject}");
    }
    for (pattern, subject) in [("^b", "ab"), ("%d", "abc"), ("a+$", "aab"), ("%b()", "((a)")] {
        let at = found(pattern, subject);
        assert!(at.is_none() || pattern == "%b()", "{pattern} in {subject}: {at:?}");
    }
}

#[test]
fn a_wrong_pattern_is_named() {
    for wrong in ["(", ")", "a)", "(a", "[a", "[", "%", "%b", "%b(", "%fa", "%1", "[%", "(%1"] {
        let parsed = Pattern::parse(wrong.as_bytes());
        let budget = Budget::default();
        budget.begin();
        let ends = parsed.and_then(|pattern| find(&pattern, b"aaa", 0, None, &budget));
        assert!(matches!(ends, Err(PatternError::Malformed(_))), "{wrong}: {ends:?}");
    }
    let long = vec![b'a'; HOOK_PATTERN_BYTES_MAX + 1];
    assert!(matches!(Pattern::parse(&long), Err(PatternError::TooLong)));
}

#[test]
fn a_pattern_that_goes_back_and_forth_for_ever_is_ended() {
    let subject = vec![b'a'; 4000];
    for bomb in [".-.-.-.-.-.-x", "a*a*a*a*a*a*b", "(a-)(a-)(a-)(a-)%4%3%2%1b", ".*.*.*.*y"] {
        let budget = Budget::default();
        budget.begin();
        let pattern = Pattern::parse(bomb.as_bytes()).unwrap();
        let ends = find(&pattern, &subject, 0, None, &budget);
        assert_eq!(ends, Err(PatternError::Exceeded(Exceeded::Instructions)), "{bomb}");
    }
}

proptest! {
    #[test]
    fn any_pattern_ends_within_its_budget(
        pattern in "[ab.%()\\[\\]^$*+?\\-wd1fb]{0,40}",
        subject in "[ab ]{0,200}",
    ) {
        let budget = Budget::default();
        budget.begin();
        if let Ok(pattern) = Pattern::parse(pattern.as_bytes()) {
            let _ = find(&pattern, subject.as_bytes(), 0, None, &budget);
        }
        prop_assert!(budget.used() <= sennit_model::limits::HOOK_INSTRUCTIONS_MAX + 1000);
    }
}
