//! Transactions over the wire, with a real datacenter behind it.

use std::time::Duration;

use bytes::Bytes;
use tonic::Code;

use super::site::{Site, Talk, exclusive, open_lease};
use super::unary::reason;
use crate::replica::LocalConfig;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, Reason, Then, TransactionState, update, value};

fn key(name: &str) -> proto::Key {
    proto::Key { bucket: Bytes::from_static(b"test"), name: Bytes::copy_from_slice(name.as_bytes()) }
}

fn changes(name: &str, op: update::Op) -> proto::Change {
    let update = proto::Update { path: vec![], op: Some(op) };
    proto::Change { key: Some(key(name)), action: Some(proto::change::Action::Update(update)) }
}

fn add(name: &str, amount: i64) -> proto::Change {
    changes(name, update::Op::Counter(amount))
}

fn put(name: &str, value: &'static [u8]) -> proto::Change {
    changes(name, update::Op::LwwRegister(Bytes::from_static(value)))
}

fn step(changes: Vec<proto::Change>, reads: &[&str], then: Then) -> proto::Step {
    proto::Step {
        changes,
        reads: reads.iter().map(|name| key(name)).collect(),
        then: then.into(),
        ..Default::default()
    }
}

fn count(amount: i64) -> proto::Value {
    proto::Value { reading: Some(value::Reading::Counter(amount)) }
}

fn at_least(seqs: &[u64], wait_ms: u64) -> Option<proto::AtLeast> {
    Some(proto::AtLeast { snapshot: Some(proto::Snapshot { seqs: seqs.to_vec() }), wait_ms })
}

/// A client with one lease.
struct Txns {
    talk: Talk,
    lease: u64,
}

impl Txns {
    async fn open(mut talk: Talk) -> Txns {
        let lease = talk.open_lease().await;
        Txns { talk, lease: lease.lease }
    }

    fn begin(&self, key: u64, step: proto::Step) -> proto::BeginRequest {
        proto::BeginRequest {
            lease: self.lease,
            idempotency_key: key,
            step: Some(step),
            ..Default::default()
        }
    }

    fn next_step(&self, key: u64, after: u32, step: proto::Step) -> Call {
        let lease = self.lease;
        Call::Step(proto::StepRequest {
            lease,
            secret: Bytes::new(),
            idempotency_key: key,
            applied_changes: after,
            step: Some(step),
        })
    }

    async fn steps(&mut self, call: Call) -> proto::StepResponse {
        match self.talk.ask(call).await {
            Answer::Stepped(stepped) => stepped,
            other => panic!("a step was expected, this is {other:?}"),
        }
    }

    async fn begins(&mut self, key: u64, step: proto::Step) -> proto::StepResponse {
        let begin = self.begin(key, step);
        self.steps(Call::Begin(begin)).await
    }

    async fn makes_step(&mut self, key: u64, after: u32, step: proto::Step) -> proto::StepResponse {
        let call = self.next_step(key, after, step);
        self.steps(call).await
    }

    async fn refused(&mut self, key: u64, after: u32, step: proto::Step) -> Reason {
        let call = self.next_step(key, after, step);
        self.talk.refused(call).await
    }

    async fn begin_refused(&mut self, key: u64, step: proto::Step) -> Reason {
        let begin = self.begin(key, step);
        self.talk.refused(Call::Begin(begin)).await
    }

