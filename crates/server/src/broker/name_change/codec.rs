//! Changes of names as bytes: a kind, then the fields in the order below. Settings lie in a command of the engine that has them, as it
//! travels between nodes itself; the changed settings of a group in a request of the native protocol.
//!
//! ```text
//! kind                        fields                                                   last
//!    1 CreateTopic            beside: flag and text                                    CreateTopic
//!    2 FindOrCreateTopic      -                                                        CreateTopic
//!    3 AlterTopic             -                                                        CreateTopic
//!    4 DeleteTopic            name                                                     -
//!    5 CreateGroup            topic                                                    CreateGroup
//!    6 FindOrCreateGroup      topic, group                                             -
//!    7 AlterGroup             -                                                        frame AlterGroup
//!    8 DeleteGroup            topic, group                                             -
//!    9 CreateDeadLetterTopic  source u32                                               -
//!   10 CreateStream           name, flag and fork: source, flag and place (tag u64,    Open
//!                             offset u64), token, behind u64
//!   11 DeleteStream           name                                                     -
//!   12 EndStream              topic u32                                                -
//!   13 Settle                 name                                                     -
//! ```

use bytes::Buf;
use sennit_engine::{CatalogueCommand, Command, OpenStream, Refusal, StreamCommand};
use sennit_model::{
    GroupChange, GroupName, Incarnation, PartitionId, TopicConfig, TopicId, TopicName,
};
use sennit_protocol::{FrameHeader, Request, control};

use super::{
    NameChange,
    codec_error::NameChangeError,
    fields::{FieldReader, FieldWriter, NOBODY},
};
use crate::broker::{
    control_request::{AlterGroup, CreateGroup},
    stream_offset::StreamOffset,
    stream_request::{CreateStream, ForkRequest, config_of_stream},
};

const CREATE_TOPIC: u8 = 1;
const FIND_OR_CREATE_TOPIC: u8 = 2;
const ALTER_TOPIC: u8 = 3;
const DELETE_TOPIC: u8 = 4;
const CREATE_GROUP: u8 = 5;
const FIND_OR_CREATE_GROUP: u8 = 6;
const ALTER_GROUP: u8 = 7;
const DELETE_GROUP: u8 = 8;
const CREATE_DEAD_LETTER_TOPIC: u8 = 9;
const CREATE_STREAM: u8 = 10;
const DELETE_STREAM: u8 = 11;
const END_STREAM: u8 = 12;
const SETTLE: u8 = 13;

/// # Errors
/// The refusal of the change: a setting is out of bounds, or it is longer than what travels.
pub(super) fn encode(change: &NameChange, w: &mut FieldWriter) -> Result<(), Refusal> {
    match change {
        NameChange::CreateTopic { name, config, beside } => {
            w.u8(CREATE_TOPIC).optional(beside.as_ref(), |w, beside| {
                w.text(beside.as_str());
            });
            w.command(&topic_command(name, config))
        }
        NameChange::FindOrCreateTopic { name, config } => {
            w.u8(FIND_OR_CREATE_TOPIC).command(&topic_command(name, config))
        }
        NameChange::AlterTopic { name, config } => {
            w.u8(ALTER_TOPIC).command(&topic_command(name, config))
        }
        NameChange::DeleteTopic { name } => {
            w.u8(DELETE_TOPIC).text(name.as_str());
            Ok(())
        }
        NameChange::CreateGroup(CreateGroup { topic, group, config, start }) => {
            let command = CatalogueCommand::CreateGroup {
                topic: TopicId::default(),
                name: group.clone(),
                config: config.clone(),
                start: *start,
            };
            w.u8(CREATE_GROUP).text(topic.as_str());
            w.command(&Command::Catalogue(NOBODY, command))
        }
        NameChange::FindOrCreateGroup { topic, group } => {
            w.u8(FIND_OR_CREATE_GROUP).text(topic.as_str()).text(group.as_str());
            Ok(())
        }
        NameChange::AlterGroup(AlterGroup { topic, group, change }) => {
            let body = control::AlterGroup {
                topic: topic.to_string(),
                name: group.to_string(),
                config: Some(change.into()),
            };
            Request::AlterGroup(body).encode(0, &mut w.u8(ALTER_GROUP).0);
            Ok(())
        }
        NameChange::DeleteGroup { topic, group } => {
            w.u8(DELETE_GROUP).text(topic.as_str()).text(group.as_str());
            Ok(())
        }
        NameChange::CreateDeadLetterTopic { source } => {
            w.u8(CREATE_DEAD_LETTER_TOPIC).u32(source.0);
            Ok(())
        }
        NameChange::CreateStream(create) => encode_stream(create, w.u8(CREATE_STREAM)),
        NameChange::DeleteStream { name } => {
            w.u8(DELETE_STREAM).text(name.as_str());
            Ok(())
        }
        NameChange::EndStream { topic } => {
            w.u8(END_STREAM).u32(topic.0);
            Ok(())
        }
        NameChange::Settle { name } => {
            w.u8(SETTLE).text(name.as_str());
            Ok(())
        }
    }
}

