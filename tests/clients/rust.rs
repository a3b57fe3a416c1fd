//! The Rust client against a real server: TLS, loopback, disk.
//!
//! Guarantees: docs/guarantees.md#mutual-exclusion, docs/guarantees.md#locks-after-a-restart,
//! docs/guarantees.md#not-promised.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::in_process::{AnyError, Datacenter, Proxy};
use crate::fixture::lock as name;
use geolock::client::{
    AcquireError, AcquireRequest, Client, ClientConfig, ClientError, LockGuard, LostReason, Mode,
    OnDisconnect, Page, Reason, Transport, Wait,
};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

/// Far longer than anything here takes: a test that hangs fails.
const LONG: Duration = Duration::from_secs(60);

fn exclusive(text: &str) -> AcquireRequest {
    AcquireRequest::exclusive(name(text))
}

/// Requests it without waiting.
fn try_exclusive(text: &str) -> AcquireRequest {
    exclusive(text).wait(Wait::Try)
}

/// Waits until that many requests wait for the lock, as the server sees it.
async fn until_waiting(client: &Client, lock: &str, count: u64) -> Result<(), AnyError> {
    tokio::time::timeout(LONG, async {
        while client.describe_lock(&name(lock)).await?.waiting != count {}
        Ok(())
    })
    .await?
}

/// Waits until the lock can be acquired.
async fn until_free(client: &Client, lock: &str) -> Result<(), AnyError> {
    let guard = client.acquire(exclusive(lock).wait(Wait::AtMost(LONG))).await?;
    Ok(guard.release().await?)
}

#[tokio::test]
async fn locks_are_held_until_they_are_released() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let (one, two) = (datacenter.client().await?, datacenter.client().await?);
    let request = exclusive("a").and(name("b"), Mode::Shared).label("one");
    let guard = one.acquire(request).await?;
    assert_eq!(guard.is_lost(), None);
    assert!(matches!(two.acquire(try_exclusive("a")).await, Err(AcquireError::NotFree)));
    let shared = two.acquire(AcquireRequest::shared(name("b")).wait(Wait::Try)).await?;
    let lost = guard.lost();
    let token = guard.token();
    guard.release().await?;
    assert_eq!(lost.await, LostReason::Released);
    let again = two.acquire(try_exclusive("a")).await?;
    assert!(again.token() > token);
    // Dropping a guard releases, too.
    drop(again);
    drop(shared);
    until_free(&one, "a").await?;
    one.close().await?;
    two.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_wait_that_is_too_long_says_who_is_in_the_way() -> Result<(), AnyError> {
    let (_datacenter, client) = Datacenter::with_client().await?;
    let guard = client.acquire(exclusive("a").label("the one")).await?;
    let late = client.acquire(exclusive("a").wait(Wait::AtMost(Duration::from_millis(10)))).await;
    let Err(AcquireError::TimedOut { locks, .. }) = late else { panic!("it timed out, this is {late:?}") };
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].holders[0].label, "the one");
    assert_eq!(locks[0].holders[0].token, guard.token().0);
    Ok(())
}

#[tokio::test]
async fn dropping_a_future_gives_the_request_up() -> Result<(), AnyError> {
    let (_datacenter, client) = Datacenter::with_client().await?;
    let guard = client.acquire(exclusive("a")).await?;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.acquire(exclusive("a")).await }
    });
    until_waiting(&client, "a", 1).await?;
    waiting.abort();
    until_waiting(&client, "a", 0).await?;
    guard.release().await?;
    until_free(&client, "a").await
}

#[tokio::test]
async fn a_broken_connection_is_none_of_the_callers_business() -> Result<(), AnyError> {
    for transport in [Transport::Native, Transport::Grpc] {
        goes_on_over(transport).await?;
    }
    Ok(())
}

async fn goes_on_over(transport: Transport) -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let (one, two) = (Proxy::start(datacenter.address).await?, Proxy::start(datacenter.address).await?);
    let config = ClientConfig { transport, ..datacenter.client_config(&[one.address, two.address])? };
    let client = Client::connect(config).await?;
    let other = datacenter.client().await?;
    let held = client.acquire(exclusive("held")).await?;
    let theirs = other.acquire(exclusive("theirs")).await?;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.acquire(exclusive("theirs")).await }
    });
    until_waiting(&other, "theirs", 1).await?;
    one.cut();
    // The release is sent without a connection, or on the next one.
    let released = client.acquire(exclusive("short")).await?.release();
    released.await?;
    theirs.release().await?;
    let granted = tokio::time::timeout(LONG, waiting).await???;
    assert!(granted.is_lost().is_none() && held.is_lost().is_none());
    assert!(matches!(other.acquire(try_exclusive("held")).await, Err(AcquireError::NotFree)));
    // Back again, without a pause.
    one.mend();
    two.cut();
    held.release().await?;
    until_free(&other, "held").await
}

