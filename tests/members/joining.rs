//! Servers join while locks are held and used.

use std::time::Duration;

use crate::fixture::calls::{acquire, put, read};
use crate::fixture::history::serving_at;
use crate::fixture::{Cluster, lock, within};
use crate::growth::{AUTO, all_settled, joined, listed, prepared};
use geolock::client::{AcquireError, AcquireRequest, Client, Wait};

fn briefly(name: &str) -> AcquireRequest {
    AcquireRequest::exclusive(lock(name)).wait(Wait::AtMost(Duration::from_millis(300)))
}

/// A lock that is held in one datacenter is granted in no other; released, it is, with a higher token.
async fn excludes(clients: &[Client], name: &str) {
    let mut last = None;
    for holder in clients {
        let held = acquire(holder, AcquireRequest::exclusive(lock(name))).await;
        assert!(last.is_none_or(|last| last < held.token()), "{name}");
        last = Some(held.token());
        for other in clients {
            let refused = within(other.acquire(briefly(name))).await.err();
            assert!(matches!(refused, Some(AcquireError::TimedOut { .. })), "{name}: {refused:?}");
        }
        held.release().await.expect("it was held");
    }
}

async fn clients(cluster: &Cluster) -> Vec<Client> {
    let mut clients = Vec::new();
    for dc in 0..3 {
        clients.push(serving_at(cluster, dc).await);
    }
    clients
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_grows_to_three_while_locks_are_held() {
    let mut cluster = prepared(AUTO);
    cluster.launch(0);
    cluster.server(0).line("listening");
    let first = serving_at(&cluster, 0).await;
    let before = acquire(&first, AcquireRequest::exclusive(lock("before"))).await;
    let before_token = before.token();
    before.release().await.expect("it was held");
    let written = put(&first, "city", "Oslo").await;
    let held = acquire(&first, AcquireRequest::exclusive(lock("held"))).await;

    let second = joined(&mut cluster, 1).await;
    assert_eq!(read(&second, "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    let refused = within(second.acquire(briefly("held"))).await.err();
    assert!(matches!(refused, Some(AcquireError::TimedOut { .. })), "{refused:?}");
    let shared = acquire(&second, AcquireRequest::shared(lock("read everywhere"))).await;

    // It asks the second one.
    let third = joined(&mut cluster, 2).await;
    assert_eq!(held.is_lost(), None, "nobody lost a lock");
    let refused = within(third.acquire(briefly("held"))).await.err();
    assert!(matches!(refused, Some(AcquireError::TimedOut { .. })), "{refused:?}");
    let also = acquire(&third, AcquireRequest::shared(lock("read everywhere"))).await;
    let taken = acquire(&third, AcquireRequest::exclusive(lock("before"))).await;
    assert!(taken.token() > before_token);
    for guard in [held, shared, also, taken] {
        guard.release().await.expect("it was held");
    }
    for dc in 0..3 {
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
    }
    let three = [first, second, third];
    for name in ["before", "held", "read everywhere", "never used"] {
        excludes(&three, name).await;
    }
    drop(three);

    // After a restart of all, each with the configuration that it had.
    (0..3).for_each(|dc| cluster.kill(dc));
    (0..3).for_each(|dc| cluster.launch(dc));
    (0..3).for_each(|dc| drop(cluster.server(dc).line("listening")));
    let three = clients(&cluster).await;
    excludes(&three, "held").await;
    excludes(&three, "after the restart").await;
    for (dc, client) in (0..3).zip(&three) {
        listed(&cluster, dc, "three settled members", |list| all_settled(list, 3));
        assert_eq!(read(client, "city", &written).await.as_deref(), Some(&b"Oslo"[..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_while_it_joins_completes_it_later() {
    let mut cluster = prepared(AUTO);
    cluster.launch(0);
    cluster.server(0).line("listening");
    let first = serving_at(&cluster, 0).await;
    // It takes a while to give all of that.
    for n in 0..50 {
        put(&first, &format!("large{n}"), vec![n; 100_000]).await;
    }
    let held = acquire(&first, AcquireRequest::exclusive(lock("held"))).await;
    for moment in ["asked to join", "recovered", "link up", "took its state over"] {
        cluster.launch(1);
        let server = cluster.server(1);
        // A later start is further already.
        while let Some(line) = server.any_line() {
            if line.contains(moment) || line.contains("serving") {
                break;
            }
        }
        cluster.kill(1);
        let alone = acquire(&first, AcquireRequest::shared(lock("shared"))).await;
        alone.release().await.expect("it was held");
    }
    let second = joined(&mut cluster, 1).await;
    assert_eq!(held.is_lost(), None);
    let refused = within(second.acquire(briefly("held"))).await.err();
    assert!(matches!(refused, Some(AcquireError::TimedOut { .. })), "{refused:?}");
    held.release().await.expect("it was held");
    excludes(&[first, second], "held").await;
    listed(&cluster, 1, "two settled members", |list| all_settled(list, 2));
}
