//! The checks of the simulation notice bugs: each is caught with a seed, by the check that is there for it.

use super::super::bugs::Bug;
use super::plan::{Plan, any, calm, impatient, steady, stubborn, trouble, widowed};
use super::world::World;

/// The seed is the first one that shows the bug. Without the bug it breaks no promise.
fn check(bug: Bug, plan: Plan, seed: u64, expected: &str) {
    let sound = World::new(seed, plan.clone()).run().err();
    assert_eq!(sound, None, "seed {seed} without {bug:?}");
    let broken = World::new(seed, Plan { bug: Some(bug), ..plan }).run().err();
    let broken = broken.unwrap_or_else(|| panic!("seed {seed} does not notice {bug:?}"));
    assert!(broken.contains(expected), "{bug:?}: {broken}");
}

/// Nobody but the holder of the lock dispatches, and only in its own range.
#[test]
fn who_may_not_dispatch_is_caught() {
    check(Bug::DispatchWhileElecting, calm(), 0, "without the lock");
    check(Bug::LossIgnored, trouble(), 0, "the lock is at");
    check(Bug::BoundaryIgnored, calm(), 7, "is the coordinator");
    check(Bug::PreferredIgnored, trouble(), 8, "is the coordinator");
    check(Bug::OwnRank, calm(), 0, "are taken for the coordinator");
    check(Bug::EndorsesAnyRange, trouble(), 0, "is preferred itself");
}

/// The database has it before anybody hears of it.
#[test]
fn what_is_told_before_it_is_written_is_caught() {
    check(Bug::SubmitBeforeDispatch, calm(), 0, "before it is written");
    check(Bug::GrantAfterAnswer, calm(), 0, "before it is written");
    check(Bug::NoticeAfterAck, calm(), 0, "before it is written");
    check(Bug::EndToldBeforeWritten, calm(), 0, "before it is written");
}

#[test]
fn a_sender_that_grants_too_much_is_caught() {
    check(Bug::GrantToFormer, trouble(), 10, "it delegates to");
    check(Bug::GrantToLowerEpoch, impatient(108), 108, "does not fence");
    check(Bug::GivenUpTooSoon, impatient(126), 126, "may still be used");
}

/// See also `revoke.rs`.
#[test]
fn a_permission_that_is_not_given_back_or_given_back_wrongly_is_caught() {
    check(Bug::GrantsNotRevoked, stubborn(1), 1, "waits too long");
    check(Bug::RevokedThoughUsed, impatient(126), 126, "back, and has");
}

#[test]
fn a_handover_that_is_not_awaited_or_awaited_for_ever_is_caught() {
    check(Bug::HandoverIgnored, trouble(), 3, "before the ledger has decided");
    check(Bug::WaitsAnew, any(359), 359, "waits too long");
    check(Bug::HandoverKept, impatient(315), 315, "waits too long");
}

#[test]
fn a_restart_that_forgets_is_caught() {
    check(Bug::NoncesReused, trouble(), 0, "twice");
    check(Bug::DispatchesForgotten, trouble(), 28, "waits too long");
    check(Bug::BeatNotCompared, steady(), 54, "waits too long");
}

#[test]
fn an_intent_that_is_left_alone_is_caught() {
    check(Bug::DispatchTrusted, trouble(), 21, "waits too long");
    check(Bug::SilenceIgnored, widowed(), 0, "waits for ever");
}

#[test]
fn work_in_vain_and_talk_at_rest_are_caught() {
    check(Bug::SpentNotTold, calm(), 0, "reverts");
    check(Bug::BeatsAtRest, calm(), 0, "does not come to rest");
}
