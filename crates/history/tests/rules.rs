//! Each rule of the checker: a small history that breaks it alone, and one beside it that does not.

use sennit_history::{
    Answer, Content, Delivered, Ended, Gap, History, MessageName, Published, Read, ReadStart, Rule,
    Settlement, Violation, What, check,
};

/// A history of one partition, told step by step: each step ends before the next begins, unless it says otherwise.
#[derive(Default)]
struct Story {
    history: History,
    now_ns: u64,
    readers: u32,
}

fn name(publisher: u32, number: u64) -> MessageName {
    MessageName { publisher, number }
}

fn content(publisher: u32, number: u64) -> Content {
    Content::Message(name(publisher, number))
}

fn one(publisher: u32, number: u64, answer: Answer) -> Published {
    let first = name(publisher, number);
    Published { first, count: 1, partition: Some(0), once: true, expected: None, answer }
}

fn at(offset: u64) -> Answer {
    Answer::Confirmed(Some(offset))
}

impl Story {
    fn at(&mut self, begun_ns: u64, ended_ns: Option<u64>, what: What) {
        self.now_ns = self.now_ns.max(ended_ns.unwrap_or(begun_ns));
        self.history.add(0, begun_ns, ended_ns, what);
    }

    fn step(&mut self, what: What) {
        let begun_ns = self.now_ns + 10;
        self.at(begun_ns, Some(begun_ns + 10), what);
    }

    fn published(&mut self, published: Published) {
        self.step(What::Published(published));
    }

    fn ended(&mut self, end: u64) {
        self.step(What::Ended(Ended { partition: 0, end }));
    }

    fn starts(&mut self, from: Option<u64>, first: u64, end: u64, reads_back: bool) -> u32 {
        self.readers += 1;
        let reader = self.readers;
        let start = ReadStart { reader, partition: 0, from, first, end, reads_back };
        self.step(What::ReadStart(start));
        reader
    }

    fn read(&mut self, reader: u32, first: u64, contents: &[Content]) {
        let contents = contents.to_vec();
        self.step(What::Read(Read { reader, partition: 0, first, contents }));
    }

    fn gap(&mut self, reader: u32, start: u64, end: u64, is_retention: bool) {
        self.step(What::Gap(Gap { reader, partition: 0, start, end, is_retention }));
    }

    fn delivered(&mut self, consumer: u32, first: u64, contents: &[Content], attempt: (u64, u32)) {
        let (generation, attempt) = attempt;
        let (group, partition, contents) = (7, 0, contents.to_vec());
        let delivered =
            Delivered { consumer, group, partition, first, contents, generation, attempt };
        self.step(What::Delivered(delivered));
    }

    fn acked(&mut self, first: u64, count: u32, (generation, attempt): (u64, u32)) {
        let (group, partition, is_confirmed) = (7, 0, true);
        let settlement =
            Settlement { group, partition, first, count, generation, attempt, is_confirmed };
        self.step(What::Settlement(settlement));
    }

    fn reads_back(&mut self, contents: &[Content]) {
        let reader = self.starts(Some(0), 0, contents.len() as u64, true);
        if !contents.is_empty() {
            self.read(reader, 0, contents);
        }
    }

    fn violations(&self) -> Vec<Violation> {
        check(&self.history).violations
    }

    /// It breaks this rule and no other, at this offset if one is named.
    #[track_caller]
    fn breaks(&self, rule: Rule, offset: Option<u64>) {
        let violations = self.violations();
        let is_it = |each: &Violation| {
            let place = offset.map(|offset| (0, offset));
            each.rule == rule && (place.is_none() || each.place == place)
        };
        assert!(!violations.is_empty() && violations.iter().all(is_it), "{violations:#?}");
    }

    #[track_caller]
    fn is_good(&self) {
        assert_eq!(self.violations(), []);
    }
}

/// Three messages, confirmed one after the other.
fn three() -> Story {
    let mut story = Story::default();
    (0..3).for_each(|n| story.published(one(1, n, at(n))));
    story
}

