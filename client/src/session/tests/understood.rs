//! Servers of earlier releases, which drop fields that they do not know.

use super::talk::{Restarted, Talk};
use crate::error::AcquireError;
use crate::request::{AcquireRequest, Wait};
use crate::session::Output;
use geolock_api::names::{DcId, LockName};
use geolock_api::proto::{Feature, Reason};

#[test]
fn a_lock_with_a_home_is_not_asked_of_a_server_that_would_take_the_plain_lock() {
    let homed = LockName::homed(DcId::new(2).expect("it is an id"), b"a").expect("a valid name");
    let request = || AcquireRequest::exclusive(homed.clone());
    let mut talk = Talk::ready();
    talk.welcome(&[]);
    let number = talk.session.acquire(talk.now, request()).expect("the session runs");
    assert!(talk.said().is_empty(), "nothing is sent");
    match &talk.outputs()[..] {
        [Output::Acquired { number: told, outcome: Err(AcquireError::Refused(Reason::NotYet, why)) }] => {
            assert_eq!((*told, why.contains("upgrade it")), (number, true));
        }
        other => panic!("{other:?}"),
    }
    talk.acquire("a", Wait::Forever);
    assert_eq!(talk.said(), ["acquire a key 2 forever"], "the plain lock is another one");
    talk.outputs();

    // Of a server that understands it, it is asked; and not once more of an older one that answers next.
    talk.welcome(&[Feature::Home]);
    let number = talk.session.acquire(talk.now, request()).expect("the session runs");
    assert_eq!(talk.said(), ["acquire a key 3 forever"]);
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["acquire a key 2 forever", "cancel key 3"]);
    let outputs = talk.outputs();
    let is_told = |output: &Output| {
        matches!(output, Output::Acquired { number: told, outcome: Err(AcquireError::Refused(Reason::NotYet, _)) }
            if *told == number)
    };
    assert!(outputs.iter().any(is_told), "{outputs:?}");
}
