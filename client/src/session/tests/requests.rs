//! Requests as transcripts: events of caller, network and server, and the messages of the session.

use std::time::Duration;

use super::talk::{CONNECT, Restarted, TTL, Talk, granted, kept_alive, opened, reclaimed, refused, released};
use crate::error::{AcquireError, ClientError, LostReason};
use crate::lease_clock::lease_margin;
use crate::request::Wait;
use crate::session::{Grant, Output, Releasing, Why};
use crate::tag::Tag;
use geolock_api::names::{DcId, FencingToken, RequestId};
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, OnDisconnect, Reason, ServerMessage};

#[test]
fn an_acquire_is_answered_with_its_grant() {
    let mut talk = Talk::ready();
    let number = talk.acquire("a", Wait::AtMost(Duration::from_millis(1500)));
    assert_eq!(talk.said(), ["acquire a key 1 1500 ms"]);
    talk.hear(Tag::Acquire(number), granted(40));
    let request = RequestId { dc: DcId::new(0).expect("0 is an id"), n: 40 };
    let grant = Grant {
        request,
        token: FencingToken(40),
        snapshot: proto::Snapshot::default(),
        chosen: vec![],
        chosen_locks: vec![],
    };
    match &talk.outputs()[..] {
        [Output::Acquired { number: 1, outcome: Ok(got) }] => assert_eq!(*got, grant),
        other => panic!("{other:?}"),
    }
    assert!(matches!(talk.session.release(number), Releasing::OnItsWay));
    assert_eq!(talk.said(), ["release key 1"]);
    talk.hear(Tag::Release(number), released());
    assert!(matches!(talk.outputs()[..], [Output::Released { number: 1, outcome: Ok(()) }]));
    assert!(talk.session.requests.is_empty(), "nothing is kept of it");
}

#[test]
fn what_was_not_answered_is_asked_again_in_order_under_the_same_keys() {
    let mut talk = Talk::ready();
    let held = talk.hold("held", 40);
    let released = talk.hold("released", 41);
    let waiting = talk.acquire("waiting", Wait::AtMost(Duration::from_secs(5)));
    let cancelled = talk.acquire("cancelled", Wait::Forever);
    let _ = talk.session.release(released);
    talk.session.abandon(cancelled);
    talk.said();
    talk.pass(Duration::from_secs(2));
    talk.said();
    talk.reconnect();
    let queued = talk.acquire("queued", Wait::Forever);
    assert!(talk.said().is_empty(), "the lease is not attached yet");
    let attached = proto::AttachLeaseResponse { ttl_ms: 9000, reclaim: false };
    talk.hear(Tag::AttachLease, Answer::LeaseAttached(attached));
    assert_eq!(
        talk.said(),
        ["release key 2", "acquire waiting key 3 3000 ms", "cancel key 4", "acquire queued key 5 forever"]
    );
    assert!(talk.outputs().is_empty(), "no caller hears of any of it");
    assert_eq!(talk.session.lost(talk.now, held), None);
    assert_eq!((waiting, queued), (3, 5));
}

#[test]
fn a_restarted_server_is_told_what_is_held_and_nothing_that_was_released() {
    let mut talk = Talk::ready();
    let (kept, lost) = (talk.hold("kept", 40), talk.hold("lost", 41));
    let released = talk.hold("released", 42);
    let waiting = talk.acquire("waiting", Wait::Forever);
    let above = talk.hold("above", 43);
    talk.session.disconnected(talk.now);
    let _ = talk.session.release(released);
    talk.reattach(Restarted::Yes);
    assert_eq!(talk.said(), ["reclaim keys [1, 2, 5]"]);
    talk.hear(Tag::Reclaim(0), reclaimed(&[40, 43]));
    assert_eq!(
        talk.said(),
        ["release key 3", "acquire waiting key 6 forever"],
        "the waiting one's key is above all that were reclaimed"
    );
    assert!(matches!(talk.outputs()[..],
        [Output::Lost { number, reason: LostReason::NotReclaimed }] if number == lost));
    assert_eq!(talk.session.lost(talk.now, kept), None);
    assert_eq!(talk.session.lost(talk.now, above), None);
    talk.hear(Tag::Release(released), refused(Reason::NotHeld));
    assert!(matches!(talk.outputs()[..], [Output::Released { outcome: Ok(()), .. }]));
    talk.hear(Tag::Acquire(waiting), granted(50));
    assert!(matches!(talk.outputs()[..], [Output::Acquired { number: 4, outcome: Ok(_) }]));
}

