//! Measures the cost of a filter for a message: `cargo run --release -p sennit-model --example filter_cost`. The
//! results are in docs/reference/filters.md.
#![expect(clippy::print_stdout, reason = "its output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "it measures time, above the waterline")]

use std::{hint::black_box, time::Instant};

use sennit_model::{BatchBuilder, Filter, Header, Message};

/// Messages in the batch that is gone through.
const MESSAGES: u32 = 1000;

/// Times that it is gone through for a figure; the least of several counts.
const ROUNDS: u32 = 200;

const FILTERS: [(&str, &str); 7] = [
    ("key prefix", r#"key prefix "order-1""#),
    ("one header, text", r#"header.region = "eu""#),
    ("one header, number", "header.amount >= 500"),
    ("one header, glob", r#"header.type glob "order.*.created""#),
    ("a header that is missing", r#"header.test = "1""#),
    (
        "four tests",
        r#"header.region = "eu" and (key prefix "order-" or header.amount >= 100) and not exists header.test"#,
    ),
    ("none of 64 tests", "64"),
];

fn main() {
    let mut builder = BatchBuilder::new();
    for n in 0..MESSAGES {
        let region = ["eu", "us", "asia"][n as usize % 3];
        let message = Message {
            key: format!("order-{n}").into(),
            headers: vec![
                Header::text("type", "order.eu.created"),
                Header::text("region", region),
                Header::text("amount", format!("{n}.50")),
            ],
            ..Message::new(vec![b'x'; 256])
        };
        builder.push(&message).expect("within the limits");
    }
    let batch = builder.take().expect("not empty");
    for (name, text) in FILTERS {
        let text = match text {
            "64" => (0..64).map(|n| format!("header.h{n} = 1")).collect::<Vec<_>>().join(" or "),
            text => text.to_owned(),
        };
        let filter: Filter = text.parse().expect("it is a filter");
        let mut passed = 0;
        let mut least = f64::MAX;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            passed = batch.messages().filter(|message| black_box(filter.matches(message))).count();
            let ns = began.elapsed().as_nanos() as f64 / f64::from(MESSAGES);
            least = least.min(ns);
        }
        println!("{name:26} {least:7.1} ns a message, {passed} of {MESSAGES} pass");
    }
}