const THREE: [Content; 3] = [
    Content::Message(MessageName { publisher: 1, number: 0 }),
    Content::Message(MessageName { publisher: 1, number: 1 }),
    Content::Message(MessageName { publisher: 1, number: 2 }),
];

#[test]
fn a_history_of_one_log_breaks_nothing() {
    let mut story = three();
    story.ended(3);
    let reader = story.starts(None, 3, 3, false);
    story.published(one(2, 0, at(3)));
    story.read(reader, 3, &[content(2, 0)]);
    story.delivered(1, 0, &THREE, (1, 1));
    story.acked(0, 3, (1, 1));
    story.delivered(1, 3, &[content(2, 0)], (1, 1));
    story.acked(3, 1, (1, 1));
    story.step(What::Drained { group: 7 });
    story.reads_back(&[THREE[0], THREE[1], THREE[2], content(2, 0)]);
    story.is_good();
    let counts = check(&story.history).counts;
    assert_eq!((counts.confirmed, counts.delivered, counts.settled), (4, 4, 4));
    assert_eq!((counts.logged, counts.repeated, counts.unknown, counts.ends), (4, 0, 0, 3));
}

#[test]
fn a_confirmed_message_that_is_not_read_back_is_missing() {
    let mut story = three();
    story.reads_back(&THREE[..2]);
    // The end is told as well: it was at 3.
    let violations = story.violations();
    assert!(violations.iter().any(|each| each.rule == Rule::Missing && each.place == Some((0, 2))));
    let mut story = three();
    let reader = story.starts(Some(0), 0, 3, true);
    story.read(reader, 0, &THREE[..1]);
    story.gap(reader, 1, 2, true);
    story.read(reader, 2, &THREE[2..]);
    story.is_good();
}

#[test]
fn a_message_that_was_only_read_and_is_not_read_back_is_missing() {
    let mut story = Story::default();
    story.published(one(1, 0, Answer::Unknown));
    let reader = story.starts(Some(0), 0, 0, false);
    story.read(reader, 0, &THREE[..1]);
    // Nothing was said of the end since, and it may be that the reader began before the message came.
    story.at(0, None, What::Ended(Ended { partition: 0, end: 0 }));
    story.reads_back(&[]);
    let violations = story.violations();
    assert!(violations.iter().any(|each| each.rule == Rule::Missing && each.place == Some((0, 0))));
}

#[test]
fn a_message_that_is_confirmed_without_an_offset_has_to_be_somewhere() {
    let mut story = three();
    story.published(one(1, 3, Answer::Confirmed(None)));
    story.reads_back(&THREE);
    story.breaks(Rule::Missing, None);
    let mut story = three();
    story.published(one(1, 3, Answer::Confirmed(None)));
    story.reads_back(&[THREE[0], THREE[1], THREE[2], content(1, 3)]);
    story.is_good();
}

#[test]
fn a_partition_has_to_be_read_back_to_its_end() {
    three().breaks(Rule::NotReadBack, None);
    let mut story = three();
    let reader = story.starts(Some(0), 0, 4, true);
    story.read(reader, 0, &THREE);
    story.breaks(Rule::NotReadBack, None);
}

#[test]
fn a_message_that_nobody_published_is_invented() {
    for invented in [content(1, 9), content(9, 0), Content::Foreign(5)] {
        let mut story = three();
        story.reads_back(&[THREE[0], THREE[1], THREE[2], invented]);
        story.breaks(Rule::Invented, Some(3));
    }
}

#[test]
fn a_message_that_was_refused_is_invented_and_one_of_unknown_outcome_is_not() {
    for (answer, is_good) in
        [(Answer::Refused, false), (Answer::NextIs(3), false), (Answer::Unknown, true)]
    {
        let mut story = three();
        story.published(one(1, 3, answer));
        story.reads_back(&[THREE[0], THREE[1], THREE[2], content(1, 3)]);
        match is_good {
            true => story.is_good(),
            false => story.breaks(Rule::Invented, Some(3)),
        }
    }
}

