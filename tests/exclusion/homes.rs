//! Locks with a home: their home uses them while other datacenters are down, another datacenter needs only
//! the home, and no server uses them before all members are known to understand them.
//!
//! Guarantee: docs/guarantees.md#homed-locks.

use std::time::Duration;

use crate::fixture::calls::acquire;
use crate::fixture::{lock, servers, within};
use geolock::client::{AcquireError, AcquireRequest, Client, Reason, TxnRequest, Update, Wait};
use geolock_api::names::{DcId, LockName};

fn homed(home: u8, name: &str) -> LockName {
    LockName::homed(DcId::new(home).expect("a small id"), name.as_bytes()).expect("a test name is valid")
}

/// Waits until a server knows that all members understand homes: once it has heard all of them.
async fn until_homes_are_understood(client: &Client, own: u8) {
    let understood = async {
        loop {
            let first = AcquireRequest::exclusive(homed(own, "understood")).wait(Wait::Try);
            match client.acquire(first).await {
                Ok(guard) => return guard.release().await.expect("it was held"),
                Err(AcquireError::Refused(Reason::NotYet, _)) => {}
                Err(other) => panic!("it is free: {other}"),
            }
        }
    };
    within(understood).await;
}

/// Waits until a datacenter is known to be unreachable.
async fn until_away(client: &Client, away: u32) {
    let known = async {
        loop {
            let described = client.describe_lock(&lock("described")).await.expect("the server answers");
            if described.unreachable_dcs == [away] {
                return;
            }
        }
    };
    within(known).await;
}

fn briefly(name: LockName) -> AcquireRequest {
    AcquireRequest::exclusive(name).wait(Wait::AtMost(Duration::from_millis(200)))
}

#[tokio::test(flavor = "multi_thread")]
async fn its_home_uses_it_while_another_datacenter_is_down_and_others_need_only_the_home() {
    let (mut cluster, clients) = servers(3).quick().serving().await;
    for (client, own) in clients.iter().zip(0..) {
        until_homes_are_understood(client, own).await;
    }
    cluster.kill(2);

    // Never used before: at home, in a transaction, and elsewhere.
    let at_home = acquire(&clients[0], AcquireRequest::exclusive(homed(0, "fresh"))).await;
    let request = TxnRequest::exclusive(homed(1, "fresh"));
    let mut txn = within(clients[1].begin(request)).await.expect("its home is here");
    txn.update(&crate::fixture::key("n"), Update::counter(1)).await.expect("it goes on");
    within(txn.commit()).await.expect("it does not need the other");
    let away = acquire(&clients[1], AcquireRequest::exclusive(homed(0, "other"))).await;
    assert_eq!((at_home.is_lost(), away.is_lost()), (None, None));

    // Exclusive it is, from everywhere.
    match within(clients[1].acquire(briefly(homed(0, "fresh")))).await.expect_err("it is held") {
        AcquireError::TimedOut { locks, .. } => {
            assert_eq!(locks[0].home, Some(0));
            assert!(locks[0].owners.iter().all(|part| part.owner == 0));
            assert!(locks[0].unreachable_dcs.is_empty(), "the datacenter that is down is not in the way");
        }
        other => panic!("it waits: {other}"),
    }
    // A lock without a home needs all, one with another home needs that.
    until_away(&clients[0], 2).await;
    for (name, home) in [(lock("fresh"), None), (homed(2, "fresh"), Some(2))] {
        match within(clients[0].acquire(briefly(name))).await.expect_err("nobody is there") {
            AcquireError::TimedOut { locks, .. } => {
                assert_eq!((locks[0].home, &locks[0].unreachable_dcs[..]), (home, &[2][..]));
            }
            other => panic!("it waits: {other}"),
        }
    }
    let token = at_home.token();
    at_home.release().await.expect("it was held");
    let next = acquire(&clients[1], AcquireRequest::exclusive(homed(0, "fresh"))).await;
    assert!(next.token() > token);
    cluster.restart(2);
    let there = acquire(&clients[2], AcquireRequest::exclusive(homed(2, "fresh"))).await;
    assert_eq!(there.is_lost(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_all_members_were_heard_they_are_refused_and_afterwards_also_alone() {
    let mut cluster = servers(2).quick().prepared();
    cluster.restart(0);
    let client = cluster.client(0).await;
    let refused = within(client.acquire(briefly(homed(0, "a")))).await.expect_err("the other may be older");
    match &refused {
        AcquireError::Refused(Reason::NotYet, why) => assert!(why.contains("dc1"), "{why}"),
        other => panic!("{other}"),
    }
    let unknown = within(client.acquire(briefly(homed(7, "a")))).await;
    assert!(matches!(unknown, Err(AcquireError::Refused(_, _))));
    cluster.restart(1);
    until_homes_are_understood(&client, 0).await;
    drop(client);

    // It is remembered: the home needs nobody after a restart either.
    cluster.kill(1);
    cluster.kill(0);
    cluster.restart(0);
    let client = cluster.client(0).await;
    let guard = acquire(&client, AcquireRequest::exclusive(homed(0, "b"))).await;
    guard.release().await.expect("it was held");
}
