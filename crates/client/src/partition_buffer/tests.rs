//! Tests of the batches of a partition.

use sennit_protocol::control;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// A partition whose batches are given up ten seconds after they were published.
fn impatient() -> PartitionBuffer {
    let give_up_after = Some(LIMIT);
    let numbering = Numbering { sequence_range: None, give_up_after };
    PartitionBuffer::new(PartitionIndex(0), numbering)
}

/// Publishes a batch of one message and sends it, as request `request`.
fn publish(buffer: &mut PartitionBuffer, request: u64, now: Instant) {
    buffer.push(&Message::new("x"), 21, 1 << 20, || now).unwrap();
    assert!(buffer.next_batch(request).is_some());
}

fn refuse(buffer: &mut PartitionBuffer, request: u64, now: Instant) -> Vec<Resolution> {
    let code = ErrorCode::StorageFull;
    let refusal = BatchRefusal {
        request,
        first_sequence: None,
        code: Some(code),
        expected_sequence: None,
        error: control::Error::new(code, "full").into(),
    };
    let mut out = Vec::new();
    assert!(buffer.refused(&refusal, now, &mut out));
    out
}

#[test]
fn the_time_that_a_batch_has_begins_when_it_is_published() {
    let (mut buffer, begin) = (impatient(), Instant::now());
    let almost = begin + LIMIT - Duration::from_millis(1);
    publish(&mut buffer, 1, begin);
    assert!(refuse(&mut buffer, 1, almost).is_empty());
    let later = almost + RETRY_DELAY_MAX;
    buffer.wake(later);
    assert!(buffer.next_batch(2).is_some());
    assert_eq!(refuse(&mut buffer, 2, later).len(), 1);
}

#[test]
fn a_confirm_of_others_gives_a_batch_no_more_time_and_their_refusal_no_less() {
    let (mut buffer, begin) = (impatient(), Instant::now());
    publish(&mut buffer, 1, begin);
    publish(&mut buffer, 2, begin);
    let half = begin + LIMIT / 2;
    publish(&mut buffer, 3, half);
    let frame = ConfirmFrame {
        head: sennit_protocol::ConfirmHead { up_to_sequence: 1, ..<_>::default() },
        ..<_>::default()
    };
    let mut confirmed = Vec::new();
    buffer.confirmed(&frame, None, half, &mut confirmed);
    assert_eq!(confirmed.len(), 1);
    let given_up = refuse(&mut buffer, 2, begin + LIMIT);
    assert_eq!(given_up.len(), 1);
    assert!(given_up[0].answer.is_err());
    assert!(refuse(&mut buffer, 3, begin + LIMIT).is_empty());
}

/// The confirm of one batch of one message.
fn confirm(buffer: &mut PartitionBuffer, first_sequence: u64, now: Instant) -> usize {
    let run = ConfirmRun { first_sequence, first_offset: None, count: 1, duplicate: false };
    let mut out = Vec::new();
    buffer.confirmed(&ConfirmFrame::default(), Some(&run), now, &mut out);
    out.len()
}

#[test]
fn whoever_has_used_up_its_share_of_the_sequences_begins_with_the_first_again() {
    let (sequence_range, now) = (SequenceRange::of_sequence(7 << 40), Instant::now());
    let numbering = Numbering { sequence_range: Some(sequence_range), give_up_after: None };
    let mut buffer = PartitionBuffer::new(PartitionIndex(0), numbering);
    buffer.next_position = SequenceRange::SEQUENCES - 2;
    let sequences = [1, 2, 3, 4].map(|request| {
        buffer.push(&Message::new("x"), 21, 1 << 20, || now).unwrap();
        buffer.next_batch(request).unwrap().first_sequence
    });
    assert!(
        sequences.iter().all(|&sequence| SequenceRange::of_sequence(sequence) == sequence_range)
    );
    assert_eq!(sequences[2], sequence_range.first_sequence());
    // The answers to the first batch do not hide those to later ones.
    assert!(refuse(&mut buffer, 1, now).is_empty());
    for sequence in [sequences[2], sequences[1], sequences[3]] {
        assert_eq!(confirm(&mut buffer, sequence, now), 1);
    }
    assert_eq!(buffer.answered_before(), SequenceRange::SEQUENCES - 2);
}
