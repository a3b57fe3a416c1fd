//! Stories about wrong clocks, and clocks that were mended.

use super::cluster::{Cluster, dc};
use super::store_cluster::{add, step};
use crate::replica::Event;
use crate::replica::call::{Call, Phase, Reply, Status};
use crate::replica::store_call::Then;

fn status(c: &mut Cluster, id: u8) -> Status {
    let tag = c.call(id, Call::Status);
    match c.reply(id, tag) {
        Some(Reply::Status(status)) => *status,
        other => panic!("a status was expected, this is {other:?}"),
    }
}

/// A cluster in which dc0's clock is a minute ahead; the others know it, and so does dc0.
fn a_minute_ahead() -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    c.ahead.insert(0, 60_000);
    c.restart(0);
    // No member can be heard, so none contradicts it.
    c.pass(5_000);
    c.link_again(0);
    c.pass(5_000);
    assert!(status(&mut c, 0).clock_skew);
    c.ahead.clear();
    c
}

#[test]
fn a_mended_clock_makes_no_entries_before_time_has_caught_up_with_its_stamps() {
    let mut c = a_minute_ahead();
    c.restart(0);
    c.link_again(0);
    c.pass(5_000);
    assert!(status(&mut c, 0).clock_skew, "what it stamps is a minute ahead all the same");
    c.pass(60_000);
    assert!(!status(&mut c, 0).clock_skew);
}

/// Others hold back entries that are stamped more than `max_clock_skew` (5 s) ahead.
#[test]
fn a_clock_that_was_ahead_by_little_makes_no_entry_that_others_hold_back_either() {
    let mut c = Cluster::new(3, 0, 0);
    c.ahead.insert(0, 9_000);
    c.restart(0);
    c.pass(5_000);
    c.link_again(0);
    c.pass(2_000);
    c.ahead.clear();
    c.restart(0);
    c.link_again(0);
    let asked = c.lock(1, "a");
    let mut was_skewed = false;
    for _ in 0..100 {
        c.pass(100);
        was_skewed |= status(&mut c, 0).clock_skew;
        for id in 1..3 {
            let paused = status(&mut c, id).peers.iter().any(|peer| peer.paused_by_skew);
            assert!(!paused, "dc{id} waits for its clock");
        }
    }
    assert!(was_skewed && !status(&mut c, 0).clock_skew);
    assert!(c.is_answered(1, asked), "with the part of dc0");
}

#[test]
fn who_starts_anew_with_a_mended_clock_is_heard_of_soon() {
    let mut c = a_minute_ahead();
    c.crash(0, 0);
    c.link_again(0);
    c.pass(10_000);
    for id in 1..3 {
        let peers = status(&mut c, id).peers;
        assert!(peers.iter().any(|peer| peer.dc == dc(0) && peer.reachable), "dc{id} sees {peers:?}");
    }
}

#[test]
fn a_link_that_waits_for_a_clock_brings_so_much_and_the_rest_later() {
    let mut c = Cluster::new(3, 0, 0);
    // Most clocks are ahead of dc0, so these servers continue.
    for id in 1..3 {
        c.ahead.insert(id, 20_000);
        c.restart(id);
    }
    c.pass(5_000);
    [(0, 1), (0, 2), (1, 2)].into_iter().for_each(|(a, b)| c.link(a, b));
    c.pass(5_000);
    c.open_lease(1, std::time::Duration::from_secs(60));
    for key in 1..=400 {
        c.begin(1, key, None, step(vec![add("n", 1)], &[], Then::Commit));
        c.run();
    }
    let held_back = c.nodes[0].replica.counts().held_back;
    assert!((200..300).contains(&held_back), "{held_back} entries wait");
    assert!(c.nodes[0].violations.is_empty(), "{:?}", c.nodes[0].violations);
    c.pass(30_000);
    assert_eq!(c.nodes[0].replica.applied(), c.nodes[1].replica.applied());
    assert!(c.nodes[0].violations.is_empty());
}

