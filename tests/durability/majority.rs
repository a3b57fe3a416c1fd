//! Commits that are durable at a majority: answered when a majority of the datacenters has them on disk, with
//! a majority that is away and across a restart of the server.
//!
//! Guarantees: docs/guarantees.md#commits.

use std::time::Duration;

use crate::fixture::wan::Wan;
use crate::fixture::{HANGS, key, servers, within};
use crate::raw::channel;
use geolock::client::{
    AtLeast, Batch, Client, CommitError, DcId, Durability, Snapshot, Transacted, TxnRequest, Update,
};
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::{self, Then, TransactionState};
use geolock_api::value::messages;

fn add_one() -> Batch {
    Batch::new().update(&key("n"), Update::counter(1)).read(&key("n"))
}

async fn commit(client: &Client, wait: Duration) -> Result<Transacted, CommitError> {
    let request = TxnRequest::new().durability(Durability::Majority).majority_wait(wait);
    within(client.transact(request, add_one())).await
}

async fn count(client: &Client, at_least: &Snapshot) -> i64 {
    let at_least = AtLeast { snapshot: at_least.clone(), patience: HANGS };
    let mut read = within(client.read_many(&[key("n")], &at_least)).await.expect("it is up");
    read.values.remove(0).counter().expect("it is a counter")
}

/// Waits until that many commits of a server wait for a majority.
async fn waiting(client: &Client, commits: u64) {
    let waits =
        async { while client.status().await.expect("it is up").counts["waiting_for_majority"] != commits {} };
    within(waits).await;
}

/// Cuts off dc0, and waits until it knows.
fn cut_off(wan: &mut Wan) {
    for other in [1, 2] {
        wan.break_link(0, other);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_a_majority_and_says_who_lacks_it() {
    let (mut wan, clients) = servers(3).quick().relayed().serving().await;
    let done = commit(&clients[0], HANGS).await.expect("all are there");
    assert_eq!(done.durability, Durability::Majority);

    cut_off(&mut wan);
    let Err(CommitError::NotAtMajority(not)) = commit(&clients[0], Duration::from_millis(100)).await else {
        panic!("nobody else can have it")
    };
    let others: Vec<DcId> = [1, 2].into_iter().filter_map(DcId::new).collect();
    assert_eq!(not.missing, others);
    assert_eq!(count(&clients[0], &not.commit).await, 2, "it is committed all the same");

    // One datacenter more is a majority of three.
    wan.heal(0, 1);
    let done = commit(&clients[0], HANGS).await.expect("two of three are there");
    assert_eq!(done.durability, Durability::Majority);
    wan.heal_all();
    assert_eq!(count(&clients[2], &done.commit).await, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_majority_goes_on_after_a_restart_and_commits_once() {
    let (mut wan, mut clients) = servers(3).quick().relayed().serving().await;
    let client = clients.remove(0);
    cut_off(&mut wan);
    let asked = client.clone();
    let outcome = tokio::spawn(async move { commit(&asked, HANGS).await });
    waiting(&client, 1).await;
    wan.kill(0);
    wan.restart(0);
    // The client asks again, under the same key.
    let again = wan.cluster.client(0).await;
    waiting(&again, 1).await;
    wan.heal_all();
    let done = within(outcome).await.expect("it did not panic").expect("all are there");
    assert_eq!(done.durability, Durability::Majority);
    assert_eq!(count(&clients[0], &done.commit).await, 1, "it is made once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_a_majority_is_asked_for_again_under_its_key() {
    let (mut wan, clients) = servers(3).quick().relayed().serving().await;
    cut_off(&mut wan);
    let mut api = LocksClient::new(channel(&wan.cluster, 0).await);
    let open = proto::OpenLeaseRequest { ttl_ms: 60_000, ..Default::default() };
    let opened = within(api.open_lease(open)).await.expect("it is up").into_inner();
    let (lease, secret) = (opened.lease, opened.secret);
    let change = proto::Change {
        key: Some(proto::Key { bucket: "test".into(), name: "n".into() }),
        action: Some(proto::change::Action::Update(messages::show(Update::counter(1)))),
    };
    let begin = |wait_ms| proto::BeginRequest {
        lease,
        secret: secret.clone(),
        idempotency_key: 1,
        step: Some(proto::Step {
            changes: vec![change.clone()],
            then: Then::Commit.into(),
            durability: proto::Durability::Majority.into(),
            majority_wait_ms: wait_ms,
            ..Default::default()
        }),
        ..Default::default()
    };
    let first = within(api.transact(begin(100))).await.expect("it commits").into_inner();
    assert_eq!((first.state(), first.durability()), (TransactionState::Committed, proto::Durability::Local));
    assert_eq!(first.missing, [1, 2]);

    let (mut again, request) = (api.clone(), begin(60_000));
    let again = tokio::spawn(async move { again.transact(request).await });
    waiting(&clients[0], 1).await;
    wan.heal_all();
    let second = within(again).await.expect("it did not panic").expect("it is known").into_inner();
    assert_eq!(
        (second.state(), second.durability()),
        (TransactionState::Committed, proto::Durability::Majority)
    );
    assert_eq!((second.missing, &second.commit), (vec![], &first.commit));
    assert_eq!(count(&clients[1], &second.commit.expect("it is committed")).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_of_the_configuration_waits_for_a_majority() {
    let buckets = "[store]\nmajority_buckets = [\"te*\"]\n";
    let (mut wan, clients) = servers(3).quick().with(buckets).relayed().serving().await;
    let plain = clients[0].transact(TxnRequest::new(), add_one()).await.expect("all are there");
    assert_eq!(plain.durability, Durability::Majority, "nobody asked for it but the configuration");
    cut_off(&mut wan);
    let asked = clients[0].clone();
    let outcome = tokio::spawn(async move { asked.transact(TxnRequest::new(), add_one()).await });
    waiting(&clients[0], 1).await;
    wan.heal(0, 2);
    let done = within(outcome).await.expect("it did not panic").expect("two of three are there");
    assert_eq!(done.durability, Durability::Majority);
}
