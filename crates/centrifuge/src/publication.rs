//! Publications: messages of a channel as clients get them.

use std::collections::BTreeMap;

use crate::{
    data::{Data, DataView},
    encoding::Encoding,
    field::{Writer, put_whole},
    fields::TextMap,
};

message! {
    /// A client, as others see it.
    pub struct ClientInfo {
        /// Its user; empty if it is anonymous.
        1 "user" user: String,
        /// The id of its connection.
        2 "client" client: String,
        /// What the application said of the connection.
        3 "conn_info" connection_data: Data,
        /// What the application said of its subscription.
        4 "chan_info" channel_data: Data,
    }

    /// A message of a channel.
    pub struct Publication {
        /// The payload.
        4 "data" data: Data,
        /// The client that published it, if a client did.
        5 "info" info: Option<ClientInfo>,
        /// Its number in the channel, from 1; 0 if the channel has none.
        6 "offset" offset: u64,
        /// Of the application.
        7 "tags" tags: BTreeMap<String, String>,
        /// When it was published, in milliseconds since 1970; 0 if that is not said.
        9 "time" time_ms: i64,
        /// Its channel, where that is not the one of the subscription.
        10 "channel" channel: String,
        /// The epoch of its channel, if clients do not have it from the subscription.
        14 "epoch" epoch: String,
    }
}

/// A publication whose parts lie elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct PublicationView<'p> {
    /// The payload.
    pub data: DataView<'p>,
    /// The client that published it, if a client did.
    pub info: Option<&'p ClientInfo>,
    /// Its number in the channel, from 1; 0 if the channel has none.
    pub offset: u64,
    /// Of the application: names and texts.
    pub tags: &'p [(&'p str, &'p str)],
    /// When it was published, in milliseconds since 1970; 0 if that is not said.
    pub time_ms: i64,
}

impl PublicationView<'_> {
    /// The fields, in the order of their numbers. The data is always there: an empty payload is one.
    fn put(&self, to: &mut Writer<'_>) {
        to.put(4, "data", &self.data);
        if let Some(info) = self.info {
            to.put(5, "info", info);
        }
        to.field(6, "offset", &self.offset);
        to.field(7, "tags", &TextMap(self.tags));
        to.field(9, "time", &self.time_ms);
    }
}

/// Appends a push of a publication. Allocates nothing but what the buffer may need to grow; costs a copy of the data,
/// if that is [`Data::shown_as_json`] or the encoding is Protobuf.
pub fn put_publication(
    encoding: Encoding,
    channel: &str,
    publication: &PublicationView<'_>,
    out: &mut Vec<u8>,
) {
    // The frame around the data, and the texts if nothing in them needs an escape.
    out.reserve(channel.len() + publication.data.len() + 96);
    put_whole(encoding, out, |to| {
        to.nested(4, "push", |to| {
            to.field(2, "channel", channel);
            to.nested(4, "pub", |to| publication.put(to));
        });
    });
}