#[test]
fn a_restart_with_a_clock_that_all_others_contradict_costs_no_more_than_the_time_until_it_is_right() {
    let mut c = Cluster::new(3, 0, 0);
    for key in 1..=3 {
        c.begin(0, key, None, step(vec![add("n", 1)], &[], Then::Commit));
        c.run();
    }
    c.ahead.insert(0, 3_600_000);
    c.restart(0);
    c.link_again(0);
    c.pass(20_000);
    assert_eq!(status(&mut c, 0).phase, Phase::Starting);
    assert!(status(&mut c, 0).clock_skew);
    for id in 1..3 {
        let peers = status(&mut c, id).peers;
        let ahead_ms = peers.iter().find(|peer| peer.dc == dc(0)).map(|peer| peer.clock_ahead_ms);
        assert!(ahead_ms.is_some_and(|ms| (3_599_000..3_601_000).contains(&ms)), "{ahead_ms:?}");
    }
    c.ahead.clear();
    c.pass(15_000);
    assert_eq!((status(&mut c, 0).phase, status(&mut c, 0).clock_skew), (Phase::Serving, false));
    c.open_lease(0, std::time::Duration::from_secs(10));
    let asked = c.lock(0, "a");
    c.run();
    c.granted(0, asked);
}

/// Two of five have the same wrong time server, or one of them shows an arbitrary time. Neither makes the
/// other right.
#[test]
fn two_wrong_clocks_of_five_make_neither_right() {
    for wrong in [[(0, 3_600_000), (1, 3_600_000)], [(0, 3_600_000), (4, 4_000_000_000)]] {
        let mut c = Cluster::new(5, 0, 0);
        c.use_lock(0, "a");
        c.ahead.extend(wrong);
        wrong.iter().for_each(|(id, _)| c.restart(*id));
        wrong.iter().for_each(|(id, _)| c.link_again(*id));
        c.pass(20_000);
        for (id, _) in wrong {
            assert_eq!(status(&mut c, id).phase, Phase::Starting, "three are an hour behind dc{id}");
        }
        c.ahead.clear();
        c.pass(15_000);
        for id in 0..5 {
            assert_eq!((status(&mut c, id).phase, status(&mut c, id).clock_skew), (Phase::Serving, false));
        }
    }
}

#[test]
fn a_link_that_breaks_makes_no_contradicted_clock_right() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.ahead.insert(0, 3_600_000);
    c.restart(0);
    c.link_again(0);
    c.pass(1_000);
    c.isolate(0);
    c.pass(60_000);
    assert_eq!(status(&mut c, 0).phase, Phase::Starting);
    c.link_again(0);
    c.pass(1_000);
    c.ahead.clear();
    c.isolate(0);
    c.pass(1_000);
    let phase = status(&mut c, 0).phase;
    assert_ne!(phase, Phase::Starting, "what others said last agrees with the clock of now");
}

#[test]
fn a_contradicted_clock_is_not_set_further_ahead() {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.ahead.insert(0, 20_000);
    c.restart(0);
    c.link_again(0);
    c.pass(1_000);
    c.ahead.insert(0, 7_200_000);
    c.pass(1_000);
    assert_eq!(status(&mut c, 0).phase, Phase::Starting);
    let now = 1_700_000_000_000 + c.now;
    assert!(c.nodes[0].replica.clock.physical_millis() < now + 30_000);
}

#[test]
fn who_was_stopped_for_a_while_takes_no_old_word_for_a_wrong_clock() {
    let mut c = Cluster::new(3, 0, 0);
    c.pass(2_000);
    // dc0 is stopped: it reads and sends nothing.
    for _ in 0..30 {
        c.now += 500;
        for id in 1..3 {
            c.handle(id, Event::Tick);
            c.sync(id);
        }
        while c.deliver(1, 2) | c.deliver(2, 1) {}
    }
    while c.deliver(1, 0) | c.deliver(2, 0) {
        assert!(!status(&mut c, 0).clock_skew, "they are old news");
    }
    c.pass(1_000);
    assert!(!status(&mut c, 0).clock_skew);
}
