//! Runs of one kind of trouble each.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::events::{End, Failure};
use super::super::options::{SequencerOptions, Solo};
use super::super::words::{Epoch, IntentId, Node};
use super::plan::{Plan, calm, steady};
use super::world::{LEASE, World};

fn run(seed: u64, plan: Plan) -> World {
    World::new(seed, plan).run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

/// Returns the nodes that dispatched between two times.
fn dispatchers(world: &World, from: u64, until: u64) -> BTreeSet<&str> {
    let dispatches = world.checker.dispatched_at.iter().filter(|(at, ..)| (from..until).contains(at));
    dispatches.map(|(_, _, node)| node.as_str()).collect()
}

/// The new coordinator is behind, the old one, the sender: in all orders in which three nodes learn of a
/// height everything is dispatched once, and nothing reverts.
#[test]
fn three_nodes_learn_of_heights_in_any_order() {
    for lags in [[0, 3, 6], [0, 6, 3], [3, 0, 6], [3, 6, 0], [6, 0, 3], [6, 3, 0]] {
        for seed in 0..4 {
            let world = run(seed, Plan { nodes: 3, lags: lags.to_vec(), ..calm() });
            assert_eq!(world.checker.dispatches.values().sum::<u64>(), 40, "{lags:?}, seed {seed}");
            assert!(world.checker.dispatches.len() > 1, "{lags:?}, seed {seed}: there were switches");
        }
    }
}

/// The new coordinator assembles an intent that the old one dispatches at that moment, and another one on top
/// of it: when it learns of that by the handover, both assemblies go.
#[test]
fn an_assembly_that_rests_on_one_that_the_handover_replaces_goes_with_it() {
    run(785, calm());
}

#[test]
fn an_intent_that_the_ledger_always_reverts_is_given_up() {
    let world = run(2, Plan { refused: 20, is_calm: false, ..calm() });
    let failed = world.checker.ends.values().filter(|end| matches!(end, End::Failed(Failure::Reverted(_))));
    let failed = failed.count() as u64;
    assert!(failed > 3, "{failed} of 40");
    let reverts: u64 = world.ledger.reverts.values().sum();
    assert!(reverts >= failed * 3, "{reverts} reverts: three for each");
}

/// The contract has one state, so each transaction rests on the one before.
#[test]
fn an_intent_that_the_ledger_always_reverts_takes_none_behind_it_with_it() {
    for seed in 0..10 {
        let plan = Plan { refused: 10, states: 1, submit_within: 2_000, is_calm: false, ..calm() };
        let world = run(seed, plan);
        let is_confirmed =
            |(intent, end): (&IntentId, &End)| (*end == End::Confirmed) == intent.name.starts_with("good");
        assert!(world.checker.ends.iter().all(is_confirmed), "seed {seed}: {:?}", world.checker.ends);
        assert!(world.ledger.reverts.contains_key("spent"), "seed {seed}: some rested on one that reverts");
    }
}

#[test]
fn work_is_handed_on_at_each_boundary_and_back() {
    let world = run(3, calm());
    let epochs: Vec<_> = world.checker.dispatched_at.iter().map(|(_, epoch, _)| *epoch).collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
    let changes = world.checker.dispatched_at.windows(2).filter(|pair| pair[0].2 != pair[1].2).count();
    assert!(changes >= 3, "{changes} changes");
}

/// Every effect of every node, before it and after it: database, message, submission, lock.
#[test]
fn a_crash_at_any_point_breaks_no_promise() {
    let small = Plan { nodes: 2, intents: 3, submit_within: 3_000, block: 400, is_calm: false, ..calm() };
    let short = Plan { trouble_until: 6_000, settles_within: 45_000, down: 2_000, ..small };
    let effects = run(5, short.clone()).effects;
    assert!(effects > 50, "{effects} effects");
    for at in 1..=effects {
        for is_before in [true, false] {
            let world = run(5, Plan { crash_at: Some((at, is_before)), ..short.clone() });
            assert_eq!(world.checker.ends.len(), 3, "effect {at}");
            assert_eq!(world.crashes, 1, "effect {at}");
        }
    }
}

fn cut() -> Plan {
    let options = SequencerOptions { block_range: 100_000, ..steady().options };
    Plan { dcs: 4, cut_off: Some((&[0, 1], 5_000, 25_000)), is_calm: false, options, ..calm() }
}

#[test]
fn in_a_partition_one_side_dispatches_and_the_other_one_waits() {
    for seed in 0..20 {
        let world = run(seed, cut());
        let nodes = dispatchers(&world, 6_000, 25_000);
        let sides = [["n0", "n1"], ["n2", "n3"]];
        let working = sides.iter().filter(|side| side.iter().any(|node| nodes.contains(node))).count();
        assert_eq!(working, 1, "seed {seed}: {nodes:?}");
    }
}

#[test]
fn with_solo_both_sides_of_a_partition_dispatch_and_each_intent_is_confirmed_once() {
    for seed in 0..20 {
        let solo = Solo::After(Duration::from_secs(5));
        let plan = cut();
        let world = run(seed, Plan { options: SequencerOptions { solo, ..plan.options }, ..plan });
        let dispatches = &world.checker.dispatched_at;
        assert!(dispatches.iter().any(|(_, epoch, _)| *epoch == Epoch::SOLO), "seed {seed}");
        assert_eq!(dispatchers(&world, 6_000, 25_000).len(), 2, "seed {seed}");
    }
}

/// A preferred node that dies has a stand-in, and works again when it is back.
#[test]
fn a_preferred_node_that_returns_coordinates_again() {
    let plan =
        Plan { crashes: 0, trouble_until: 40_000, submit_within: 80_000, patience: 60_000, ..steady() };
    let plan = Plan { of_first: 0, settles_within: 80_000, ..plan };
    let first = run(1, plan.clone()).checker.dispatched_at[0].2.clone();
    let number = (0..4).find(|number| first == Node::new(&format!("n{number}"))).expect("it is a node");
    let world = run(1, Plan { dies: Some((number, 15_000, false)), ..plan });
    assert_eq!(dispatchers(&world, 0, 15_000), BTreeSet::from([first.as_str()]));
    // The end of the lease, some messages, and the block with the next intent.
    let after =
        world.checker.dispatched_at.iter().find(|(at, ..)| *at > 15_000).expect("a stand-in dispatches");
    assert!(after.0 <= 15_000 + LEASE + 1_500, "{after:?}");
    let stand_ins = dispatchers(&world, 20_000, 40_000);
    assert!(stand_ins.len() == 1 && !stand_ins.contains(first.as_str()), "{stand_ins:?}");
    assert_eq!(dispatchers(&world, 50_000, 80_000), BTreeSet::from([first.as_str()]));
}

/// The ranges are shorter than `solo`: each node is first for some seconds only, and finds the lock out of
/// reach each time.
#[test]
fn a_lock_that_is_out_of_reach_for_many_short_ranges_does_not_stop_a_contract() {
    for seed in 0..10 {
        let plan = cut();
        let solo = Solo::After(Duration::from_secs(10));
        let options = SequencerOptions { solo, block_range: 4, ..plan.options };
        let plan = Plan {
            options,
            cut_off: Some((&[0, 1], 5_000, 55_000)),
            trouble_until: 60_000,
            submit_within: 40_000,
            ..plan
        };
        let world = run(seed, plan);
        let is_solo = |(at, epoch, _): &(u64, Epoch, Node)| *epoch == Epoch::SOLO && *at < 25_000;
        assert!(world.checker.dispatched_at.iter().any(is_solo), "seed {seed}");
    }
}