#[test]
fn a_reclaim_whose_answer_was_lost_is_asked_after() {
    let mut talk = Talk::ready();
    let (kept, lost, given) = (talk.hold("kept", 40), talk.hold("lost", 41), talk.hold("given", 42));
    talk.reattach(Restarted::Yes);
    assert_eq!(talk.said(), ["reclaim keys [1, 2, 3]"]);
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["acquire kept key 1 try", "acquire lost key 2 try", "acquire given key 3 try"]);
    talk.hear(Tag::Acquire(kept), granted(40));
    talk.hear(Tag::Acquire(lost), refused(Reason::IdempotencyKeyFinished));
    talk.hear(Tag::Acquire(given), granted(60));
    assert_eq!(talk.said(), ["cancel key 3"], "the new grant is nobody's");
    assert_eq!(talk.session.lost(talk.now, kept), None);
    assert_eq!(talk.session.lost(talk.now, lost), Some(LostReason::NotReclaimed));
    assert_eq!(talk.session.lost(talk.now, given), Some(LostReason::NotReclaimed));
    assert_eq!(talk.outputs().len(), 2);
}

#[test]
fn a_reclaim_for_which_there_was_no_room_is_made_again() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    talk.reattach(Restarted::Yes);
    assert_eq!(talk.said(), ["reclaim keys [1]"]);
    let full =
        proto::Error { reason: Reason::ResourceExhausted.into(), retry_after_ms: 500, ..Default::default() };
    talk.hear(Tag::Reclaim(0), Answer::Error(full));
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(_)]));
    talk.reattach(Restarted::Yes);
    assert_eq!(talk.said(), ["reclaim keys [1]"]);
    talk.hear(Tag::Reclaim(0), reclaimed(&[40]));
    assert!(talk.session.is_ready() && talk.session.lost(talk.now, held).is_none());
}

#[test]
fn a_future_that_is_dropped_leaves_nothing_behind_whatever_had_happened() {
    let mut talk = Talk::ready();
    // It waits: cancelled, even if the grant comes first.
    let waiting = talk.acquire("a", Wait::Forever);
    talk.session.abandon(waiting);
    assert_eq!(talk.said(), ["acquire a key 1 forever", "cancel key 1"]);
    talk.hear(Tag::Acquire(waiting), granted(40));
    assert!(talk.outputs().is_empty(), "nobody is told");
    talk.hear(Tag::Cancel(waiting), Answer::Cancelled(proto::CancelResponse {}));
    // It is granted, and its future was dropped unseen: released.
    let granted = talk.hold("b", 41);
    talk.session.abandon(granted);
    assert_eq!(talk.said(), ["release key 2"]);
    talk.hear(Tag::Release(granted), released());
    // The server never received it: dropped.
    talk.session.disconnected(talk.now);
    let queued = talk.acquire("c", Wait::AtMost(TTL));
    talk.session.abandon(queued);
    assert!(talk.session.requests.is_empty() && talk.session.overdue.is_empty());
}

#[test]
fn the_lease_is_renewed_in_time_and_a_silent_server_left() {
    let mut talk = Talk::ready();
    talk.pass(TTL / 3);
    assert_eq!(talk.said(), ["keep alive"]);
    talk.pass(Duration::from_secs(1));
    talk.hear(Tag::KeepAlive, kept_alive());
    assert_eq!(talk.session.next_deadline(), talk.now - Duration::from_secs(1) + TTL / 3);
    talk.pass(TTL / 3);
    assert_eq!(talk.said(), ["keep alive"]);
    talk.pass(TTL / 4);
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::Silent(_))]));
}

#[test]
fn a_renewal_goes_before_what_was_to_be_sent() {
    let mut talk = Talk::ready();
    for lock in ["a", "b"] {
        talk.acquire(lock, Wait::Forever);
    }
    talk.pass(TTL / 3);
    assert!(talk.session.has_renewal());
    assert_eq!(talk.said(), ["keep alive", "acquire a key 1 forever", "acquire b key 2 forever"]);
    talk.hear(Tag::KeepAlive, kept_alive());
    talk.pass(TTL / 3);
    talk.session.disconnected(talk.now);
    assert!(!talk.session.has_messages(), "it is worth nothing on another stream");
}

