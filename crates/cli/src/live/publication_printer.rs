//! Publications and gaps on standard output: payloads, or JSON lines.

use std::pin::Pin;

use sennit_centrifuge::{ClientInfo, Publication};
use serde_json::{Value, json};

use crate::{
    exit::Failure,
    format::Format,
    json_line::put_bytes,
    message_format::{MessageFormat, put_line},
    output::print_to_stderr,
    printer::{Printer, WINDOW_BYTES},
    unseal_options::Unsealer,
};

use super::{
    channel_topic::topic_of,
    client_info::{client_json, client_row},
    start::ChannelPosition,
};

/// Prints what subscriptions get.
pub struct PublicationPrinter {
    printer: Printer,
    format: MessageFormat,
    /// Whether the channel stands before each payload.
    names_channels: bool,
    unsealer: Option<Unsealer>,
}

impl PublicationPrinter {
    /// A printer to standard output.
    ///
    /// # Errors
    /// There is no standard output.
    pub fn new(
        format: &Format,
        names_channels: bool,
        unsealer: Option<Unsealer>,
    ) -> Result<Self, Failure> {
        let printer = Printer::standard(false)?;
        Ok(Self { printer, format: format.message_format(), names_channels, unsealer })
    }

    /// Whether all sealed publications were opened.
    ///
    /// # Errors
    /// Some were not.
    pub fn all_opened(&self) -> Result<(), Failure> {
        self.unsealer.as_ref().map_or(Ok(()), Unsealer::all_opened)
    }

    /// Adds a publication.
    pub fn publication(&mut self, channel: &str, epoch: &str, publication: &Publication) {
        let Self { printer, format, names_channels, unsealer } = self;
        let place = || {
            let mut place =
                json!({ "channel": channel, "epoch": epoch, "offset": publication.offset });
            if let Some(info) = &publication.info {
                place["publisher"] = client_json(info);
            }
            place
        };
        let (mut payload, mut facts) = (publication.data.as_bytes(), json!({}));
        let opened = unsealer.as_mut().map(|unsealer| {
            let opened = unsealer.open(&topic_of(channel), payload);
            opened.inspect(|opened| facts = unsealer.facts(opened))
        });
        match &opened {
            None => {}
            Some(Ok(opened)) => payload = &opened.payload,
            Some(Err(unopened)) => {
                return printer.push(|out| format.unopened(unopened, &place(), out));
            }
        }
        printer.push(|out| match format {
            MessageFormat::Json => {
                let mut value = place();
                put_bytes(&mut value, "payload", payload);
                put_line([value, facts], out);
            }
            MessageFormat::Payloads(delimiter) => {
                if *names_channels {
                    out.extend_from_slice(channel.as_bytes());
                    out.push(b'\t');
                }
                out.extend_from_slice(payload);
                out.extend_from_slice(delimiter.bytes());
            }
        });
    }

    /// Tells that `count` publications behind a position are missing.
    pub fn gap(&mut self, channel: &str, behind: &ChannelPosition, count: u64) {
        let first = behind.next();
        if matches!(self.format, MessageFormat::Json) {
            let epoch = behind.epoch.as_str();
            return self.line(json!({
                "gap": "missing",
                "channel": channel,
                "epoch": epoch,
                "first_offset": first,
                "count": count,
            }));
        }
        print_to_stderr(&format!(
            "gap: {channel}: {count} publications from offset {first} on are missing"
        ));
    }

    /// Tells that the channel is another topic from here on.
    pub fn other_topic(&mut self, channel: &str, behind: &ChannelPosition) {
        if matches!(self.format, MessageFormat::Json) {
            return self.line(json!({
                "gap": "another topic",
                "channel": channel,
                "epoch": behind.epoch,
                "first_offset": behind.next(),
            }));
        }
        let last = behind.offset;
        print_to_stderr(&format!(
            "gap: {channel}: it is another topic of the same name; what the earlier one had behind offset {last} is gone"
        ));
    }

    /// Tells that a client has come, or gone.
    pub fn joined_or_left(&mut self, channel: &str, verb: &str, client: &ClientInfo) {
        if matches!(self.format, MessageFormat::Json) {
            return self.line(json!({ verb: client_json(client), "channel": channel }));
        }
        let client = client_row(client);
        print_to_stderr(&format!("{channel}: {verb}: {}", client.join(" ").trim_end()));
    }

    fn line(&mut self, value: Value) {
        self.printer.push(|out| put_line([value], out));
    }

    /// Whether so much waits that it has to be written.
    pub fn is_full(&self) -> bool {
        self.printer.byte_count() >= WINDOW_BYTES
    }

    /// Writes what was added; the end, if nothing is to be printed behind it.
    pub async fn deliver(
        &mut self,
        interrupted: &mut Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    ) -> Option<Result<(), Failure>> {
        if self.printer.count() == 0 {
            return None;
        }
        self.printer.deliver_unless(interrupted).await.1
    }
}
