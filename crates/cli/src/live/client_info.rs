//! A client of a channel, as others see it: for people and as JSON.

use sennit_centrifuge::ClientInfo;
use serde_json::{Value, json};

use crate::json_line::put_bytes;

/// What the application said of a connection and of its subscription, as far as it is text.
pub fn client_row(client: &ClientInfo) -> Vec<String> {
    let said = [&client.connection_data, &client.channel_data];
    let said = said.map(|data| String::from_utf8_lossy(data.as_bytes()).into_owned());
    let said: Vec<_> = said.into_iter().filter(|text| !text.is_empty()).collect();
    vec![client.client.clone(), client.user.clone(), said.join(" ")]
}

/// All that is known of a client.
pub fn client_json(client: &ClientInfo) -> Value {
    let mut value = json!({ "client": client.client, "user": client.user });
    for (name, data) in
        [("connection_info", &client.connection_data), ("channel_info", &client.channel_data)]
    {
        if data.is_absent() {
            continue;
        }
        match serde_json::from_slice::<Value>(data.as_bytes()) {
            Ok(json) => value[name] = json,
            Err(_) => put_bytes(&mut value, name, data.as_bytes()),
        }
    }
    value
}
