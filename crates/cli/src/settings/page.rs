//! Tests of the table of settings, and the part of docs/reference/settings.md that is written from it.

use std::{collections::BTreeSet, fmt::Write as _, fs, path::Path};

use sennit_settings::{
    Assignment, Flag, Kind, Reload, Setting, Source, Value, assignments_of_file, resolve,
    write_defaults,
};

use super::{SETTINGS, Start};

const BEGIN: &str = "<!-- The table of settings begins. -->\n";
const END: &str = "<!-- The table of settings ends. -->\n";

fn row(row: &Setting<Start>) -> String {
    let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let default = match (row.get)(&Start::default()) {
        Value::Unset => row.unset.to_owned(),
        value => code(&value.to_toml().unwrap_or_default()),
    };
    let shape = match row.kind {
        Kind::OneOf(words) => {
            words.iter().map(|(word, _)| code(word)).collect::<Vec<_>>().join(", ")
        }
        Kind::Switch => "`true`, `false`".to_owned(),
        Kind::List => format!("list of {}", code(row.shape)),
        Kind::Secret => format!("secret; `{}_file` names its file", row.field),
        _ => code(row.shape),
    };
    let flag = row.flag_name().map(|name| code(&name)).unwrap_or_default();
    let reload = match row.reload {
        Reload::Applied => "applied",
        Reload::Restart => "restart",
    };
    let help = row.help.replace('|', "\\|");
    format!("| `{}` | {shape} | {default} | {flag} | {reload} | {help} |\n", row.field)
}

fn tables() -> String {
    let mut text = String::new();
    let mut section = "";
    for setting in SETTINGS.iter() {
        if setting.section != section {
            section = setting.section;
            let heads =
                "| field | value | default | flag | reload | |\n|---|---|---|---|---|---|\n";
            write!(text, "\n### `[{section}]`\n{heads}").unwrap();
        }
        text.push_str(&row(setting));
    }
    text.push('\n');
    text
}

#[test]
fn the_page_of_settings_says_what_the_table_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    let page = fs::read_to_string(&path).unwrap_or_default();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (_, after) = rest.split_once(END).expect("the place has an end");
    let expected = format!("{before}{BEGIN}{}{END}{after}", tables());
    if std::env::var_os("SENNIT_WRITE_PAGES").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == expected,
        "docs/reference/settings.md is behind; SENNIT_WRITE_PAGES=1 writes it"
    );
}

#[test]
fn each_row_has_names_of_its_own() {
    let unique = |names: Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    assert!(unique(SETTINGS.iter().map(Setting::name).collect()));
    assert!(unique(SETTINGS.iter().filter_map(Setting::flag_name).collect()));
    let mut sections: Vec<_> = SETTINGS.iter().map(|row| row.section.to_owned()).collect();
    sections.dedup();
    assert!(unique(sections), "the rows of a section stand together");
    let is_word = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    for row in SETTINGS.iter() {
        let name = row.name();
        // The variable SENNIT_SECTION__FIELD has one place to be cut at.
        assert!(is_word(row.section) && !row.section.contains('_'), "{name}");
        assert!(is_word(row.field) && !row.field.contains("__"), "{name}");
        assert!(!row.help.is_empty() && !row.help.ends_with('.'), "{name}");
        let is_unset = (row.get)(&Start::default()) == Value::Unset;
        assert_eq!(is_unset, !row.unset.is_empty(), "{name}: no default is to be explained");
        let shows_secret = row.kind == Kind::Secret && matches!(row.flag, Flag::Switch(..));
        assert!(!shows_secret, "{name}");
    }
}

#[test]
fn what_a_row_shows_it_reads_as_the_same() {
    // A secret is shown nowhere.
    for row in SETTINGS.iter().filter(|row| row.kind != Kind::Secret) {
        let mut shown = BTreeSet::new();
        for text in [
            "true",
            "1",
            "7",
            "4096",
            "off",
            "1h",
            "64MiB",
            "127.0.0.1:1",
            "https://a.example",
            "a=memory",
            "direct",
            "json",
            "acid",
            "debug",
            "self",
            "required",
            "all",
            "connect",
            "chat.>",
            "redis://a.example",
        ] {
            let mut start = Start::default();
            let given = |texts| Assignment::new(texts, Source::Default);
            if (row.set)(&mut start, &given(vec![text.to_owned()])).is_err() {
                continue;
            }
            let value = (row.get)(&start);
            let mut again = Start::default();
            assert_eq!((row.set)(&mut again, &given(value.texts())), Ok(()), "{}", row.name());
            assert_eq!((row.get)(&again), value, "{}", row.name());
            shown.insert(value.to_string());
        }
        assert!(!shown.is_empty(), "{}: none of the texts is a value of it", row.name());
        // What is no value at all changes none that has a default.
        let nothing = Assignment::new(Vec::new(), Source::Default);
        let may_be_none = matches!(row.kind, Kind::List) || !row.unset.is_empty();
        assert_eq!(
            (row.set)(&mut Start::default(), &nothing).is_ok(),
            may_be_none,
            "{}",
            row.name()
        );
    }
}

#[test]
fn the_defaults_that_are_printed_are_the_defaults() {
    let text = write_defaults(&SETTINGS, &Start::default());
    let uncommented: Vec<_> = text
        .lines()
        // The file of a secret is none.
        .filter(|line| !line.contains("_file = \"path\""))
        .map(|line| line.strip_prefix('#').filter(|line| !line.starts_with(' ')).unwrap_or(line))
        .collect();
    for text in [text.clone(), uncommented.join("\n")] {
        let layer = assignments_of_file(&SETTINGS, "defaults", text.as_bytes());
        let mut other = Start::default();
        (other.broker.http_connections, other.log_filter) = (1, "error".to_owned());
        let start = if layer.list.is_empty() { Start::default() } else { other };
        let resolved = resolve(&SETTINGS, start, vec![layer], &|_| Err("there is none".to_owned()));
        let resolved = resolved.unwrap_or_else(|problems| panic!("{:?}", problems.lines()));
        for row in SETTINGS.iter() {
            assert_eq!((row.get)(&resolved.values), (row.get)(&Start::default()), "{}", row.name());
        }
        assert!(resolved.values.broker.check().is_ok());
    }
}
