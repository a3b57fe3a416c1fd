//! One transaction, again and again.

use geolock_recipes::selector::SelectError;
use tokio::task::JoinSet;

use crate::fixture::{Servers, Table, pool, token, tx, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_callers_of_one_transaction_get_one_selection() {
    let servers = Servers::start("zero").await;
    let table = Table::equal(20, 1, |_| 0);
    let replica = servers.replica(0, &table).await;
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
    let servers = Servers::start("zero").await;
    let table = Table::new([token("a", 3, 0), token("b", 3, 1), token("c", 3, 2)]);
    let (first, second) = (servers.replica(0, &table).await, servers.replica(1, &table).await);
    let picked = first.select("tx", 5).await.expect("it is free");
    within(first.selector.reserve(&tx("tx"))).await.expect("it holds them");
    let same = picked.tokens().to_vec();
    // It dies: its lease ends, and the reservation does not.
    drop(picked);
    drop(first.selector);
    within(first.client.close()).await.expect("the server is there");
    let adopted = second.select("tx", 5).await.expect("it is reserved");
    assert_eq!(adopted.tokens(), same);
    within(second.selector.reserve(&tx("tx"))).await.expect("it is");
    table.apply(&adopted, &[]);
    within(second.selector.spent(&tx("tx"), &[])).await.expect("it takes the locks again");
    let over = within(second.selector.release(&tx("tx"))).await.expect_err("it is spent");
    assert!(matches!(over, SelectError::AlreadySpent { .. }), "{over}");
    let third = second.select("tx-1", 4).await.expect_err("one of three is left");
    assert!(matches!(third, SelectError::Insufficient { have: 3, asked: 4 }), "{third}");
    assert_eq!(within(second.selector.select(&tx("tx-2"), &pool(), 3)).await.expect("it is left").sum(), 3);
}
