//! Stories about wrong clocks, and clocks that were mended.

use std::sync::Arc;
use std::time::Duration;

use super::cluster::{Cluster, dc, name};
use super::store_cluster::{add, step};
use crate::base::bugs::Bug;
use crate::causal_log::Violation;
use crate::leases::Proof;
use crate::replica::call::store::Then;
use crate::replica::call::{AcquireEnough, AnyOf, Call, Phase, Refusal, Reply, Status, Wait};
use crate::replica::{Event, Message, NotServing};
use geolock_api::names::Mode;

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

/// A cluster in which the link from dc1 to dc0 waits for the clock of dc0, and has brought more than fits.
fn behind_a_busy_one() -> Cluster {
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
    c
}

#[test]
fn a_link_that_waits_for_a_clock_brings_so_much_and_the_rest_later() {
    let mut c = behind_a_busy_one();
    let held_back = c.inspect(0).counts().held_back;
    assert!((200..300).contains(&held_back), "{held_back} entries wait");
    assert!(c.nodes[0].violations.is_empty(), "{:?}", c.nodes[0].violations);
    c.pass(30_000);
    assert_eq!(c.inspect(0).applied(), c.inspect(1).applied());
    assert!(c.nodes[0].violations.is_empty());
}

/// Entries that did not fit are not asked for on a link that closes: the next one brings them.
#[test]
fn a_link_that_waits_for_a_clock_and_closes_is_sent_nothing_more() {
    let mut c = behind_a_busy_one();
    let locks = (0..9).map(|n| name(&n.to_string())).collect();
    c.handle(0, Event::Received { peer: dc(1), message: Message::AskHolders { query: 1, locks } });
    assert_eq!(c.nodes[0].violations, [Violation::QueryTooLarge { count: 9, limit: 8 }]);
    c.begin(2, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.pass(1_000);
    c.cut(0, 1);
    c.link(0, 1);
    c.pass(30_000);
    assert_eq!(c.inspect(0).applied(), c.inspect(1).applied());
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

/// A cluster in which dc0 has started with a clock that is an hour ahead, and a client has a lease there.
fn started_an_hour_ahead() -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.ahead.insert(0, 3_600_000);
    c.restart(0);
    c.link_again(0);
    c.pass(5_000);
    c.open_lease(0, Duration::from_secs(60));
    c
}

/// A server waits with a clock that is an hour ahead, for as long as that takes. A call that says how long it
/// waits does not.
#[test]
fn a_call_to_a_server_that_waits_for_its_clock_waits_no_longer_than_it_says() {
    let mut c = started_an_hour_ahead();
    let wants = [("a", Mode::Exclusive)];
    let tried = c.acquire_as(0, Some(1), &wants, Wait::Try);
    let commits = c.begin(0, 2, None, step(vec![add("n", 1)], &[], Then::Commit));
    let waits = c.acquire_as(0, Some(3), &wants, Wait::AtMost(Duration::from_secs(20)));
    let goes_on = c.acquire_as(0, Some(4), &wants, Wait::AtMost(Duration::from_secs(120)));
    let enough = AcquireEnough {
        lease: c.lease(0),
        proof: Proof::Attached,
        key: Some(5),
        of: Arc::new(AnyOf::new(1, 2, vec![(name("a"), 1), (name("b"), 1)]).expect("two candidates")),
        revision: 0,
        wait: Wait::AtMost(Duration::from_secs(20)),
        label: Arc::from("a story"),
    };
    let enough = c.call(0, Call::AcquireEnough(Box::new(enough)));
    c.pass(900);
    assert!(!c.is_answered(0, tried), "a start without a fault may take as long");
    c.pass(200);
    assert_eq!(c.refused(0, tried), Refusal::NotServing(NotServing::ClockSkew));
    c.pass(4_800);
    assert!(!c.is_answered(0, commits), "the others could be down");
    c.pass(200);
    let refused = c.txn_refused(0, commits).to_string();
    assert!(refused.contains("started with a clock that is too far ahead"), "{refused}");
    c.pass(13_800);
    assert!(!c.is_answered(0, waits), "its time is not over");
    c.pass(200);
    let Refusal::TimedOut(locks) = c.refused(0, waits) else { panic!("{:?}", c.refused(0, waits)) };
    assert_eq!(locks[0].lock, name("a"));
    assert_eq!(locks[0].not_serving, [(dc(0), NotServing::ClockSkew)]);
    let Refusal::NotEnoughInTime { locks, free: 0 } = c.refused(0, enough) else {
        panic!("{:?}", c.refused(0, enough))
    };
    assert_eq!(locks.len(), 2);
    assert_eq!(locks[1].not_serving, [(dc(0), NotServing::ClockSkew)]);

    // Nothing begins under their keys any more, also when the clock is right.
    c.ahead.clear();
    c.pass(15_000);
    c.granted(0, goes_on);
    for (key, wait) in [(1, Wait::Try), (3, Wait::Forever)] {
        let again = c.acquire_as(0, Some(key), &wants, wait);
        assert_eq!(c.refused(0, again), Refusal::IdempotencyKeyFinished(key));
    }
}

/// A wait that began before the clock was right ends when it said.
#[test]
fn the_time_of_a_wait_counts_from_the_call_and_not_from_the_end_of_the_start() {
    let mut c = started_an_hour_ahead();
    let waits = |seconds| Wait::AtMost(Duration::from_secs(seconds));
    let first = c.acquire(0, &[("a", Mode::Exclusive)], waits(600));
    let second = c.acquire(0, &[("a", Mode::Exclusive)], waits(45));
    c.pass(20_000);
    c.ahead.clear();
    c.pass(15_000);
    c.granted(0, first);
    c.pass(9_000);
    assert!(!c.is_answered(0, second));
    c.pass(1_100);
    let Refusal::TimedOut(locks) = c.refused(0, second) else { panic!("{:?}", c.refused(0, second)) };
    assert_eq!(locks[0].not_serving, [], "dc0 serves");
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
    assert!(c.nodes[0].replica.ids.clock.physical_millis() < now + 30_000);
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

const HOUR_MS: i64 = 3_600_000;

/// A cluster in which dc2 restarted an hour behind. All parts of "a" are at dc0, those of "c" at dc2.
fn an_hour_behind(bug: Option<Bug>) -> Cluster {
    let mut c = Cluster::new(3, 0, 0);
    c.use_lock(0, "a");
    c.use_lock(2, "c");
    c.bug = bug;
    c.ahead.insert(2, -HOUR_MS);
    c.restart(2);
    c.link_again(2);
    // Its client does not come back.
    c.pass(12_000);
    assert_eq!(status(&mut c, 2).phase, Phase::Serving);
    (0..3).for_each(|id| c.open_lease(id, Duration::from_secs(60)));
    c
}

#[test]
fn a_datacenter_an_hour_behind_says_so_and_stops_nobody_else() {
    let mut c = an_hour_behind(None);
    let behind_ms = status(&mut c, 2).clock_behind_ms;
    assert!((3_599_000..3_601_000).contains(&behind_ms), "{behind_ms} ms");
    assert_eq!((c.why(0, 2), c.why(1, 2)), (Some(NotServing::ClockBehind), Some(NotServing::ClockBehind)));
    assert!((0..2).all(|id| status(&mut c, id).clock_behind_ms == 0 && !status(&mut c, id).clock_skew));
    let waits = c.lock(2, "a");
    let both = c.acquire(2, &[("a", Mode::Exclusive), ("c", Mode::Exclusive)], Wait::Forever);
    c.pass(2_000);
    assert!(c.owns_all(0, "a"), "dc2 could not use it");
    // Locks that do not need dc2 move between the others, and those at dc2 are used there.
    for id in [0, 1, 0] {
        let asked = c.lock(id, "a");
        c.pass(2_000);
        let grant = c.granted(id, asked);
        c.release(id, grant.request);
    }
    c.use_lock(2, "c");
    c.begin(2, 1, None, step(vec![add("n", 1)], &[], Then::Commit));
    c.run();
    assert_eq!(c.inspect(0).applied().get(dc(2)), c.inspect(2).applied().get(dc(2)));
    assert!(!c.is_answered(2, waits) && !c.is_answered(2, both));

    // Somebody sets its clock right; it is not restarted.
    c.ahead.clear();
    c.pass(2_000);
    assert_eq!((c.why(0, 2), status(&mut c, 2).clock_behind_ms), (None, 0));
    let grant = c.granted(2, waits);
    c.release(2, grant.request);
    c.run();
    c.granted(2, both);
    assert_eq!(c.inspect(0).applied(), c.inspect(2).applied());
    assert!(c.nodes.iter().all(|node| node.violations.is_empty()));
}

#[test]
fn one_that_does_not_notice_that_it_is_behind_draws_locks_in_that_nobody_can_use() {
    let mut c = an_hour_behind(Some(Bug::BehindNotNoticed));
    let waits = c.lock(2, "a");
    c.pass(2_000);
    let asked = c.lock(0, "a");
    c.pass(8_000);
    assert!(!c.is_answered(0, asked) && !c.is_answered(2, waits), "the story would not show the bug");
}

/// Nobody knows which of two clocks is wrong; but one of them has jumped.
#[test]
fn of_two_clocks_the_one_that_has_jumped_ahead_stops_and_the_other_goes_on() {
    let mut c = Cluster::new(2, 0, 0);
    c.ahead.insert(1, HOUR_MS);
    c.pass(150_000);
    assert!(status(&mut c, 1).clock_skew);
    assert_eq!((status(&mut c, 0).clock_behind_ms, c.why(1, 0)), (0, None));
}

/// One that restarts behind what is on its own disk says so, and stops the other one as little as a dead one.
#[test]
fn of_two_clocks_the_one_that_restarts_behind_stops_nobody() {
    for down_ms in [0, 60_000] {
        let mut c = Cluster::new(2, 0, 0);
        c.open_lease(1, Duration::from_secs(60));
        c.use_lock(0, "a");
        c.use_lock(1, "b");
        c.isolate(0);
        c.pass(down_ms);
        c.open_lease(1, Duration::from_secs(60));
        c.ahead.insert(0, -HOUR_MS);
        c.restart(0);
        c.link_again(0);
        for _ in 0..150 {
            c.pass(100);
            assert!(!status(&mut c, 1).clock_skew, "it goes on");
        }
        assert!(status(&mut c, 0).clock_behind_ms > 3_500_000);
        c.open_lease(0, Duration::from_secs(60));
        c.use_lock(0, "a");
        c.use_lock(1, "b");
        let moves = c.lock(1, "a");
        c.ahead.clear();
        c.pass(2_000);
        assert!((0..2).all(|id| status(&mut c, id).clock_behind_ms == 0 && !status(&mut c, id).clock_skew));
        c.granted(1, moves);
    }
}

/// Returns by how many milliseconds the hybrid clock of a datacenter is ahead.
fn physical_ahead_ms(c: &Cluster, id: usize) -> i64 {
    c.nodes[id].replica.ids.clock.physical_millis() as i64 - (1_700_000_000_000 + c.now) as i64
}

#[test]
fn a_forward_step_that_most_others_do_not_confirm_is_followed_slowly() {
    let mut c = Cluster::new(5, 0, 0);
    c.ahead.extend([(0, HOUR_MS), (1, HOUR_MS)]);
    c.pass(10_000);
    for id in [0, 1] {
        let ahead_ms = physical_ahead_ms(&c, id);
        assert!((500..1_500).contains(&ahead_ms), "dc{id} is {ahead_ms} ms ahead after 10 s");
    }
}

#[test]
fn a_forward_step_is_followed_at_once_when_most_members_confirm_it() {
    let mut c = Cluster::new(5, 0, 0);
    c.ahead.extend((0..3).map(|id| (id, HOUR_MS)));
    c.pass(1_000);
    assert!((0..3).all(|id| physical_ahead_ms(&c, id) < 200), "nobody stamps by the new time yet");
    // They take their wall clocks over, and tell them.
    for id in 0..2 {
        c.restart(id);
        c.link_again(id);
    }
    c.pass(3_000);
    assert!((physical_ahead_ms(&c, 2) - HOUR_MS).abs() < 100, "with two others it is in the majority");
    assert!(
        (3..5).all(|id| physical_ahead_ms(&c, id as usize) < 100),
        "their own wall clocks do not confirm it"
    );
    for id in 3..5 {
        assert!(status(&mut c, id).clock_behind_ms > 3_590_000, "dc{id} is behind the majority");
    }
}
