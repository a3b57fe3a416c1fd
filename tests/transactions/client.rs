//! Transactions of the Rust client against a real server, with breaking connections and restarts.
//!
//! Guarantee: docs/guarantees.md#commits.

use std::sync::Arc;
use std::time::Duration;

use crate::fixture::in_process::{AnyError, Datacenter, Proxy};
use crate::fixture::{key, lock as name};
use geolock::client::{
    AcquireError, AcquireRequest, AtLeast, Batch, Client, ClientConfig, CommitError, LostReason, Mode,
    OnDisconnect, Reason, Snapshot, Transport, TxnError, TxnRequest, Update, Wait,
};
use tokio::sync::watch;
use tokio::task::JoinSet;

async fn count(client: &Client) -> Result<i64, AnyError> {
    Ok(client.read(&key("n")).await?.counter()?)
}

#[tokio::test]
async fn a_transaction_reads_its_own_writes_and_others_when_it_has_committed() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let mut txn = client.begin(TxnRequest::new()).await?;
    assert_eq!(txn.token(), None);
    txn.update(&key("n"), Update::counter(5)).await?;
    txn.update(&key("who"), Update::set_add(["ann", "bob"])).await?;
    txn.update(&key("address"), Update::register("Oslo").in_field("city")).await?;
    let read = txn.read_many(&[key("n"), key("who"), key("address"), key("none")]).await?;
    assert_eq!((read[0].counter(), read[1].set()?.len()), (Ok(5), 2));
    assert_eq!(read[2].field("city")?.register()?.map(|city| &city[..]), Some(&b"Oslo"[..]));
    assert!(!read[3].is_some());
    let deep = (0..8).fold(Update::counter(1), |update, level| update.in_field(format!("{level}")));
    txn.update(&key("deep"), deep.clone()).await?;
    let mut inner = txn.read(&key("deep")).await?;
    for level in (0..8).rev() {
        inner = inner.field(format!("{level}"))?;
    }
    assert_eq!(inner.counter(), Ok(1));
    let deeper = txn.update(&key("deep"), deep.in_field("8")).await;
    assert!(matches!(deeper, Err(TxnError::Refused(Reason::ImpossibleOperation, _))), "{deeper:?}");
    assert_eq!(count(&client).await?, 0, "nobody else sees it");
    let error = read[1].counter().expect_err("it is a set").to_string();
    assert_eq!(error, "the value has type add-wins set, it was read as counter");
    let commit = txn.commit().await?;
    let view = client.read_many(&[key("n"), key("who")], &AtLeast::snapshot(&commit)).await?;
    assert_eq!((view.values[0].counter(), view.values[1].set()?.len()), (Ok(5), 2));

    let done = client.transact(TxnRequest::new(), Batch::new().remove(&key("who")).read(&key("who"))).await?;
    assert_eq!(done.values.map(|values| values[0].is_some()), Some(false));
    let reader = client.read_client()?;
    let view = reader.read(&[key("n"), key("who")], &AtLeast::snapshot(&done.commit)).await?;
    assert_eq!((view.values[0].counter(), view.values[1].is_some()), (Ok(5), false));
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// On a connection that is far too slow to transfer the data before the lease would end. Large data in either
/// direction is no reason to leave a connection that makes progress, and delays no renewal.
#[tokio::test]
async fn large_values_cost_nobody_on_a_slow_line_his_lease() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let over = |transport| large_values_over(transport, &datacenter);
    tokio::try_join!(over(Transport::Native), over(Transport::Grpc))?;
    datacenter.stop().await?;
    Ok(())
}

async fn large_values_over(transport: Transport, datacenter: &Datacenter) -> Result<(), AnyError> {
    let slow = Proxy::slow(datacenter.address, 150_000).await?;
    let mut config = ClientConfig { transport, ..datacenter.client_config(&[slow.address])? };
    // A client that reconnects has lost its lease.
    (config.ttl, config.on_disconnect) = (Some(Duration::from_secs(8)), OnDisconnect::Release);
    let client = Client::connect(config).await?;
    let guard = client.acquire(AcquireRequest::exclusive(name(&format!("{transport:?}")))).await?;
    let (value, key) = (vec![7; 1_000_000], key(&format!("{transport:?}")));
    client.update(&key, Update::register(value.clone())).await?;
    assert_eq!(guard.is_lost(), None, "{transport:?}: it was renewed between the pieces of what was written");
    let mut txn = client.begin(TxnRequest::new()).await?;
    assert_eq!(txn.read(&key).await?.register()?.map(|it| it.len()), Some(value.len()));
    txn.abort().await?;
    assert_eq!(guard.is_lost(), None, "{transport:?}: it was renewed between the pieces of what was read");
    guard.release().await?;
    client.close().await?;
    Ok(())
}