#[test]
fn a_message_lies_where_its_publisher_asked_for() {
    let elsewhere = Published { partition: Some(1), ..one(1, 3, Answer::Unknown) };
    let higher = Published { expected: Some(4), ..one(1, 3, Answer::Unknown) };
    for published in [elsewhere, higher] {
        let mut story = three();
        story.published(published);
        story.reads_back(&[THREE[0], THREE[1], THREE[2], content(1, 3)]);
        story.breaks(Rule::Misplaced, Some(3));
    }
}

#[test]
fn an_offset_that_is_given_to_two_messages_is_found() {
    let mut story = three();
    story.at(0, Some(1000), What::Published(one(2, 0, at(2))));
    story.reads_back(&THREE);
    story.breaks(Rule::OffsetGivenTwice, Some(2));
}

#[test]
fn an_offset_that_is_read_with_two_contents_is_found() {
    let mut story = three();
    story.at(0, None, What::Published(one(2, 0, Answer::Unknown)));
    story.at(0, None, What::Published(one(3, 0, Answer::Unknown)));
    let reader = story.starts(Some(3), 3, 3, false);
    story.read(reader, 3, &[content(2, 0)]);
    story.reads_back(&[THREE[0], THREE[1], THREE[2], content(3, 0)]);
    story.breaks(Rule::ReadDiffers, Some(3));
}

#[test]
fn a_message_that_is_read_where_another_was_confirmed_is_found() {
    let mut story = three();
    story.at(0, None, What::Published(one(2, 0, Answer::Unknown)));
    story.reads_back(&[THREE[0], content(2, 0), THREE[2]]);
    story.breaks(Rule::ConfirmDiffers, Some(1));
}

#[test]
fn a_message_of_an_idempotent_producer_lies_once_and_others_may_lie_twice() {
    for once in [true, false] {
        let mut story = three();
        story.published(Published { once, ..one(2, 0, at(3)) });
        story.reads_back(&[THREE[0], THREE[1], THREE[2], content(2, 0), content(2, 0)]);
        match once {
            true => story.breaks(Rule::Duplicated, None),
            false => story.is_good(),
        }
        assert_eq!(check(&story.history).counts.repeated, u64::from(!once));
    }
}

#[test]
fn a_batch_lies_together_or_not_at_all() {
    let batch = |answer| Published { count: 3, ..one(2, 0, answer) };
    let all = [content(2, 0), content(2, 1), content(2, 2)];
    let other = content(1, 0);
    for log in [&all[..2], &all[1..], &[all[0], other, all[1], all[2]], &[all[0], all[2]]] {
        let mut story = Story::default();
        story.at(0, None, What::Published(one(1, 0, Answer::Unknown)));
        story.published(batch(Answer::Unknown));
        // In front of it and behind it lies another.
        story.at(0, None, What::Published(one(3, 0, Answer::Unknown)));
        story.reads_back(&[&[content(3, 0)][..], log].concat());
        story.breaks(Rule::Torn, None);
    }
    for log in [&[][..], &all[..]] {
        let mut story = Story::default();
        story.published(batch(Answer::Unknown));
        story.reads_back(log);
        story.is_good();
    }
}

#[test]
fn a_publishers_messages_lie_in_its_order_though_they_were_published_together() {
    let mut story = Story::default();
    for (number, offset) in [(0, 1), (1, 0)] {
        story.at(0, Some(100), What::Published(one(1, number, at(offset))));
    }
    story.reads_back(&[content(1, 1), content(1, 0)]);
    story.breaks(Rule::PublisherReordered, None);
}

#[test]
fn an_append_that_ended_before_another_began_lies_lower() {
    let mut story = Story::default();
    story.at(10, Some(20), What::Published(one(1, 0, at(1))));
    story.at(30, Some(40), What::Published(one(2, 0, at(0))));
    story.reads_back(&[content(2, 0), content(1, 0)]);
    story.breaks(Rule::OrderBroken, Some(1));
    // Both at a time may lie in either order.
    let mut story = Story::default();
    story.at(10, Some(35), What::Published(one(1, 0, at(1))));
    story.at(30, Some(40), What::Published(one(2, 0, at(0))));
    story.reads_back(&[content(2, 0), content(1, 0)]);
    story.is_good();
}

