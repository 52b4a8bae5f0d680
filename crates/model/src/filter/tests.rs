//! Filters behave as docs/reference/filters.md says, and agree with a naive implementation that evaluates owned
//! messages.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::{
    Batch, BatchBuilder, Header, HeaderKind, Message,
    limits::{FILTER_DEPTH_MAX, FILTER_GLOB_BYTES_MAX, FILTER_TESTS_MAX},
};

const PAGE: &str = include_str!("../../../../docs/reference/filters.md");

fn batch_of(message: &Message) -> Batch {
    let mut builder = BatchBuilder::new();
    builder.push(message).unwrap();
    builder.take().unwrap()
}

fn holds(filter: &str, message: &Message) -> bool {
    let filter: Filter = filter.parse().unwrap_or_else(|error| panic!("{filter}: {error}"));
    let batch = batch_of(message);
    filter.matches(&batch.messages().next().unwrap())
}

fn order() -> Message {
    let header = |name: &str, kind, value: &'static str| Header {
        name: name.into(),
        kind,
        value: Bytes::from_static(value.as_bytes()),
    };
    Message {
        key: Bytes::from_static(b"order-17"),
        headers: vec![
            header("region", HeaderKind::Text, "eu"),
            header("amount", HeaderKind::Number, "100.50"),
            header("tag", HeaderKind::Text, "new"),
            header("tag", HeaderKind::Text, "gift"),
            header("paid", HeaderKind::Boolean, "true"),
            header("content type", HeaderKind::Text, "text/plain"),
        ],
        ..Message::new("{}")
    }
}

