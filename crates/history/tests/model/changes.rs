//! Changes to a history after which it is none of a log.

use sennit_history::{
    Answer, Content, Delivered, Ended, History, MessageName, Operation, Published, Read, ReadStart,
    Settlement, What,
};

use crate::broker::Choices;

/// How many kinds of changes there are.
pub const CHANGES: usize = 12;

/// Makes a change; returns whether the history has a place for it.
pub fn change(history: &mut History, which: usize, choices: &mut Choices) -> bool {
    let operations = history.operations_mut();
    let changed = match which {
        0 => last_message_is_not_read_back(operations),
        1 => confirm_names_the_next_offset(operations, choices),
        2 => bytes_are_others(operations, choices),
        3 => two_messages_change_places(operations),
        4 => confirmed_publish_was_refused(operations, choices),
        5 => end_is_below_what_was_confirmed(operations),
        6 => end_is_beyond_the_log(operations, choices),
        7 => higher_append_ended_first(operations, choices),
        8 => only_delivery_is_gone(operations, choices),
        9 => delivery_comes_twice(operations, choices),
        10 => settled_message_comes_in_a_later_life(operations, choices),
        _ => read_is_left_out(operations, choices),
    };
    changed.is_some()
}

/// One of the operations that are `of` a kind, by its index.
fn one_of(
    operations: &[Operation],
    choices: &mut Choices,
    of: impl Fn(&Operation) -> bool,
) -> Option<usize> {
    let found: Vec<_> = (0..operations.len()).filter(|&at| of(&operations[at])).collect();
    let at = choices.below(found.len().max(1) as u64) as usize;
    found.get(at).copied()
}

/// What was read back of the first partition.
fn read_back(operations: &mut [Operation]) -> Option<(&mut ReadStart, &mut Read)> {
    let [.., start, read, _, _] = operations else { return None };
    let (What::ReadStart(start), What::Read(read)) = (&mut start.what, &mut read.what) else {
        return None;
    };
    Some((start, read))
}

/// The confirm of an operation: its messages, its partition and the first offset.
fn confirm_of(operation: &Operation) -> Option<(&Published, u32, u64)> {
    let What::Published(published) = &operation.what else { return None };
    let Answer::Confirmed(Some(offset)) = published.answer else { return None };
    Some((published, published.partition?, offset))
}

fn last_message_is_not_read_back(operations: &mut [Operation]) -> Option<()> {
    let (start, read) = read_back(operations)?;
    start.end = start.end.checked_sub(1)?;
    read.contents.pop().map(drop)
}

fn confirm_names_the_next_offset(
    operations: &mut [Operation],
    choices: &mut Choices,
) -> Option<()> {
    let is_confirm =
        |each: &Operation| confirm_of(each).is_some_and(|(published, ..)| published.once);
    let at = one_of(operations, choices, is_confirm)?;
    let What::Published(published) = &mut operations[at].what else { return None };
    let Answer::Confirmed(Some(offset)) = &mut published.answer else { return None };
    *offset += 1;
    Some(())
}

fn bytes_are_others(operations: &mut [Operation], choices: &mut Choices) -> Option<()> {
    let is_seen = |each: &Operation| match &each.what {
        What::Read(read) => !read.contents.is_empty(),
        What::Delivered(_) => true,
        _ => false,
    };
    let at = one_of(operations, choices, is_seen)?;
    let (What::Read(Read { contents, .. }) | What::Delivered(Delivered { contents, .. })) =
        &mut operations[at].what
    else {
        return None;
    };
    let which = choices.below(contents.len() as u64) as usize;
    contents[which] = Content::Foreign(choices.below(1000));
    Some(())
}

fn two_messages_change_places(operations: &mut [Operation]) -> Option<()> {
    let (_, read) = read_back(operations)?;
    let at = (1..read.contents.len()).find(|&at| read.contents[at - 1] != read.contents[at])?;
    read.contents.swap(at - 1, at);
    Some(())
}

fn confirmed_publish_was_refused(
    operations: &mut [Operation],
    choices: &mut Choices,
) -> Option<()> {
    let at = one_of(operations, choices, |each| confirm_of(each).is_some())?;
    let What::Published(published) = &mut operations[at].what else { return None };
    published.answer = Answer::Refused;
    Some(())
}

fn end_is_below_what_was_confirmed(operations: &mut [Operation]) -> Option<()> {
    let confirmed = operations.iter().find(|each| confirm_of(each).is_some())?;
    let (_, partition, offset) = confirm_of(confirmed)?;
    let after_ns = confirmed.ended_ns?;
    let later = operations.iter_mut().filter(|each| each.begun_ns > after_ns);
    let ended = later.filter_map(|each| match &mut each.what {
        What::Ended(ended) if ended.partition == partition => Some(ended),
        _ => None,
    });
    ended.last()?.end = offset;
    Some(())
}

fn end_is_beyond_the_log(operations: &mut [Operation], choices: &mut Choices) -> Option<()> {
    let at = one_of(operations, choices, |each| matches!(each.what, What::Ended(_)))?;
    let What::Ended(Ended { end, .. }) = &mut operations[at].what else { return None };
    *end += 1_000_000;
    Some(())
}

