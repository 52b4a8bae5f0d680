//! Bodies of requests of the HTTP API, one of each shape.

use crate::write;

pub fn write_all() {
    for (name, body) in [
        ("one", r#"{"topic":"orders","partition":3,"data":{"a":[1,2.5]},"key":"k","delay_ms":5}"#),
        ("text", r#"{"channel":"chat:index","text":"gr\u00f6\u00dfe","time_to_live_ms":6}"#),
        (
            "bytes",
            r#"{"topic":"a","base64":"AP8=","key_base64":"AQI=","headers":{"a":"b","c":7,"d":true}}"#,
        ),
        ("list", r#"{"messages":[{"topic":"a","data":null},{"channel":"b","text":""}]}"#),
        ("send", r#"{"user":"ada","data":{"t":1}}"#),
        ("send-all", r#"{"all":true,"base64":"AP8="}"#),
        ("send-one", r#"{"connection":"0003fffffffe00000007","text":"x"}"#),
        ("subscribe", r#"{"user":"ada","channel":"chat:index"}"#),
    ] {
        write("api_body", name, body.as_bytes());
    }
}
