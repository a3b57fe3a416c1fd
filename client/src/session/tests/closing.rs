//! How a session ends when its client is closed.

use super::talk::{CONNECT, Talk};
use crate::error::{AcquireError, LostReason};
use crate::request::Wait;
use crate::session::{Ending, Output};
use crate::tag::Tag;
use geolock_api::proto;
use geolock_api::proto::server_message::Answer;

#[test]
fn closing_tells_everybody_and_waits_for_the_server() {
    let mut talk = Talk::ready();
    talk.hold("a", 40);
    talk.acquire("b", Wait::Forever);
    talk.said();
    talk.session.close(talk.now);
    assert_eq!(talk.said(), ["close lease"]);
    assert!(matches!(
        talk.outputs()[..],
        [
            Output::Lost { reason: LostReason::Closed, .. },
            Output::Acquired { outcome: Err(AcquireError::Closed), .. }
        ]
    ));
    assert_eq!(talk.session.ending(), None);
    talk.hear(Tag::CloseLease, Answer::LeaseClosed(proto::CloseLeaseResponse {}));
    assert_eq!(talk.session.ending(), Some(Ending::Confirmed));
}

#[test]
fn closing_does_not_wait_for_ever() {
    let mut talk = Talk::ready();
    talk.session.close(talk.now);
    assert_eq!(talk.session.next_deadline(), talk.now + CONNECT);
    talk.pass(CONNECT);
    assert_eq!(talk.session.ending(), Some(Ending::NotConfirmed));
    let mut talk = Talk::ready();
    talk.session.disconnected(talk.now);
    talk.session.close(talk.now);
    assert_eq!(talk.session.ending(), Some(Ending::NotConfirmed));
}
