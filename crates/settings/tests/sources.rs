//! What each source says, which of them counts, and what is said of wrong ones: text in, values and problems out.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::{ffi::OsString, path::Path, time::Duration};

use sennit_settings::{
    Assignment, Assignments, FILE_BYTES_MAX, PROBLEMS_MAX, Problems, Resolved, SecretText, Source,
    assignments_of_environment, assignments_of_file, changes, resolve,
    sample::{SAMPLE, Sample},
    take_over, write_defaults,
};

fn of_file(text: &str) -> Assignments {
    assignments_of_file(SAMPLE, "a.toml", text.as_bytes())
}

fn of_environment(variables: &[(&str, &str)]) -> Assignments {
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    assignments_of_environment(SAMPLE, variables.collect::<Vec<(OsString, OsString)>>())
}

fn of_flag(field: &str, text: &str) -> Assignments {
    let at = SAMPLE.iter().position(|row| row.field == field).unwrap();
    let given = Assignment::new(vec![text.to_owned()], Source::Flag(format!("--{field}")));
    Assignments { list: vec![(at, given)], ..Assignments::default() }
}

fn read_secret(path: &Path) -> Result<SecretText, String> {
    match path.to_str() {
        Some("safe") => Ok(SecretText { text: "abc".to_owned(), warning: None }),
        Some("open") => {
            let warning = Some("all may read it".to_owned());
            Ok(SecretText { text: "abc".to_owned(), warning })
        }
        Some("wrong") => Ok(SecretText { text: "hush-123".to_owned(), warning: None }),
        _ => Err("it is not there".to_owned()),
    }
}

fn resolved(layers: Vec<Assignments>) -> Result<Resolved<Sample>, Problems> {
    resolve(SAMPLE, Sample::default(), layers, &read_secret)
}

fn values(text: &str) -> Sample {
    resolved(vec![of_file(text)]).unwrap().values
}

fn problems(text: &str) -> Vec<String> {
    resolved(vec![of_file(text)]).unwrap_err().lines()
}

fn source_of(resolved: &Resolved<Sample>, field: &str) -> String {
    let at = SAMPLE.iter().position(|row| row.field == field).unwrap();
    resolved.sources[at].to_string()
}

#[test]
fn no_source_gives_the_defaults() {
    let nothing = resolved(Vec::new()).unwrap();
    assert_eq!(nothing.values, Sample::default());
    assert!(nothing.sources.iter().all(|source| *source == Source::Default));
}

#[test]
fn a_file_gives_values_of_all_kinds() {
    let text = r#"
        [http]
        listen = "::1"
        connections = 0x10
        hosts = ["a", "b,c"]
        open = true
        [journal]
        shards = 3
        cache_size = "1GiB"
        scrub_every = "1h30m"
        [log]
        format = "json"
        [auth]
        token = "abc"
    "#;
    let expected = Sample {
        name: "::1".to_owned(),
        connections: 16,
        shards: Some(3),
        cache: 1 << 30,
        scrub: Some(Duration::from_secs(5400)),
        open: true,
        is_json: true,
        hosts: vec!["a".to_owned(), "b,c".to_owned()],
        token: Some("abc".to_owned()),
    };
    assert_eq!(values(text), expected);
    assert_eq!(values("journal.scrub_every = 'off'").scrub, None);
    assert_eq!(values("journal = { cache_size = 4096 }").cache, 4096);
}