#[test]
fn a_message_whose_outcome_nobody_learned_has_its_order_too() {
    let mut story = Story::default();
    story.at(10, Some(20), What::Published(one(1, 0, at(1))));
    story.at(30, None, What::Published(one(2, 0, Answer::Unknown)));
    story.reads_back(&[content(2, 0), content(1, 0)]);
    story.breaks(Rule::OrderBroken, Some(1));
}

#[test]
fn an_end_that_goes_back_is_found() {
    let mut story = Story::default();
    story.at(0, None, What::Published(one(1, 0, Answer::Unknown)));
    story.at(0, None, What::Published(one(1, 1, Answer::Unknown)));
    story.ended(2);
    story.ended(1);
    story.reads_back(&THREE[..2]);
    story.breaks(Rule::EndWentBack, Some(2));
    // Of two that are asked for at a time each may be the first.
    let mut story = Story::default();
    story.at(0, None, What::Published(one(1, 0, Answer::Unknown)));
    story.at(0, None, What::Published(one(1, 1, Answer::Unknown)));
    for end in [2, 1, 2] {
        story.at(10, Some(20), What::Ended(Ended { partition: 0, end }));
    }
    story.reads_back(&THREE[..2]);
    story.is_good();
}

#[test]
fn an_end_at_or_below_what_was_confirmed_before_is_found() {
    for answered in [true, false] {
        let mut story = three();
        match answered {
            true => story.ended(2),
            // The next offset is told to a publisher that expected another.
            false => story.published(one(2, 0, Answer::NextIs(2))),
        }
        story.reads_back(&THREE);
        story.breaks(Rule::EndTooLow, Some(2));
    }
}

#[test]
fn a_message_that_is_seen_before_it_was_published_is_found() {
    let mut story = Story::default();
    let reader = story.starts(Some(0), 0, 0, false);
    story.read(reader, 0, &[content(1, 0)]);
    story.published(one(1, 0, at(0)));
    story.reads_back(&THREE[..1]);
    story.breaks(Rule::SeenTooSoon, Some(0));
    let mut story = Story::default();
    story.ended(1);
    story.published(one(1, 0, at(0)));
    story.reads_back(&THREE[..1]);
    story.breaks(Rule::SeenTooSoon, Some(1));
}

#[test]
fn a_gap_that_a_reader_is_not_told_of_is_found() {
    let mut story = three();
    let reader = story.starts(Some(0), 0, 3, false);
    story.read(reader, 0, &THREE[..1]);
    story.read(reader, 2, &THREE[2..]);
    story.reads_back(&THREE);
    story.breaks(Rule::UntoldGap, Some(1));
    // One that begins behind where it was asked to.
    let mut story = three();
    story.starts(Some(0), 1, 3, false);
    story.reads_back(&THREE);
    story.breaks(Rule::UntoldGap, Some(0));
}

#[test]
fn an_offset_that_a_reader_receives_again_is_found() {
    let mut story = three();
    let reader = story.starts(Some(0), 0, 3, false);
    story.read(reader, 0, &THREE[..2]);
    story.read(reader, 1, &THREE[1..]);
    story.reads_back(&THREE);
    story.breaks(Rule::ReadAgain, Some(1));
}

#[test]
fn a_gap_that_is_told_of_offsets_that_hold_messages_is_found() {
    let mut story = three();
    let reader = story.starts(Some(0), 0, 3, false);
    story.gap(reader, 0, 2, false);
    story.reads_back(&THREE);
    story.breaks(Rule::GapOverMessages, Some(0));
}

#[test]
fn a_settled_message_that_comes_behind_a_later_one_is_found() {
    let mut story = Story::default();
    story.published(one(1, 0, at(0)));
    story.delivered(1, 0, &THREE[..1], (1, 1));
    story.acked(0, 1, (1, 1));
    story.published(one(1, 1, at(1)));
    story.delivered(2, 1, &THREE[1..2], (1, 1));
    story.delivered(2, 0, &THREE[..1], (1, 2));
    story.reads_back(&THREE[..2]);
    story.breaks(Rule::SettledDeliveredAgain, Some(0));
}