#[tokio::test]
async fn locks_survive_a_restart_of_the_server() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let mut config = datacenter.client_config(&[datacenter.address])?;
    config.name = "other".into();
    let other = Client::connect(config).await?;
    let held = client.acquire(exclusive("held")).await?;
    let token = held.token();
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.acquire(exclusive("held")).await }
    });
    until_waiting(&client, "held", 1).await?;
    let released = client.acquire(exclusive("released")).await?;
    let datacenter = Datacenter::restart(datacenter.stop().await?).await?;
    // It is not known now if the server is up.
    drop(released);
    until_free(&client, "released").await?;
    assert_eq!(held.is_lost(), None, "it was reclaimed");
    assert_eq!(held.token(), token);
    until_waiting(&client, "held", 1).await?;
    held.release().await?;
    let next = tokio::time::timeout(LONG, waiting).await???;
    assert!(next.token() > token);
    next.release().await?;
    client.close().await?;
    other.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// Callers see grants, one at a time, and nothing else, whatever faults occur.
#[tokio::test]
async fn a_critical_section_stays_one_through_cuts_and_restarts() -> Result<(), AnyError> {
    const TASKS: usize = 8;
    const ROUNDS: usize = 60;
    let mut datacenter = Datacenter::start().await?;
    let proxies = [Proxy::start(datacenter.address).await?, Proxy::start(datacenter.address).await?];
    let inside = Arc::new(Mutex::new(()));
    let (count, mut counted) = watch::channel(0);
    let mut tasks = JoinSet::new();
    let mut clients = Vec::new();
    for (proxy, transport) in proxies.iter().zip([Transport::Native, Transport::Grpc]) {
        // The other path is the second endpoint.
        let endpoints = [proxy.address, datacenter.address];
        let config = ClientConfig { transport, ..datacenter.client_config(&endpoints)? };
        clients.push(Client::connect(config).await?);
    }
    for task in 0..TASKS {
        let (client, inside, count) = (clients[task % 2].clone(), Arc::clone(&inside), count.clone());
        tasks.spawn(async move {
            let mut last = 0;
            for round in 0..ROUNDS {
                let guard = acquire_through_drains(&client, "counter").await?;
                let alone = inside.try_lock().map_err(|_| "somebody else is in the critical section")?;
                assert!(guard.token().0 > last, "tokens grow");
                last = guard.token().0;
                let value = *count.borrow();
                tokio::task::yield_now().await;
                count.send_replace(value + 1);
                drop(alone);
                // Both ways to release.
                if round % 2 == 0 { guard.release().await? } else { drop(guard) }
            }
            Ok::<_, AnyError>(())
        });
    }
    for fault in 1..=6 {
        counted.wait_for(|count| *count >= fault * TASKS * ROUNDS / 8).await?;
        match fault % 3 {
            0 => datacenter = Datacenter::restart(datacenter.stop().await?).await?,
            way => {
                proxies[way - 1].cut();
                proxies[way - 1].mend();
            }
        }
    }
    while let Some(done) = tokio::time::timeout(LONG, tasks.join_next()).await? {
        done??;
    }
    assert_eq!(*counted.borrow(), TASKS * ROUNDS);
    until_free(&clients[0], "counter").await?;
    let left = clients[0].describe_lock(&name("counter")).await?;
    assert!(left.holders.is_empty() && left.waiting == 0, "{left:?}");
    for client in clients {
        client.close().await?;
    }
    datacenter.stop().await?;
    Ok(())
}

