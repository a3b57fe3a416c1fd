//! One transaction, again and again.

use geolock_recipes::selector::SelectError;
use tokio::task::JoinSet;

use crate::fixture::{Servers, equal, in_memory, pool, token, tx, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_callers_of_one_transaction_get_one_selection() {
    let servers = Servers::start().await;
    let source = in_memory(&equal(20, 1)).await;
    let replica = servers.replica(0, &source).await;
    let mut selecting = JoinSet::new();
    for _ in 0..10 {
        let replica = replica.clone();
        selecting.spawn(async move { replica.select("tx", 3).await });
    }
    let all: Vec<_> = within(selecting.join_all()).await.into_iter().map(|it| it.expect("enough")).collect();
    assert!(all.iter().all(|it| it.tokens() == all[0].tokens() && it.fence() == all[0].fence()), "{all:?}");
    assert_eq!(replica.selector.locked().len(), 1);
    assert_eq!(replica.selector.stats().locks_granted, 3);
    // The own tokens do not count as taken.
    let again = replica.select("tx", 3).await.expect("it has them");
    assert_eq!(again.tokens(), all[0].tokens());
    let other = replica.select("tx", 4).await.expect_err("it is another payment");
    assert!(matches!(other, SelectError::OtherRequest { amount: 3, .. }), "{other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_goes_on_with_what_is_reserved() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0), token("b", 3, 1), token("c", 3, 2)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let picked = first.select("tx", 5).await.expect("it is free");
    within(first.selector.reserve(&tx("tx"))).await.expect("it holds them");
    let (same, fence) = (picked.tokens().to_vec(), picked.fence());
    // Its lease ends, and the reservation does not.
    first.die().await;
    let adopted = second.select("tx", 5).await.expect("it is reserved");
    assert_eq!(adopted.tokens(), same);
    within(second.selector.reserve(&tx("tx"))).await.expect("it takes the locks");
    assert!(adopted.fence() > fence, "whatever the first one still does is behind");
    second.apply(&adopted).await;
    within(second.selector.spent(&tx("tx"), &[])).await.expect("it holds the locks");
    within(second.selector.spent(&tx("tx"), &[])).await.expect("it is spent");
    let over = within(second.selector.release(&tx("tx"))).await.expect_err("it is spent");
    assert!(matches!(over, SelectError::AlreadySpent { .. }), "{over}");
    let little = second.select("tx-1", 5).await.expect_err("one of three and the change are left");
    assert!(matches!(little, SelectError::Insufficient { have: 4, asked: 5 }), "{little}");
    assert_eq!(within(second.selector.select(&tx("tx-2"), &pool(), 3)).await.expect("it is left").sum(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_gives_up_leaves_nothing() {
    let servers = Servers::start().await;
    let source = in_memory(&[token("a", 3, 0)]).await;
    let (first, second) = (servers.replica(0, &source).await, servers.replica(1, &source).await);
    let held = first.select("tx-0", 3).await.expect("it is free");
    let waits = tokio::spawn({
        let second = second.clone();
        async move { second.select("tx-1", 3).await }
    });
    let lock = first.selector.lock_of(&held.tokens()[0]);
    let waiting = async || first.client.describe_lock(&lock).await.expect("it is there").waiting;
    within(async { while waiting().await == 0 {} }).await;
    waits.abort();
    within(async { while waiting().await > 0 {} }).await;
    drop(held);
    first.pay("tx-2", 3).await.expect("it is free");
    assert!(second.selector.locked().is_empty());
}
