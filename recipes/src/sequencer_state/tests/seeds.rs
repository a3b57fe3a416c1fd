//! The promises of the sequencer, over many seeds.

use super::super::events::End;
use super::super::options::{SequencerOptions, Threshold};
use super::super::words::Epoch;
use super::plan::{Plan, any, calm, denying, impatient, lossy, solo, steady, stubborn, trouble, widowed};
use super::world::World;

/// Seeds of each kind, unless `SEQUENCER_SEEDS` says another number. A run of ten thousand takes some minutes
/// in the profile `sim`.
const SEEDS: u64 = 40;

/// Counts of all runs of a kind.
#[derive(Debug, Default)]
struct Counts {
    intents: usize,
    failed: usize,
    dispatches: u64,
    solo: usize,
    crashes: u64,
    reverts: u64,
    messages: u64,
    asked_to_endorse: u64,
}

fn run(seed: u64, plan: Plan) -> World {
    World::new(seed, plan).run().unwrap_or_else(|broken| panic!("seed {seed}: {broken}"))
}

/// Runs all seeds of a kind: none breaks a promise. `kind`: for people who read the output.
fn run_all(kind: &str, plan: impl Fn(u64) -> Plan) -> Counts {
    let told = std::env::var("SEQUENCER_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let mut counts = Counts::default();
    for seed in 0..told.unwrap_or(SEEDS) {
        let world = run(seed, plan(seed));
        let checker = &world.checker;
        counts.intents += checker.ends.len();
        counts.failed += checker.ends.values().filter(|end| **end != End::Confirmed).count();
        counts.dispatches += checker.dispatches.values().sum::<u64>();
        counts.solo += checker.dispatched_at.iter().filter(|(_, epoch, _)| *epoch == Epoch::SOLO).count();
        counts.crashes += world.crashes;
        counts.reverts += world.ledger.reverts.values().sum::<u64>();
        counts.messages += checker.messages;
        counts.asked_to_endorse += checker.asked_to_endorse;
    }
    eprintln!("{kind}: {counts:?}");
    counts
}

#[test]
fn without_trouble_each_intent_is_dispatched_once_and_none_reverts() {
    let counts = run_all("calm", |_| calm());
    assert_eq!((counts.failed, counts.reverts), (0, 0));
    assert_eq!(counts.dispatches, counts.intents as u64);
}

#[test]
fn while_its_own_endorsement_is_enough_a_coordinator_asks_nobody_else() {
    let alone = |plan: Plan| {
        let options = SequencerOptions { threshold: Threshold::AtLeast(1), ..plan.options };
        Plan { options, ..plan }
    };
    let counts = run_all("alone", |_| alone(calm()));
    assert_eq!((counts.failed, counts.asked_to_endorse), (0, 0));
    // Where it refuses, the others are asked; they refuse, too.
    let counts = run_all("alone, denying", |_| alone(denying()));
    assert!(counts.failed > 0 && counts.asked_to_endorse > 0, "{counts:?}");
}

/// An intent is refused while others that rest on it are endorsed: those are assembled again.
#[test]
fn nothing_that_rests_on_a_refused_intent_is_dispatched() {
    let counts = run_all("denying", |_| denying());
    assert_eq!(counts.reverts, 0);
    assert!(counts.failed * 10 > counts.intents, "many are refused");
}

#[test]
fn messages_that_are_lost_or_come_twice_make_no_work_in_vain() {
    let counts = run_all("lossy", |_| lossy());
    assert_eq!((counts.failed, counts.reverts), (0, 0));
}

#[test]
fn trouble_breaks_no_promise() {
    let counts = run_all("trouble", |_| trouble());
    assert!(counts.crashes > 0 && counts.reverts > 0 && counts.failed > 0, "there is trouble");
}

#[test]
fn trouble_of_the_kinds_that_the_seed_decides_breaks_no_promise() {
    let counts = run_all("any", any);
    assert_eq!(counts.solo, 0, "nobody dispatches without the lock");
}

#[test]
fn coordinators_without_the_lock_break_no_promise_of_the_ledger() {
    let counts = run_all("solo", solo);
    assert!(counts.solo > 0, "some go on behind a partition");
}

#[test]
fn intents_that_are_given_up_at_once_are_never_confirmed_later() {
    let counts = run_all("impatient", impatient);
    assert!(counts.failed > 0, "some are given up");
}

#[test]
fn intents_that_the_ledger_always_reverts_are_given_up_whatever_became_of_their_permissions() {
    let counts = run_all("stubborn", stubborn);
    assert!(counts.failed * 4 > counts.intents, "many are given up");
}

#[test]
fn a_coordinator_that_forgets_gets_everything_again_soon() {
    let counts = run_all("steady", |_| steady());
    assert!(counts.crashes > 0 && counts.failed == 0, "coordinators restart");
}

#[test]
fn without_the_preferred_node_the_others_work_on() {
    let counts = run_all("widowed", |_| widowed());
    assert_eq!(counts.failed, 0);
}

#[test]
fn one_seed_is_one_run() {
    assert_eq!(run(7, trouble()).trace, run(7, trouble()).trace);
    assert_ne!(run(7, trouble()).trace, run(8, trouble()).trace);
}
