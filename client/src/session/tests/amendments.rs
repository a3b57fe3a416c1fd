//! Amendments as transcripts. The server has the list before an amendment, or the one with it.

use super::enough::{calls, granted, name, request};
use super::talk::{Restarted, Talk, reclaimed, refused};
use crate::error::AmendError;
use crate::request::candidate;
use crate::session::{Output, Session};
use crate::tag::Tag;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason};

/// Amends the list `a b c` to `a c d`.
fn amend(session: &mut Session, number: u64) -> Result<(), AmendError> {
    session.amend(number, vec![candidate(&name("d"), 1)], vec![candidate(&name("b"), 1)])
}

fn amended() -> Answer {
    Answer::Amended(proto::AmendResponse {})
}

/// Returns the names of the locks of a grant.
fn got(talk: &mut Talk) -> String {
    let outputs = talk.outputs();
    let [Output::Acquired { outcome: Ok(grant), .. }] = &outputs[..] else { panic!("{outputs:?}") };
    grant.chosen_locks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn waiting() -> (Talk, u64) {
    let mut talk = Talk::ready();
    let number = talk.session.acquire(talk.now, request()).expect("the session runs");
    assert_eq!(talk.said(), ["acquire enough key 1 forever"]);
    (talk, number)
}

#[test]
fn a_grant_is_one_of_the_list_that_it_names() {
    for (revision, names) in [(0, "a b"), (1, "a c")] {
        let (mut talk, number) = waiting();
        amend(&mut talk.session, number).expect("it waits");
        assert_eq!(talk.said(), ["amendment 1 of key 1"]);
        assert!(matches!(amend(&mut talk.session, number), Err(AmendError::NotWaiting)), "one at a time");
        talk.hear(Tag::Acquire(number), granted(&[0, 1], revision));
        assert_eq!(got(&mut talk), names);
        assert!(matches!(amend(&mut talk.session, number), Err(AmendError::NotWaiting)), "it is granted");
        talk.hear(Tag::Amend(number), amended());
        assert!(talk.outputs().is_empty() && talk.said().is_empty());
    }
    let (mut talk, number) = waiting();
    talk.hear(Tag::Acquire(number), granted(&[0, 1], 1));
    assert!(
        matches!(talk.outputs()[..], [Output::Acquired { outcome: Err(_), .. }]),
        "there is no such list"
    );
}

#[test]
fn the_next_acquire_has_the_list_that_was_acknowledged_and_the_rest_follows() {
    let (mut talk, number) = waiting();
    amend(&mut talk.session, number).expect("it waits");
    talk.hear(Tag::Amend(number), amended());
    let outputs = talk.outputs();
    assert!(matches!(outputs[..], [Output::Amended { outcome: Ok(()), .. }]), "{outputs:?}");
    talk.said();
    talk.session.amend(number, vec![candidate(&name("e"), 1)], vec![]).expect("it waits");
    talk.reattach(Restarted::Yes);
    talk.said();
    talk.hear(Tag::Reclaim(0), reclaimed(&[]));
    let sent = calls(&mut talk.session);
    let [Call::Acquire(acquire), Call::Amend(amend)] = &sent[..] else { panic!("{sent:?}") };
    let enough = acquire.enough.as_ref().expect("it is for enough");
    let names: Vec<&[u8]> = enough.candidates.iter().map(|candidate| &candidate.name[..]).collect();
    assert_eq!((names, enough.revision), (vec![&b"a"[..], b"c", b"d"], 1));
    assert_eq!((amend.revision, &amend.add[0].name[..], amend.drop.len()), (2, &b"e"[..], 0));
    talk.hear(Tag::Acquire(number), granted(&[2, 3], 2));
    assert_eq!(got(&mut talk), "d e");
}

#[test]
fn a_request_that_was_never_sent_is_amended_after_it() {
    let mut talk = Talk::ready();
    talk.session.disconnected(talk.now);
    let number = talk.session.acquire(talk.now, request()).expect("the session runs");
    amend(&mut talk.session, number).expect("it waits");
    assert!(talk.said().is_empty());
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["acquire enough key 1 forever", "amendment 1 of key 1"]);
}

/// The rules were changed since it was sent first, and the server may have taken it then.
#[test]
fn a_repeated_amendment_that_is_refused_by_the_rules_may_have_been_taken() {
    for (resends, revision, is_granted) in [(false, 1, false), (true, 1, true), (true, 0, true)] {
        let (mut talk, number) = waiting();
        amend(&mut talk.session, number).expect("it waits");
        if resends {
            talk.reattach(Restarted::No);
        }
        talk.hear(Tag::Amend(number), refused(Reason::PermissionDenied));
        let outputs = talk.outputs();
        assert!(matches!(outputs[..], [Output::Amended { outcome: Err(AmendError::Refused(..)), .. }]));
        talk.hear(Tag::Acquire(number), granted(&[0, 1], revision));
        let outputs = talk.outputs();
        let [Output::Acquired { outcome, .. }] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(outcome.is_ok(), is_granted, "a list that the server cannot know is not believed");
    }
}

#[test]
fn after_a_refusal_the_list_of_before_counts() {
    let (mut talk, number) = waiting();
    amend(&mut talk.session, number).expect("it waits");
    talk.hear(Tag::Amend(number), refused(Reason::NotEnough));
    let outputs = talk.outputs();
    let [Output::Amended { outcome: Err(AmendError::Refused(Reason::NotEnough, _)), .. }] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    talk.said();
    amend(&mut talk.session, number).expect("it waits");
    assert_eq!(talk.said(), ["amendment 1 of key 1"], "its number was not used");
    // An earlier copy may have been taken, and the grant is under way.
    talk.hear(Tag::Amend(number), refused(Reason::NotWaiting));
    let outputs = talk.outputs();
    assert!(matches!(outputs[..], [Output::Amended { outcome: Err(AmendError::NotWaiting), .. }]));
    talk.hear(Tag::Acquire(number), granted(&[1, 2], 1));
    assert_eq!(got(&mut talk), "c d");
}