/// Rows of the page's tables: the text between the first two backquotes, and yes or no.
fn examples() -> impl Iterator<Item = (&'static str, bool)> {
    PAGE.lines().filter_map(|line| {
        let (filter, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
        match rest.split(" |").next()? {
            "yes" => Some((filter, true)),
            "no" => Some((filter, false)),
            _ => None,
        }
    })
}

#[test]
fn every_example_of_the_page_is_true() {
    let mut count = 0;
    for (filter, expected) in examples() {
        assert_eq!(holds(filter, &order()), expected, "{filter}");
        count += 1;
    }
    assert!(count > 20, "the page has {count} examples");
}

#[test]
fn the_page_states_the_limits() {
    for (name, limit) in [
        ("FILTER_BYTES_MAX", FILTER_BYTES_MAX),
        ("FILTER_TESTS_MAX", FILTER_TESTS_MAX),
        ("FILTER_DEPTH_MAX", FILTER_DEPTH_MAX),
        ("FILTER_GLOB_BYTES_MAX", FILTER_GLOB_BYTES_MAX),
    ] {
        let row = format!("| `{name}` | {limit} |");
        assert!(PAGE.lines().any(|line| line.starts_with(&row)), "the page lacks {row}");
    }
}

#[test]
fn an_error_says_where_what_and_what_would_be_right() {
    for (text, position, found, wanted) in [
        ("", 0, "the filter ends here", "key, header.NAME, exists, not or ("),
        ("key", 3, "the filter ends here", "= != < <= > >= prefix or glob"),
        ("key == 1", 5, "found `=`", "a text in quotes, a number, true or false"),
        ("key = eu", 6, "found `eu`", "a text in quotes, a number, true or false"),
        ("key = \"eu", 6, "text without an end", "a second \" to end it"),
        (
            r#"key = "\n""#,
            7,
            "an escape that there is not",
            r#"\\, \", \' or \x and two hexadecimal digits"#,
        ),
        ("(key = 1", 8, "the filter ends here", "and, or, or )"),
        ("key = 1)", 7, "found `)`", "and, or, or the end"),
        ("key = 1 key = 2", 8, "found `key`", "and, or, or the end"),
        ("region = 1", 0, "found `region`", "key, header.NAME, exists, not or ("),
        ("exists 3", 7, "found `3`", "key or header.NAME"),
        ("key prefix 3", 11, "found `3`", "a text in quotes after prefix"),
        ("key = 1.", 6, "found `1.`", "a number such as 42, -1.5 or 2e9"),
        ("KEY = 1", 0, "found `KEY`", "key, header.NAME, exists, not or ("),
        (r#"header.region"eu" = 1"#, 13, r#"found the text "eu""#, "= != < <= > >= prefix or glob"),
        ("key & 1", 4, "found '&'", "key, header.NAME, exists, not, or a parenthesis"),
        (
            "header. = 1",
            0,
            "a name that no header has",
            r#"header.NAME or header."NAME", 1 to 255 bytes of UTF-8"#,
        ),
    ] {
        let error = text.parse::<Filter>().unwrap_err();
        assert_eq!(error, FilterError::new(position, found, wanted), "{text}");
    }
}

#[test]
fn an_error_is_pointed_out_in_its_line() {
    let text = "key = \"é\"\n  and region = 1\n  and key = 2";
    let shown = text.parse::<Filter>().unwrap_err().show_in(text);
    assert_eq!(
        shown,
        "  and region = 1\n      ^ found `region`\nwanted: key, header.NAME, exists, not or ("
    );
}

#[test]
fn each_limit_is_refused_by_its_name_and_kept_just_below() {
    let tests = |count: usize| vec!["exists key"; count].join(" and ");
    let deep = |count: usize| format!("{}exists key", "not ".repeat(count));
    let nested = |count: usize| format!("{}exists key{}", "(".repeat(count), ")".repeat(count));
    let long = |count: usize| format!("exists key{}", " ".repeat(count - 10));
    let glob = |count: usize| format!("key glob \"{}\"", "*?".repeat(count / 2));
    for (name, fits, exceeds) in [
        ("FILTER_TESTS_MAX", tests(FILTER_TESTS_MAX), tests(FILTER_TESTS_MAX + 1)),
        ("FILTER_DEPTH_MAX", deep(FILTER_DEPTH_MAX), deep(FILTER_DEPTH_MAX + 1)),
        ("FILTER_DEPTH_MAX", nested(FILTER_DEPTH_MAX), nested(FILTER_DEPTH_MAX + 1)),
        ("FILTER_BYTES_MAX", long(FILTER_BYTES_MAX), long(FILTER_BYTES_MAX + 1)),
        ("FILTER_GLOB_BYTES_MAX", glob(FILTER_GLOB_BYTES_MAX), glob(FILTER_GLOB_BYTES_MAX + 2)),
    ] {
        assert!(fits.parse::<Filter>().is_ok(), "{name}");
        let error = exceeds.parse::<Filter>().unwrap_err();
        assert!(error.wanted.contains(name), "{error}");
    }
}

#[test]
fn what_stands_beside_each_other_is_not_within_each_other() {
    let beside = |text: &str| vec![text; FILTER_DEPTH_MAX + 1].join(" and ");
    assert!(holds(&beside("(exists key)"), &order()));
    assert!(holds(&beside("not exists header.test"), &order()));
}

#[test]
fn a_name_is_no_longer_than_a_header_can_have() {
    let exists = |length: usize| format!("exists header.{}", "n".repeat(length)).parse::<Filter>();
    assert!(exists(255).is_ok());
    assert_eq!(exists(256).unwrap_err().found, "a name that no header has");
}

#[test]
fn what_is_equal_is_neither_less_nor_greater() {
    // How a value stands to one that is less, to its equal and to one that is greater.
    for (relation, passes) in [
        ("=", [false, true, false]),
        ("!=", [true, false, true]),
        ("<", [false, false, true]),
        ("<=", [false, true, true]),
        (">", [true, false, false]),
        (">=", [true, true, false]),
    ] {
        for (name, literals) in
            [("region", ["'et'", "'eu'", "'ev'"]), ("amount", ["100.49", "+100.5", "1.0051e+2"])]
        {
            for (literal, expected) in literals.into_iter().zip(passes) {
                let filter = format!("header.{name} {relation} {literal}");
                assert_eq!(holds(&filter, &order()), expected, "{filter}");
            }
        }
    }
}

#[test]
fn names_and_texts_are_compared_as_they_are_written() {
    for (filter, expected) in [
        ("header.region = 'EU'", false),
        ("exists header.Region", false),
        ("key prefix 'Order'", false),
        ("key prefix 'order-17'", true),
        (r#"key != "it's""#, true),
        (r#"key != 'so "called"'"#, true),
    ] {
        assert_eq!(holds(filter, &order()), expected, "{filter}");
    }
}

/// A turn gives each filter so much: what is not counted, others wait for.
#[test]
fn a_filter_costs_each_byte_for_each_test_and_as_often_as_a_glob_may_try_it() {
    let cost = |filter: &str, message: &Message| {
        let filter: Filter = filter.parse().unwrap();
        filter.cost(&batch_of(message).messages().next().unwrap())
    };
    let bare = cost("exists key", &Message::new("{}"));
    let keyed = Message { key: "k".repeat(1000).into(), ..Message::new("{}") };
    let headers = vec![Header::text("n", "v".repeat(1000))];
    let headed = Message { headers, ..Message::new("{}") };
    for message in [keyed, headed] {
        for (filter, times) in [
            ("exists key", 1),
            ("exists key and exists header.n or not exists header.m", 3),
            ("key glob 'abc?'", 1),
            ("key glob '*abc'", 3),
            ("key glob '*a?'", 1 + 4),
        ] {
            let cost = cost(filter, &message) - bare;
            let range = 1000 * times..1000 * (2 * times + 3);
            assert!(range.contains(&cost), "{filter} costs {cost}");
        }
    }
}

#[test]
fn headers_behind_one_that_cannot_be_read_are_not_there() {
    let batch = batch_of(&order());
    let mut bytes = batch.bytes().to_vec();
    let tag = bytes.windows(3).position(|part| part == b"tag").unwrap();
    bytes[tag - 4] = 77;
    let batch = Batch::from_journal(bytes.into()).unwrap();
    let message = batch.messages().next().unwrap();
    let matches = |text: &str| text.parse::<Filter>().unwrap().matches(&message);
    assert!(matches("exists header.amount"));
    assert!(matches("not exists header.tag and not exists header.paid"));
}

/// A filter as its twin sees it.
#[derive(Clone, Debug)]
enum Twin {
    Exists(Option<String>),
    Compare(Option<String>, &'static str, Value),
    Prefix(Option<String>, String),
    Not(Box<Twin>),
    And(Box<Twin>, Box<Twin>),
    Or(Box<Twin>, Box<Twin>),
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    Number(i32),
}

fn field(name: &Option<String>) -> String {
    name.as_ref().map_or("key".into(), |name| format!("header.{name}"))
}

impl Twin {
    fn text(&self) -> String {
        match self {
            Self::Exists(name) => format!("exists {}", field(name)),
            Self::Compare(name, sign, Value::Text(text)) => {
                format!("{} {sign} {text:?}", field(name))
            }
            Self::Compare(name, sign, Value::Number(n)) => format!("{}{sign}{n}", field(name)),
            Self::Prefix(name, text) => format!("{} prefix '{text}'", field(name)),
            Self::Not(twin) => format!("not ({})", twin.text()),
            Self::And(a, b) => format!("({}) and ({})", a.text(), b.text()),
            Self::Or(a, b) => format!("({}) OR ({})", a.text(), b.text()),
        }
    }

    /// The same without the parentheses that precedence makes needless.
    fn bare(&self) -> String {
        match self {
            Self::Not(twin) => format!("not {}", twin.tight()),
            Self::And(a, b) => format!("{} and {}", a.below_and(), b.below_and()),
            Self::Or(a, b) => format!("{} or {}", a.bare(), b.bare()),
            _ => self.text(),
        }
    }

    fn below_and(&self) -> String {
        if matches!(self, Self::Or(..)) { format!("({})", self.bare()) } else { self.bare() }
    }

    fn tight(&self) -> String {
        if matches!(self, Self::Or(..) | Self::And(..)) {
            format!("({})", self.bare())
        } else {
            self.bare()
        }
    }

    fn holds(&self, message: &Message) -> bool {
        let values = |name: &Option<String>| -> Vec<String> {
            let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).unwrap();
            match name {
                None => {
                    Some(text(&message.key)).filter(|key| !key.is_empty()).into_iter().collect()
                }
                Some(name) => {
                    let named = message.headers.iter().filter(|header| header.name == *name);
                    named.map(|header| text(&header.value)).collect()
                }
            }
        };
        let allows = |sign: &str, order: std::cmp::Ordering| match sign {
            "=" => order.is_eq(),
            "!=" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            _ => order.is_ge(),
        };
        match self {
            Self::Exists(name) => !values(name).is_empty(),
            Self::Prefix(name, text) => values(name).iter().any(|value| value.starts_with(text)),
            Self::Compare(name, sign, literal) => values(name).iter().any(|value| match literal {
                Value::Text(text) => allows(sign, value.cmp(text)),
                Value::Number(number) => {
                    value.parse::<i32>().is_ok_and(|value| allows(sign, value.cmp(number)))
                }
            }),
            Self::Not(twin) => !twin.holds(message),
            Self::And(a, b) => a.holds(message) && b.holds(message),
            Self::Or(a, b) => a.holds(message) || b.holds(message),
        }
    }
}

fn any_twin() -> impl Strategy<Value = Twin> {
    let name = || proptest::option::of("[ab]");
    let sign = proptest::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]);
    let value = prop_oneof!["[ab1]{0,2}".prop_map(Value::Text), (-3..30).prop_map(Value::Number)];
    let leaf = prop_oneof![
        name().prop_map(Twin::Exists),
        (name(), sign, value).prop_map(|(name, sign, value)| Twin::Compare(name, sign, value)),
        (name(), "[ab1]{0,2}").prop_map(|(name, text)| Twin::Prefix(name, text)),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed().prop_map(Twin::Not),
            (boxed(), boxed()).prop_map(|(a, b)| Twin::And(a, b)),
            (boxed(), boxed()).prop_map(|(a, b)| Twin::Or(a, b)),
        ]
    })
}

fn any_message() -> impl Strategy<Value = Message> {
    let value = || prop_oneof!["[ab1]{0,2}", (-3..30).prop_map(|n: i32| n.to_string())];
    let header = ("[ab]", value()).prop_map(|(name, value)| Header::text(name, value));
    (value(), proptest::collection::vec(header, 0..4)).prop_map(|(key, headers)| Message {
        key: key.into(),
        headers,
        ..Message::new("p")
    })
}

proptest! {
    #[test]
    fn a_filter_says_what_its_naive_twin_says(twin in any_twin(), message in any_message()) {
        let expected = twin.holds(&message);
        prop_assert_eq!(holds(&twin.text(), &message), expected, "{}", twin.text());
        prop_assert_eq!(holds(&twin.bare(), &message), expected, "{}", twin.bare());
    }

    #[test]
    fn any_text_is_a_filter_or_an_error_within_it(text in "[a-z0-9 .=<>!~()\"'\\\\é-]{0,40}") {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.position <= text.len());
            let _ = error.show_in(&text);
        }
    }
}
