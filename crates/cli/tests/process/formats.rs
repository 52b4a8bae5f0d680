//! Messages as lines, with other delimiters, as whole files, and as JSON; printed JSON can be published again and
//! yields the same messages.

use std::process::Output;

use serde_json::{Value, json};

use crate::broker::Broker;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    broker.ok(&["topic", "create", "q"], b"");
    (folder, broker)
}

#[test]
fn a_whole_file_is_one_message_and_comes_out_byte_by_byte() {
    let (folder, broker) = broker();
    let file = folder.path().join("image");
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    std::fs::write(&file, &bytes).unwrap();
    broker.ok(&["publish", "q", "--whole", "--file", file.to_str().unwrap()], b"");
    broker.ok(&["publish", "q", "--whole"], b"a\nb\n");
    broker.ok(&["publish", "q", "--whole"], b"");
    let said = broker.ok(&["read", "q", "--from", "2", "--json"], b"");
    assert_eq!(serde_json::from_slice::<Value>(&said).unwrap()["payload"], "");
    assert!(broker.ok(&["read", "q", "--raw", "--count", "1"], b"") == bytes);
    assert!(broker.ok(&["consume", "q", "--raw"], b"") == [&bytes[..], b"a\nb\n"].concat());
}

#[test]
fn a_file_too_long_for_a_message_is_refused_with_the_limit() {
    let (_folder, broker) = broker();
    let output = broker.run(&["publish", "q", "--whole"], &vec![b'x'; 9 << 20]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("message 1 was not published: it is longer than 8MiB"));
}

#[test]
fn any_delimiter_lies_between_messages_on_the_way_in_and_out() {
    let (_folder, broker) = broker();
    broker.ok(&["publish", "q", "-0"], b"a\nb\0\0c");
    for (option, printed) in [
        (&["-0"][..], &b"a\nb\0\0c\0"[..]),
        (&["--delimiter", "\\0"], b"a\nb\0\0c\0"),
        (&["--delimiter", "--\\r\\n"], b"a\nb--\r\n--\r\nc--\r\n"),
        (&["--raw"], b"a\nbc"),
        (&[], b"a\nb\n\nc\n"),
    ] {
        assert_eq!(broker.ok(&[&["read", "q"], option].concat(), b""), printed, "{option:?}");
    }
    assert_eq!(broker.ok(&["consume", "q", "--delimiter", ","], b""), b"a\nb,,c,");
    broker.ok(&["publish", "q", "--delimiter", "\\x1e"], b"x\x1ey\x1e");
    assert_eq!(broker.ok(&["consume", "q"], b""), b"x\ny\n");
}

/// What a message carries, without where it lay.
fn content(line: &str) -> Value {
    let mut value: Value = serde_json::from_str(line).unwrap();
    let fields = value.as_object_mut().unwrap();
    let place = ["topic", "partition", "offset", "attempt", "appended_at_ms", "durability"];
    fields.retain(|name, _| !place.contains(&name.as_str()));
    value
}

fn contents(printed: &[u8]) -> Vec<Value> {
    std::str::from_utf8(printed).unwrap().lines().map(content).collect()
}

#[test]
fn what_is_printed_as_json_is_published_as_the_same_messages() {
    let (_folder, broker) = broker();
    let lines = [
        json!({ "payload": "text" }),
        json!({ "payload": "two\nlines", "key": "k", "delay": "1ms", "ttl": "1h" }),
        json!({ "payload_base64": "/wD+", "key_base64": "gA==" }),
        json!({ "payload": "h", "headers": { "type": "created", "n": 1.5, "ok": true } }),
        json!({ "payload": "b", "headers": [
            { "name": "a", "value": "1" }, { "name": "a", "kind": "binary", "value_base64": "/w==" },
        ] }),
    ];
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    broker.ok(&["publish", "q", "--json-lines"], input.as_bytes());
    let first = broker.ok(&["read", "q", "--json"], b"");
    assert_eq!(contents(&first).len(), lines.len());
    assert_eq!(contents(&first)[2]["payload_base64"], "/wD+");
    for source in [&["read", "q"][..], &["consume", "q", "--follow", "--count", "5"]] {
        let printed = broker.ok(&[source, &["--json"]].concat(), b"");
        broker.ok(&["publish", "copy", "--create", "--json-lines"], &printed);
        let copied = broker.ok(&["read", "copy", "--json"], b"");
        let (mut copied, mut printed) = (contents(&copied), contents(&printed));
        // A delay lets another message overtake the one that waits.
        copied.sort_by_key(Value::to_string);
        printed.sort_by_key(Value::to_string);
        assert_eq!(copied, printed, "{source:?}");
        broker.ok(&["topic", "delete", "copy"], b"");
    }
}

#[test]
fn a_payload_of_json_lines_may_be_json_and_options_fill_in_what_is_left_out() {
    let (_folder, broker) = broker();
    let input = b"{\"payload\":{\"b\":1.50,\"a\":[]}}\n\n{\"payload\":7,\"key\":\"own\"}\n";
    broker.ok(&["publish", "q", "--json-lines", "--key", "k", "-H", "a=b"], input);
    let printed = contents(&broker.ok(&["consume", "q", "--json"], b""));
    let told: Vec<_> = printed.iter().map(|line| (&line["payload"], &line["key"])).collect();
    let (object, seven) = ("{\"b\":1.50,\"a\":[]}".into(), "7".into());
    assert_eq!(told, [(&object, &"k".into()), (&seven, &"own".into())]);
    assert_eq!(printed[1]["headers"][0]["value"], "b");
}

#[test]
fn a_wrong_line_of_json_is_named_and_those_before_it_are_confirmed() {
    let (_folder, broker) = broker();
    let input = b"{\"payload\":\"a\"}\n\n{\"paylod\":\"b\"}\n{\"payload\":\"c\"}\n";
    let output = broker.run(&["publish", "q", "--json-lines"], input);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    assert!(
        said(&output).contains("line 3 was not published: it has an unknown field \"paylod\""),
        "{}",
        said(&output)
    );
    assert_eq!(broker.ok(&["consume", "q"], b""), b"a\n");
}

#[test]
fn gaps_among_printed_messages_are_not_published() {
    let (_folder, broker) = broker();
    let gap =
        json!({ "gap": "expired", "topic": "q", "partition": 0, "first_offset": 0, "count": 2 });
    let input = format!("{gap}\n{{\"payload\":\"a\"}}\n");
    let output = broker.run(&["publish", "q", "--json-lines"], input.as_bytes());
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("line 1 is a gap") && said(&output).contains("1 confirmed"));
}