    async fn reads(&mut self, name: &str) -> proto::Value {
        let look = proto::ReadRequest { keys: vec![key(name)], at_least: None };
        let mut looked = self.steps(Call::Read(look)).await;
        assert_eq!(looked.state(), TransactionState::Unspecified);
        looked.values.remove(0)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_reads_its_own_writes_and_shows_them_when_it_commits() {
    let (_site, running, mut client) = Site::running().await;
    let mut txns = Txns::open(Talk::open(&mut client).await).await;
    let open = txns.begins(1, step(vec![add("n", 5)], &["n", "other"], Then::Continue)).await;
    assert_eq!((open.state(), open.token), (TransactionState::Open, 0));
    assert_eq!(open.values, [count(5), proto::Value::default()]);
    assert_eq!(txns.reads("n").await, proto::Value::default(), "nobody else sees it");
    let open = txns.makes_step(1, 1, step(vec![add("n", 2), put("r", b"v")], &["n"], Then::Continue)).await;
    assert_eq!(open.values, [count(7)]);
    let done = txns.makes_step(1, 3, step(vec![], &[], Then::Commit)).await;
    assert_eq!(done.state(), TransactionState::Committed);
    let commit = done.commit.expect("it committed");
    assert_eq!(txns.reads("n").await, count(7));
    let look = proto::ReadRequest { keys: vec![key("n"), key("r")], at_least: at_least(&commit.seqs, 0) };
    let read = client.read(look).await.expect("it is there").into_inner();
    let register = proto::RegisterReading { value: Some(Bytes::from_static(b"v")) };
    assert_eq!(read.values[1].reading, Some(value::Reading::LwwRegister(register)));
    assert_eq!(read.snapshot, Some(commit));
    drop((txns, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_call_again_does_nothing_twice() {
    let site = Site::new();
    let running = site.start().await;
    let mut txns = Txns::open(Talk::open(&mut site.client(&running).await).await).await;
    let first = step(vec![add("n", 1)], &["n"], Then::Continue);
    for _ in 0..2 {
        assert_eq!(txns.begins(1, first.clone()).await.values, [count(1)]);
    }
    for _ in 0..2 {
        let second = step(vec![add("n", 10), add("n", 100)], &["n"], Then::Continue);
        assert_eq!(txns.makes_step(1, 1, second).await.values, [count(111)]);
    }
    let missing = step(vec![add("n", 1)], &[], Then::Continue);
    assert_eq!(txns.refused(1, 4, missing).await, Reason::StepMissing);
    let commit = step(vec![add("n", 1000)], &[], Then::Commit);
    let done = txns.makes_step(1, 3, commit.clone()).await;
    assert_eq!(txns.makes_step(1, 3, commit).await.commit, done.commit);
    assert_eq!(txns.begins(1, first).await.commit, done.commit, "also by its begin");
    assert_eq!(txns.reads("n").await, count(1111));
    let more = step(vec![], &["n"], Then::Continue);
    assert_eq!(txns.refused(1, 4, more).await, Reason::TransactionCommitted);
    drop(txns);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_shots_are_unary_and_idempotent_also_over_a_restart() {
    let (site, running, mut client) = Site::running().await;
    let lease = open_lease(&mut client).await;
    let wait = Some(proto::begin_locks::Wait::WaitMs(60_000));
    let transact = proto::BeginRequest {
        under: vec![],
        lease: lease.lease,
        secret: lease.secret.clone(),
        idempotency_key: 1,
        locks: Some(proto::BeginLocks { locks: vec![exclusive("a")], wait, label: String::new() }),
        at_least: None,
        acknowledged_through: 0,
        step: Some(step(vec![add("n", 5)], &["n"], Then::Commit)),
    };
    let done = client.transact(transact.clone()).await.expect("it is free").into_inner();
    assert_eq!((done.state(), done.values), (TransactionState::Committed, vec![count(5)]));
    assert!(done.token > 0);
    let open = proto::BeginRequest { step: Some(step(vec![], &[], Then::Continue)), ..transact.clone() };
    assert_eq!(reason(client.transact(open).await), (Reason::Malformed, Code::InvalidArgument));
    drop(client);
    running.stop().await;

    let running = site.start().await;
    let mut client = site.client(&running).await;
    let again = client.transact(transact).await.expect("it committed").into_inner();
    assert_eq!((again.state(), &again.commit), (TransactionState::Committed, &done.commit));
    let look = proto::ReadRequest { keys: vec![key("n")], at_least: None };
    assert_eq!(client.read(look).await.expect("it is up").into_inner().values, [count(5)]);
    // The lease ends; its outcome is still returned to a client that knows the secret.
    let close = proto::CloseLeaseRequest { lease: lease.lease, secret: lease.secret.clone() };
    client.close_lease(close).await.expect("it lived");
    let mut talk = Talk::open(&mut client).await;
    let commit = |key| {
        let step = Some(step(vec![], &[], Then::Commit));
        let (lease, secret) = (lease.lease, lease.secret.clone());
        Call::Step(proto::StepRequest { lease, secret, idempotency_key: key, applied_changes: 0, step })
    };
    match talk.ask(commit(1)).await {
        Answer::Stepped(stepped) => assert_eq!(stepped.commit, done.commit),
        other => panic!("the outcome was expected, this is {other:?}"),
    }
    assert_eq!(talk.refused(commit(2)).await, Reason::UnknownLease, "it never committed");
    drop((talk, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_changes_nothing() {
    let site = Site::new();
    let running = site.start().await;
    let mut txns = Txns::open(Talk::open(&mut site.client(&running).await).await).await;
    txns.begins(1, step(vec![put("r", b"v")], &[], Then::Commit)).await;
    assert_eq!(txns.begin_refused(2, step(vec![add("r", 1)], &[], Then::Commit)).await, Reason::WrongType);
    txns.begins(3, step(vec![add("n", i64::MAX)], &[], Then::Continue)).await;
    assert_eq!(txns.refused(3, 1, step(vec![add("r", 1)], &[], Then::Continue)).await, Reason::WrongType);
    assert_eq!(txns.refused(3, 1, step(vec![add("n", 1)], &[], Then::Commit)).await, Reason::CounterOverflow);
    let large = vec![0; 1 << 20];
    let large = changes("l", update::Op::LwwRegister(large.into()));
    assert_eq!(txns.refused(3, 1, step(vec![large], &[], Then::Commit)).await, Reason::ChangeTooLarge);
    let half = || changes(&"k".repeat(9), update::Op::LwwRegister(vec![1; 900_000].into()));
    for after in 1..5 {
        txns.makes_step(3, after, step(vec![half()], &[], Then::Continue)).await;
    }
    let too_much = step(vec![half()], &[], Then::Continue);
    assert_eq!(txns.refused(3, 5, too_much).await, Reason::TransactionTooLarge);
    let open = txns.makes_step(3, 5, step(vec![], &["n"], Then::Continue)).await;
    assert_eq!((open.state(), open.values), (TransactionState::Open, vec![count(i64::MAX)]));
    let aborted = txns.makes_step(3, 5, step(vec![], &["n"], Then::Abort)).await;
    assert_eq!((aborted.state(), aborted.values), (TransactionState::Aborted, vec![count(i64::MAX)]));
    assert_eq!(txns.refused(3, 5, step(vec![], &[], Then::Commit)).await, Reason::TransactionUnknown);
    assert_eq!(txns.refused(9, 0, step(vec![], &[], Then::Commit)).await, Reason::TransactionUnknown);
    assert_eq!(txns.reads("n").await, proto::Value::default());
    drop(txns);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn snapshots_are_checked() {
    let (_site, running, mut client) = Site::running().await;
    let mut txns = Txns::open(Talk::open(&mut client).await).await;
    let asks = [
        (at_least(&[1_000_000], 60_000), Reason::SnapshotAhead, Code::OutOfRange),
        (at_least(&[0, 1], 60_000), Reason::UnknownDc, Code::InvalidArgument),
    ];
    for (at_least, expected, code) in asks {
        let look = proto::ReadRequest { keys: vec![key("n")], at_least: at_least.clone() };
        assert_eq!(reason(client.read(look).await), (expected, code));
        let begin = proto::BeginRequest { at_least, ..txns.begin(1, step(vec![], &[], Then::Continue)) };
        assert_eq!(txns.talk.refused(Call::Begin(begin)).await, expected);
    }
    drop((txns, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_has_its_locks_until_it_ends_and_is_ended_when_it_is_too_old() {
    let site = Site::new();
    let local = LocalConfig { max_transaction: Duration::from_millis(300), ..LocalConfig::default() };
    let running = site.start_configured(|config| config.replica.local = local).await;
    let mut client = site.client(&running).await;
    let mut one = Txns::open(Talk::open(&mut client).await).await;
    let mut two = Txns::open(Talk::open(&mut client).await).await;
    let locked = |txns: &Txns, key, wait| {
        let locks = proto::BeginLocks { locks: vec![exclusive("a")], wait: Some(wait), label: "one".into() };
        let begin = txns.begin(key, step(vec![add("n", 1)], &["n"], Then::Continue));
        Call::Begin(proto::BeginRequest { locks: Some(locks), ..begin })
    };
    let for_ever = || proto::begin_locks::Wait::WaitForever(proto::WaitForever {});
    let first = locked(&one, 1, for_ever());
    assert!(one.steps(first).await.token > 0);
    let tried = locked(&two, 1, proto::begin_locks::Wait::TryOnce(proto::TryOnce {}));
    assert_eq!(two.talk.refused(tried).await, Reason::NotFree);
    // It gets the lock because the first transaction is too old by then.
    let second = locked(&two, 2, for_ever());
    assert_eq!(two.steps(second).await.values, [count(1)]);
    let commit = step(vec![], &[], Then::Commit);
    assert_eq!(one.refused(1, 1, commit.clone()).await, Reason::TransactionTooOld);
    assert_eq!(one.refused(1, 1, commit).await, Reason::TransactionUnknown, "it was told");
    drop((one, two, client));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_settled_is_forgotten_and_never_done_again() {
    let site = Site::new();
    let running = site.start().await;
    let mut txns = Txns::open(Talk::open(&mut site.client(&running).await).await).await;
    let one = || step(vec![add("n", 1)], &[], Then::Commit);
    txns.begins(1, one()).await;
    let second = proto::BeginRequest { acknowledged_through: 1, ..txns.begin(2, one()) };
    txns.steps(Call::Begin(second)).await;
    assert_eq!(txns.begin_refused(1, one()).await, Reason::OutcomeUnknown);
    assert_eq!(txns.refused(1, 1, one()).await, Reason::OutcomeUnknown);
    assert_eq!(txns.reads("n").await, count(2));
    drop(txns);
    running.stop().await;
}