#[test]
fn a_server_that_takes_what_is_sent_is_not_silent() {
    let mut talk = Talk::ready();
    talk.pass(TTL / 3);
    assert_eq!(talk.said(), ["keep alive"]);
    talk.pass(TTL / 5);
    talk.session.moved(talk.now);
    talk.pass(TTL / 5);
    assert!(talk.outputs().is_empty(), "it is slow, and there");
    talk.pass(TTL / 4 - TTL / 5);
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::Silent(_))]));
}

#[test]
fn a_lease_counts_from_before_its_last_answered_renewal_was_sent() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    let waiting = talk.acquire("b", Wait::Forever);
    talk.session.disconnected(talk.now);
    let queued = talk.acquire("c", Wait::Forever);
    let expires = talk.now + (TTL - lease_margin(TTL));
    assert_eq!(talk.session.next_deadline(), expires);
    // Attaching counts as a renewal only once it is answered.
    talk.pass(Duration::from_secs(5));
    talk.session.connected(talk.now);
    talk.session.disconnected(talk.now);
    assert_eq!(talk.session.next_deadline(), expires);
    talk.pass(TTL - lease_margin(TTL) - Duration::from_secs(5));
    let outputs = talk.outputs();
    assert!(outputs.iter().any(|output| matches!(output,
        Output::Lost { number, reason: LostReason::Expired } if *number == held)));
    assert!(outputs.iter().any(|output| matches!(output,
        Output::Acquired { number, outcome: Err(AcquireError::LeaseLost(LostReason::Expired)) }
            if *number == waiting)));
    assert_eq!(outputs.len(), 2);
    // A request that the server never received moves to the next lease.
    talk.said();
    talk.session.connected(talk.now);
    assert_eq!(talk.said(), ["hello", "open lease"]);
    talk.hear(Tag::OpenLease, opened(8));
    assert_eq!(talk.said(), [format!("acquire c key {queued} forever")]);
    assert!(matches!(
        talk.session.release(held),
        Releasing::Over(Err(ClientError::LeaseLost(LostReason::Expired)))
    ));
}

#[test]
fn a_lease_that_the_server_ended_is_lost_at_once() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    talk.hear_unasked(Answer::LeaseEnded(proto::LeaseEnded { lease: 999 }));
    assert_eq!(talk.session.lost(talk.now, held), None, "that is somebody else's");
    talk.hear_unasked(Answer::LeaseEnded(proto::LeaseEnded { lease: 7 }));
    assert_eq!(talk.session.lost(talk.now, held), Some(LostReason::LeaseEnded));
    assert!(talk.said().is_empty(), "the next one is opened when it is needed");
    talk.acquire("b", Wait::Forever);
    assert_eq!(talk.said(), ["open lease"]);
}

#[test]
fn a_lease_unknown_to_the_server_is_lost() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    talk.reconnect();
    talk.hear(Tag::AttachLease, refused(Reason::UnknownLease));
    assert!(matches!(talk.outputs()[..], [Output::Lost { number, .. }] if number == held));
}

#[test]
fn a_lease_that_ends_with_its_stream_is_lost_with_it() {
    let mut talk = Talk::new(1, OnDisconnect::Release);
    talk.session.connected(talk.now);
    talk.said();
    talk.hear(Tag::OpenLease, opened(7));
    talk.outputs();
    let held = talk.hold("a", 40);
    talk.session.disconnected(talk.now);
    assert_eq!(talk.session.lost(talk.now, held), Some(LostReason::Disconnected));
}

#[test]
fn one_lost_lock_leaves_the_others_alone() {
    let mut talk = Talk::ready();
    let (kept, lost) = (talk.hold("a", 40), talk.hold("b", 41));
    let request = Some(proto::RequestId { dc: 0, n: 41 });
    talk.hear_unasked(Answer::LockLost(proto::LockLost { lease: 7, request, force_released: None }));
    assert_eq!(talk.session.lost(talk.now, kept), None);
    assert_eq!(talk.session.lost(talk.now, lost), Some(LostReason::NotReclaimed));
}

