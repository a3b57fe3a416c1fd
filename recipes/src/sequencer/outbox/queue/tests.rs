//! The order and the size of commits, and heartbeats that are superseded.

use super::*;
use crate::sequencer_state::{IntentId, Node, Phase};

fn key(name: &str) -> Key {
    Key::new(b"b", name.as_bytes()).expect("a test name is a key")
}

fn message(number: u32) -> Message {
    let intents = vec![IntentId::new(&Node::new("a"), &number.to_string())];
    Message::Returned { intents, why: None }
}

fn beat(phase: Phase) -> Beat {
    Beat { phase, epoch: None, height: 1, coordinates: BTreeSet::new() }
}

fn queue(entries: impl IntoIterator<Item = (&'static str, One, usize)>) -> Queue {
    let mut queue = Queue::default();
    for (name, content, bytes) in entries {
        assert!(queue.push(&key(name), content, bytes, Haste::Now));
    }
    queue
}

/// A heartbeat that has half a second for company.
fn push_routine(queue: &mut Queue, name: &str, phase: Phase) {
    assert!(queue.push(&key(name), One::Beat(beat(phase)), 10, Haste::Within(Duration::from_millis(500))));
}

#[test]
fn messages_to_one_receiver_share_an_envelope_and_contracts_share_a_commit() {
    let mut queue = queue([
        ("c/to/b/a", One::Message(message(1)), 10),
        ("c/to/d/a", One::Message(message(2)), 10),
        ("c/to/b/a", One::Message(message(3)), 10),
        ("c/beat/a", One::Beat(beat(Phase::Active)), 10),
        ("other/beat/a", One::Beat(beat(Phase::Active)), 10),
    ]);
    let expected = vec![
        (key("c/to/b/a"), Content::Messages(vec![message(1), message(3)])),
        (key("c/to/d/a"), Content::Messages(vec![message(2)])),
        (key("c/beat/a"), Content::Beat(beat(Phase::Active))),
        (key("other/beat/a"), Content::Beat(beat(Phase::Active))),
    ];
    assert_eq!(queue.take(), expected);
    assert_eq!((queue.entries.len(), queue.bytes), (0, 0));
}

/// A heartbeat that says less than a message must not come after it.
#[test]
fn a_message_after_a_heartbeat_stays_after_it() {
    let mut queue = queue([
        ("c/to/b/a", One::Message(message(1)), 10),
        ("c/beat/a", One::Beat(beat(Phase::Active)), 10),
        ("c/to/b/a", One::Message(message(2)), 10),
    ]);
    let first = queue.take();
    assert_eq!(first.len(), 2, "{first:?}");
    assert_eq!(queue.take(), [(key("c/to/b/a"), Content::Messages(vec![message(2)]))]);
}

#[test]
fn a_commit_has_a_bounded_size() {
    let half = MAX_ENVELOPE / 2 + 1;
    let mut one = queue([("a", One::Message(message(1)), half), ("a", One::Message(message(2)), half)]);
    assert_eq!(one.take().len(), 1);
    assert_eq!(one.entries.len(), 1, "an envelope fits into a change");
    let many = (0..5)
        .map(|number| (["a", "b", "c", "d", "e"][number as usize], One::Message(message(number)), half));
    let mut many = queue(many);
    assert_eq!(many.take().len(), 3, "all of it fits into a step");
}

/// While no server answers, a coordinator beats on, and comes to rest: one heartbeat is sent, its last.
#[test]
fn a_heartbeat_supersedes_those_that_wait() {
    let mut queue = Queue::default();
    for number in 0..1_000 {
        push_routine(&mut queue, "c/beat/a", Phase::Active);
        push_routine(&mut queue, "other/beat/a", Phase::Active);
        if number == 500 {
            assert!(queue.push(&key("c/to/b/a"), One::Message(message(1)), 10, Haste::Now));
        }
    }
    assert!(queue.push(&key("c/beat/a"), One::Beat(beat(Phase::Idle)), 0, Haste::Now));
    assert!(queue.bytes < 4 * (AROUND + 10), "{}", queue.bytes);
    let expected = vec![
        (key("c/to/b/a"), Content::Messages(vec![message(1)])),
        (key("other/beat/a"), Content::Beat(beat(Phase::Active))),
        (key("c/beat/a"), Content::Beat(beat(Phase::Idle))),
    ];
    assert_eq!(queue.next(Instant::now()), Next::Commit(expected));
    assert_eq!(queue.next(Instant::now()), Next::Wait { until: None, is_empty: true });
}

/// A node that leaves must not say that it coordinates.
#[test]
fn a_heartbeat_that_is_withdrawn_is_not_sent_and_nobody_waits_for_it() {
    let mut queue = Queue::default();
    push_routine(&mut queue, "c/beat/a", Phase::Active);
    let Next::Wait { until: Some(_), is_empty: false } = queue.next(Instant::now()) else {
        panic!("it waits for company")
    };
    queue.withdraw_beat(&key("c/beat/a"));
    assert_eq!(queue.next(Instant::now()), Next::Wait { until: None, is_empty: true });
    assert_eq!(queue.bytes, 0);
}

#[test]
fn a_commit_that_is_made_again_leaves_superseded_heartbeats_out() {
    for is_unknown in [false, true] {
        let mut numbers = Numbers::new(7);
        let mut queue = queue([
            ("c/to/b/a", One::Message(message(1)), 10),
            ("c/beat/a", One::Beat(beat(Phase::Active)), 10),
            ("other/beat/a", One::Beat(beat(Phase::Active)), 10),
        ]);
        let mut commit = numbers.commit(queue.take());
        commit.leave_out(queue.outdated(), &mut numbers);
        assert_eq!(commit.envelopes.len(), 3, "all are still true");
        assert!(queue.push(&key("c/beat/a"), One::Beat(beat(Phase::Idle)), 0, Haste::Now));
        if is_unknown {
            commit.has_unknown_outcome();
        }
        commit.leave_out(queue.outdated(), &mut numbers);
        let left: Vec<&Key> = commit.envelopes.iter().map(|(key, _)| key).collect();
        assert_eq!(left, [&key("c/to/b/a"), &key("other/beat/a")]);
        let next = numbers.commit(queue.take());
        let (of, envelope) = &next.envelopes[0];
        // Somebody may have seen the first number with the other content.
        assert_eq!((of, envelope.number), (&key("c/beat/a"), if is_unknown { 2 } else { 1 }));
    }
}

/// The first one goes at once; those that follow it make one commit, unless another one takes them along.
#[test]
fn messages_that_can_wait_are_paced() {
    let mut queue = Queue::default();
    let push = |queue: &mut Queue, number, haste| {
        assert!(queue.push(&key("c/to/b/a"), One::Message(message(number)), 10, haste));
    };
    let commit = |numbers: &[u32]| {
        let messages = numbers.iter().map(|number| message(*number)).collect();
        Next::Commit(vec![(key("c/to/b/a"), Content::Messages(messages))])
    };
    push(&mut queue, 1, Haste::Paced);
    let now = Instant::now();
    assert_eq!(queue.next(now), commit(&[1]));
    push(&mut queue, 2, Haste::Paced);
    push(&mut queue, 3, Haste::Paced);
    assert_eq!(queue.next(now), Next::Wait { until: Some(now + PACE), is_empty: false });
    assert_eq!(queue.next(now + PACE), commit(&[2, 3]));
    push(&mut queue, 4, Haste::Paced);
    push(&mut queue, 5, Haste::Now);
    assert_eq!(queue.next(Instant::now()), commit(&[4, 5]));
    assert_eq!(queue.next(Instant::now()), Next::Wait { until: None, is_empty: true });
}
