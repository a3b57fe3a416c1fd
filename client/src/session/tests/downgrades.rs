//! Downgrades as transcripts.

use super::talk::{Restarted, Talk, reclaimed, refused};
use crate::error::{ClientError, LostReason};
use crate::session::{Downgrading, Output};
use crate::tag::Tag;
use geolock_api::names::LockName;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason};

impl Talk {
    fn downgrade(&mut self, number: u64, lock: &str) -> Downgrading {
        self.session.downgrade(number, &LockName::try_from(lock).expect("a test name is valid"))
    }

    fn begins(&mut self, number: u64, lock: &str) -> u64 {
        match self.downgrade(number, lock) {
            Downgrading::OnItsWay(downgrade) => downgrade,
            other => panic!("{other:?}"),
        }
    }
}

fn downgraded() -> Answer {
    Answer::Downgraded(proto::DowngradeResponse {})
}

#[test]
fn a_downgrade_is_sent_once_and_its_repetition_is_done_at_once() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    let downgrade = talk.begins(held, "a");
    assert_eq!(talk.said(), ["downgrade a key 1"]);
    assert!(matches!(talk.downgrade(held, "a"), Downgrading::Over(Ok(()))));
    let wrong = talk.downgrade(held, "b");
    assert!(
        matches!(wrong, Downgrading::Over(Err(ClientError::Refused(Reason::NotOfRequest, _)))),
        "{wrong:?}"
    );
    talk.hear(Tag::Downgrade(downgrade), downgraded());
    assert!(
        matches!(talk.outputs()[..], [Output::Downgraded { number, outcome: Ok(()) }] if number == downgrade)
    );
    talk.hear(Tag::Downgrade(downgrade), downgraded());
    assert!(talk.said().is_empty() && talk.outputs().is_empty());
    assert_eq!(talk.session.lost(talk.now, held), None);
}

/// The server may have handled it, and let readers in.
#[test]
fn a_downgrade_without_an_answer_is_sent_again_and_reclaimed_as_shared() {
    let mut talk = Talk::ready();
    let held = talk.hold("a", 40);
    talk.session.disconnected(talk.now);
    let downgrade = talk.begins(held, "a");
    assert!(talk.said().is_empty());
    talk.reattach(Restarted::No);
    assert_eq!(talk.said(), ["downgrade a key 1"]);
    talk.reattach(Restarted::Yes);
    let modes: Vec<proto::Mode> =
        talk.session.requests[&held].locks.iter().map(proto::LockMode::mode).collect();
    assert_eq!(modes, [proto::Mode::Shared]);
    assert_eq!(talk.said(), ["reclaim keys [1]"]);
    talk.hear(Tag::Reclaim(0), reclaimed(&[40]));
    assert_eq!(talk.said(), ["downgrade a key 1"], "after the reclaim");
    talk.hear(Tag::Downgrade(downgrade), downgraded());
    assert!(matches!(talk.outputs()[..], [Output::Downgraded { outcome: Ok(()), .. }]));
}

#[test]
fn a_downgrade_of_what_is_lost_says_so() {
    let mut talk = Talk::ready();
    let (held, other) = (talk.hold("a", 40), talk.hold("b", 41));
    let downgrade = talk.begins(held, "a");
    talk.reattach(Restarted::Yes);
    talk.said();
    talk.hear(Tag::Reclaim(0), reclaimed(&[41]));
    let outputs = talk.outputs();
    let [Output::Downgraded { number, outcome: Err(ClientError::LeaseLost(why)) }, Output::Lost { .. }] =
        &outputs[..]
    else {
        panic!("{outputs:?}")
    };
    assert_eq!((*number, why), (downgrade, &LostReason::NotReclaimed));
    assert!(talk.said().is_empty(), "there is nothing to downgrade");
    let late = talk.downgrade(held, "a");
    assert!(matches!(late, Downgrading::Over(Err(ClientError::LeaseLost(LostReason::NotReclaimed)))));

    let downgrade = talk.begins(other, "b");
    assert_eq!(talk.said(), ["downgrade b key 2"]);
    talk.hear(Tag::Downgrade(downgrade), refused(Reason::NotHeld));
    let outputs = talk.outputs();
    assert!(
        matches!(
            outputs[..],
            [Output::Downgraded { outcome: Err(ClientError::Refused(Reason::NotHeld, _)), .. }]
        ),
        "{outputs:?}"
    );
    let _ = talk.session.release(other);
    let late = talk.downgrade(other, "b");
    assert!(matches!(late, Downgrading::Over(Err(ClientError::LeaseLost(LostReason::Released)))));
}
