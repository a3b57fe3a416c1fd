//! Stories about an eviction that waits for the disk of a member that remains.

use std::time::Duration;

use super::cluster::dc;
use super::evicting::Story;
use crate::membership::{Command, Voter};

/// A crash would take the promise back, and with it what the report says of the lost one.
#[test]
fn a_member_reports_when_its_promise_is_on_disk() {
    let mut s = Story::new(3, None);
    s.lose_dc2();
    let has_reported = |s: &Story| {
        let of = |by: &Voter| by.dc() == Some(dc(1));
        s.c.proposed.iter().any(|it| matches!(&it.command, Command::Have { by, .. } if of(by)))
    };
    // Nobody hears dc2 any more.
    s.c.pass(4_000);
    s.c.nodes[1].disk_is_stuck = true;
    s.begin();
    s.c.pass(2_000);
    assert!(!has_reported(&s));
    s.c.nodes[1].disk_is_stuck = false;
    s.c.sync(1);
    s.c.pass(2_000);
    assert!(has_reported(&s));
}

/// A crash would take the end back, and the parts of the ended would be its own again.
#[test]
fn a_grant_that_rests_on_an_end_is_answered_when_that_is_on_disk() {
    let mut s = Story::new(3, None);
    s.c.use_lock(2, "moved");
    s.c.run();
    s.c.isolate(2);
    s.up.retain(|id| *id != 2);
    s.c.open_lease(1, Duration::from_secs(10));
    let attempt = s.begin();
    let reports = [(0, s.vector(0)), (1, s.vector(1))];
    s.c.nodes[1].disk_is_stuck = true;
    s.end(attempt, &reports);
    s.c.run();
    assert!(s.has_entered(1));
    let moved = s.c.share(1, "moved");
    s.c.run();
    assert!(!s.c.is_answered(1, moved));
    s.c.nodes[1].disk_is_stuck = false;
    s.c.sync(1);
    s.c.run();
    s.c.granted(1, moved);
}