fn higher_append_ended_first(operations: &mut [Operation], choices: &mut Choices) -> Option<()> {
    let lower = one_of(operations, choices, |each| confirm_of(each).is_some())?;
    let (_, partition, offset) = confirm_of(&operations[lower])?;
    let begun_ns = operations[lower].begun_ns;
    let is_higher = |each: &Operation| {
        confirm_of(each).is_some_and(|(_, other, place)| other == partition && place > offset)
    };
    let higher = one_of(operations, choices, is_higher)?;
    operations[higher].begun_ns = 0;
    operations[higher].ended_ns = Some(begun_ns.checked_sub(1)?);
    Some(())
}

/// How often each message was delivered.
fn deliveries_of(operations: &[Operation], partition: u32, offset: u64) -> usize {
    let is_it = |each: &&Operation| match &each.what {
        What::Delivered(delivered) => {
            let end = delivered.first + delivered.contents.len() as u64;
            delivered.partition == partition && (delivered.first..end).contains(&offset)
        }
        _ => false,
    };
    operations.iter().filter(is_it).count()
}

fn only_delivery_is_gone(operations: &mut Vec<Operation>, choices: &mut Choices) -> Option<()> {
    let is_only = |each: &Operation| match &each.what {
        What::Delivered(delivered) => {
            deliveries_of(operations, delivered.partition, delivered.first) == 1
        }
        _ => false,
    };
    let at = one_of(operations, choices, is_only)?;
    let What::Delivered(Delivered { partition, first, .. }) = operations.remove(at).what else {
        return None;
    };
    // Somebody else has to have known of it before the group was empty.
    let drained_ns = operations.iter().find(|each| matches!(each.what, What::Drained { .. }))?;
    let drained_ns = drained_ns.begun_ns;
    let knew = |each: &Operation| {
        let is_confirm = confirm_of(each)
            .is_some_and(|(_, other, offset)| (other, offset) == (partition, first));
        is_confirm && each.ended_ns.is_some_and(|ended_ns| ended_ns < drained_ns)
    };
    operations.iter().any(knew).then_some(())
}

fn delivery_comes_twice(operations: &mut Vec<Operation>, choices: &mut Choices) -> Option<()> {
    let at = one_of(operations, choices, |each| matches!(each.what, What::Delivered(_)))?;
    let again = operations[at].clone();
    operations.insert(at + 1, again);
    Some(())
}

fn settled_message_comes_in_a_later_life(
    operations: &mut Vec<Operation>,
    choices: &mut Choices,
) -> Option<()> {
    let is_ack = |each: &Operation| {
        matches!(&each.what, What::Settlement(settlement) if settlement.is_confirmed)
            && each.ended_ns.is_some()
    };
    let at = one_of(operations, choices, is_ack)?;
    let What::Settlement(Settlement { group, partition, first, .. }) = operations[at].what else {
        return None;
    };
    let settled_ns = operations[at].ended_ns?;
    let content_of = |each: &Operation| match &each.what {
        What::Delivered(delivered) if delivered.partition == partition => {
            let last = *delivered.contents.last()?;
            Some((last, delivered.contents.first().copied()?, delivered.first))
        }
        _ => None,
    };
    let published_ns = |name: MessageName| {
        let published = operations.iter().find(|each| match &each.what {
            What::Published(published) => {
                let numbers = published.first.number..;
                let mut numbers = numbers.take(published.count as usize);
                published.first.publisher == name.publisher && numbers.any(|n| n == name.number)
            }
            _ => false,
        });
        published.map(|each| each.begun_ns)
    };
    // One that was published after the ack has to have been delivered, to know which lives were there.
    let is_known = operations.iter().filter_map(content_of).any(|(last, ..)| match last {
        Content::Message(name) => published_ns(name).is_some_and(|begun_ns| begun_ns > settled_ns),
        Content::Foreign(_) => false,
    });
    let content = operations.iter().filter_map(content_of).find(|each| each.2 == first)?.1;
    let (begun_ns, contents) = (u64::MAX - 2, vec![content]);
    let (consumer, generation, attempt) = (99, 1_000_000, 1);
    let delivered = Delivered { consumer, group, partition, first, contents, generation, attempt };
    let what = What::Delivered(delivered);
    operations.push(Operation { process: 99, begun_ns, ended_ns: Some(u64::MAX - 1), what });
    is_known.then_some(())
}

fn read_is_left_out(operations: &mut Vec<Operation>, choices: &mut Choices) -> Option<()> {
    let reader_of = |each: &Operation| match &each.what {
        What::Read(read) if !read.contents.is_empty() => Some(read.reader),
        _ => None,
    };
    let at =
        one_of(operations, choices, |each| reader_of(each).is_some_and(|reader| reader != 100))?;
    let reader = reader_of(&operations.remove(at));
    operations.iter().skip(at).any(|each| reader_of(each) == reader).then_some(())
}