/// Each side writes more than the kernels of both buffer, at the same time.
#[tokio::test]
async fn large_values_go_both_ways_at_once() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let value = |n: u8| vec![n; 1_000_000];
    let keys = [key("a"), key("b"), key("c")];
    for (key, n) in keys.iter().zip(1..) {
        client.update(key, Update::register(value(n))).await?;
    }
    let mut reader = client.begin(TxnRequest::new()).await?;
    for round in 0..20 {
        let more = key("more");
        let write = client.update(&more, Update::register(value(round)));
        let (read, written) = tokio::join!(reader.read_many(&keys), write);
        written?;
        for (seen, n) in read?.iter().zip(1..) {
            assert!(seen.register()?.is_some_and(|seen| seen[..] == value(n)[..]), "round {round}");
        }
    }
    reader.abort().await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn what_is_refused_is_typed_and_leaves_the_transaction_as_it_was() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    client.update(&key("r"), Update::register("v")).await?;
    let mut txn = client.begin(TxnRequest::new()).await?;
    txn.update(&key("n"), Update::counter(1)).await?;
    let wrong = txn.update(&key("r"), Update::counter(1)).await;
    assert!(matches!(wrong, Err(TxnError::Refused(Reason::WrongType, _))), "{wrong:?}");
    let large = txn.update(&key("r"), Update::register(vec![0; 1 << 20])).await;
    assert!(matches!(large, Err(TxnError::Refused(Reason::ChangeTooLarge, _))), "{large:?}");
    let larger = txn.update(&key("r"), Update::register(vec![0; 2 << 20])).await;
    assert!(matches!(larger, Err(TxnError::Refused(Reason::TransactionTooLarge, _))), "{larger:?}");
    let locks = (0..1_000).map(|n| name(&format!("{n:01000}")));
    let request = locks.fold(TxnRequest::new(), |request, lock| request.lock(lock, Mode::Shared));
    let values = (0..3).map(|n| (key(&n.to_string()), Update::register(vec![0; 500_000])));
    let batch = values.fold(Batch::new(), |batch, (key, update)| batch.update(&key, update));
    let together = client.transact(request, batch).await;
    assert!(
        matches!(together, Err(CommitError::NotCommitted(TxnError::Refused(Reason::TransactionTooLarge, _)))),
        "{together:?}"
    );
    let stuck = Update::register("v").in_resettable_field("f");
    let stuck = txn.update(&key("m"), stuck).await;
    assert!(matches!(stuck, Err(TxnError::Refused(Reason::ImpossibleOperation, _))), "{stuck:?}");
    txn.commit().await?;
    assert_eq!(count(&client).await?, 1);

    let future = AtLeast::snapshot(&Snapshot { seqs: vec![1_000_000] });
    let refused = client.begin(TxnRequest::new().at_least(future)).await;
    assert!(matches!(refused, Err(TxnError::Refused(Reason::SnapshotAhead, _))), "{refused:?}");
    let wrong = client.update(&key("r"), Update::counter(1)).await;
    assert!(matches!(wrong, Err(CommitError::NotCommitted(TxnError::Refused(Reason::WrongType, _)))));
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn locks_are_the_transactions_until_it_ends_or_is_dropped() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let locked = || TxnRequest::exclusive(name("a")).wait(Wait::Try);
    let mut first = client.begin(locked()).await?;
    first.update(&key("n"), Update::counter(1)).await?;
    let second = client.begin(locked()).await;
    assert!(matches!(second, Err(TxnError::NotBegun(AcquireError::NotFree))), "{second:?}");
    let token = first.token().ok_or("it has a lock")?;
    drop(first);
    let mut third = client.begin(locked().wait(Wait::Forever)).await?;
    assert!(third.token().ok_or("it has a lock")? > token);
    assert_eq!(third.read(&key("n")).await?.counter(), Ok(0), "what was dropped never happened");
    third.abort().await?;
    client.begin(locked()).await?.commit().await?;
    let guard = client.acquire(AcquireRequest::exclusive(name("a")).wait(Wait::Try)).await?;
    let timed = client.begin(locked().wait(Wait::AtMost(Duration::from_millis(1)))).await;
    assert!(matches!(timed, Err(TxnError::NotBegun(AcquireError::TimedOut { .. }))), "{timed:?}");
    guard.release().await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_restart_of_the_server_ends_what_is_open_and_keeps_what_committed() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    client.update(&key("n"), Update::counter(1)).await?;
    let mut open = client.begin(TxnRequest::exclusive(name("a"))).await?;
    open.update(&key("n"), Update::counter(10)).await?;
    let datacenter = Datacenter::restart(datacenter.stop().await?).await?;
    let gone = open.read(&key("n")).await;
    assert!(matches!(gone, Err(TxnError::Over(Reason::TransactionUnknown, _))), "{gone:?}");
    let gone = open.commit().await;
    assert!(matches!(gone, Err(CommitError::NotCommitted(TxnError::Over(..)))), "{gone:?}");
    let mut next = client.begin(TxnRequest::exclusive(name("a"))).await?;
    assert_eq!(next.read(&key("n")).await?.counter(), Ok(1));
    next.commit().await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// Adds one, `times` times, in the manner that `turn` chooses; each addition is acknowledged before the next.