#[test]
fn a_settled_message_that_a_later_life_delivers_is_found() {
    let mut story = Story::default();
    story.published(one(1, 0, at(0)));
    story.delivered(1, 0, &THREE[..1], (1, 1));
    story.acked(0, 1, (1, 1));
    story.published(one(1, 1, at(1)));
    story.delivered(1, 1, &THREE[1..2], (1, 1));
    // The first life was there after the ack; the second began later.
    story.delivered(2, 0, &THREE[..1], (2, 1));
    story.reads_back(&THREE[..2]);
    story.breaks(Rule::SettledDeliveredAgain, Some(0));
}

#[test]
fn a_delivery_that_lay_with_a_client_while_another_one_was_acked_is_none() {
    let mut story = Story::default();
    story.published(one(1, 0, at(0)));
    story.delivered(1, 0, &THREE[..1], (2, 1));
    story.acked(0, 1, (2, 1));
    // The first life may have handed it out before it died, and the third before it heard the ack.
    story.delivered(2, 0, &THREE[..1], (1, 1));
    story.delivered(3, 0, &THREE[..1], (3, 1));
    story.published(one(1, 1, at(1)));
    story.delivered(3, 1, &THREE[1..2], (4, 1));
    story.reads_back(&THREE[..2]);
    story.is_good();
}

#[test]
fn one_delivery_that_comes_twice_is_found() {
    let mut story = three();
    story.delivered(1, 0, &THREE, (1, 2));
    story.delivered(2, 1, &THREE[1..2], (1, 2));
    story.reads_back(&THREE);
    story.breaks(Rule::DeliveredTwice, Some(1));
}

#[test]
fn first_attempts_that_come_out_of_order_are_found_and_later_attempts_may() {
    for (attempt, is_good) in [((1, 1), false), ((1, 2), true), ((2, 1), true)] {
        let mut story = three();
        story.delivered(1, 1, &THREE[1..], (1, 1));
        story.delivered(1, 0, &THREE[..1], attempt);
        story.reads_back(&THREE);
        match is_good {
            true => story.is_good(),
            false => story.breaks(Rule::DeliveredOutOfOrder, None),
        }
    }
}

#[test]
fn a_delivery_of_an_older_generation_behind_one_of_a_newer_is_found() {
    let mut story = three();
    story.delivered(1, 0, &THREE[..1], (2, 1));
    story.delivered(1, 1, &THREE[1..], (1, 1));
    story.reads_back(&THREE);
    story.breaks(Rule::GenerationWentBack, None);
}

#[test]
fn a_message_that_no_consumer_had_when_its_group_is_drained_is_found() {
    let mut story = three();
    story.delivered(1, 0, &THREE[..1], (1, 1));
    story.delivered(1, 2, &THREE[2..], (1, 1));
    story.step(What::Drained { group: 7 });
    // Later ones need not have come.
    story.published(one(1, 3, at(3)));
    story.reads_back(&[THREE[0], THREE[1], THREE[2], content(1, 3)]);
    story.breaks(Rule::NeverDelivered, Some(1));
}

#[test]
fn a_history_is_the_same_after_it_was_written_and_read() {
    let mut story = three();
    story.published(one(1, 3, Answer::NextIs(3)));
    story.published(one(1, 4, Answer::Confirmed(None)));
    story.published(Published { expected: Some(3), ..one(1, 5, Answer::Refused) });
    let reader = story.starts(None, 3, 3, false);
    story.gap(reader, 3, 4, true);
    story.delivered(1, 0, &[THREE[0], Content::Foreign(u64::MAX)], (1, 1));
    story.acked(0, 1, (1, 1));
    story.step(What::Drained { group: 7 });
    story.at(0, None, What::Ended(Ended { partition: 0, end: 0 }));
    story.reads_back(&THREE);
    let mut lines = Vec::new();
    story.history.write(&mut lines).expect("a vector takes all");
    assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), 14);
    assert_eq!(History::read(&lines[..]).expect("it was written"), story.history);
    assert!(History::read(&b"{}\n"[..]).is_err());
}
