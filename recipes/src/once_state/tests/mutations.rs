//! The checks of the simulation notice mistakes.

use super::super::events::Bug;
use super::super::options::Takeover;
use super::plan::Plan;
use super::seeds::{calm, trouble};
use super::world::World;

/// Returns the first broken promise.
fn caught(plan: &Plan) -> Option<String> {
    (0..200).find_map(|seed| World::new(seed, plan.clone()).run().err())
}

fn check(plan: Plan, expected: &str) {
    let sound = Plan { bug: None, without_guards: false, ..plan.clone() };
    assert_eq!(caught(&sound), None, "without the mistake");
    let broken = caught(&plan).expect("the mistake is noticed");
    assert!(broken.contains(expected), "{broken}");
}

#[test]
fn who_claims_without_a_decision_does_it_again() {
    check(Plan { bug: Some(Bug::Undecided), ..calm() }, "does what is done");
}

#[test]
fn who_takes_over_and_does_not_ask_does_it_again() {
    check(Plan { bug: Some(Bug::Unconfirmed), dies_late: 50, ..calm() }, "does what is done");
}

#[test]
fn who_goes_on_without_the_lock_runs_beside_another() {
    check(Plan { bug: Some(Bug::LossIgnored), loses: 50, ..calm() }, "run at");
}

#[test]
fn a_commit_without_a_guard_completes_the_run_of_another() {
    check(Plan { without_guards: true, ..trouble() }, "completes");
}

#[test]
fn who_believes_another_is_wrong_when_it_is_still_needed() {
    check(Plan { bug: Some(Bug::DoneBelieved), in_vain: 1_000, ..calm() }, "is not done");
}

#[test]
fn who_does_not_wait_after_a_failure_is_noticed() {
    check(Plan { bug: Some(Bug::PauseIgnored), fails: 80, ..calm() }, "within the back-off");
    check(
        Plan { bug: Some(Bug::PauseIgnored), fails: 80, takeover: Takeover::Watermark, ..calm() },
        "within the back-off",
    );
}
