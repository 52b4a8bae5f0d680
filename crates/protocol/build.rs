//! Compiles the schemas to Rust. protox parses them, so that no `protoc` has to be installed.

use std::error::Error;

const SCHEMA: &str = "schema/control.proto";
const PEER_SCHEMA: &str = "schema/peer.proto";
const SERDE: &str = "#[cfg_attr(test, derive(serde::Serialize, serde::Deserialize))]";
const BASE64: &str = "#[cfg_attr(test, serde(with = \"crate::tests::base64_text\"))]";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={SCHEMA}");
    let files = protox::compile([SCHEMA], ["schema"])?;
    prost_build::Config::new()
        // The test vectors spell control bodies as JSON with the schema's field names.
        .message_attribute(".", SERDE)
        .message_attribute(".", "#[cfg_attr(test, serde(default))]")
        .type_attribute(".sennit.v1.StartAt.at", SERDE)
        .type_attribute(
            ".sennit.v1.StartAt.at",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        .type_attribute(".sennit.v1.ReadFrom.at", SERDE)
        .type_attribute(
            ".sennit.v1.ReadFrom.at",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        .type_attribute(".sennit.v1.MessageFields.cost", SERDE)
        .type_attribute(
            ".sennit.v1.MessageFields.cost",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        .type_attribute(".sennit.v1.ChangeDelayed.change", SERDE)
        .type_attribute(
            ".sennit.v1.ChangeDelayed.change",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        .type_attribute(".sennit.v1.ChangeSchedule.change", SERDE)
        .type_attribute(
            ".sennit.v1.ChangeSchedule.change",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        .type_attribute(".sennit.v1.Explain.subject", SERDE)
        .type_attribute(
            ".sennit.v1.Explain.subject",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        .type_attribute(".sennit.v1.ChangeAccess.change", SERDE)
        .type_attribute(
            ".sennit.v1.ChangeAccess.change",
            "#[cfg_attr(test, serde(rename_all = \"snake_case\"))]",
        )
        // They hold secrets.
        .skip_debug([".sennit.v1.Hello", ".sennit.v1.UserPassword", ".sennit.v1.AccessChanged"])
        // Values of the configuration: as protobuf JSON spells bytes, and without a copy.
        .bytes(["."])
        .field_attribute(".sennit.v1.ConfigurationEntry.value", BASE64)
        .field_attribute(".sennit.v1.ConfigurationChange.value", BASE64)
        .field_attribute(".sennit.v1.SetConfiguration.value", BASE64)
        .field_attribute(".sennit.v1.ScheduleConfig.key", BASE64)
        .field_attribute(".sennit.v1.ScheduleConfig.payload", BASE64)
        .field_attribute(".sennit.v1.ScheduleHeader.value", BASE64)
        .field_attribute(".sennit.v1.InspectedMessage.key", BASE64)
        .field_attribute(".sennit.v1.InspectedMessage.headers", BASE64)
        .field_attribute(".sennit.v1.InspectedMessage.payload", BASE64)
        .field_attribute(".sennit.v1.EditedHeader.value", BASE64)
        .field_attribute(".sennit.v1.MessageEdit.payload", BASE64)
        .compile_fds(files)?;
    println!("cargo::rerun-if-changed={PEER_SCHEMA}");
    prost_build::Config::new().compile_fds(protox::compile([PEER_SCHEMA], ["schema"])?)?;
    Ok(())
}
