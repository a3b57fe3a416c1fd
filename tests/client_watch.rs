//! Watches of the Rust client against a real server, whose connections break and which restarts.

mod support;

use std::time::Duration;

use geolock::client::{
    Action, AtLeast, Batch, Change, Client, ClientError, Key, Reason, TxnError, TxnRequest, Update, Viewer,
    Watch, WatchRequest,
};
use support::{AnyError, Datacenter, Proxy, connect, start};

fn key(name: &str) -> Key {
    Key::new(b"test", name.as_bytes()).expect("a test key is valid")
}

fn put(name: &str, value: &'static str) -> Change {
    Change { key: key(name), action: Action::Update(Update::register(value)) }
}

async fn writes(client: &Client, name: &str, value: &'static str) -> Result<(), AnyError> {
    client.update(&key(name), Update::register(value)).await?;
    Ok(())
}

/// Cuts the way, and asks the server until it knows that only so many watches are left.
async fn cut(proxy: &Proxy, client: &Client, left: u64) -> Result<(), AnyError> {
    proxy.cut();
    while client.status().await?.counts["watches"] != left {
        tokio::task::yield_now().await;
    }
    Ok(())
}

async fn hears(watch: &mut Watch, expected: Change) -> Result<(), AnyError> {
    assert_eq!(watch.next().await?.changes, [expected]);
    Ok(())
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was_when_its_connection_breaks() -> Result<(), AnyError> {
    let (_dir, datacenter) = start().await?;
    let proxy = Proxy::start(datacenter.address).await?;
    let client = connect(&datacenter).await?;
    let viewer = Viewer::connect(datacenter.client_config(&[proxy.address])?).await?;
    writes(&client, "a", "before").await?;
    let mut watch = viewer.watch(WatchRequest::new("test", "a").and("test", "b")).await?;
    writes(&client, "other", "not followed").await?;
    writes(&client, "a", "1").await?;
    hears(&mut watch, put("a", "1")).await?;
    cut(&proxy, &client, 0).await?;
    writes(&client, "b", "2").await?;
    writes(&client, "a", "3").await?;
    {
        // Given up while it connects again, which is no reason to begin with that again.
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

#[tokio::test]
async fn a_watch_ends_when_the_server_does_not_remember_that_far() -> Result<(), AnyError> {
    let (_dir, datacenter) = start().await?;
    let config = datacenter.client_config(&[datacenter.address])?;
    let client = Client::connect(config.clone()).await?;
    let viewer = Viewer::connect(config.clone()).await?;
    let mut watch = viewer.watch(WatchRequest::new("test", "")).await?;
    writes(&client, "a", "1").await?;
    hears(&mut watch, put("a", "1")).await?;
    let position = watch.position().clone();
    // It does not listen while this is written, and the server restarts.
    let proxy = Proxy::start(datacenter.address).await?;
    let through = Viewer::connect(datacenter.client_config(&[proxy.address])?).await?;
    let mut behind = through.watch(WatchRequest::new("test", "").after(&position)).await?;
    cut(&proxy, &client, 1).await?;
    writes(&client, "a", "2").await?;
    hears(&mut watch, put("a", "2")).await?;
    client.close().await?;
    let datacenter = Datacenter::restart(datacenter.stop().await?).await?;
    proxy.mend();

    let client = Client::connect(config).await?;
    // This one knows all that was before the restart.
    writes(&client, "a", "3").await?;
    hears(&mut watch, put("a", "3")).await?;
    let too_old = behind.next().await;
    assert!(matches!(too_old, Err(ClientError::WatchTooOld(_))), "{too_old:?}");
    let view = client.read_many(&[key("a")], &AtLeast::default()).await?;
    let mut anew = viewer.watch(WatchRequest::new("test", "").after(&view.snapshot)).await?;
    writes(&client, "a", "4").await?;
    hears(&mut anew, put("a", "4")).await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}

#[tokio::test]
async fn keys_that_lapse_are_told() -> Result<(), AnyError> {
    let (_dir, datacenter) = start().await?;
    let client = connect(&datacenter).await?;
    let mut watch = client.viewer()?.watch(WatchRequest::new("test", "")).await?;
    let lives = Duration::from_millis(50);
    client.update_for(&key("k"), Update::register("v"), lives).await?;
    let expires = Change { key: key("k"), action: Action::Expires(lives) };
    assert_eq!(watch.next().await?.changes, [put("k", "v"), expires]);
    hears(&mut watch, Change { key: key("k"), action: Action::Lapsed }).await?;
    assert!(!client.read(&key("k")).await?.is_some());

    let mut txn = client.begin(TxnRequest::new()).await?;
    txn.update(&key("k"), Update::register("new")).await?;
    for lives in [Duration::ZERO, Duration::MAX] {
        let refused = txn.expire(&key("k"), lives).await;
        assert!(matches!(refused, Err(TxnError::Refused(Reason::ExpiryOutOfRange, _))), "{refused:?}");
    }
    // In one step: a moment later the key may have gone, and be free again.
    let both = Batch::new().update(&key("job"), Update::versioned_done(1, "v"));
    let refused = txn.run(both.update(&key("job"), Update::versioned(2, "v"))).await;
    assert!(matches!(refused, Err(TxnError::Refused(Reason::ValueDone, _))), "{refused:?}");
    txn.commit().await?;
    hears(&mut watch, put("k", "new")).await?;
    client.update(&key("job"), Update::versioned_done(1, "v")).await?;
    hears(&mut watch, Change { key: key("job"), action: Action::Update(Update::versioned_done(1, "v")) })
        .await?;
    hears(&mut watch, Change { key: key("job"), action: Action::Lapsed }).await?;
    client.close().await?;
    datacenter.stop().await?;
    Ok(())
}
