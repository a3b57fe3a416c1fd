//! Stories about a new member, from its state until it serves.

use std::time::Duration;

use super::cluster::dc;
use super::evicting::Story;
use super::returned::replace_dc2;
use crate::base::bugs::Bug;
use crate::membership::{AttemptId, Command, Evictee, Eviction, Generation, Voter, Vouch};
use crate::replica::call::Reply;

/// The others evict a member, which they do not hear.
fn evict(s: &mut Story, lost: u8) {
    s.c.isolate(lost);
    s.up.retain(|id| *id != lost);
    let generation = |s: &Story, id| s.config.slots().generation(dc(id)).expect("it is a member");
    let of_lost = Evictee { dc: dc(lost), generation: generation(s, lost), last_heard: Default::default() };
    s.decide(Command::Begin(Eviction { members: vec![of_lost], vouch: Vouch::Operator, recut: None }));
    let attempt = AttemptId(s.config.index().0);
    for id in s.up.clone() {
        let by = Voter::Member { dc: dc(id), generation: generation(s, id) };
        let vector = s.vector(id);
        s.decide(Command::Have { attempt, by, vector });
    }
    s.decide(Command::End { attempt });
    s.c.run();
}

/// Of dc0 to dc3, a new server joins in the place of dc2, with dc0 as its sponsor, and proposes that it is
/// settled. That is not decided.
fn joins(bug: Option<Bug>) -> Story {
    let mut s = Story::new(4, bug);
    evict(&mut s, 2);
    s.c.pass(2_000);
    replace_dc2(&mut s.c);
    s.admit(dc(2), Generation(1));
    s.c.link_again(2);
    s.c.pass(10_000);
    assert!(s.c.proposed.iter().any(|it| it.command == settled()), "it has its state, and all are done");
    assert!(!s.serves(2));
    s
}

fn settled() -> Command {
    Command::Settled { dc: dc(2), generation: Generation(1) }
}

/// Returns true if an exclusive lock that nobody has used is granted in a datacenter.
fn grants(s: &mut Story, id: u8, lock: &str) -> bool {
    s.c.open_lease(id, Duration::from_secs(10));
    let tag = s.c.lock(id, lock);
    s.c.run();
    s.c.pass(5_000);
    match s.c.reply(id, tag) {
        None => false,
        Some(Reply::Granted(_)) => true,
        other => panic!("dc{id} has answered {other:?}"),
    }
}

/// The new server is lost. Returns true if the others grant locks that nobody has used.
fn go_on_without_the_new_one(bug: Option<Bug>) -> bool {
    let mut s = joins(bug);
    s.c.isolate(2);
    s.c.pass(5_000);
    let granted = [0, 1, 3].map(|id| grants(&mut s, id, &format!("fresh-{id}")));
    s.c.assert_no_violations();
    assert_eq!(granted, [granted[0]; 3], "all need the same parts");
    granted[0]
}

#[test]
fn a_new_server_that_is_lost_before_it_is_settled_is_not_needed() {
    assert!(go_on_without_the_new_one(None));
    assert!(!go_on_without_the_new_one(Some(Bug::SplitsUnsettled)), "its part was split off");
}

#[test]
fn a_new_server_serves_once_it_is_settled_and_its_part_is_split_off() {
    let mut s = joins(None);
    // The sponsor learns it last.
    s.c.isolate(0);
    s.up = vec![1, 2, 3];
    s.decide(settled());
    s.c.pass(1_000);
    assert!(!s.serves(2), "its part goes along with that of dc0");
    s.c.link_again(0);
    s.c.pass(5_000);
    assert!(s.serves(2));
    for id in 0..4 {
        assert!(grants(&mut s, id, &format!("fresh-{id}")), "dc{id}");
    }
    s.c.assert_no_violations();
}

/// The sponsor is lost after that is decided, and has not split the part off. Returns true if the others have
/// entered its end.
fn go_on_without_the_sponsor(bug: Option<Bug>) -> bool {
    let mut s = joins(bug);
    s.c.isolate(0);
    s.up = vec![1, 2, 3];
    s.decide(settled());
    s.c.pass(1_000);
    evict(&mut s, 0);
    s.c.pass(5_000);
    let entered = s.has_entered(1);
    assert_eq!(entered, s.has_entered(3), "they have the same entries");
    if entered {
        assert!(s.has_entered(2) && s.serves(2));
        for id in 1..4 {
            assert!(grants(&mut s, id, &format!("fresh-{id}")), "dc{id}");
        }
        s.c.assert_no_violations();
    }
    entered
}

#[test]
fn the_part_of_a_settled_member_is_its_own_when_its_sponsor_is_over() {
    assert!(go_on_without_the_sponsor(None));
    assert!(!go_on_without_the_sponsor(Some(Bug::OrphansAwaited)));
}
