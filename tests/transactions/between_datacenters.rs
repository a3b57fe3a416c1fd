//! Transactions between three datacenters, each a process, through the public client.
//!
//! Guarantees: docs/guarantees.md#isolation, docs/guarantees.md#commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fixture::history::{merged, patient};
use crate::fixture::{key, lock, servers};
use geolock::client::{
    AtLeast, Batch, Client, ClientError, Reason, Snapshot, TxnError, TxnRequest, Update, Value, Wait,
};

fn text(value: &Value) -> Option<String> {
    let register = value.register().expect("it is a register");
    register.map(|bytes| String::from_utf8(bytes.to_vec()).expect("a test writes text"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_register_handed_from_datacenter_to_datacenter_is_always_read_exactly() {
    let (_cluster, clients) = servers(3).serving().await;
    let key = key("register");
    let mut last: Option<&str> = None;
    for (turn, value) in ["n1", "x2", "x3", "y4", "n5", "n6", "y7", "n8", "x9", "y10"].into_iter().enumerate()
    {
        let client = &clients[turn % 3];
        let mut txn = client.begin(TxnRequest::exclusive(lock("register"))).await.expect("it is granted");
        let read = txn.read(&key).await.expect("it is open");
        assert_eq!(text(&read).as_deref(), last, "turn {turn}");
        txn.update(&key, Update::register(value)).await.expect("it is a register");
        assert_eq!(text(&txn.read(&key).await.expect("it is open")).as_deref(), Some(value));
        txn.commit().await.expect("it has its lock");
        last = Some(value);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_committed_in_one_datacenter_is_seen_in_another_that_is_told_of_it() {
    let (_cluster, clients) = servers(3).serving().await;
    let mut commit = Snapshot::default();
    for turn in 0..12 {
        let client = &clients[turn % 3];
        let view = client.read_many(&[key("n")], &patient(&commit)).await.expect("it comes");
        assert_eq!(view.values[0].counter(), Ok(turn as i64), "turn {turn}");
        let request = TxnRequest::new().at_least(patient(&commit));
        let batch = Batch::new().update(&key("n"), Update::counter(1)).read(&key("n"));
        let done = client.transact(request, batch).await.expect("it needs no lock");
        assert_eq!(done.values.expect("its answer came")[0].counter(), Ok(turn as i64 + 1));
        commit = done.commit;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_does_not_come_is_not_waited_for_for_ever() {
    let cluster = servers(3).listening();
    let client = cluster.client(0).await;
    let never =
        AtLeast { snapshot: Snapshot { seqs: vec![0, 1_000_000] }, patience: Duration::from_millis(50) };
    let read = client.read_many(&[key("n")], &never).await;
    assert!(matches!(read, Err(ClientError::Refused(Reason::SnapshotNotReached, _))), "{read:?}");
    let begun = client.begin(TxnRequest::exclusive(lock("x")).at_least(never)).await;
    assert!(matches!(begun, Err(TxnError::Refused(Reason::SnapshotNotReached, _))), "{begun:?}");
    let again = TxnRequest::exclusive(lock("x")).wait(Wait::Forever);
    client.begin(again).await.expect("its lock was let go").commit().await.expect("it is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transfer_is_never_seen_half() {
    const TRANSFERS: i64 = 50;
    let (_cluster, clients) = servers(3).serving().await;
    let accounts = [key("alice"), key("bob")];
    let opening = clients[0].update(&accounts[0], Update::counter(100)).await.expect("it needs no lock");
    let over = Arc::new(AtomicBool::new(false));
    let read = async |client: &Client| {
        client.read_many(&accounts, &patient(&opening)).await.expect("it comes");
        let (mut reads, mut changes, mut last) = (0, 0, 0);
        while !over.load(Ordering::Relaxed) || reads == 0 {
            let view = client.read_many(&accounts, &AtLeast::default()).await.expect("it is there");
            let [alice, bob] = [0, 1].map(|i| view.values[i].counter().expect("it is a counter"));
            assert_eq!(alice + bob, 100, "after {reads} reads");
            (reads, changes, last) = (reads + 1, changes + i32::from(bob != last), bob);
        }
        assert!(changes > 0, "something was seen");
    };
    let transfer = async |client: &Client| {
        for _ in 0..TRANSFERS {
            let batch = Batch::new()
                .update(&accounts[0], Update::counter(-1))
                .update(&accounts[1], Update::counter(1));
            client.transact(TxnRequest::new(), batch).await.expect("it needs no lock");
        }
    };
    let transfers = async {
        tokio::join!(transfer(&clients[0]), transfer(&clients[1]));
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(transfers, read(&clients[0]), read(&clients[1]), read(&clients[2]));
    let [first, second] = [&clients[0], &clients[1]]
        .map(|client| client.transact(TxnRequest::exclusive(lock("audit")), Batch::new()));
    // A snapshot that covers both datacenters' transfers covers all.
    let (first, second) = tokio::join!(first, second);
    let both = merged([&first.expect("granted").commit, &second.expect("granted").commit]);
    let view = clients[2].read_many(&accounts, &patient(&both)).await.expect("it comes");
    assert_eq!(view.values[1].counter(), Ok(2 * TRANSFERS));
}