#[test]
fn the_environment_gives_values_of_all_kinds() {
    let given = of_environment(&[
        ("SENNIT_HTTP__LISTEN", "::1"),
        ("SENNIT_HTTP__CONNECTIONS", "16"),
        ("SENNIT_HTTP__HOSTS", "a, b"),
        ("SENNIT_HTTP__OPEN", "true"),
        ("SENNIT_JOURNAL__SHARDS", "3"),
        ("SENNIT_JOURNAL__CACHE_SIZE", "1GiB"),
        ("SENNIT_JOURNAL__SCRUB_EVERY", "off"),
        ("SENNIT_LOG__FORMAT", "json"),
        ("SENNIT_AUTH__TOKEN", "abc"),
        ("SENNIT_SERVER", "10.0.0.1:4438"),
        ("SENNIT_PORT_4438_TCP_ADDR", "10.0.0.1"),
        ("SENNIT_HEADER_A__B", "of a message"),
        ("HOME", "/"),
    ]);
    let expected = Sample {
        name: "::1".to_owned(),
        connections: 16,
        shards: Some(3),
        cache: 1 << 30,
        scrub: None,
        open: true,
        is_json: true,
        hosts: vec!["a".to_owned(), "b".to_owned()],
        token: Some("abc".to_owned()),
    };
    assert_eq!(resolved(vec![given]).unwrap().values, expected);
}

#[test]
fn flags_come_before_the_environment_before_the_file_before_defaults() {
    let file = of_file("[http]\nlisten = 'file'\nconnections = 1\nhosts = ['file']\n");
    let environment = of_environment(&[
        ("SENNIT_HTTP__LISTEN", "environment"),
        ("SENNIT_HTTP__CONNECTIONS", "2"),
    ]);
    let flags = of_flag("listen", "flag");
    let all = resolved(vec![file, environment, flags]).unwrap();
    assert_eq!((&*all.values.name, all.values.connections), ("flag", 2));
    assert_eq!(all.values.hosts, ["file"]);
    assert_eq!(source_of(&all, "listen"), "--listen");
    assert_eq!(source_of(&all, "connections"), "SENNIT_HTTP__CONNECTIONS");
    assert_eq!(source_of(&all, "hosts"), "a.toml:4");
    assert_eq!(source_of(&all, "cache_size"), "default");
}

#[test]
fn an_empty_variable_says_nothing_and_ours_comes_before_that_of_others() {
    let format = |variables: &[(&str, &str)]| {
        let resolved = resolved(vec![of_environment(variables)]).unwrap();
        (resolved.values.is_json, source_of(&resolved, "format"))
    };
    assert_eq!(format(&[("SENNIT_LOG__FORMAT", "")]), (false, "default".to_owned()));
    assert_eq!(format(&[("OTHER_LOG", "json")]), (true, "OTHER_LOG".to_owned()));
    let both = format(&[("SENNIT_LOG__FORMAT", "text"), ("OTHER_LOG", "json")]);
    assert_eq!(both, (false, "SENNIT_LOG__FORMAT".to_owned()));
}

#[test]
fn an_unknown_name_is_told_the_nearest_one_or_all() {
    for (text, said) in [
        ("[htp]\n", "a.toml:1: there is no section \"htp\"; did you mean \"http\"?"),
        (
            "[tls]\n",
            "a.toml:1: there is no section \"tls\": the sections are http, journal, log, auth",
        ),
        (
            "\n[http]\n\nlisen = ''",
            "a.toml:4: http has no field \"lisen\"; did you mean \"listen\"?",
        ),
        ("[log]\nlisten = 1", "a.toml:2: log has no field \"listen\"; did you mean http.listen?"),
        ("[log]\ncolour = 1", "a.toml:2: log has no field \"colour\": its fields are format"),
        (
            "[auth]\ntoken_fil = ''",
            "a.toml:2: auth has no field \"token_fil\"; did you mean \"token_file\"?",
        ),
        ("listen = ''", "a.toml:1: \"listen\" stands in no section: write it below [http]"),
        ("http = 1", "a.toml:1: http is a section: write [http] and its fields below it"),
        ("[[http]]", "a.toml:1: http is a section: write [http] and its fields below it"),
    ] {
        assert_eq!(problems(text), [said], "{text}");
    }
    for (name, said) in [
        ("SENNIT_HTP__LISTEN", "there is no section \"htp\"; did you mean \"http\"?"),
        ("SENNIT_HTTP__LISEN", "http has no field \"lisen\"; did you mean \"listen\"?"),
        (
            "SENNIT_HTTP__",
            "http has no field \"\": its fields are listen, connections, hosts, open",
        ),
    ] {
        let problems = resolved(vec![of_environment(&[(name, "1")])]).unwrap_err();
        assert_eq!(problems.lines(), [format!("{name}: {said}")]);
    }
}

