//! The checks of the simulation notice bugs: each is caught with a seed, by the check that is there for it.

use super::super::bugs::Bug;
use super::plan::{
    Plan, abandoned, any, calm, denying, impatient, lossy, steady, stubborn, trouble, widowed,
};
use super::world::World;

/// A bug, the kind of run, the first seed that shows it, and a part of what the check says.
type Case = (Bug, fn(u64) -> Plan, u64, &'static str);

const WHO_DISPATCHES: [Case; 6] = [
    (Bug::DispatchWhileElecting, |_| calm(), 1, "without the lock"),
    (Bug::LossIgnored, |_| trouble(), 3, "the lock is at"),
    (Bug::BoundaryIgnored, |_| calm(), 8, "is the coordinator"),
    (Bug::PreferredIgnored, |_| trouble(), 0, "is the coordinator"),
    (Bug::OwnRank, |_| calm(), 0, "are taken for the coordinator"),
    (Bug::EndorsesAnyRange, |_| trouble(), 0, "is preferred itself"),
];
const ORDER: [Case; 4] = [
    (Bug::SubmitBeforeDispatch, |_| calm(), 0, "before it is written"),
    (Bug::GrantAfterAnswer, |_| calm(), 0, "before it is written"),
    (Bug::NoticeAfterAck, |_| calm(), 0, "before it is written"),
    (Bug::EndToldBeforeWritten, |_| calm(), 0, "before it is written"),
];
const GRANTS: [Case; 3] = [
    (Bug::GrantToFormer, |_| trouble(), 0, "it delegates to"),
    (Bug::GrantToLowerEpoch, impatient, 4, "does not fence"),
    (Bug::GivenUpTooSoon, impatient, 23, "may still be used"),
];
const PERMISSIONS: [Case; 2] = [
    (Bug::GrantsNotRevoked, stubborn, 1, "waits too long"),
    (Bug::RevokedThoughUsed, impatient, 41, "back, and has"),
];
const HANDOVERS: [Case; 3] = [
    (Bug::HandoverIgnored, |_| trouble(), 0, "before the ledger has decided"),
    (Bug::WaitsAnew, any, 2710, "waits too long"),
    (Bug::HandoverKept, abandoned, 17, "waits too long"),
];
const RESTARTS: [Case; 3] = [
    (Bug::NoncesReused, |_| trouble(), 0, "twice"),
    (Bug::DispatchesForgotten, |_| trouble(), 189, "waits too long"),
    (Bug::BeatNotCompared, |_| steady(), 1, "waits too long"),
];
const LEFT_ALONE: [Case; 2] = [
    (Bug::DispatchTrusted, |_| trouble(), 56, "waits too long"),
    (Bug::SilenceIgnored, |_| widowed(), 0, "waits for ever"),
];
const IN_VAIN: [Case; 5] = [
    (Bug::SpentIsOwn, stubborn, 0, "for a reason of others"),
    (Bug::DeniedKept, |_| denying(), 0, "reverts"),
    (Bug::GapTaken, |_| lossy(), 4, "reverts"),
    (Bug::SpentNotTold, |_| calm(), 0, "reverts"),
    (Bug::BeatsAtRest, |_| calm(), 0, "does not come to rest"),
];

/// Checks that each bug breaks a promise with its seed, and that the seed breaks none without it.
fn check(cases: &[Case]) {
    for (bug, plan, seed, expected) in cases {
        let sound = World::new(*seed, plan(*seed)).run().err();
        assert_eq!(sound, None, "seed {seed} without {bug:?}");
        let broken = World::new(*seed, Plan { bug: Some(*bug), ..plan(*seed) }).run().err();
        let broken = broken.unwrap_or_else(|| panic!("seed {seed} does not notice {bug:?}"));
        assert!(broken.contains(expected), "{bug:?}: {broken}");
    }
}

/// Nobody but the holder of the lock dispatches, and only in its own range.
#[test]
fn who_may_not_dispatch_is_caught() {
    check(&WHO_DISPATCHES);
}

/// The database has it before anybody hears of it.
#[test]
fn what_is_told_before_it_is_written_is_caught() {
    check(&ORDER);
}

#[test]
fn a_sender_that_grants_too_much_is_caught() {
    check(&GRANTS);
}

/// See also `revoke.rs`.
#[test]
fn a_permission_that_is_not_given_back_or_given_back_wrongly_is_caught() {
    check(&PERMISSIONS);
}

#[test]
fn a_handover_that_is_not_awaited_or_awaited_for_ever_is_caught() {
    check(&HANDOVERS);
}

#[test]
fn a_restart_that_forgets_is_caught() {
    check(&RESTARTS);
}

#[test]
fn an_intent_that_is_left_alone_is_caught() {
    check(&LEFT_ALONE);
}

#[test]
fn work_in_vain_and_talk_at_rest_are_caught() {
    check(&IN_VAIN);
}

/// Prints the first seed that shows each bug:
/// `cargo test --profile sim -p geolock-recipes --lib find_seeds -- --ignored --nocapture`
#[test]
#[ignore = "minutes: for a change of the machine"]
fn find_seeds() {
    let groups: [&[Case]; 8] =
        [&WHO_DISPATCHES, &ORDER, &GRANTS, &PERMISSIONS, &HANDOVERS, &RESTARTS, &LEFT_ALONE, &IN_VAIN];
    for (bug, plan, _, expected) in groups.into_iter().flatten() {
        let shows = |seed: &u64| {
            let broken = World::new(*seed, Plan { bug: Some(*bug), ..plan(*seed) }).run().err();
            broken.is_some_and(|why| why.contains(expected)) && World::new(*seed, plan(*seed)).run().is_ok()
        };
        eprintln!("{bug:?}: {:?}", (0..5_000).find(shows));
    }
}
