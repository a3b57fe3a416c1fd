//! Reentrant locks on a real server.
//!
//! Guarantee: docs/guarantees.md#reentrant-locks.

use crate::fixture::{lock, servers, within};
use geolock::client::{AcquireError, AcquireRequest, AdminClient, ForceReason, LostReason, Mode, Wait};
use geolock_recipes::{Reentrant, ReentrantError};

fn exclusive() -> AcquireRequest {
    AcquireRequest::exclusive(lock("a"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_gets_it_again_at_once_and_the_last_release_lets_go() {
    let (cluster, clients) = servers(2).patient().quick().serving().await;
    let locks = Reentrant::new(&clients[0]);
    let outer = within(locks.acquire("ann", exclusive())).await.expect("it is granted");
    let inner = within(locks.clone().acquire("ann", exclusive())).await.expect("it is held");
    let weaker = within(locks.acquire("ann", AcquireRequest::shared(lock("a")))).await.expect("it is held");
    assert_eq!((inner.token(), weaker.token()), (outer.token(), outer.token()));
    let elsewhere = cluster.client(1).await;
    let refused = elsewhere.acquire(exclusive().wait(Wait::Try)).await;
    assert!(matches!(refused, Err(AcquireError::NotFree)), "{refused:?}");
    let refused = locks.acquire("bob", exclusive().wait(Wait::Try)).await;
    assert!(matches!(refused, Err(ReentrantError::Acquire(AcquireError::NotFree))), "{refused:?}");
    assert!(!within(outer.release()).await.expect("it is held"));
    drop(weaker);
    let refused = clients[0].acquire(exclusive().wait(Wait::Try)).await;
    assert!(matches!(refused, Err(AcquireError::NotFree)), "{refused:?}");
    let token = inner.token();
    assert!(within(inner.release()).await.expect("it is held"), "it was the last");
    let next = within(elsewhere.acquire(exclusive())).await.expect("it is free");
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_tasks_of_an_owner_share_one_request() {
    let (_cluster, clients) = servers(1).patient().serving().await;
    let other = within(clients[0].acquire(exclusive())).await.expect("it is free");
    let locks = Reentrant::new(&clients[0]);
    let tasks = [0; 5].map(|_| {
        let locks = locks.clone();
        tokio::spawn(async move { locks.acquire("ann", exclusive()).await.expect("it is granted") })
    });
    let given_up = locks.acquire("ann", exclusive());
    tokio::select! {
        biased;
        granted = given_up => panic!("it is held by another: {granted:?}"),
        () = tokio::task::yield_now() => {}
    }
    within(other.release()).await.expect("it is held");
    let mut held = Vec::new();
    for task in tasks {
        held.push(within(task).await.expect("no panic"));
    }
    assert!(held.iter().all(|guard| guard.token() == held[0].token()), "{held:?}");
    let last = held.pop().expect("there are five");
    drop(held);
    assert!(within(last.release()).await.expect("it is held"));
    drop(within(clients[0].acquire(exclusive())).await.expect("it is free"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_never_waits_for_itself() {
    let (_cluster, clients) = servers(1).patient().serving().await;
    let locks = Reentrant::new(&clients[0]);
    let shared =
        within(locks.acquire("ann", AcquireRequest::shared(lock("a")))).await.expect("it is granted");
    let refused = within(locks.acquire("ann", exclusive())).await.expect_err("it would wait for itself");
    assert!(
        matches!(&refused, ReentrantError::UpgradeNeeded { lock: of, owner } if *of == lock("a") && owner == "ann"),
        "{refused}"
    );
    let both = AcquireRequest::shared(lock("b")).and(lock("a"), Mode::Shared);
    let refused = within(locks.acquire("ann", both)).await.expect_err("it holds a part of that");
    assert!(matches!(&refused, ReentrantError::HeldApart { lock: of, .. } if *of == lock("a")), "{refused}");
    // Another owner in the same mode, and the same one after its release.
    drop(within(locks.acquire("bob", AcquireRequest::shared(lock("a")))).await.expect("it is shared"));
    assert!(within(shared.release()).await.expect("it is held"));
    drop(within(locks.acquire("ann", exclusive())).await.expect("it is granted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_one_for_all_guards_of_the_owner() {
    let (cluster, clients) = servers(1).patient().serving().await;
    let locks = Reentrant::new(&clients[0]);
    let outer = within(locks.acquire("ann", exclusive())).await.expect("it is granted");
    let inner = within(locks.acquire("ann", exclusive())).await.expect("it is held");
    let operator = AdminClient::connect(cluster.client_config(0)).await.expect("it is up");
    let reason = ForceReason::new("it hangs").expect("it says something");
    operator.force_release(&lock("a"), &reason).await.expect("it is allowed");
    for guard in [&outer, &inner] {
        assert!(matches!(within(guard.lost()).await, LostReason::ForceReleased { .. }));
    }
    let anew = within(locks.acquire("ann", exclusive())).await.expect("it is granted");
    assert!(anew.token() > outer.token());
    assert!(within(outer.release()).await.is_err(), "it had been lost");
    drop(inner);
    assert_eq!(anew.guard().is_lost(), None, "what is left of the lost ones releases nothing");
}
