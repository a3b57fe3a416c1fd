//! Stories about timers that fire late: their consequences are in the log before the event of the same step
//! can see them.

use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use crate::lock_state::HoldRule;
use crate::replica::call::{Refusal, Wait};
use crate::replica::{Event, LocalConfig, Message};
use geolock_api::names::{Mode, Position};

#[test]
fn a_checkpoint_that_comes_before_the_timer_is_that_of_its_position() {
    let rule = HoldRule { idle_return_after: Duration::from_secs(60), ..HoldRule::default() };
    let mut c = Cluster::with_options(3, LocalConfig { hold: vec![rule], ..LocalConfig::default() });
    c.use_lock(2, "a");
    c.pass(55_000);
    let idle_returns = |c: &Cluster| c.inspect(2).counts().idle_returns_age > 0;
    assert!(!idle_returns(&c));
    for _ in 0..30 {
        // A heartbeat is due, and with it the idle return of the lock.
        c.now += 500;
        c.handle(2, Event::Checkpoint);
        let checkpoint = c.nodes[2].checkpoint.take().expect("few keys are one step");
        c.run();
        if idle_returns(&c) {
            c.restart_from(2, checkpoint);
            assert_eq!(c.inspect(2).owner_of(&name("a"), dc(0)), dc(0));
            return;
        }
        (0..3).for_each(|id| c.handle(id, Event::Tick));
        c.run();
    }
    panic!("it never goes home");
}

#[test]
fn a_timeout_comes_in_time_although_the_others_do_not_answer() {
    let mut c = Cluster::new(3, 0, 0);
    let holder = c.lock(1, "a");
    c.run();
    c.granted(1, holder);
    c.late = |message| matches!(message, Message::AskHolders { .. });
    let tag = c.acquire(0, &[("a", Mode::Exclusive)], Wait::AtMost(Duration::from_millis(400)));
    c.run();
    c.pass(399);
    assert!(!c.is_answered(0, tag));
    c.pass(1);
    let Refusal::TimedOut(locks) = c.refused(0, tag) else { panic!("it timed out") };
    assert_eq!(locks[0].unknown, [dc(1)].into_iter().collect());
}

/// A clock reading in a heartbeat must be reserved on disk first. A disk that takes seconds for that must not
/// make its datacenter unreachable, as long as `peer_timeout` is longer.
#[test]
fn a_datacenter_whose_disk_is_slow_is_heard() {
    let mut c = Cluster::new(3, 0, 0);
    c.nodes[0].disk_is_stuck = true;
    for round in 0..10 {
        // A sync of 2 s makes durable what was recorded when it began.
        let position = Position(c.nodes[0].records.len() as u64);
        c.pass(2_000);
        c.handle(0, Event::Durable { position });
        c.run();
        for id in 1..3_u8 {
            let peers = c.inspect(usize::from(id)).status().peers;
            assert!(peers.iter().all(|peer| peer.reachable), "dc{id} in round {round}: {peers:?}");
        }
    }
}