#[test]
fn who_loses_a_lock_to_an_operator_knows_to_whom_and_why() {
    let mut talk = Talk::ready();
    let lost = talk.hold("a", 40);
    let taken = |n| {
        let force_released =
            Some(proto::ForceReleased { operator: "client ann".into(), reason: "it hangs".into() });
        Answer::LockLost(proto::LockLost {
            lease: 7,
            request: Some(proto::RequestId { dc: 0, n }),
            force_released,
        })
    };
    let reason = LostReason::ForceReleased { operator: "client ann".into(), reason: "it hangs".into() };
    talk.hear_unasked(taken(40));
    assert!(matches!(&talk.outputs()[..], [Output::Lost { number, reason: told }]
        if *number == lost && *told == reason));
    // The server repeats this at every reconnect, even for requests that the client no longer has.
    talk.hear_unasked(taken(40));
    talk.hear_unasked(taken(39));
    assert!(talk.outputs().is_empty());
    assert!(matches!(talk.session.release(lost),
        Releasing::Over(Err(ClientError::LeaseLost(told))) if told == reason));
    let again = talk.hold("a", 41);
    assert_eq!(talk.session.lost(talk.now, again), None, "the lease lives on");
}

#[test]
fn a_timed_acquire_ends_when_nobody_answers() {
    let mut talk = Talk::ready();
    let wait = Duration::from_millis(100);
    let asked = talk.acquire("a", Wait::AtMost(wait));
    talk.said();
    talk.session.disconnected(talk.now);
    let queued = talk.acquire("b", Wait::Try);
    assert_eq!(talk.session.next_deadline(), talk.now + CONNECT);
    talk.pass(wait + CONNECT);
    let outputs = talk.outputs();
    assert_eq!(outputs.len(), 2, "{outputs:?}");
    for output in outputs {
        assert!(matches!(output, Output::Acquired { outcome: Err(AcquireError::Unreachable), .. }));
    }
    // It may have been granted: it is cancelled as soon as there is a server.
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), [format!("cancel key {asked}")]);
    assert!(!talk.session.requests.contains_key(&queued));
}

#[test]
fn a_finished_key_means_that_a_refusal_was_lost() {
    let mut talk = Talk::ready();
    let tried = talk.acquire("a", Wait::Try);
    let timed = talk.acquire("b", Wait::AtMost(Duration::from_secs(1)));
    let patient = talk.acquire("c", Wait::Forever);
    talk.pass(Duration::from_secs(1));
    talk.said();
    talk.reattach(Restarted::No);
    talk.said();
    for number in [tried, timed, patient] {
        talk.hear(Tag::Acquire(number), refused(Reason::IdempotencyKeyFinished));
    }
    assert!(matches!(
        &talk.outputs()[..],
        [
            Output::Acquired { number: 1, outcome: Err(AcquireError::NotFree) },
            Output::Acquired { number: 2, outcome: Err(AcquireError::TimedOut { .. }) }
        ]
    ));
    let said = talk.said();
    assert_eq!(said.len(), 1);
    assert!(said[0].starts_with("acquire c key ") && said[0] != "acquire c key 3 forever", "{said:?}");
}

/// The access rules changed before the answer arrived: the server refuses the retry before it reads its key.
#[test]
fn an_acquire_that_was_granted_unseen_is_given_back_when_its_retry_is_refused() {
    for reason in [Reason::PermissionDenied, Reason::Unauthenticated] {
        let mut talk = Talk::ready();
        let asked = talk.acquire("a", Wait::Forever);
        talk.said();
        talk.reattach(Restarted::No);
        assert_eq!(talk.said(), ["acquire a key 1 forever"]);
        talk.hear(Tag::Acquire(asked), refused(reason));
        assert!(matches!(talk.outputs()[..],
            [Output::Acquired { outcome: Err(AcquireError::Refused(told, _)), .. }] if told == reason));
        assert_eq!(talk.said(), ["cancel key 1"]);
        // A client that is not authenticated cannot cancel either: the cancel is repeated on the next stream.
        talk.hear(Tag::Cancel(asked), refused(Reason::Unauthenticated));
        assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::NotAttached)]));
        talk.reattach(Restarted::No);
        assert_eq!(talk.said(), ["cancel key 1"]);
        talk.hear(Tag::Cancel(asked), refused(Reason::NotHeld));
        assert!(talk.session.requests.is_empty() && talk.outputs().is_empty());
        // A request that was sent only once was not executed.
        let once = talk.acquire("b", Wait::Forever);
        talk.said();
        talk.hear(Tag::Acquire(once), refused(reason));
        assert!(matches!(talk.outputs()[..], [Output::Acquired { outcome: Err(_), .. }]));
        assert!(talk.said().is_empty() && talk.session.requests.is_empty());
    }
}