/// Acquires a lock. A server that stops refuses new requests; the next run grants them.
async fn acquire_through_drains(client: &Client, lock: &str) -> Result<LockGuard, AcquireError> {
    loop {
        match client.acquire(exclusive(lock)).await {
            Err(AcquireError::Draining) => tokio::task::yield_now().await,
            outcome => return outcome,
        }
    }
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_is_lost_and_replaced() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let mut config = datacenter.client_config(&[proxy.address])?;
    config.ttl = Some(Duration::from_secs(2));
    config.connect_timeout = Duration::from_secs(1);
    let client = Client::connect(config).await?;
    let guard = client.acquire(exclusive("a")).await?;
    proxy.cut();
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await?, LostReason::Expired);
    assert_eq!(guard.is_lost(), Some(LostReason::Expired));
    let released = guard.release().await;
    assert!(matches!(released, Err(ClientError::LeaseLost(LostReason::Expired))), "{released:?}");
    // No server is reachable, and the call returns an error.
    let timed = client.acquire(exclusive("a").wait(Wait::AtMost(Duration::from_millis(10)))).await;
    assert!(matches!(timed, Err(AcquireError::Unreachable)), "{timed:?}");
    proxy.mend();
    until_free(&client, "a").await
}

/// A client that keeps writing on a dead connection does not stay on it because of its writes.
#[tokio::test]
async fn a_connection_that_only_takes_is_left_before_the_lease_is_over() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    tokio::try_join!(
        leaves_the_dead_line(&datacenter, Transport::Native),
        leaves_the_dead_line(&datacenter, Transport::Grpc),
    )?;
    Ok(())
}

async fn leaves_the_dead_line(datacenter: &Datacenter, transport: Transport) -> Result<(), AnyError> {
    let ttl = Duration::from_secs(8);
    let proxy = Proxy::start(datacenter.address).await?;
    let endpoints = [proxy.address, datacenter.address];
    let config = ClientConfig { transport, ttl: Some(ttl), ..datacenter.client_config(&endpoints)? };
    let client = Client::connect(config).await?;
    let held = client.acquire(exclusive(&format!("held {transport:?}"))).await?;
    proxy.silence();
    let (mut small, mut calls) = (tokio::time::interval(ttl / 8), JoinSet::new());
    let answered = loop {
        tokio::select! {
            answered = calls.join_next(), if !calls.is_empty() => break answered,
            _ = small.tick() => {
                let (client, lock) = (client.clone(), format!("{transport:?} {}", calls.len()));
                calls.spawn(async move { client.acquire(exclusive(&lock)).await });
            }
        }
    };
    answered.expect("there was a call")??.release().await?;
    assert_eq!(held.is_lost(), None, "it went on over the other endpoint ({transport:?})");
    Ok(held.release().await?)
}

#[tokio::test]
async fn a_lease_can_end_with_its_connection() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let mut config = datacenter.client_config(&[proxy.address])?;
    config.on_disconnect = OnDisconnect::Release;
    let client = Client::connect(config).await?;
    let other = datacenter.client().await?;
    let guard = client.acquire(exclusive("a")).await?;
    proxy.cut();
    assert_eq!(tokio::time::timeout(LONG, guard.lost()).await?, LostReason::Disconnected);
    until_free(&other, "a").await
}

#[tokio::test]
async fn closing_gives_everything_back() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let (client, other) = (datacenter.client().await?, datacenter.client().await?);
    let guard = client.acquire(exclusive("a")).await?;
    let clone = client.clone();
    client.close().await?;
    assert_eq!(guard.lost().await, LostReason::Closed);
    assert!(matches!(clone.acquire(exclusive("b")).await, Err(AcquireError::Closed)));
    other.acquire(try_exclusive("a")).await?.release().await?;
    // The same by dropping the client, once the last guard is dropped, too.
    let guard = other.acquire(exclusive("c")).await?;
    drop(other);
    assert_eq!(guard.is_lost(), None);
    let third = datacenter.client().await?;
    assert!(matches!(third.acquire(try_exclusive("c")).await, Err(AcquireError::NotFree)));
    drop(guard);
    until_free(&third, "c").await
}

