//! Nodes that die, and servers that are switched off: each intent is confirmed once.
//!
//! Guarantee: docs/guarantees.md#sequencer.

use std::collections::BTreeSet;
use std::time::Duration;

use geolock_recipes::sequencer::Epoch;

use crate::coins::MEMBERS;
use crate::fixture::{Contract, quick};
use crate::options::Options;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_coordinate_in_turn_and_each_intent_is_dispatched_once() {
    let mut contract = Contract::start(Options { range: 15, ..quick(25) }).await;
    contract.all_are_confirmed_once().await;
    let coordinators: BTreeSet<&str> = contract.outcomes.iter().map(|it| it.signer.as_str()).collect();
    assert!(coordinators.len() > 1, "{coordinators:?}");
    let epochs: Vec<u64> = contract.outcomes.iter().map(|it| it.epoch.0).collect();
    assert!(epochs.is_sorted(), "a later one never goes back");
    contract.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_that_is_killed_is_replaced_and_comes_back() {
    let mut contract = Contract::start(Options { range: 1_000, ..quick(30) }).await;
    contract.confirmed(20).await;
    let first = contract.coordinator();
    contract.kill(first).await;
    let others = (MEMBERS.len() - 1) * 30;
    while contract.coordinator() == first {
        contract.step().await;
    }
    let second = contract.coordinator();
    let of_others = |name: &String| !name.starts_with(&format!("{first}/"));
    while contract.confirmed_now().iter().filter(|name| of_others(name)).count() < others {
        contract.step().await;
    }
    contract.start_node(first);
    contract.all_are_confirmed_once().await;
    assert_ne!(first, second);
    contract.leave().await;
}

/// It is killed with each other line that it says: before and after answers, in the middle of its own
/// dispatches.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_is_killed_again_and_again_has_each_intent_confirmed_once() {
    let mut contract = Contract::start(quick(20)).await;
    let sender = "a";
    for kills in 1..=6 {
        let said = |contract: &Contract| {
            let of_sender = |name: &&String| name.starts_with("a/");
            let submitted = contract.submitted.iter().filter(of_sender).count();
            submitted + contract.ended.iter().filter(of_sender).count()
        };
        while said(&contract) < 3 * kills {
            contract.step().await;
        }
        contract.kill(sender).await;
        contract.start_node(sender);
    }
    contract.all_are_confirmed_once().await;
    contract.leave().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_datacenter_the_others_go_on_and_its_member_catches_up() {
    // If dc2 has the lock, they go on without it: longer than one range, which is 4 s.
    let solo = Duration::from_secs(5);
    let mut contract = Contract::start(Options { solo, ..quick(25) }).await;
    contract.confirmed(15).await;
    contract.playground.switch(2, false).await.expect("it runs");
    let before = contract.confirmed_now().len();
    contract.confirmed(before + 20).await;
    contract.playground.switch(2, true).await.expect("it can start");
    contract.all_are_confirmed_once().await;
    contract.leave().await;
}

/// The datacenter that is switched off has the lock: the others can never get it, and go on without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_lock_the_others_go_on_after_a_while_and_the_ledger_decides() {
    let solo = Duration::from_secs(2);
    let mut contract = Contract::start(Options { solo, ..quick(80) }).await;
    contract.confirmed(1).await;
    // Two of the members are in dc0: without both, the others are too few.
    let [_, (b, dc1), (c, dc2), _] = MEMBERS;
    while ![b, c].contains(&contract.coordinator()) {
        contract.step().await;
    }
    let holder = contract.coordinator();
    let dc = if holder == b { dc1 } else { dc2 };
    contract.playground.switch(dc, false).await.expect("it runs");
    let is_solo = |contract: &Contract| {
        contract.outcomes.iter().any(|it| it.epoch == Epoch::SOLO && it.signer.as_str() != holder)
    };
    while !is_solo(&contract) {
        contract.step().await;
    }
    contract.playground.switch(dc, true).await.expect("it can start");
    contract.all_are_confirmed_once().await;
    contract.leave().await;
}
