//! docs/reference/protocol.md matches the code: all kinds, error codes and limits.

use sennit_model::limits;

use crate::*;

const PAGE: &str = include_str!("../../../../docs/reference/protocol.md");

fn assert_line(line: &str) {
    assert!(PAGE.lines().any(|l| l == line), "the page lacks this line:\n{line}");
}

#[test]
fn the_page_lists_every_error_code() {
    for code in ErrorCode::ALL {
        let yes = |is: bool| if is { "yes" } else { "" };
        assert_line(&format!(
            "| {} | `{}` | {} | {} | {} | {} |",
            code.number(),
            code.name(),
            yes(code.is_retryable()),
            yes(code.closes_connection()),
            code.meaning(),
            code.hint(),
        ));
    }
}

#[test]
fn the_page_lists_every_kind_with_its_sender() {
    for &kind in Kind::ALL {
        let sender = match (kind.is_request(), kind.is_reply()) {
            (true, true) => "both",
            (true, false) => "client",
            _ => "server",
        };
        let start = format!("| {} | {} | {} |", kind as u8, kind.name(), sender);
        assert!(PAGE.lines().any(|line| line.starts_with(&start)), "the page lacks {start}");
    }
}

#[test]
fn the_page_states_the_limits_in_force() {
    for (name, limit) in [
        ("frame_bytes_max", limits::FRAME_BYTES_MAX),
        ("frame_bytes_max before HelloOk", limits::GREETING_BYTES_MAX),
        ("control body of a request", CONTROL_REQUEST_BYTES_MAX),
        ("body of a Rework", REWORK_REQUEST_BYTES_MAX),
        ("batch_messages_max", limits::BATCH_MESSAGES_MAX),
        ("batch_bytes_max", limits::BATCH_BYTES_MAX),
        ("message_bytes_max", limits::MESSAGE_BYTES_MAX),
        ("key", limits::KEY_BYTES_MAX),
        ("headers of a message", limits::HEADERS_BYTES_MAX),
        ("headers that the broker adds", limits::BROKER_HEADERS_BYTES_MAX),
        ("name of a topic or group", limits::NAME_BYTES_MAX),
        ("partitions of a topic", limits::PARTITIONS_MAX as usize),
        ("groups of a topic", limits::GROUPS_PER_TOPIC_MAX),
        ("unconfirmed batches of a producer in a partition", limits::PRODUCER_BATCHES_REMEMBERED),
        ("runs of a settle", limits::SETTLE_RUNS_MAX),
        ("batches of an atomic publish", limits::ATOMIC_PARTS_MAX),
        ("pairs of topic and group that an atomic publish acks", limits::ATOMIC_ACKS_MAX),
        ("reason", limits::REASON_BYTES_MAX),
        ("cursors of a topic", limits::CURSORS_PER_TOPIC_MAX),
        ("fair keys of a listing", limits::FAIR_KEYS_LISTED_MAX),
        ("fair key", limits::FAIR_KEY_BYTES_MAX),
        ("runs of a page of delayed messages", limits::DELAYED_LISTED_MAX),
        ("messages whose delay one request changes", limits::DELAYED_CHANGED_MAX),
        (
            "messages that a request of the workbench examines",
            limits::WORKBENCH_EXAMINED_MAX as usize,
        ),
        ("messages that it shows", limits::WORKBENCH_SHOWN_MAX as usize),
        ("ranges of offsets in it", limits::WORKBENCH_RANGES_MAX),
        ("bytes of each payload that it shows", limits::WORKBENCH_PAYLOAD_BYTES_MAX as usize),
        ("text that it looks for", limits::WORKBENCH_TEXT_BYTES_MAX),
        ("rows of its count", limits::WORKBENCH_ROWS_MAX),
        ("subscriptions of a connection", limits::SUBSCRIPTIONS_PER_CONNECTION_MAX),
        (
            "partitions of all subscriptions of a connection",
            limits::SUBSCRIBED_PARTITIONS_MAX as usize,
        ),
        ("topics that a watch may mean", limits::WATCH_TOPICS_MAX),
        ("watches of a connection", limits::WATCHES_PER_CONNECTION_MAX),
        ("credit in messages", limits::CREDIT_MESSAGES_MAX as usize),
        ("credit in bytes", limits::CREDIT_BYTES_MAX as usize),
        ("bytes of deliveries that wait for a socket", limits::DELIVERIES_WAITING_BYTES_MAX),
        ("bytes of replies and confirms that wait for a socket", limits::REPLIES_WAITING_BYTES_MAX),
        ("bytes that wait for all sockets of a core", limits::WAITING_CORE_BYTES_MAX),
        (
            "the same, beyond which none of them is given a delivery",
            limits::WAITING_CORE_BYTES_LAST,
        ),
    ] {
        assert_line(&format!("| {name} | {limit} |"));
    }
}

#[test]
fn the_page_states_the_port_and_the_preface() {
    assert!(PAGE.contains(&format!("port {DEFAULT_PORT}")));
    let hex: Vec<String> = Preface::BYTES.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(PAGE.contains(&hex.join(" ")));
}

#[test]
fn the_page_lists_every_feature() {
    for name in Features::ALL.names() {
        assert!(PAGE.contains(&format!("\n| `{name}` |")), "the page lacks {name}");
    }
    assert_eq!(Features::of_names(&Features::ALL.names()), Features::ALL);
    assert_eq!(Features::of_names(&["none of ours".into()]), Features::default());
}

#[test]
fn the_page_lists_every_reason_of_a_gap() {
    for reason in (1..=u8::MAX).filter_map(GapReason::of_number) {
        if !matches!(reason, GapReason::Unknown(_)) {
            let named = format!("{} {}", reason.number(), reason.name());
            assert!(PAGE.contains(&named), "the page lacks {named}");
        }
    }
}

#[test]
fn numbers_of_errors_and_kinds_find_their_way_back() {
    for &code in ErrorCode::ALL {
        assert_eq!(ErrorCode::of_number(code.number()), Some(code));
    }
    for &kind in Kind::ALL {
        assert_eq!(Kind::of_number(kind as u8), Some(kind));
    }
    assert_eq!(ErrorCode::of_number(0), None);
    assert_eq!(Kind::of_number(0), None);
}
