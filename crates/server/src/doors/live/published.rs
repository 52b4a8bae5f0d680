//! A message of a topic, as live clients get it. The client that has published it is named by headers: so it is in the log
//! with the message, and every door shows it.

use bytes::Bytes;
use sennit_centrifuge::{ClientInfo, Data};
use sennit_engine::Delivery;
use sennit_model::{Header, HeaderKind, MessageView, Messages};

/// The user of the client.
const USER: &str = "sennit-user";

/// The id of its connection.
const CLIENT: &str = "sennit-client";

/// What its token says of it, as JSON.
const INFO: &str = "sennit-info";

/// What the name of a header begins with that is a tag for clients: its name follows.
const TAG: &str = "sennit-tag-";

/// A message of a delivery.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) offset: u64,
    pub(crate) data: Data,
    /// The live client that published it, if one did.
    pub(crate) publisher: Option<Box<ClientInfo>>,
    /// What else its headers say of it: names and texts.
    pub(crate) tags: Vec<(String, String)>,
}

impl Published {
    /// Its tags, as they are written.
    pub(crate) fn tag_views(&self) -> Vec<(&str, &str)> {
        self.tags.iter().map(|(name, text)| (&**name, &**text)).collect()
    }
}

/// The messages of a delivery.
pub(crate) fn messages(delivery: &Delivery) -> impl Iterator<Item = Published> {
    let messages = Messages::of_checked(&delivery.messages);
    messages.enumerate().map(|(index, message)| {
        let (publisher, tags) = told_by_headers(message, &delivery.messages);
        Published {
            offset: delivery.first.0 + index as u64,
            data: Data::of_payload(delivery.messages.slice_ref(message.payload())),
            publisher,
            tags,
        }
    })
}

/// The headers of a message that a client publishes.
pub(crate) fn headers(publisher: &ClientInfo) -> Vec<Header> {
    let mut headers = Vec::with_capacity(3);
    if !publisher.user.is_empty() {
        headers.push(Header::text(USER, &*publisher.user));
    }
    headers.push(Header::text(CLIENT, &*publisher.client));
    if !publisher.connection_data.is_absent() {
        let value = publisher.connection_data.clone().into_payload();
        headers.push(Header { name: INFO.into(), kind: HeaderKind::Text, value });
    }
    headers
}

/// The client that the headers of a message name, if any. `bytes` are those in which the message lies.
pub(crate) fn publisher(message: MessageView<'_>, bytes: &Bytes) -> Option<Box<ClientInfo>> {
    told_by_headers(message, bytes).0
}

/// The client that the headers of a message name, if any, and the tags. `bytes` are those in which the message lies.
fn told_by_headers(
    message: MessageView<'_>,
    bytes: &Bytes,
) -> (Option<Box<ClientInfo>>, Vec<(String, String)>) {
    let mut tags = Vec::new();
    if message.encoded_headers().is_empty() {
        return (None, tags);
    }
    let mut info = ClientInfo::default();
    for (name, _, value) in message.headers().map_while(Result::ok) {
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            USER => info.user = text(),
            CLIENT => info.client = text(),
            INFO => info.connection_data = Data::of_payload(bytes.slice_ref(value)),
            name => {
                if let Some(tag) = name.strip_prefix(TAG).filter(|tag| !tag.is_empty()) {
                    tags.push((tag.to_owned(), text()));
                }
            }
        }
    }
    let is_named = !info.client.is_empty() || !info.user.is_empty();
    (is_named.then(|| Box::new(info)), tags)
}
