//! Commands to a partition as bytes.

use std::{ops::Range, sync::Arc};

use sennit_model::TopicConfig;

use super::{
    catalogue_command::{encode_setting, encode_topic_config},
    decode_error::DecodeError,
    fields::{FieldReader, FieldWriter},
    walk,
};
use crate::{
    command::{
        CursorSetter, DeadLetters, DelayChange, ExplainSubject, GroupSetting, PartitionCommand,
    },
    names::SourceNames,
    refusal::Refusal,
};

/// The kinds of commands to a partition.
pub(super) const KINDS: Range<u8> = 64..96;

const OPEN: u8 = 64;
const DROP: u8 = 65;
const DESCRIBE: u8 = 66;
const LOCATE: u8 = 67;
const SET_CURSOR: u8 = 68;
const DELETE_CURSOR: u8 = 69;
const LIST_CURSORS: u8 = 70;
const TRIM: u8 = 71;
const NAME: u8 = 72;
const RETRY_PARKED: u8 = 73;
const EXPLAIN: u8 = 74;
const LIST_KEYS: u8 = 75;
const LIST_DELAYED: u8 = 76;
const CHANGE_DELAYED: u8 = 77;
const WALK: u8 = 78;

/// Bytes of the settings of a group, at least.
const SETTING_BYTES: usize = 25;

pub(super) fn encode(command: &PartitionCommand, w: &mut FieldWriter<'_>) -> Result<u8, Refusal> {
    Ok(match command {
        PartitionCommand::Open { config, groups, dead_letters } => {
            encode_open((config, groups, *dead_letters), w)?;
            OPEN
        }
        PartitionCommand::Drop => DROP,
        PartitionCommand::Describe => DESCRIBE,
        PartitionCommand::Locate(from, cursor) => {
            w.read_from(*from).claim(cursor.as_ref());
            LOCATE
        }
        PartitionCommand::SetCursor(name, offset, by) => {
            let CursorSetter { session, subscription, take_over } = by;
            w.text(name.as_str()).u64(offset.0).session(*session);
            w.optional_u64(subscription.map(u64::from)).flag(*take_over);
            SET_CURSOR
        }
        PartitionCommand::DeleteCursor(name) => {
            w.text(name.as_str());
            DELETE_CURSOR
        }
        PartitionCommand::ListCursors => LIST_CURSORS,
        PartitionCommand::Trim(offset) => {
            w.u64(offset.0);
            TRIM
        }
        PartitionCommand::Name(names) => {
            w.text(names.topic.as_str());
            w.list(&names.groups, |w, (id, name)| w.group(*id).text(name.as_str()));
            NAME
        }
        PartitionCommand::RetryParked(group, range) => {
            w.group(*group);
            w.optional(range.as_ref(), |w, range| {
                w.range(*range);
            });
            RETRY_PARKED
        }
        PartitionCommand::Explain(group, subject) => {
            w.group(*group);
            match subject {
                ExplainSubject::Offset(offset) => w.u8(0).u64(offset.0),
                ExplainSubject::FairKey(key) => w.u8(1).text(key),
            };
            EXPLAIN
        }
        PartitionCommand::ListKeys(group, most) => {
            w.group(*group).number(*most);
            LIST_KEYS
        }
        PartitionCommand::ListDelayed(behind, most) => {
            w.optional(behind.as_ref(), |w, (due, offset)| {
                w.u64(due.0).u64(offset.0);
            });
            w.number(*most);
            LIST_DELAYED
        }
        PartitionCommand::ChangeDelayed(offsets, change) => {
            w.list(offsets, |w, offset| w.u64(offset.0));
            match change {
                DelayChange::Cancel => w.u8(0),
                DelayChange::DueAt(time) => w.u8(1).u64(time.0),
                DelayChange::DueAfter(delay) => w.u8(2).span(*delay),
            };
            CHANGE_DELAYED
        }
        PartitionCommand::Walk(walk) => {
            walk::encode(walk, w);
            WALK
        }
    })
}

pub(super) fn decode(r: &mut FieldReader) -> Result<PartitionCommand, DecodeError> {
    Ok(match r.kind {
        OPEN => PartitionCommand::Open {
            config: r.topic_config()?,
            groups: r.each(SETTING_BYTES, |r| Ok(r.group_setting()?))?,
            dead_letters: r.dead_letters()?,
        },
        DROP => PartitionCommand::Drop,
        DESCRIBE => PartitionCommand::Describe,
        LOCATE => PartitionCommand::Locate(r.read_from()?, r.claim()?),
        SET_CURSOR => PartitionCommand::SetCursor(r.cursor_name()?, r.offset()?, decode_setter(r)?),
        DELETE_CURSOR => PartitionCommand::DeleteCursor(r.cursor_name()?),
        LIST_CURSORS => PartitionCommand::ListCursors,
        TRIM => PartitionCommand::Trim(r.offset()?),
        NAME => PartitionCommand::Name(Arc::new(SourceNames {
            topic: r.topic_name()?,
            groups: r.each(9, |r| Ok((r.group()?, r.group_name()?)))?,
        })),
        RETRY_PARKED => {
            let group = r.group()?;
            let range = r.optional("has range", FieldReader::offsets)?;
            PartitionCommand::RetryParked(group, range)
        }
        EXPLAIN => {
            let group = r.group()?;
            let subject = match r.u8()? {
                0 => ExplainSubject::Offset(r.offset()?),
                1 => ExplainSubject::FairKey(r.text()?),
                tag => return Err(r.wrong("subject", tag)),
            };
            PartitionCommand::Explain(group, subject)
        }
        LIST_KEYS => PartitionCommand::ListKeys(r.group()?, r.number("most keys")?),
        LIST_DELAYED => {
            let behind = r.optional("begins behind", |r| Ok((r.time()?, r.offset()?)))?;
            PartitionCommand::ListDelayed(behind, r.number("most runs")?)
        }
        CHANGE_DELAYED => {
            let offsets = r.each(8, FieldReader::offset)?;
            let change = match r.u8()? {
                0 => DelayChange::Cancel,
                1 => DelayChange::DueAt(r.time()?),
                2 => DelayChange::DueAfter(r.span()?),
                tag => return Err(r.wrong("change of a delay", tag)),
            };
            PartitionCommand::ChangeDelayed(offsets, change)
        }
        WALK => PartitionCommand::Walk(Box::new(walk::decode(r)?)),
        kind => return Err(DecodeError::Kind { kind }),
    })
}

fn encode_open(
    (config, groups, dead_letters): (&TopicConfig, &[GroupSetting], DeadLetters),
    w: &mut FieldWriter<'_>,
) -> Result<(), Refusal> {
    encode_topic_config(config, w)?;
    w.count(groups.len());
    for group in groups {
        encode_setting(group, w)?;
    }
    w.dead_letters(dead_letters);
    Ok(())
}

fn decode_setter(r: &mut FieldReader) -> Result<CursorSetter, DecodeError> {
    let session = r.session()?;
    let subscription = r.optional_u64("has subscription")?.map(u32::try_from).transpose();
    let subscription = subscription.map_err(|_| r.wrong("subscription", u64::MAX))?;
    Ok(CursorSetter { session, subscription, take_over: r.flag("takes over")? })
}
