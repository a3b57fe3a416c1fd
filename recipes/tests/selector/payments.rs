//! Many payments at once.

use geolock_recipes::selector::SelectError;
use tokio::task::JoinSet;

use crate::fixture::{Servers, Table, token, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_that_want_two_tokens_one_has_too_little() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 1, 0), token("b", 1, 1)]);
    let mut paying = JoinSet::new();
    for dc in 0..3 {
        let replica = servers.replica(dc, &table).await;
        paying.spawn(async move { replica.pay(&format!("tx-{dc}"), 1).await });
    }
    let outcomes = within(paying.join_all()).await;
    let errors: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    assert!(matches!(errors[..], [SelectError::Insufficient { have: 0, asked: 1 }]), "{errors:?}");
    assert_eq!((table.balance(), table.payments()), (0, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_replicas_use_a_hundred_tokens_up() {
    let servers = Servers::start("zero").await;
    let table = Table::equal(100, 1, |number| (number % 3) as u8);
    let mut replicas = Vec::new();
    for number in 0..20_u8 {
        replicas.push(servers.replica(number % 3, &table).await);
    }
    let mut paying = JoinSet::new();
    for (number, replica) in replicas.into_iter().enumerate() {
        paying.spawn(async move { replica.pay(&format!("tx-{number}"), 5).await.map(|()| replica) });
    }
    for outcome in within(paying.join_all()).await {
        outcome.expect("there is enough for all");
    }
    assert_eq!((table.balance(), table.payments()), (0, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_want_both_tokens_one_gets_them_and_the_other_hears_the_truth() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0), token("b", 3, 1)]);
    let (first, second) = (servers.replica(0, &table).await, servers.replica(1, &table).await);
    let (one, other) = tokio::join!(first.pay("tx-0", 4), second.pay("tx-1", 4));
    let errors: Vec<_> = [one, other].into_iter().filter_map(Result::err).collect();
    assert!(matches!(errors[..], [SelectError::Insufficient { have: 2, asked: 4 }]), "{errors:?}");
    assert_eq!((table.balance(), table.payments()), (2, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gets_what_is_given_back() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0), token("b", 3, 1)]);
    let (first, second) = (servers.replica(0, &table).await, servers.replica(1, &table).await);
    let held = first.select("tx-0", 4).await.expect("both are free");
    assert_eq!(held.tokens().len(), 2);
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.select("tx-1", 4).await }
    });
    within(async {
        // It waits, and others see it.
        let lock = first.selector.lock_of(&held.tokens()[0]);
        while first.client.describe_lock(&lock).await.expect("it is there").waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(held);
    let picked = within(waits).await.expect("it runs").expect("both are free again");
    assert_eq!((picked.sum(), picked.change()), (6, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_payments_chain_through_the_change_of_one_token() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("hundred", 100, 0)]);
    let mut replicas = Vec::new();
    for dc in 0..3 {
        replicas.push(servers.replica(dc, &table).await);
    }
    let mut paying = JoinSet::new();
    for number in 0..100 {
        let replica = replicas[number % 3].clone();
        paying.spawn(async move { replica.pay(&format!("tx-{number}"), 1).await });
    }
    for outcome in within(paying.join_all()).await {
        outcome.expect("there is enough for all");
    }
    assert_eq!((table.balance(), table.payments()), (0, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_token_is_left_alone_while_a_small_one_is_free() {
    let servers = Servers::start("zero").await;
    let table = Table::new([token("large", 200, 0), token("small", 1, 1)]);
    let replica = servers.replica(0, &table).await;
    let small = replica.select("tx-0", 1).await.expect("it is free");
    assert_eq!(small.tokens(), [token("small", 1, 1)]);
    let large = replica.select("tx-1", 1).await.expect("the large one is free");
    assert_eq!((large.tokens(), large.change()), (&[token("large", 200, 0)][..], 199));
}