#[test]
fn a_wrong_type_or_value_is_told_what_would_be_right() {
    for (text, said) in [
        ("http.listen = 1", "http.listen is a string, not of type integer: write it in quotes"),
        ("http.connections = '7'", "http.connections is a number: write 7 without quotes"),
        ("http.connections = 1.5", "http.connections is a number, not of type float"),
        ("http.connections = -1", "http.connections: \"-1\" is no whole number"),
        ("http.hosts = 'a'", "http.hosts is a list: write [\"a\"]"),
        (
            "http.hosts = ['a', 1]",
            "http.hosts is a list of strings, and one of it is of type integer",
        ),
        ("http.open = 'true'", "http.open is true or false: write true without quotes"),
        ("http.open = 1", "http.open is true or false, not of type integer"),
        ("journal.shards = 5000000000", "journal.shards: \"5000000000\" is too large"),
        ("journal.cache_size = '1K'", "journal.cache_size: \"1K\" has two meanings: write 1KiB"),
        ("journal.cache_size = []", "journal.cache_size is a size, not of type array"),
        ("journal.scrub_every = 30", "journal.scrub_every: 30 of what? Write 30ms, 30s or 30m"),
        (
            "journal.scrub_every = 1979-05-27",
            "journal.scrub_every is a duration, not of type datetime",
        ),
        (
            "log.format = 'xml'",
            "log.format: \"xml\" is none of the words that there are: text, json",
        ),
        (
            "log.format = true",
            "log.format is a string, not of type boolean: write \"text\" or \"json\"",
        ),
    ] {
        let problems = problems(text);
        let [problem] = &problems[..] else { panic!("{text}: {problems:?}") };
        assert!(problem.starts_with(&format!("a.toml:1: {said}")), "{text}: {problem}");
    }
}

#[test]
fn all_problems_are_told_in_the_order_of_their_lines() {
    let text = "[journal]\nshards = 'x'\na b\ncache_size = true\n[http]\nlisten = 'a'\nlisten = 'b'\n\
                hots = []\n[log]\nformat = 'xml'\nno value\n[http]\n";
    let problems = problems(text);
    let lines: Vec<_> = problems.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let expected = [2, 3, 4, 7, 8, 10, 11, 12].map(|line| format!("a.toml:{line}:"));
    assert_eq!(lines, expected, "{problems:#?}");
}

#[test]
fn a_value_that_a_higher_source_replaces_has_to_be_right_too() {
    let file = of_file("http.connections = 'many'");
    let problems = resolved(vec![file, of_flag("connections", "1")]).unwrap_err();
    assert_eq!(problems.iter().count(), 1);
}

#[test]
fn what_is_no_settings_file_is_refused() {
    let long = format!("# {}", "x".repeat(FILE_BYTES_MAX));
    assert!(problems(&long)[0].contains("FILE_BYTES_MAX is 1048576"));
    let bytes = assignments_of_file(SAMPLE, "a.toml", b"[http]\n\nlisten = '\xff'");
    assert_eq!(bytes.problems.lines(), ["a.toml:3: this is not UTF-8"]);
    let many: String = (0..1000).map(|n| format!("a{n} = 1\n")).collect();
    let lines = problems(&many);
    assert_eq!(lines.len(), PROBLEMS_MAX + 1);
    assert_eq!(lines[PROBLEMS_MAX], "and 900 more: PROBLEMS_MAX is 100");
    let deep = format!("http.hosts = {}", "[".repeat(100_000));
    assert!(!problems(&deep).is_empty());
}

