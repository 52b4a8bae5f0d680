//! Commands to the catalogue as bytes.

use std::ops::Range;

use sennit_model::{GroupConfig, GroupId, Incarnation, StartAt, TopicConfig, TopicId};

use super::{
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
};
use crate::{
    command::{CatalogueCommand, GroupSetting, Placed},
    refusal::Refusal,
};

/// The kinds of commands to the catalogue.
pub(super) const KINDS: Range<u8> = 32..64;

/// Most shards among which a new topic is placed, of all nodes together.
const SHARDS_MAX: u32 = 1 << 16;

const CREATE_TOPIC: u8 = 32;
const CREATE_DEAD_LETTER_TOPIC: u8 = 33;
const ADOPT_TOPIC: u8 = 34;
const ALTER_TOPIC: u8 = 35;
const DELETE_TOPIC: u8 = 36;
const CREATE_GROUP: u8 = 37;
const ALTER_GROUP: u8 = 38;
const DELETE_GROUP: u8 = 39;

pub(super) fn encode(command: &CatalogueCommand, w: &mut FieldWriter<'_>) -> Result<u8, Refusal> {
    Ok(match command {
        CatalogueCommand::CreateTopic { name, config, incarnation, placed, is_stream } => {
            w.text(name.as_str());
            encode_topic_config(config, w)?;
            w.u64(incarnation.0);
            w.optional(placed.as_ref(), |w, Placed { shard, shards }| {
                w.u32(*shard).u32(*shards);
            });
            w.flag(*is_stream);
            CREATE_TOPIC
        }
        CatalogueCommand::CreateDeadLetterTopic { source, incarnation } => {
            w.u32(source.0).u64(incarnation.0);
            CREATE_DEAD_LETTER_TOPIC
        }
        CatalogueCommand::AdoptTopic { topic, partitions, home, incarnation } => {
            w.u32(topic.0).u32(*partitions).u32(home.0).u64(incarnation.0);
            ADOPT_TOPIC
        }
        CatalogueCommand::AlterTopic { topic, config } => {
            w.u32(topic.0);
            encode_topic_config(config, w)?;
            ALTER_TOPIC
        }
        CatalogueCommand::DeleteTopic { topic } => {
            w.u32(topic.0);
            DELETE_TOPIC
        }
        CatalogueCommand::CreateGroup { topic, name, config, start } => {
            w.u32(topic.0).text(name.as_str());
            encode_group((GroupId::default(), config, *start), w)?;
            CREATE_GROUP
        }
        CatalogueCommand::AlterGroup { topic, group, config } => {
            w.u32(topic.0);
            encode_group((*group, config, StartAt::Earliest), w)?;
            ALTER_GROUP
        }
        CatalogueCommand::DeleteGroup { topic, group } => {
            w.u32(topic.0).group(*group);
            DELETE_GROUP
        }
    })
}

pub(super) fn decode(r: &mut FieldReader) -> Result<CatalogueCommand, DecodeError> {
    Ok(match r.kind {
        CREATE_TOPIC => CatalogueCommand::CreateTopic {
            name: r.topic_name()?,
            config: r.topic_config()?,
            incarnation: Incarnation(r.u64()?),
            placed: r.optional("is placed", decode_placed)?,
            is_stream: r.flag("is a stream")?,
        },
        CREATE_DEAD_LETTER_TOPIC => CatalogueCommand::CreateDeadLetterTopic {
            source: TopicId(r.u32()?),
            incarnation: Incarnation(r.u64()?),
        },
        ADOPT_TOPIC => CatalogueCommand::AdoptTopic {
            topic: decode_adopted(r)?,
            partitions: r.u32()?,
            home: TopicId(r.u32()?),
            incarnation: Incarnation(r.u64()?),
        },
        ALTER_TOPIC => {
            CatalogueCommand::AlterTopic { topic: TopicId(r.u32()?), config: r.topic_config()? }
        }
        DELETE_TOPIC => CatalogueCommand::DeleteTopic { topic: TopicId(r.u32()?) },
        CREATE_GROUP => {
            let (topic, name) = (TopicId(r.u32()?), r.group_name()?);
            let GroupSetting { config, start, .. } = r.group_setting()?;
            CatalogueCommand::CreateGroup { topic, name, config, start }
        }
        ALTER_GROUP => {
            let topic = TopicId(r.u32()?);
            let GroupSetting { id: group, config, .. } = r.group_setting()?;
            CatalogueCommand::AlterGroup { topic, group, config }
        }
        DELETE_GROUP => {
            CatalogueCommand::DeleteGroup { topic: TopicId(r.u32()?), group: r.group()? }
        }
        kind => return Err(DecodeError::Kind { kind }),
    })
}

/// The number of a topic that was there: the next one is a number too.
fn decode_adopted(r: &mut FieldReader) -> Result<TopicId, DecodeError> {
    let topic = r.u32()?;
    if topic == u32::MAX {
        return Err(r.wrong("topic to adopt", topic));
    }
    Ok(TopicId(topic))
}

fn decode_placed(r: &mut FieldReader) -> Result<Placed, DecodeError> {
    let (shard, shards) = (r.u32()?, r.u32()?);
    if shards > SHARDS_MAX {
        return Err(r.wrong("number of shards", shards));
    }
    if shard >= shards {
        return Err(r.wrong("shard of a new topic", shard));
    }
    Ok(Placed { shard, shards })
}

/// Settings that are out of bounds have no bytes, so they are refused here.
pub(super) fn encode_topic_config(
    config: &TopicConfig,
    w: &mut FieldWriter<'_>,
) -> Result<(), Refusal> {
    config.check()?;
    w.topic_config(config);
    Ok(())
}

/// A group in the layout of [`GroupSetting`]: where no number or no begin is said, those of the default stand.
fn encode_group(
    (id, config, start): (GroupId, &GroupConfig, StartAt),
    w: &mut FieldWriter<'_>,
) -> Result<(), Refusal> {
    encode_setting(&GroupSetting { id, config: config.clone(), start }, w)
}

pub(super) fn encode_setting(
    setting: &GroupSetting,
    w: &mut FieldWriter<'_>,
) -> Result<(), Refusal> {
    setting.config.check()?;
    w.group_setting(setting);
    Ok(())
}
