//! Reclaims that are sent in several messages.

use super::talk::{Restarted, Talk, reclaimed, refused};
use crate::tag::Tag;
use geolock_api::proto::Reason;

#[test]
fn a_large_reclaim_goes_out_in_pieces_that_count_as_one() {
    let mut talk = Talk::ready();
    let name = |n: u64| format!("{n:->1000}");
    let numbers: Vec<u64> = (1..=1000).map(|n| talk.hold(&name(n), n)).collect();
    talk.reattach(Restarted::Yes);
    let said = talk.said();
    assert!((2..10).contains(&said.len()), "a megabyte in pieces");
    let (last, others) = said.split_last().expect("there are some");
    assert!(others.iter().all(|piece| piece.ends_with("and more")) && !last.ends_with("more"));
    for piece in 0..others.len() as u64 {
        talk.hear(Tag::Reclaim(piece), reclaimed(&[]));
        assert!(!talk.session.is_ready());
    }
    talk.hear(Tag::Reclaim(others.len() as u64), reclaimed(&(1..=1000).collect::<Vec<_>>()));
    assert!(talk.session.is_ready() && talk.outputs().is_empty());
    assert!(numbers.iter().all(|number| talk.session.lost(talk.now, *number).is_none()));
}

/// The server answers the last piece when the others may still wait to be answered.
#[test]
fn the_answer_to_the_last_piece_of_a_reclaim_may_come_first() {
    for is_refused in [false, true] {
        let mut talk = Talk::ready();
        let name = |n: u64| format!("{n:->1000}");
        let numbers: Vec<u64> = (1..=1000).map(|n| talk.hold(&name(n), n)).collect();
        talk.reattach(Restarted::Yes);
        let last = talk.said().len() as u64 - 1;
        let answer = match is_refused {
            false => reclaimed(&(1..=1000).collect::<Vec<_>>()),
            true => refused(Reason::NoReclaimExpected),
        };
        talk.hear(Tag::Reclaim(last), answer);
        for piece in 0..last {
            assert!(!talk.session.is_ready());
            talk.hear(Tag::Reclaim(piece), reclaimed(&[]));
        }
        assert!(talk.session.is_ready() && talk.outputs().is_empty());
        assert!(numbers.iter().all(|number| talk.session.lost(talk.now, *number).is_none()));
        // A reclaim that is refused was perhaps received before: the server is asked for each request.
        assert_eq!(talk.said().len(), if is_refused { numbers.len() } else { 0 });
    }
}