#[test]
fn a_secret_comes_from_a_file_and_is_never_shown() {
    let token = SAMPLE.iter().find(|row| row.field == "token").unwrap();
    let safe = resolved(vec![of_file("[auth]\ntoken_file = 'safe'")]).unwrap();
    assert_eq!((safe.values.token.as_deref(), safe.warnings.len()), (Some("abc"), 0));
    assert_eq!(token.shown(&safe.values).to_string(), "(secret)");
    assert_eq!(token.shown(&Sample::default()).to_string(), "-");
    assert_eq!(source_of(&safe, "token"), "a.toml:2");
    let by_variable = of_environment(&[("SENNIT_AUTH__TOKEN_FILE", "open")]);
    let open = resolved(vec![by_variable]).unwrap();
    assert_eq!(open.values.token.as_deref(), Some("abc"));
    assert!(open.warnings[0].text.contains("all may read it"));
    let in_the_open = resolved(vec![of_file("auth.token = 'abc'")]).unwrap();
    assert!(in_the_open.warnings[0].text.contains("token_file can name a file"));
    let changes = changes(SAMPLE, &Sample::default(), &safe.values);
    assert_eq!((changes.len(), changes[0].new.to_string()), (1, "(secret)".to_owned()));
}

#[test]
fn a_wrong_secret_is_not_repeated() {
    for text in ["auth.token = 'hush-123'", "auth.token_file = 'wrong'"] {
        let problems = problems(text);
        assert_eq!(problems, ["a.toml:1: auth.token: this is no token of letters"], "{text}");
    }
    assert!(problems("auth.token_file = 'away'")[0].ends_with("\"away\": it is not there"));
    assert!(problems("auth.token = 123")[0].contains("is a string, not of type integer"));
    let twice = "[auth]\ntoken = 'abc'\ntoken_file = 'safe'";
    assert_eq!(
        problems(twice),
        ["a.toml:3: auth.token and auth.token_file both stand here: write one"]
    );
    let twice = [("SENNIT_AUTH__TOKEN", "abc"), ("SENNIT_AUTH__TOKEN_FILE", "safe")];
    let problems = resolved(vec![of_environment(&twice)]).unwrap_err();
    assert!(problems.lines()[0].contains("are both given"));
}

#[test]
fn a_reload_takes_over_what_can_change_and_leaves_the_rest() {
    let mut running = Sample { shards: Some(2), ..Sample::default() };
    let new = values("[http]\nlisten = 'other'\nconnections = 7\nhosts = ['a']");
    let changed: Vec<_> = changes(SAMPLE, &running, &new)
        .iter()
        .map(|change| format!("{} {} {}", change.setting.name(), change.old, change.new))
        .collect();
    assert_eq!(
        changed,
        [
            "http.listen 127.0.0.1:80 other",
            "http.connections 10 7",
            "http.hosts - a",
            "journal.shards 2 -"
        ]
    );
    take_over(SAMPLE, &mut running, &new);
    let expected = Sample { name: "127.0.0.1:80".to_owned(), ..new.clone() };
    assert_eq!(running, expected);
    assert_eq!(changes(SAMPLE, &running, &new).len(), 1);
}

#[test]
fn the_defaults_are_written_with_all_that_is_known_of_them() {
    let text = write_defaults(SAMPLE, &Sample::default());
    assert_eq!(values(&text), Sample::default());
    for part in [
        "[http]\n",
        "# --http, SENNIT_HTTP__LISTEN; needs a restart\n#listen = \"127.0.0.1:80\"\n",
        "# SENNIT_HTTP__CONNECTIONS; a reload applies it\n#connections = 10\n",
        "#hosts = []\n",
        "# Default: one per core.\n# shards = N\n",
        "#token_file = \"path\"\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
