//! Requests for several locks, and several requests of one lease.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion, docs/guarantees.md#not-promised.

use std::time::Duration;

use geolock::client::{AcquireError, AcquireRequest, Client, Mode, Wait};

use crate::fixture::in_process::{AnyError, Datacenter};
use crate::fixture::{lock, within};

fn exclusive(name: &str) -> AcquireRequest {
    AcquireRequest::exclusive(lock(name))
}

/// Waits until one request waits for the lock. Returns how many hold it.
async fn holders_of_awaited(client: &Client, name: &str) -> Result<usize, AnyError> {
    let awaited = async {
        loop {
            let described = client.describe_lock(&lock(name)).await?;
            if described.waiting == 1 {
                return Ok(described.holders.len());
            }
        }
    };
    within(awaited).await
}

#[tokio::test]
async fn a_request_holds_nothing_until_it_holds_all() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let other = datacenter.client().await?;
    let busy = other.acquire(exclusive("busy")).await?;
    let both = tokio::spawn({
        let client = client.clone();
        async move { client.acquire(exclusive("free").and(lock("busy"), Mode::Exclusive)).await }
    });
    assert_eq!(holders_of_awaited(&other, "busy").await?, 1);
    assert_eq!(holders_of_awaited(&other, "free").await?, 0, "it holds neither of them");
    busy.release().await?;
    let both = within(both).await??;
    for name in ["free", "busy"] {
        let described = other.describe_lock(&lock(name)).await?;
        assert_eq!((described.holders.len(), described.waiting), (1, 0), "{described:?}");
    }
    Ok(both.release().await?)
}

#[tokio::test]
async fn requests_of_one_lease_conflict_like_any_others() -> Result<(), AnyError> {
    let (_datacenter, client) = Datacenter::with_client().await?;
    let again = client.acquire(exclusive("a")).await?;
    let refused = client.acquire(exclusive("a").wait(Wait::Try)).await;
    assert!(matches!(refused, Err(AcquireError::NotFree)), "no re-entrancy: {refused:?}");
    again.release().await?;
    let shared = client.acquire(AcquireRequest::shared(lock("a"))).await?;
    let refused = client.acquire(exclusive("a").wait(Wait::Try)).await;
    assert!(matches!(refused, Err(AcquireError::NotFree)), "no upgrade: {refused:?}");
    client.acquire(AcquireRequest::shared(lock("a")).wait(Wait::Try)).await?.release().await?;
    Ok(shared.release().await?)
}

#[tokio::test]
async fn requests_that_wait_for_each_other_time_out_and_one_for_all_does_not() -> Result<(), AnyError> {
    let (datacenter, one) = Datacenter::with_client().await?;
    let two = datacenter.client().await?;
    let (a, b) = (one.acquire(exclusive("a")).await?, two.acquire(exclusive("b")).await?);
    let briefly = |name| exclusive(name).wait(Wait::AtMost(Duration::from_millis(20)));
    let (first, second) = tokio::join!(one.acquire(briefly("b")), two.acquire(briefly("a")));
    for late in [first, second] {
        assert!(
            matches!(late, Err(AcquireError::TimedOut { .. })),
            "each holds what the other wants: {late:?}"
        );
    }
    a.release().await?;
    b.release().await?;
    let both = |client: &Client, first, second| {
        let (client, request) = (client.clone(), exclusive(first).and(lock(second), Mode::Exclusive));
        async move { client.acquire(request).await?.release().await.map_err(AnyError::from) }
    };
    for _ in 0..100 {
        within(async { tokio::try_join!(both(&one, "a", "b"), both(&two, "b", "a")) }).await?;
    }
    Ok(())
}