#[test]
fn a_release_by_somebody_who_is_not_known_for_a_moment_is_sent_again() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    talk.session.release(held);
    let release = talk.said();
    talk.hear(Tag::Release(held), refused(Reason::Unauthenticated));
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::NotAttached)]));
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), release);
}

#[test]
fn a_lease_that_ends_with_its_stream_stays_at_a_draining_server() {
    let mut talk = Talk::new(2, OnDisconnect::Release);
    talk.session.connected(talk.now);
    talk.hear(Tag::OpenLease, opened(7));
    talk.outputs();
    talk.said();
    let held = talk.hold("a", 40);
    talk.hear_unasked(Answer::Draining(proto::Draining { drain_timeout_ms: 1 }));
    assert!(talk.outputs().is_empty());
    assert_eq!(talk.session.lost(talk.now, held), None);
    // Now there is nothing to lose.
    talk.session.release(held);
    talk.hear(Tag::Release(held), Answer::Released(proto::ReleaseResponse {}));
    talk.outputs();
    let next = talk.acquire("b", Wait::Forever);
    talk.hear(Tag::Acquire(next), refused(Reason::Draining));
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::Draining)]));
}

#[test]
fn who_did_not_run_for_longer_than_a_lease_lives_knows_that_it_has_ended() {
    for (slept, wanted) in [(TTL - TTL / 20, LostReason::Expired), (2 * TTL, LostReason::LeaseEnded)] {
        let mut talk = Talk::ready();
        let held = talk.hold("a", 40);
        talk.pass(slept);
        assert_eq!(talk.session.lost(talk.now, held), Some(wanted));
    }
}

#[test]
fn a_lock_in_doubt_that_may_not_be_asked_after_is_lost_and_given_back() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    talk.reattach(Restarted::Yes);
    talk.said();
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["acquire a key 1 try"]);
    talk.hear(Tag::Acquire(held), refused(Reason::PermissionDenied));
    assert!(matches!(talk.outputs()[..], [Output::Lost { number, .. }] if number == held));
    assert_eq!(talk.said(), ["cancel key 1"]);
}

#[test]
fn a_draining_server_is_left_while_there_is_another_endpoint() {
    let mut talk = Talk::ready();
    talk.acquire("a", Wait::Forever);
    talk.said();
    talk.hear_unasked(Answer::Draining(proto::Draining { drain_timeout_ms: 1 }));
    talk.hear(Tag::Acquire(1), refused(Reason::Draining));
    assert!(matches!(talk.outputs()[..], [Output::Reconnect(Why::Draining)]));
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["acquire a key 1 forever"]);
    // That server drains too: there is no further endpoint.
    talk.hear(Tag::Acquire(1), refused(Reason::Draining));
    assert!(matches!(talk.outputs()[..], [Output::Acquired { outcome: Err(AcquireError::Draining), .. }]));
}

#[test]
fn answers_that_fit_nothing_change_nothing() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    let answers = [granted(1), reclaimed(&[]), opened(9), released(), kept_alive(), refused(Reason::NotHeld)];
    for tag in
        [Tag::Hello, Tag::OpenLease, Tag::AttachLease, Tag::Reclaim(5), Tag::Acquire(99), Tag::Cancel(held)]
    {
        for answer in &answers {
            talk.hear(tag, answer.clone());
        }
    }
    talk.hear_unasked(granted(3));
    talk.session.on_message(talk.now, ServerMessage { tag: 1 << 40, answer: None });
    assert!(talk.outputs().is_empty());
    assert_eq!(talk.session.lost(talk.now, held), None);
}
