//! How much there may be of a stream's producers, forks and waiting reads, and what is no longer kept.

use super::*;

#[test]
fn a_stream_remembers_so_many_producers_and_forgets_who_was_silent_longest() {
    let mut world = opened(settings());
    let mut is_known = |producer: usize| {
        let producer = StreamProducer { id: producer.to_string().into(), epoch: 0, sequence: 0 };
        let note = StreamNote { producer: Some(producer), ..plain() };
        match append(&mut world, "a", note) {
            StreamAnswer::Appended(appended) => appended.is_duplicate,
            other => panic!("{other:?}"),
        }
    };
    assert!((0..STREAM_PRODUCERS_MAX).all(|producer| !is_known(producer)));
    assert!(is_known(0) && !is_known(STREAM_PRODUCERS_MAX));
    assert!(is_known(1) && is_known(STREAM_PRODUCERS_MAX) && !is_known(0));
    assert!(!is_known(1));
}

#[test]
fn what_a_stream_keeps_no_more_is_refused_with_where_it_begins() {
    let mut world = opened(settings());
    (0..3).for_each(|_| drop(append(&mut world, "a", plain())));
    let origin = world.origin(ALICE);
    world.do_now(Command::Partition(origin, ORDERS, PartitionCommand::Trim(Offset(2))));
    let not_kept = refused(ask(&mut world, StreamCommand::Read(read_at(1))));
    assert_eq!(not_kept, StreamRefusal::NotKept { start: Offset(2) });
    assert_eq!(texts(&read(&mut world, read_at(2))), ["a"]);
}

#[test]
fn a_fork_that_is_gone_leaves_its_source_as_it_is_unless_nothing_else_needs_that() {
    let mut world = opened(settings());
    let (one, other) = (TopicId(8), TopicId(9));
    let is_unused = |answer| match answer {
        Some(StreamAnswer::Deleted { is_unused, .. }) => is_unused,
        other => panic!("{other:?}"),
    };
    ask(&mut world, StreamCommand::AddFork(one));
    assert!(!is_unused(ask(&mut world, StreamCommand::RemoveFork(one))), "it is alive");
    ask(&mut world, StreamCommand::AddFork(one));
    ask(&mut world, StreamCommand::AddFork(other));
    assert!(!is_unused(ask(&mut world, StreamCommand::Delete)));
    let again = refused(ask(&mut world, StreamCommand::Delete));
    assert_eq!(again, StreamRefusal::Deleted);
    assert!(!is_unused(ask(&mut world, StreamCommand::RemoveFork(one))), "the other needs it");
    assert!(is_unused(ask(&mut world, StreamCommand::RemoveFork(other))));
}

#[test]
fn a_stream_has_so_many_forks_and_no_more_and_one_that_it_has_is_none_more() {
    let mut world = opened(settings());
    let most = STREAM_FORKS_MAX as u32;
    for fork in 0..most {
        let answer = ask(&mut world, StreamCommand::AddFork(TopicId(100 + fork)));
        assert!(matches!(answer, Some(StreamAnswer::Status(_))), "{answer:?}");
    }
    let again = ask(&mut world, StreamCommand::AddFork(TopicId(100)));
    assert!(matches!(again, Some(StreamAnswer::Status(_))), "{again:?}");
    let one_more = refused(ask(&mut world, StreamCommand::AddFork(TopicId(99))));
    let limit = STREAM_FORKS_MAX as u64;
    assert_eq!(one_more, StreamRefusal::Limit { name: "STREAM_FORKS_MAX", limit });
    ask(&mut world, StreamCommand::RemoveFork(TopicId(100)));
    let answer = ask(&mut world, StreamCommand::AddFork(TopicId(99)));
    assert!(matches!(answer, Some(StreamAnswer::Status(_))), "{answer:?}");
}

#[test]
fn so_many_reads_of_all_streams_wait_and_no_more() {
    let mut world = opened(settings());
    let mut open = |id: PartitionId| {
        let origin = world.origin(ALICE);
        let open = StreamCommand::Open(Box::new(with(settings())));
        world.do_now(Command::Stream(origin, id, open));
    };
    open(DEAD);
    let waits = StreamCommand::Read(StreamRead { waits: true, ..read_at(0) });
    let mut out = Outbox::default();
    let mut origins = Vec::new();
    for n in 0..STREAM_READS_WAITING_MAX {
        let (id, origin) = (if n % 2 == 0 { ORDERS } else { DEAD }, world.origin(ALICE));
        let read = Command::Stream(origin, id, waits.clone());
        world.engine.handle(read, world.now, &mut world.journal, &mut out);
        origins.push(origin);
    }
    world.finish(out);
    let limit = STREAM_READS_WAITING_MAX as u64;
    let limit = StreamRefusal::Limit { name: "STREAM_READS_WAITING_MAX", limit };
    assert_eq!(refused(ask(&mut world, waits.clone())), limit);
    world.do_now(Command::Stream(origins[1], DEAD, StreamCommand::StopReading));
    assert_eq!(ask(&mut world, waits.clone()), None);
    assert_eq!(refused(ask(&mut world, waits.clone())), limit);
    // An append answers those of its stream, and as many may wait again.
    world.effects.clear();
    world.publish_texts(&["a"]);
    assert_eq!(answers(&mut world).len(), STREAM_READS_WAITING_MAX / 2 + 1);
    let behind = StreamCommand::Read(StreamRead { waits: true, ..read_at(1) });
    assert_eq!(ask(&mut world, behind), None);
}

#[test]
fn what_a_durable_stream_has_lost_is_never_passed_over_unsaid() {
    for lost in [(0, 1), (1, 2), (2, 3), (0, 3)] {
        let mut world = opened(settings());
        for text in ["a", "b", "c"] {
            append(&mut world, text, plain());
        }
        let range = OffsetRange::new(Offset(lost.0), lost.1 - lost.0);
        world.engine.apply(&Record::Lost { partition: ORDERS, range }, world.journal.end);
        let (mut from, mut given, mut refusals) = (ReadFrom::Earliest, Vec::new(), Vec::new());
        loop {
            let read = StreamRead { at: from, ..read_at(0) };
            match ask(&mut world, StreamCommand::Read(read)) {
                Some(StreamAnswer::Chunk(chunk)) => {
                    given.extend((chunk.first.0..).zip(texts(&chunk)));
                    if chunk.is_up_to_date {
                        break;
                    }
                    from = ReadFrom::Offset(chunk.next);
                }
                Some(StreamAnswer::Refused(StreamRefusal::Damaged { next })) => {
                    refusals.push(next.0);
                    from = ReadFrom::Offset(next);
                }
                other => panic!("{other:?}"),
            }
        }
        let all = [(0, "a"), (1, "b"), (2, "c")];
        let left = all.into_iter().filter(|(at, _)| !(lost.0..lost.1).contains(at));
        let left: Vec<_> = left.map(|(at, text)| (at, text.to_owned())).collect();
        assert_eq!((given, refusals), (left, vec![lost.1]), "{lost:?}");
    }
}