async fn add(client: &Client, times: u32, acknowledged: &watch::Sender<u32>) -> Result<(), AnyError> {
    for turn in 0..times {
        let one = Batch::new().update(&key("n"), Update::counter(1));
        loop {
            let done = if turn % 2 == 0 {
                client.transact(TxnRequest::new(), one.clone()).await.map(drop)
            } else {
                interactive(client).await
            };
            match done {
                Ok(()) => break,
                // Nothing was committed.
                Err(CommitError::NotCommitted(TxnError::Over(..) | TxnError::LeaseLost(_))) => {}
                Err(CommitError::NotCommitted(TxnError::NotBegun(AcquireError::Draining))) => {}
                Err(other) => return Err(other.into()),
            }
        }
        acknowledged.send_modify(|count| *count += 1);
    }
    Ok(())
}

/// Commits a transaction with changes in every step, so that a repeated step would show.
async fn interactive(client: &Client) -> Result<(), CommitError> {
    let mut txn = client.begin(TxnRequest::shared(name("a"))).await?;
    txn.update(&key("n"), Update::counter(2)).await?;
    txn.update(&key("n"), Update::counter(-2)).await?;
    txn.commit_with(Batch::new().update(&key("n"), Update::counter(1))).await.map(drop)
}

const TASKS: u32 = 8;
const TIMES: u32 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_commit_counts_once_through_cuts_and_restarts() -> Result<(), AnyError> {
    let mut datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let client = Client::connect(datacenter.client_config(&[proxy.address])?).await?;
    let (tell, mut acknowledged) = watch::channel(0);
    let tell = Arc::new(tell);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (client, tell) = (client.clone(), Arc::clone(&tell));
        tasks.spawn(async move { add(&client, TIMES, &tell).await });
    }
    let mut cuts = 0;
    for threshold in (20..TASKS * TIMES - 20).step_by(20) {
        // Others are in progress when that many are acknowledged.
        acknowledged.wait_for(|count| *count >= threshold).await?;
        proxy.cut();
        if threshold % 100 == 0 {
            datacenter = Datacenter::restart(datacenter.stop().await?).await?;
        }
        proxy.mend();
        cuts += 1;
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    assert!(cuts > 10, "there were {cuts} cuts");
    assert_eq!(count(&client).await?, i64::from(TASKS * TIMES));
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_in_doubt_is_known_although_its_lease_ended_with_the_connection() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let mut config = datacenter.client_config(&[proxy.address])?;
    config.on_disconnect = OnDisconnect::Release;
    let client = Client::connect(config).await?;
    let direct = datacenter.client().await?;
    let (n, mut committed) = (key("n"), 0);
    for turn in 0..50 {
        let one_shot = client.update(&n, Update::counter(1));
        let (done, ()) = tokio::join!(one_shot, async {
            // Sometimes before it is sent, sometimes after.
            for _ in 0..turn {
                tokio::task::yield_now().await;
            }
            proxy.cut();
            proxy.mend();
        });
        match done {
            Ok(_) => committed += 1,
            Err(CommitError::NotCommitted(TxnError::LeaseLost(LostReason::LeaseEnded))) => {}
            Err(other) => return Err(other.into()),
        }
        assert_eq!(count(&direct).await?, committed, "turn {turn}");
    }
    assert!(committed > 0);
    client.close().await?;
    direct.close().await?;
    datacenter.stop().await?;
    Ok(())
}
