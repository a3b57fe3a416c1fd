//! One commit at each documented limit of values, keys and transactions, and one above. What is at the limit
//! is read in every datacenter, and after all servers were killed. What is above is refused with a reason
//! and a message that names the limit, by the server itself and through the client library, and changes
//! nothing.
//!
//! Guarantee: docs/guarantees.md#commits.

use std::time::Duration;

use crate::fixture::history::{merged, patient, serving_at};
use crate::fixture::{Cluster, key, servers, within};
use crate::raw::{Raw, Refused, change, is_refused, key_of, named};
use geolock::client::{
    Batch, Client, ClientConfig, CommitError, Key, Reading, Reason, Snapshot, TxnError, TxnRequest, Type,
    Update, VersionedReading,
};
use geolock_api::proto;

/// Largest change, in bytes, and most bytes of a transaction.
const CHANGE: usize = 1 << 20;
const TRANSACTION: usize = 4 << 20;
/// Most bytes of a set, as it is read.
const VALUE: usize = 2 << 20;
/// Most changes of a transaction.
const CHANGES: usize = 100_000;
/// Longest time to live of a key, in milliseconds: ten years.
const LIVES: i64 = 315_532_800_000;

/// A limit of the value of a key.
struct Limit {
    key: Key,
    /// Commits that reach it, one after the other.
    at: Vec<Update>,
    /// A change that would exceed it.
    above: Update,
    reason: Reason,
    /// The part of the message that names it.
    named: &'static str,
    /// The value, at the limit.
    shows: Reading,
}

