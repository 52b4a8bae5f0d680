//! The actions of readers: they start, take messages, commit positions to a cursor, take cursors over, and leave.

use sennit_engine::{
    Command, Credit, CursorClaim, CursorSetter, Origin, PartitionCommand, Read, ReaderChange,
    SessionId,
};
use sennit_model::{CursorName, Offset, PartitionId, ReadFrom, WhenSlow};

use crate::{
    consumers::random_credit,
    oracle::Violation,
    random::Random,
    readers::{ActiveReader, Readers},
    world::World,
};

/// The greatest number of readers at a time.
const READERS_MAX: usize = 12;
/// Names of cursors.
const NAMES: [&str; 3] = ["billing", "search", "audit"];
/// A credit without a limit.
const WIDE: Credit = Credit { messages: u32::MAX, bytes: u64::MAX };

/// Runs one action, at random.
///
/// # Errors
/// The promise that was broken.
pub fn step(world: &mut World) -> Result<(), Violation> {
    let Readers { random, eagerness, .. } = &mut world.readers;
    if *eagerness == 0 || !random.chance(*eagerness) || world.is_fenced {
        return Ok(());
    }
    match random.weighted(&[22, 30, 26, 8, 8, 6]) {
        0 => return begin(world),
        1 => take(world),
        2 => commit(world),
        3 => change(world),
        4 => leave(world),
        _ => set_cursor_directly(world),
    }
    Ok(())
}

fn begin(world: &mut World) -> Result<(), Violation> {
    let partitions: Vec<PartitionId> = world.oracle.partitions().into_iter().collect();
    let Readers { random, active, .. } = &mut world.readers;
    if active.len() >= READERS_MAX {
        return Ok(());
    }
    let Some(&partition) = random.pick(&partitions) else { return Ok(()) };
    let from = match random.below(5) {
        0 => ReadFrom::Latest,
        1 => ReadFrom::Offset(Offset(random.below(200))),
        2 => ReadFrom::Last(random.below(20)),
        _ => ReadFrom::Earliest,
    };
    let cursor = random.chance(600).then(|| name(random));
    let take_over = random.chance(400);
    let beyond = if random.chance(100) { random.below(30) } else { 0 };
    begin_at(world, partition, from, beyond, cursor.map(|name| (name, take_over)), None)
}

fn begin_at(
    world: &mut World,
    partition: PartitionId,
    from: ReadFrom,
    beyond: u64,
    cursor: Option<(CursorName, bool)>,
    credit: Option<Credit>,
) -> Result<(), Violation> {
    world.readers.next_claim += 1;
    let number = world.readers.next_claim;
    let cursor = cursor.map(|(name, take_over)| CursorClaim { name, take_over, number });
    world.turn()?;
    let Some(first) = world.locate(partition, from, cursor.as_ref())? else { return Ok(()) };
    let request = world.request();
    let Readers { random, active, next_session, .. } = &mut world.readers;
    let old = random.pick(active).map(|reader| reader.session).filter(|_| random.chance(300));
    let session = old.unwrap_or_else(|| {
        *next_session += 1;
        SessionId(*next_session)
    });
    let subscription = number as u32;
    let credit = credit.unwrap_or_else(|| random_credit(random));
    let (origin, at) = (Origin { session, request }, first.plus(beyond));
    let name = cursor.as_ref().map(|claim| claim.name.clone());
    let unreported = (0, 0);
    active.push(ActiveReader {
        session,
        subscription,
        partition,
        cursor: name,
        at: first.0,
        unreported,
    });
    let (when_slow, filter) = (WhenSlow::Wait, None);
    let read = Read { origin, subscription, partition, at, credit, cursor, when_slow, filter };
    world.submit(Command::Read(read));
    Ok(())
}

fn change_one(world: &mut World, index: usize, change: ReaderChange) {
    let ActiveReader { session, subscription, partition, .. } = world.readers.active[index];
    world.submit(Command::Reader { session, subscription, partition, change });
}

fn take(world: &mut World) {
    let Some(index) = world.readers.any() else { return };
    let (messages, bytes) = std::mem::take(&mut world.readers.active[index].unreported);
    if messages > 0 {
        change_one(world, index, ReaderChange::Taken { messages, bytes });
    }
}

fn change(world: &mut World) {
    let Some(index) = world.readers.any() else { return };
    let credit = random_credit(&mut world.readers.random);
    change_one(world, index, ReaderChange::Credit(credit));
}

fn leave(world: &mut World) {
    let Some(index) = world.readers.any() else { return };
    let session = world.readers.active[index].session;
    if world.readers.random.chance(500) {
        change_one(world, index, ReaderChange::End);
        world.readers.active.remove(index);
        return;
    }
    world.readers.active.retain(|reader| reader.session != session);
    world.submit(Command::EndSession { session, grace: std::time::Duration::ZERO });
}

/// Commits the position of a reader, or a lower one; at times for a reader that does not hold the cursor.
fn commit(world: &mut World) {
    let Some(index) = world.readers.any() else { return };
    let Readers { random, active, .. } = &mut world.readers;
    let ActiveReader { session, subscription, partition, at, .. } = active[index];
    let cursor = active[index].cursor.clone().filter(|_| !random.chance(100));
    let name = cursor.unwrap_or_else(|| name(random));
    let offset = Offset(at.saturating_sub(if random.chance(200) { random.below(10) } else { 0 }));
    let by = CursorSetter { session, subscription: Some(subscription), take_over: false };
    let set = PartitionCommand::SetCursor(name, offset, by);
    let origin = Origin { session, request: world.request() };
    world.submit(Command::Partition(origin, partition, set));
}

/// Sets or deletes a cursor without a reader.
fn set_cursor_directly(world: &mut World) {
    let Some(index) = world.readers.any() else { return };
    let Readers { random, active, .. } = &mut world.readers;
    let ActiveReader { partition, at, .. } = active[index];
    let (name, offset) = (name(random), Offset(random.between(0, at)));
    let take_over = random.chance(500);
    let session = SessionId(1);
    let by = CursorSetter { session, subscription: None, take_over };
    let command = match random.chance(300) {
        true => PartitionCommand::DeleteCursor(name),
        false => PartitionCommand::SetCursor(name, offset, by),
    };
    let origin = Origin { session, request: world.request() };
    world.submit(Command::Partition(origin, partition, command));
}

/// Ends all readers, and starts one for each partition that reads everything from the oldest message on.
///
/// # Errors
/// The promise that was broken.
pub fn read_all(world: &mut World) -> Result<(), Violation> {
    if world.readers.eagerness == 0 {
        return Ok(());
    }
    let grace = std::time::Duration::ZERO;
    for reader in std::mem::take(&mut world.readers.active) {
        world.submit(Command::EndSession { session: reader.session, grace });
    }
    let partitions = world.oracle.partitions();
    partitions.into_iter().try_for_each(|partition| {
        begin_at(world, partition, ReadFrom::Earliest, 0, None, Some(WIDE))
    })
}

fn name(random: &mut Random) -> CursorName {
    let name = *random.pick(&NAMES).expect("there are some");
    name.parse().expect("each is a name")
}
