//! Publications and gaps on standard output: payloads, or JSON lines.

use std::pin::Pin;

use sennit_centrifuge::Publication;
use serde_json::{Value, json};

use crate::{
    exit::Failure,
    format::Format,
    json_line::put_bytes,
    message_format::MessageFormat,
    output::print_to_stderr,
    printer::{Printer, WINDOW_BYTES},
};

use super::start::ChannelPosition;

/// Prints what subscriptions get.
pub struct PublicationPrinter {
    printer: Printer,
    format: MessageFormat,
    /// Whether the channel stands before each payload.
    names_channels: bool,
}

impl PublicationPrinter {
    /// A printer to standard output.
    ///
    /// # Errors
    /// There is no standard output.
    pub fn new(format: &Format, names_channels: bool) -> Result<Self, Failure> {
        let printer = Printer::standard(false)?;
        Ok(Self { printer, format: format.message_format(), names_channels })
    }

    /// Adds a publication.
    pub fn publication(&mut self, channel: &str, epoch: &str, publication: &Publication) {
        let payload = publication.data.as_bytes();
        match &self.format {
            MessageFormat::Json => {
                let mut value =
                    json!({ "channel": channel, "epoch": epoch, "offset": publication.offset });
                put_bytes(&mut value, "payload", payload);
                if let Some(info) = &publication.info {
                    value["publisher"] = json!({ "user": info.user, "client": info.client });
                }
                self.line(&value);
            }
            MessageFormat::Payloads(delimiter) => self.printer.push(|out| {
                if self.names_channels {
                    out.extend_from_slice(channel.as_bytes());
                    out.push(b'\t');
                }
                out.extend_from_slice(payload);
                out.extend_from_slice(delimiter.bytes());
            }),
        }
    }

    /// Tells that `count` publications behind a position are missing.
    pub fn gap(&mut self, channel: &str, behind: &ChannelPosition, count: u64) {
        let first = behind.offset + 1;
        if matches!(self.format, MessageFormat::Json) {
            let epoch = behind.epoch.as_str();
            return self.line(&json!({
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
            return self.line(&json!({
                "gap": "another topic",
                "channel": channel,
                "epoch": behind.epoch,
                "first_offset": behind.offset + 1,
            }));
        }
        let last = behind.offset;
        print_to_stderr(&format!(
            "gap: {channel}: it is another topic of the same name; what the earlier one had behind offset {last} is gone"
        ));
    }

    fn line(&mut self, value: &Value) {
        self.printer.push(|out| {
            out.extend_from_slice(value.to_string().as_bytes());
            out.push(b'\n');
        });
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