fn limit(
    name: &str,
    at: &[Update],
    above: Update,
    (reason, named): (Reason, &'static str),
    shows: Reading,
) -> Limit {
    Limit { key: key(name), at: at.to_vec(), above, reason, named, shows }
}

fn bytes(len: usize) -> Vec<u8> {
    vec![7; len]
}

/// Returns how many bytes of content fit a change of a key with this name, beside `around` bytes.
fn space(name: &str, around: usize) -> usize {
    let key_and_bucket = 1 + b"test".len() + name.len();
    CHANGE - (3 + key_and_bucket + 8 + around)
}

/// Each type of value that can be large, as large as a change can be.
fn sizes() -> Vec<Limit> {
    const TOO_LARGE: (Reason, &str) = (Reason::ChangeTooLarge, "1048576");
    let register = space("register", 0);
    let multi = space("multi", 0);
    let versioned = space("versioned", 0);
    let element = space("set", 2);
    let field = space("field", 8 + 3);
    let in_field = |len| Update::counter(1).in_field(bytes(len));
    let version = VersionedReading { version: u64::MAX, value: bytes(versioned).into(), done: false };
    let fields = vec![(bytes(field).into(), Reading::Counter(1))];
    // In a reading an element has 2 bytes more, a set 4; an operation has 10 besides its element.
    let large = space("whole", 2);
    let rest = VALUE - 4 - 2 * (2 + large) - 10;
    let whole = [vec![7; large], vec![8; large], vec![9; rest]];
    vec![
        limit(
            "whole",
            &whole.clone().map(|element| Update::set_add([element])),
            Update::set_add(["one more"]),
            (Reason::ChangeTooLarge, "2097152"),
            Reading::Set(Type::AddWinsSet, whole.map(Into::into).to_vec()),
        ),
        limit(
            "register",
            &[Update::register(bytes(register))],
            Update::register(bytes(register + 1)),
            TOO_LARGE,
            Reading::LwwRegister(Some(bytes(register).into())),
        ),
        limit(
            "multi",
            &[Update::multi_value(bytes(multi))],
            Update::multi_value(bytes(multi + 1)),
            TOO_LARGE,
            Reading::MvRegister(vec![bytes(multi).into()]),
        ),
        limit(
            "versioned",
            &[Update::versioned(u64::MAX, bytes(versioned))],
            Update::versioned(u64::MAX, bytes(versioned + 1)),
            TOO_LARGE,
            Reading::Versioned(Some(version)),
        ),
        limit(
            "set",
            &[Update::set_add([bytes(element)])],
            Update::set_add([bytes(element + 1)]),
            TOO_LARGE,
            Reading::Set(Type::AddWinsSet, vec![bytes(element).into()]),
        ),
        limit(
            "field",
            &[in_field(field)],
            in_field(field + 1),
            TOO_LARGE,
            Reading::Map(Type::GrowOnlyMap, fields),
        ),
    ]
}

/// The ends of numbers, and of maps within maps.
fn ranges() -> Vec<Limit> {
    const OVERFLOW: (Reason, &str) = (Reason::CounterOverflow, "64 bits");
    let deep = |depth| (0..depth).fold(Update::counter(1), |update, _| update.in_field("f"));
    let nested = |inner, _| Reading::Map(Type::GrowOnlyMap, vec![("f".into(), inner)]);
    let last = VersionedReading { version: u64::MAX, value: "last".into(), done: false };
    let bounded = |value| Reading::BoundedCounter { value, rights: 0 };
    let adds = [i64::MAX, i64::MAX, 1].map(Update::bounded_counter);
    let highest = Reading::Counter(i64::MAX);
    let resettable = Reading::ResettableCounter(i64::MAX);
    vec![
        limit("highest", &[Update::counter(i64::MAX)], Update::counter(1), OVERFLOW, highest),
        limit(
            "lowest",
            &[Update::counter(i64::MIN)],
            Update::counter(-1),
            OVERFLOW,
            Reading::Counter(i64::MIN),
        ),
        limit(
            "resettable",
            &[Update::resettable_counter(i64::MAX)],
            Update::resettable_counter(1),
            OVERFLOW,
            resettable,
        ),
        limit("bounded", &adds, Update::bounded_counter(1), OVERFLOW, bounded(u64::MAX)),
        limit(
            "rights",
            &[Update::bounded_counter(8), Update::bounded_counter(-3)],
            Update::bounded_counter(-6),
            (Reason::InsufficientRights, "by 5"),
            bounded(5),
        ),
        limit(
            "last version",
            &[Update::versioned(u64::MAX, "last")],
            Update::versioned(u64::MAX, "more"),
            (Reason::StaleVersion, "18446744073709551615"),
            Reading::Versioned(Some(last)),
        ),
        limit(
            "deep",
            &[deep(8)],
            deep(9),
            (Reason::ImpossibleOperation, "8 deep"),
            (0..8).fold(Reading::Counter(1), nested),
        ),
    ]
}

/// The values that are to be read everywhere, and the commits that made them.
#[derive(Default)]
struct Written {
    values: Vec<(Key, Reading)>,
    commits: Vec<Snapshot>,
}

impl Written {
    fn add(&mut self, commit: Snapshot, key: Key, value: Reading) {
        self.commits.push(commit);
        self.values.push((key, value));
    }
}

/// Returns the refusal of a change through the client library.
fn refusal(error: CommitError) -> Refused {
    match error {
        CommitError::NotCommitted(TxnError::Refused(reason, message)) => Refused(reason, message),
        other => panic!("it is refused for its content: {other}"),
    }
}

async fn values(raw: &mut Raw, client: &Client, written: &mut Written) {
    for Limit { key, at, above, reason, named, shows } in sizes().into_iter().chain(ranges()) {
        let mut commit = Snapshot::default();
        for update in at {
            commit = raw.commit(vec![change(key_of(&key), update)]).await.expect("it is within the limit");
        }
        is_refused(raw.commit(vec![change(key_of(&key), above.clone())]).await, reason, named);
        is_refused(within(client.update(&key, above)).await.map_err(refusal), reason, named);
        written.add(commit, key, shows);
    }
}

async fn names(raw: &mut Raw, written: &mut Written) {
    let (bucket, name) = (bytes(255), bytes(1024));
    let one = || Update::counter(1);
    let at = raw.commit(vec![change(named(bucket.clone(), name.clone()), one())]).await;
    let at = at.expect("it is within the limits");
    written.add(at, Key::new(&bucket, &name).expect("it is valid"), Reading::Counter(1));
    for (key, limit) in [
        (named(bytes(256), name.clone()), "1 to 255 bytes"),
        (named(bucket.clone(), bytes(1025)), "1 to 1024 bytes"),
        (named("", name.clone()), "1 to 255 bytes"),
        (named(bucket.clone(), ""), "1 to 1024 bytes"),
    ] {
        is_refused(raw.commit(vec![change(key.clone(), one())]).await, Reason::InvalidKey, limit);
        let read = proto::ReadRequest { keys: vec![key], at_least: None };
        is_refused(raw.api.read(read).await.map_err(Refused::from), Reason::InvalidKey, limit);
    }
}

/// The times of keys, the numbers of transactions, the keys that are read.
async fn numbers(cluster: &Cluster, raw: &mut Raw, written: &mut Written) {
    let expire = |millis| {
        let action = Some(proto::change::Action::ExpireMs(millis));
        let changed = change(named("test", "expires"), Update::counter(1));
        vec![changed, proto::Change { key: Some(named("test", "expires")), action }]
    };
    let at = raw.commit(expire(LIVES)).await.expect("it is within the limit");
    written.add(at, key("expires"), Reading::Counter(1));
    for millis in [LIVES + 1, 0] {
        is_refused(raw.commit(expire(millis)).await, Reason::ExpiryOutOfRange, "315532800000");
    }

    let mut other = Raw::open(cluster, 0).await;
    let numbered = |begin, idempotency_key| proto::BeginRequest { idempotency_key, ..begin };
    let begin = other.begin(vec![change(named("test", "numbered"), Update::counter(1))]);
    is_refused(other.transact(numbered(begin.clone(), 0)).await, Reason::Malformed, "`idempotency_key`");
    let at = other.transact(numbered(begin, u64::MAX)).await.expect("any number but 0 is a key");
    written.add(at, key("numbered"), Reading::Counter(1));
    other.close().await;

    let read = |keys| proto::ReadRequest { keys: vec![named("test", "expires"); keys], at_least: None };
    let all = raw.api.read(read(1_000)).await.expect("it is within the limit").into_inner();
    assert_eq!(all.values.len(), 1_000);
    is_refused(raw.api.read(read(1_001)).await.map_err(Refused::from), Reason::TooManyReads, "1000");
    let mut begin = raw.begin(vec![change(named("test", "not made"), Update::counter(1))]);
    begin.step.as_mut().expect("it was set").reads = vec![named("test", "expires"); 1_001];
    is_refused(raw.transact(begin).await, Reason::TooManyReads, "1000");
}

/// The most changes of a transaction, in one message; one more, and then more in a transaction of two steps.
async fn most_changes(raw: &mut Raw, client: &Client, written: &mut Written) {
    let one = || change(named("b", "k"), Update::counter(1));
    let at = raw.commit(vec![one(); CHANGES]).await.expect("it is within the limit");
    let many = Key::new(b"b", b"k").expect("it is valid");
    written.add(at, many.clone(), Reading::Counter(CHANGES as i64));
    is_refused(raw.commit(vec![one(); CHANGES + 1]).await, Reason::TransactionTooLarge, "100000");

    let step = |count| (0..count).fold(Batch::new(), |step, _| step.update(&many, Update::counter(1)));
    let mut txn = within(client.begin(TxnRequest::new())).await.expect("it serves");
    within(txn.run(step(CHANGES / 2))).await.expect("it is within the limit");
    match within(txn.run(step(CHANGES / 2 + 1))).await {
        Err(TxnError::Refused(reason, message)) => {
            is_refused::<()>(Err(Refused(reason, message)), Reason::TransactionTooLarge, "100000");
        }
        other => panic!("it is one too many: {other:?}"),
    }
    within(txn.abort()).await.expect("it is as before");
}

/// The largest transaction: four of the largest changes. A fifth one is refused, and the four are committed.
async fn most_bytes(client: &Client, written: &mut Written) {
    let names = ["part 0", "part 1", "part 2", "part 3"];
    assert_eq!(TRANSACTION, names.len() * CHANGE);
    let value = bytes(space(names[0], 0));
    let mut txn = within(client.begin(TxnRequest::new())).await.expect("it serves");
    for name in names {
        let update = Update::register(value.clone());
        within(txn.update(&key(name), update)).await.expect("it is within the limit");
    }
    match within(txn.update(&key("part 4"), Update::counter(1))).await {
        Err(TxnError::Refused(reason, message)) => {
            is_refused::<()>(Err(Refused(reason, message)), Reason::TransactionTooLarge, "4194304");
        }
        other => panic!("it is more than fits: {other:?}"),
    }
    let at = within(txn.commit()).await.expect("it is as before");
    for name in names {
        written.add(at.clone(), key(name), Reading::LwwRegister(Some(value.clone().into())));
    }
}

/// Every value is as it was at its limit, and nothing else was made.
async fn shows_all(client: &Client, written: &Written) {
    let all = merged(&written.commits);
    for (key, value) in &written.values {
        let read =
            within(client.read_many(std::slice::from_ref(key), &patient(&all))).await.expect("it is up");
        let mut shown = read.values.into_iter().next().expect("one key was read").into_reading();
        // Rights are of the datacenter that answers.
        if let Some(Reading::BoundedCounter { rights, .. }) = &mut shown {
            *rights = 0;
        }
        assert!(shown.as_ref() == Some(value), "{} has another value", key.to_string().split_at(20).0);
    }
    let others = [key("not made"), key("part 4")];
    let read = within(client.read_many(&others, &patient(&all))).await.expect("it is up");
    assert!(read.values.iter().all(|value| !value.is_some()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_at_each_limit_is_read_everywhere_and_one_above_changes_nothing() {
    let options = "[limits]\nmax_transaction_time = \"300 s\"\nmax_queue_delay = \"1 min\"\n";
    let (mut cluster, clients) = servers(3).with(options).serving().await;
    // Preparing a step takes seconds on a busy machine.
    let config = ClientConfig { ttl: Some(Duration::from_secs(60)), ..cluster.client_config(0) };
    let client = within(Client::connect(config)).await.expect("it serves");
    let (mut raw, mut written) = (Raw::open(&cluster, 0).await, Written::default());
    values(&mut raw, &client, &mut written).await;
    names(&mut raw, &mut written).await;
    numbers(&cluster, &mut raw, &mut written).await;
    most_changes(&mut raw, &client, &mut written).await;
    most_bytes(&client, &mut written).await;
    for client in &clients {
        shows_all(client, &written).await;
    }
    raw.close().await;
    for client in clients.into_iter().chain([client]) {
        within(client.close()).await.expect("it serves");
    }
    for dc in 0..3 {
        cluster.kill(dc);
    }
    cluster.start_all();
    for dc in 0..3 {
        shows_all(&serving_at(&cluster, dc).await, &written).await;
    }
}
