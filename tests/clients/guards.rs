//! The Rust client's transactions under guards, and futures under a lock.
//!
//! Guarantee: docs/guarantees.md#isolation.

use crate::fixture::in_process::{AnyError, Datacenter};
use crate::fixture::{key, lock as name, within};
use geolock::client::{
    AcquireRequest, AdminClient, Batch, CommitError, ForceReason, LockGuard, LostReason, Reason, TxnError,
    TxnRequest, Update, Wait, WithLockError,
};
use tokio::sync::oneshot;

fn put(value: &'static str) -> Batch {
    Batch::new().update(&key("r"), Update::register(value))
}

#[tokio::test]
async fn a_transaction_commits_under_a_guard_and_not_without_it() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let guard = client.acquire(AcquireRequest::exclusive(name("x"))).await?;
    let done = client.transact(TxnRequest::new().under(&guard), put("one")).await?;
    assert_eq!(guard.is_lost(), None, "it lets nothing go");
    let request = TxnRequest::new().under(&guard);
    let mut open = client.begin(request.clone()).await?;
    open.update(&key("r"), Update::register("two")).await?;
    guard.release().await?;
    let error = open.commit().await.expect_err("the lock is free");
    let is_lost = |error: &CommitError| {
        matches!(error, CommitError::NotCommitted(TxnError::Over(Reason::TransactionLostLocks, _)))
    };
    assert!(is_lost(&error), "{error}");
    let error = client.transact(request, put("three")).await.expect_err("the lock is free");
    assert!(is_lost(&error), "{error}");

    let next = client.acquire(AcquireRequest::exclusive(name("x"))).await?;
    assert!(next.snapshot().seqs.iter().zip(&done.commit.seqs).all(|(has, seq)| has >= seq));
    let many = (0..17).fold(TxnRequest::new(), |request, _| request.under(&next));
    let error = client.transact(many, put("four")).await.expect_err("there are too many guards");
    assert!(
        matches!(error, CommitError::NotCommitted(TxnError::Refused(Reason::TransactionTooLarge, _))),
        "{error}"
    );
    assert_eq!(client.read(&key("r")).await?.register()?.map(|value| &value[..]), Some(&b"one"[..]));
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_restarted_server_knows_the_guards_again() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let guard = client.acquire(AcquireRequest::exclusive(name("x"))).await?;
    let stopped = datacenter.stop().await?;
    let (started, done) = tokio::join!(
        Datacenter::restart(stopped),
        within(client.transact(TxnRequest::new().under(&guard), put("one")))
    );
    done?;
    assert_eq!(guard.is_lost(), None);
    client.close().await?;
    started?.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_future_runs_under_a_lock_until_its_end_or_the_loss_of_the_lock() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let exclusive = || AcquireRequest::exclusive(name("x"));
    let token = client.with_lock(exclusive(), async |held: &LockGuard| held.token()).await?;
    let guard = client.acquire(exclusive().wait(Wait::Try)).await?;
    assert!(guard.token() > token, "it is released");
    let busy = client.with_lock(exclusive().wait(Wait::Try), async |_: &LockGuard| ()).await;
    assert!(matches!(busy, Err(WithLockError::NotAcquired(_))), "{busy:?}");
    guard.release().await?;

    let (tell, runs) = oneshot::channel();
    let running = tokio::spawn({
        let (client, request) = (client.clone(), exclusive());
        async move {
            let work = async |_: &LockGuard| {
                let _ = tell.send(());
                std::future::pending::<()>().await
            };
            client.with_lock(request, work).await
        }
    });
    runs.await?;
    let operator = AdminClient::connect(datacenter.client_config(&[datacenter.address])?).await?;
    operator.force_release(&name("x"), &ForceReason::new("it hangs")?).await?;
    let lost = within(running).await?;
    assert!(matches!(&lost, Err(WithLockError::Lost(LostReason::ForceReleased { .. }))), "{lost:?}");
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}
