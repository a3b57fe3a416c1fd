//! Requests for enough of many locks as transcripts.

use super::talk::{Restarted, Talk};
use crate::error::AcquireError;
use crate::request::AcquireRequest;
use crate::session::{Output, Session};
use crate::tag::Tag;
use geolock_api::names::LockName;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason};

pub(super) fn name(name: &str) -> LockName {
    LockName::try_from(name).expect("a test name is valid")
}

pub(super) fn request() -> AcquireRequest {
    AcquireRequest::enough(2)
        .most(2)
        .candidate(&name("a"), 1)
        .candidate(&name("b"), 1)
        .candidate(&name("c"), 1)
}

pub(super) fn granted(chosen: &[u32], revision: u64) -> Answer {
    let (request, chosen) = (Some(proto::RequestId { dc: 0, n: 40 }), chosen.to_vec());
    Answer::Acquired(proto::AcquireResponse { request, token: 40, snapshot: None, chosen, revision })
}

pub(super) fn calls(session: &mut Session) -> Vec<Call> {
    let mut messages = std::collections::VecDeque::new();
    session.take_messages(&mut messages);
    messages.into_iter().filter_map(|message| message.call).collect()
}

fn names(locks: &[proto::LockMode]) -> Vec<(&[u8], proto::Mode)> {
    locks.iter().map(|lock| (&lock.name[..], lock.mode())).collect()
}

#[test]
fn what_it_got_is_what_it_reclaims() {
    let mut talk = Talk::ready();
    let number = talk.session.acquire(talk.now, request()).expect("the session runs");
    let sent = calls(&mut talk.session);
    let [Call::Acquire(sent)] = &sent[..] else { panic!("{sent:?}") };
    let enough = sent.enough.as_ref().expect("it is for enough");
    assert_eq!((sent.locks.len(), enough.amount, enough.most, enough.candidates.len()), (0, 2, 2, 3));
    talk.reattach(Restarted::Yes);
    talk.said();
    talk.hear(Tag::Reclaim(0), super::talk::reclaimed(&[]));
    let again = calls(&mut talk.session);
    let [Call::Acquire(again)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(again.enough.as_ref(), Some(enough), "the server has forgotten it");

    talk.hear(Tag::Acquire(number), granted(&[0, 2], 0));
    let outputs = talk.outputs();
    let [Output::Acquired { outcome: Ok(grant), .. }] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(grant.chosen, [0, 2]);
    talk.session.disconnected(talk.now);
    talk.session.connected(talk.now);
    talk.said();
    let attached = proto::AttachLeaseResponse { ttl_ms: 9000, reclaim: true };
    talk.hear(Tag::AttachLease, Answer::LeaseAttached(attached));
    let sent = calls(&mut talk.session);
    let [Call::Reclaim(reclaim)] = &sent[..] else { panic!("{sent:?}") };
    let exclusive = proto::Mode::Exclusive;
    assert_eq!(names(&reclaim.held[0].locks), [(&b"a"[..], exclusive), (&b"c"[..], exclusive)]);
}

#[test]
fn a_grant_of_what_is_no_candidate_is_given_back() {
    for chosen in [&[][..], &[0, 3]] {
        let mut talk = Talk::ready();
        let number = talk.session.acquire(talk.now, request()).expect("the session runs");
        talk.said();
        talk.hear(Tag::Acquire(number), granted(chosen, 0));
        let outputs = talk.outputs();
        assert!(
            matches!(
                outputs[..],
                [Output::Acquired { outcome: Err(AcquireError::Refused(Reason::Malformed, _)), .. }]
            ),
            "{outputs:?}"
        );
        assert_eq!(talk.said(), ["cancel key 1"]);
    }
}

#[test]
fn other_locks_beside_the_candidates_are_refused() {
    let both = request().and(name("d"), geolock_api::names::Mode::Shared);
    assert!(matches!(both.check(), Err(AcquireError::Refused(Reason::Malformed, _))));
    let many =
        (0..10_001).fold(AcquireRequest::enough(1), |request, n| request.candidate(&name(&n.to_string()), 1));
    assert!(matches!(many.check(), Err(AcquireError::Refused(Reason::TooManyLocks, _))));
    assert!(request().check().is_ok());
}
