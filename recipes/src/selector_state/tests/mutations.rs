//! The checks of the simulation notice mistakes.

use super::super::bugs::Bug;
use super::plan::{Plan, calm, trouble};
use super::world::World;

/// Returns the first broken promise.
fn caught(plan: &Plan) -> Option<String> {
    (0..100).find_map(|seed| World::new(seed, plan.clone()).run().err())
}

fn check(plan: Plan, expected: &str) {
    assert_eq!(caught(&Plan { bug: None, ..plan.clone() }), None, "without the mistake");
    let broken = caught(&plan).expect("the mistake is noticed");
    assert!(broken.contains(expected), "{broken}");
}

#[test]
fn who_ignores_marks_takes_what_is_another_ones() {
    check(Plan { bug: Some(Bug::MarksIgnored), ..trouble() }, "has marked");
}

#[test]
fn who_lets_spent_tokens_go_at_once_makes_others_try_them() {
    check(Plan { bug: Some(Bug::SpentLetsGoAtOnce), ..calm() }, "and it is spent");
}

#[test]
fn who_reserves_what_it_has_lost_pays_twice() {
    check(Plan { bug: Some(Bug::ReservedWithoutGuard), stops: 20, ..trouble() }, "is paid twice");
}

#[test]
fn who_trusts_an_old_listing_says_that_there_is_too_little() {
    let plan = Plan { tokens: vec![3, 3], most: 9, inserted: 12, ..calm() };
    check(Plan { bug: Some(Bug::OldListingTrusted), ..plan }, "are too much");
}

#[test]
fn who_waits_without_news_gets_what_is_spent() {
    let plan = Plan { tokens: vec![24], most: 1, all_pay: true, ..calm() };
    check(Plan { bug: Some(Bug::NewsIgnored), ..plan }, "and it is spent");
}
