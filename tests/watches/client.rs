//! Watches of the Rust client against a real server, with breaking connections and restarts.
//!
//! Guarantees: docs/guarantees.md#keys-that-end, docs/guarantees.md#watches.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::fixture::in_process::{AnyError, Datacenter, Proxy};
use crate::fixture::{key, lock as name, within};
use geolock::client::{
    AcquireRequest, Action, AtLeast, Batch, Change, Client, ClientError, LockEvent, LockWatch,
    LockWatchRequest, Mode, ReadClient, Reason, Snapshot, TxnError, TxnRequest, Update, Watch, WatchEvent,
    WatchRequest,
};
use geolock_api::names::LockName;

fn put(name: &str, value: &'static str) -> Change {
    Change { key: key(name), action: Action::Update(Update::register(value)) }
}

async fn writes(client: &Client, name: &str, value: &'static str) -> Result<(), AnyError> {
    client.update(&key(name), Update::register(value)).await?;
    Ok(())
}

/// Cuts the connection, and waits until the server has only that many watches left.
async fn cut(proxy: &Proxy, client: &Client, left: u64) -> Result<(), AnyError> {
    proxy.cut();
    within(async {
        while client.status().await?.counts["watches"] != left {}
        Ok(())
    })
    .await
}

async fn hears(watch: &mut Watch, expected: Change) -> Result<(), AnyError> {
    assert_eq!(watch.next().await?.changes, [expected]);
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_when_its_connection_breaks() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let client = datacenter.client().await?;
    let reader = ReadClient::connect(datacenter.client_config(&[proxy.address])?).await?;
    writes(&client, "a", "before").await?;
    let mut watch = reader.watch(WatchRequest::new("test", "a").and("test", "b")).await?;
    writes(&client, "other", "not followed").await?;
    writes(&client, "a", "1").await?;
    hears(&mut watch, put("a", "1")).await?;
    cut(&proxy, &client, 0).await?;
    writes(&client, "b", "2").await?;
    writes(&client, "a", "3").await?;
    {
        // The future is dropped while the client reconnects; the next call continues that attempt.
        let mut next = Box::pin(watch.next());
        tokio::select! {
            biased;
            changed = &mut next => panic!("nothing can be heard: {changed:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    proxy.mend();
    hears(&mut watch, put("b", "2")).await?;
    hears(&mut watch, put("a", "3")).await?;
    client.transact(TxnRequest::new(), Batch::new().remove(&key("a"))).await?;
    hears(&mut watch, Change { key: key("a"), action: Action::Removed }).await?;

    let view = client.read_many(&[key("b")], &AtLeast::default()).await?;
    assert_eq!(watch.position(), &view.snapshot);
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// Nothing tells the client that its connection is dead, so it asks the server again and again.
#[tokio::test]
async fn watches_notice_a_network_that_swallows_everything() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let client = datacenter.client().await?;
    let mut config = datacenter.client_config(&[proxy.address, datacenter.address])?;
    config.connect_timeout = Duration::from_millis(500);
    let reader = ReadClient::connect(config).await?;
    let mut keys = reader.watch(WatchRequest::new("test", "a")).await?;
    let mut locks = reader.watch_locks(LockWatchRequest::of(&name("lock"))).await?;
    proxy.silence();
    writes(&client, "a", "1").await?;
    let guard = client.acquire(AcquireRequest::exclusive(name("lock"))).await?;
    within(async {
        hears(&mut keys, put("a", "1")).await?;
        while !matches!(locks.next().await?, LockEvent::Granted(_)) {}
        Ok::<_, AnyError>(())
    })
    .await?;
    guard.release().await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// Commits changes of a key that is not watched, more than the server keeps for watches.
async fn forget(client: &Client) -> Result<Snapshot, AnyError> {
    let large = "x".repeat(900_000);
    let mut commit = Snapshot::default();
    for _ in 0..6 {
        let batch = Batch::new().update(&key("large"), Update::register(large.clone()));
        commit = client.transact(TxnRequest::new(), batch).await?.commit;
    }
    Ok(commit)
}

#[tokio::test]
async fn a_watch_goes_on_after_a_restart_of_the_server() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let config = datacenter.client_config(&[datacenter.address])?;
    let client = Client::connect(config.clone()).await?;
    let reader = ReadClient::connect(config.clone()).await?;
    let mut watch = reader.watch(WatchRequest::of(&key("a"))).await?;
    writes(&client, "a", "1").await?;
    hears(&mut watch, put("a", "1")).await?;
    // This watch is not polled while changes are written and the server restarts.
    let proxy = Proxy::start(datacenter.address).await?;
    let through = ReadClient::connect(datacenter.client_config(&[proxy.address])?).await?;
    let mut behind = through.watch(WatchRequest::new("test", "a").from_snapshot(watch.position())).await?;
    cut(&proxy, &client, 1).await?;
    writes(&client, "a", "2").await?;
    writes(&client, "aa", "not the key").await?;
    hears(&mut watch, put("a", "2")).await?;
    client.close().await?;
    let datacenter = Datacenter::restart(datacenter.stop().await?).await?;
    proxy.mend();

    let client = Client::connect(config).await?;
    writes(&client, "a", "3").await?;
    hears(&mut watch, put("a", "3")).await?;
    for expected in [put("a", "2"), put("aa", "not the key"), put("a", "3")] {
        hears(&mut behind, expected).await?;
    }
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn a_quiet_watch_does_not_fall_behind_and_one_that_was_away_for_long_says_so() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let config = datacenter.client_config(&[datacenter.address])?;
    let client = Client::connect(config.clone()).await?;
    let reader = ReadClient::connect(config.clone()).await?;
    let mut quiet = reader.watch(WatchRequest::new("test", "a")).await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let through = ReadClient::connect(datacenter.client_config(&[proxy.address])?).await?;
    let mut away = through.watch(WatchRequest::new("test", "a")).await?;
    cut(&proxy, &client, 1).await?;
    forget(&client).await?;
    let last = forget(&client).await?;
    while quiet.position() != &last {
        assert_eq!(quiet.next_event().await?, WatchEvent::Progress);
    }
    client.close().await?;
    let datacenter = Datacenter::restart(datacenter.stop().await?).await?;
    proxy.mend();

    let client = Client::connect(config).await?;
    let too_old = away.next().await;
    assert!(matches!(too_old, Err(ClientError::WatchTooOld(_))), "{too_old:?}");
    let view = client.read_many(&[key("a")], &AtLeast::default()).await?;
    let mut anew = reader.watch(WatchRequest::new("test", "").from_snapshot(&view.snapshot)).await?;
    writes(&client, "a", "1").await?;
    hears(&mut quiet, put("a", "1")).await?;
    hears(&mut anew, put("a", "1")).await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

/// Returns the holders that the watch reports until the next complete state.
async fn holders(watch: &mut LockWatch) -> Result<BTreeMap<LockName, String>, AnyError> {
    let mut held = BTreeMap::new();
    loop {
        match watch.next().await? {
            LockEvent::HoldersReset => held.clear(),
            LockEvent::Granted(holding) => {
                held.extend(holding.locks.into_iter().map(|(lock, _)| (lock, holding.label.clone())));
            }
            LockEvent::Released(holding) => {
                holding.locks.iter().for_each(|(lock, _)| drop(held.remove(lock)))
            }
            LockEvent::HoldersSynced => return Ok(held),
            other => panic!("nothing moves in a cluster of one, this is {other:?}"),
        }
    }
}

#[tokio::test]
async fn who_follows_locks_knows_who_holds_them_also_when_the_connection_breaks() -> Result<(), AnyError> {
    let datacenter = Datacenter::start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let client = Client::connect(datacenter.client_config(&[datacenter.address])?).await?;
    let reader = ReadClient::connect(datacenter.client_config(&[proxy.address])?).await?;
    let ask = |lock: &str| AcquireRequest::exclusive(name(lock)).label(format!("who has {lock}"));
    let before = client.acquire(ask("job/1")).await?;
    client.acquire(ask("other")).await?.release().await?;
    let request = LockWatchRequest::prefix("job/").and(&name("solo"));
    let mut watch = reader.watch_locks(request).await?;
    let held = |locks: &[&str]| -> BTreeMap<LockName, String> {
        locks.iter().map(|lock| (name(lock), format!("who has {lock}"))).collect()
    };
    assert_eq!(holders(&mut watch).await?, held(&["job/1"]));
    let solo = client.acquire(ask("solo")).await?;
    match watch.next().await? {
        LockEvent::Granted(holding) => {
            assert_eq!((holding.token, holding.locks), (solo.token(), vec![(name("solo"), Mode::Exclusive)]));
        }
        other => panic!("solo was granted, this is {other:?}"),
    }
    cut(&proxy, &client, 0).await?;
    before.release().await?;
    let after = client.acquire(ask("job/2")).await?;
    proxy.mend();
    assert_eq!(holders(&mut watch).await?, held(&["job/2", "solo"]));
    // After a restart, holders are reported again as soon as they have reclaimed.
    let datacenter = Datacenter::restart(datacenter.stop().await?).await?;
    let mut known = holders(&mut watch).await?;
    while known != held(&["job/2", "solo"]) {
        match watch.next().await? {
            LockEvent::Granted(holding) => {
                known.extend(holding.locks.into_iter().map(|(lock, _)| (lock, holding.label.clone())));
            }
            other => panic!("holders come back, this is {other:?}"),
        }
    }
    after.release().await?;
    solo.release().await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn keys_that_lapse_are_told() -> Result<(), AnyError> {
    let (datacenter, client) = Datacenter::with_client().await?;
    let mut watch = client.read_client()?.watch(WatchRequest::new("test", "")).await?;
    let lives = Duration::from_millis(50);
    client.update_for(&key("k"), Update::register("v"), lives).await?;
    let expires = Change { key: key("k"), action: Action::Expires(lives) };
    assert_eq!(watch.next().await?.changes, [put("k", "v"), expires]);
    hears(&mut watch, Change { key: key("k"), action: Action::Expired }).await?;
    assert!(!client.read(&key("k")).await?.is_some());

    let mut txn = client.begin(TxnRequest::new()).await?;
    txn.update(&key("k"), Update::register("new")).await?;
    for lives in [Duration::ZERO, Duration::MAX] {
        let refused = txn.expire(&key("k"), lives).await;
        assert!(matches!(refused, Err(TxnError::Refused(Reason::ExpiryOutOfRange, _))), "{refused:?}");
    }
    // In one step: a moment later the key may have expired, and be free again.
    let both = Batch::new().update(&key("job"), Update::versioned_done(1, "v"));
    let refused = txn.run(both.update(&key("job"), Update::versioned(2, "v"))).await;
    assert!(matches!(refused, Err(TxnError::Refused(Reason::ValueDone, _))), "{refused:?}");
    txn.commit().await?;
    hears(&mut watch, put("k", "new")).await?;
    client.update(&key("job"), Update::versioned_done(1, "v")).await?;
    hears(&mut watch, Change { key: key("job"), action: Action::Update(Update::versioned_done(1, "v")) })
        .await?;
    hears(&mut watch, Change { key: key("job"), action: Action::Expired }).await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}