#[tokio::test]
async fn a_server_that_drains_says_so() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let guard = client.acquire(exclusive("a")).await?;
    datacenter.drain();
    let refused = loop {
        // Until the server has noticed it.
        match client.acquire(exclusive("b").wait(Wait::AtMost(Duration::ZERO))).await {
            Ok(guard) => guard.release().await?,
            Err(refused) => break refused,
        }
    };
    // The server may have stopped already.
    assert!(matches!(refused, AcquireError::Draining | AcquireError::Unreachable), "{refused:?}");
    drop(guard);
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_client_can_look() -> Result<(), AnyError> {
    let (_datacenter, client) = Datacenter::with_client().await?;
    let mut guards = Vec::new();
    for number in 0..3 {
        guards.push(client.acquire(exclusive(&format!("jobs/{number}"))).await?);
    }
    guards.push(client.acquire(exclusive("other")).await?);
    let (mut found, mut page) = (Vec::new(), Page { size: 2, ..Page::default() });
    loop {
        let listed = client.list_locks(b"jobs/", page.clone()).await?;
        found.extend(listed.locks.into_iter().map(|lock| lock.name));
        let Some(next) = listed.next else { break };
        page.token = next;
    }
    found.sort();
    assert_eq!(found, ["jobs/0", "jobs/1", "jobs/2"]);
    let status = client.status().await?;
    assert_eq!((status.dc, &*status.dc_name), (0, "here"));
    Ok(())
}

#[tokio::test]
async fn what_cannot_work_is_told_at_once() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let good = datacenter.client_config(&[datacenter.address])?;

    let mut config = good.clone();
    config.ttl = Some(Duration::from_millis(10));
    let refused = Client::connect(config).await;
    assert!(matches!(refused, Err(ClientError::Refused(Reason::TtlOutOfRange, _))), "{refused:?}");

    let mut config = good.clone();
    config.endpoints = vec!["nonsense".into()];
    assert!(matches!(Client::connect(config).await, Err(ClientError::Config(_))));

    let mut config = good.clone();
    // A port without a listener: a proxy had it a moment ago.
    let proxy = Proxy::start(datacenter.address).await?;
    proxy.cut();
    config.endpoints = vec![proxy.address.to_string()];
    let unreachable = Client::connect(config).await;
    assert!(matches!(unreachable, Err(ClientError::Unreachable { .. })), "{unreachable:?}");

    let mut config = good.clone();
    config.tls.certificate.as_mut().expect("it has one").key_pem = "no key".into();
    assert!(matches!(Client::connect(config).await, Err(ClientError::Tls(_))));

    let stranger = tempfile::tempdir()?;
    let tls = strangers_tls(stranger.path())?;
    let refused = Client::connect(geolock::client::ClientConfig { tls, ..good.clone() }).await;
    assert!(matches!(refused, Err(ClientError::Unreachable { .. })), "{refused:?}");

    let client = Client::connect(good).await?;
    let mut many = exclusive("0");
    for number in 1..=10_000 {
        many = many.and(name(&number.to_string()), Mode::Exclusive);
    }
    let refused = client.acquire(many).await;
    assert!(matches!(refused, Err(AcquireError::Refused(Reason::TooManyLocks, _))), "{refused:?}");
    let refused = client.acquire(exclusive("a").label("x".repeat(257))).await;
    assert!(matches!(refused, Err(AcquireError::Refused(Reason::LabelTooLong, _))), "{refused:?}");
    until_free(&client, "a").await
}

/// Returns certificates of another cluster.
fn strangers_tls(dir: &Path) -> Result<geolock::client::ClientTls, AnyError> {
    let made = geolock::pki::playground(dir, "strangers", geolock_api::names::DcId::new(0))?;
    Ok(geolock::client::ClientTls::from_dir(made.client)?)
}

#[tokio::test]
async fn clients_over_grpc_and_over_the_native_protocol_share_locks() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let mut config = datacenter.client_config(&[datacenter.address])?;
    assert_eq!(config.transport, Transport::Native, "unless it is told otherwise");
    let native = Client::connect(config.clone()).await?;
    config.transport = Transport::Grpc;
    let grpc = Client::connect(config).await?;
    let guard = grpc.acquire(exclusive("a")).await?;
    assert!(matches!(native.acquire(try_exclusive("a")).await, Err(AcquireError::NotFree)));
    let (waits, waiter) = (native.clone(), exclusive("a").wait(Wait::AtMost(LONG)));
    let waiting = tokio::spawn(async move { waits.acquire(waiter).await });
    until_waiting(&native, "a", 1).await?;
    let first = guard.token();
    guard.release().await?;
    assert!(waiting.await??.token() > first);
    until_free(&grpc, "a").await?;
    native.close().await?;
    grpc.close().await?;
    datacenter.stop().await?;
    Ok(())
}