pub(super) fn decode(r: &mut FieldReader) -> Result<NameChange, NameChangeError> {
    Ok(match r.u8()? {
        CREATE_TOPIC => {
            let beside = r.optional("has a topic beside it", FieldReader::name)?;
            let (name, config) = decode_topic(r)?;
            NameChange::CreateTopic { name, config, beside }
        }
        FIND_OR_CREATE_TOPIC => {
            let (name, config) = decode_topic(r)?;
            NameChange::FindOrCreateTopic { name, config }
        }
        ALTER_TOPIC => {
            let (name, config) = decode_topic(r)?;
            NameChange::AlterTopic { name, config }
        }
        DELETE_TOPIC => NameChange::DeleteTopic { name: r.name()? },
        CREATE_GROUP => {
            let topic = r.name()?;
            let Command::Catalogue(
                _,
                CatalogueCommand::CreateGroup { name: group, config, start, .. },
            ) = r.command()?
            else {
                return Err(NameChangeError::Holds);
            };
            NameChange::CreateGroup(CreateGroup { topic, group, config, start })
        }
        FIND_OR_CREATE_GROUP => {
            NameChange::FindOrCreateGroup { topic: r.name()?, group: r.name()? }
        }
        ALTER_GROUP => NameChange::AlterGroup(decode_alter(r)?),
        DELETE_GROUP => NameChange::DeleteGroup { topic: r.name()?, group: r.name()? },
        CREATE_DEAD_LETTER_TOPIC => NameChange::CreateDeadLetterTopic { source: r.topic()? },
        CREATE_STREAM => NameChange::CreateStream(decode_stream(r)?),
        DELETE_STREAM => NameChange::DeleteStream { name: r.name()? },
        END_STREAM => NameChange::EndStream { topic: r.topic()? },
        SETTLE => NameChange::Settle { name: r.name()? },
        kind => return Err(NameChangeError::Kind(kind)),
    })
}

/// A command that has a topic's name and settings.
fn topic_command(name: &TopicName, config: &TopicConfig) -> Command {
    let (name, config) = (name.clone(), config.clone());
    let (incarnation, placed, is_stream) = (Incarnation(0), None, false);
    let create = CatalogueCommand::CreateTopic { name, config, incarnation, placed, is_stream };
    Command::Catalogue(NOBODY, create)
}

fn decode_topic(r: &mut FieldReader) -> Result<(TopicName, TopicConfig), NameChangeError> {
    match r.command()? {
        Command::Catalogue(_, CatalogueCommand::CreateTopic { name, config, .. }) => {
            Ok((name, config))
        }
        _ => Err(NameChangeError::Holds),
    }
}

fn decode_alter(r: &mut FieldReader) -> Result<AlterGroup, NameChangeError> {
    let header = r.0.first_chunk::<{ FrameHeader::BYTES }>().ok_or(NameChangeError::Short)?;
    let header = FrameHeader::decode(header)?;
    r.0.advance(FrameHeader::BYTES);
    let Request::AlterGroup(body) = Request::decode(&header, r.bytes(header.size as usize)?)?
    else {
        return Err(NameChangeError::Holds);
    };
    let (topic, group): (TopicName, GroupName) = (body.topic.parse()?, body.name.parse()?);
    let change = body.config.as_ref().map(GroupChange::try_from).transpose()?.unwrap_or_default();
    Ok(AlterGroup { topic, group, change })
}

fn encode_stream(create: &CreateStream, w: &mut FieldWriter) -> Result<(), Refusal> {
    let CreateStream { name, durability, settings, content, closes, fork } = create;
    w.text(name.as_str()).optional(fork.as_ref(), |w, fork| {
        let ForkRequest { source, at, token, behind } = fork;
        w.text(source.as_str()).optional(at.as_ref(), |w, at| {
            w.u64(at.of.number()).u64(at.at.0);
        });
        w.text(token).u64(*behind);
    });
    let open = OpenStream {
        config: config_of_stream(*durability),
        settings: settings.clone(),
        content: content.clone(),
        closes: *closes,
    };
    let open = StreamCommand::Open(Box::new(open));
    w.command(&Command::Stream(NOBODY, PartitionId::default(), open))
}

fn decode_stream(r: &mut FieldReader) -> Result<CreateStream, NameChangeError> {
    let name = r.name()?;
    let fork = r.optional("is a fork", |r| {
        let source = r.name()?;
        let at =
            r.optional("has a place", |r| Ok(StreamOffset { of: r.tag()?, at: r.offset()? }))?;
        Ok(ForkRequest { source, at, token: r.text()?.into(), behind: r.u64()? })
    })?;
    let Command::Stream(_, _, StreamCommand::Open(open)) = r.command()? else {
        return Err(NameChangeError::Holds);
    };
    let OpenStream { config, settings, content, closes } = *open;
    Ok(CreateStream { name, durability: config.durability, settings, content, closes, fork })
}
