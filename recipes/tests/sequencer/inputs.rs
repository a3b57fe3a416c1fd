//! Inputs that cannot be right, and the answers to them; a contract at rest.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use geolock_client::{Batch, Client, Key, TxnRequest, Update, WatchRequest};
use geolock_recipes::sequencer::sqlite::SqliteStore;
use geolock_recipes::sequencer::{
    Assembly, Block, CommitteeError, Contract as ContractName, Domain, End, Epoch, Failure, Intent, IntentId,
    Ledger, LedgerView, Node, NodeStore as _, NotAssembled, Owner, Parts, Placement, Record, Sequencer,
    SequencerConfigError, SequencerError, SequencerNode, SequencerOptions, Speculation, StartError, StateId,
    SubmitError, Threshold, Transaction, Warning,
};
use tokio::time::timeout;

use crate::coins::Coins;
use crate::fixture::{Contract, quick, within};
use crate::options::Options;
use crate::playground::connect;

/// A domain with that committee, which assembles nothing.
struct Members(&'static [&'static str]);

impl Domain for Members {
    fn committee(&self) -> Vec<Node> {
        self.0.iter().map(|name| Node::new(name)).collect()
    }

    async fn assemble(&self, _: &Intent, _: &Speculation) -> Result<Assembly, NotAssembled> {
        Err(NotAssembled::Parked)
    }

    async fn endorse(&self, _: &Assembly) -> Result<(), String> {
        Ok(())
    }
}

/// A ledger of which the blocks have these heights, and nothing in them. It has decided 60 transactions of a
/// node that is called `old`.
struct Heights(&'static [u64]);

impl Ledger for Heights {
    type Error = Infallible;

    async fn view(&self, _: Vec<IntentId>) -> Result<LedgerView, Infallible> {
        let decided_nonces = [(Node::new("old"), 60)].into();
        Ok(LedgerView { height: 5, decided_nonces, ..LedgerView::default() })
    }

    async fn submit(&self, _: &Transaction) -> Result<(), Infallible> {
        Ok(())
    }

    async fn blocks(&self, above: u64) -> Result<Vec<Block>, Infallible> {
        if above > 5 {
            std::future::pending::<()>().await;
        }
        Ok(self.0.iter().map(|height| Block { height: *height, outcomes: Vec::new() }).collect())
    }
}

async fn client(contract: &Contract) -> Client {
    connect(contract.playground.base, &contract.playground.tls(), 0, "test").await.expect("it serves")
}

fn store(contract: &Contract, name: &str) -> SqliteStore {
    SqliteStore::open(contract.folder.path().join(name)).expect("it can be made")
}

async fn start(
    contract: &Contract,
    [me, name, file]: [&str; 3],
    members: &'static [&'static str],
    options: SequencerOptions,
) -> Result<Sequencer, SequencerError> {
    let node = SequencerNode::new(&client(contract).await, me)?;
    let (domain, ledger, store) = (Members(members), Heights(&[]), store(contract, file));
    within(Sequencer::start(&node, name, Parts { domain, ledger, store }, options)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_take_part_is_told_why() {
    let contract = Contract::prepare(quick(0)).await;
    let options = SequencerOptions::default;
    let refused = async |names, members, options| {
        start(&contract, names, members, options).await.expect_err("it cannot take part")
    };
    let committee = |error| SequencerError::Committee(error);
    let (a, b) = (Node::new("a"), Node::new("b"));
    let error = refused(["a", "c", "x"], &[], options()).await;
    assert_eq!(error, committee(CommitteeError::Empty));
    let error = refused(["a", "c", "x"], &["b"], options()).await;
    assert_eq!(error, committee(CommitteeError::Without(a.clone())));
    let error = refused(["a", "c", "x"], &["a", "b", "b"], options()).await;
    assert_eq!(error, committee(CommitteeError::Twice(b.clone())));
    let mut wrong = options();
    wrong.block_range = 0;
    let error = refused(["a", "c", "x"], &["a"], wrong).await;
    assert_eq!(error, SequencerError::Start(StartError::Options(SequencerConfigError::Zero("block_range"))));
    let mut wrong = options();
    wrong.placement = Placement::RingAt(Arc::new([(a.clone(), vec![1])].into()));
    let error = refused(["a", "c", "x"], &["a", "b"], wrong).await;
    assert_eq!(error, committee(CommitteeError::NoPosition(b.clone())));
    let name = |what, name: &str| SequencerError::Name { what, name: name.to_owned() };
    assert_eq!(refused(["", "c", "x"], &["a"], options()).await, name("node", ""));
    assert_eq!(refused(["a/b", "c", "x"], &["a"], options()).await, name("node", "a/b"));
    assert_eq!(refused(["a", "c", "x"], &["a", "b/c"], options()).await, name("node", "b/c"));
    let long = "c".repeat(101);
    assert_eq!(refused(["a", &long, "x"], &["a"], options()).await, name("contract", &long));

    let first = start(&contract, ["a", "c", "y"], &["a"], options()).await.expect("it can take part");
    within(first.close()).await.expect("it ran");
    let error = refused(["b", "c", "y"], &["a", "b"], options()).await;
    assert_eq!(error, SequencerError::Start(StartError::OtherDatabase { found: a, me: b }));
    let [found, other] = ["c", "d"].map(ContractName::new);
    let error = refused(["a", "d", "y"], &["a"], options()).await;
    assert_eq!(error, SequencerError::Start(StartError::OtherContract { found, contract: other }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_intent_is_itself_for_ever_and_the_limits_are_refusals() {
    let contract = Contract::prepare(quick(0)).await;
    let client = client(&contract).await;
    let node = SequencerNode::new(&client, "a").expect("it is a name");
    let begin = async |most| {
        let ledger = contract.ledger.clone();
        let domain = Coins { ledger: ledger.clone(), threshold: Threshold::AtLeast(1) };
        let mut options = SequencerOptions::default();
        options.max_undecided = most;
        options.max_failures = 1;
        let parts = Parts { domain, ledger, store: store(&contract, "a.db") };
        within(Sequencer::start(&node, "coins", parts, options)).await.expect("it can take part")
    };
    let sequencer = begin(2).await;
    let mut ends = sequencer.ends();
    let id = |name: &str| IntentId::new(&Node::new("a"), name);
    let first = sequencer.submit("1", "a coin").await.expect("it is taken");
    let again = sequencer.submit("1", "a coin").await.expect("it is the same");
    let other = sequencer.submit("1", "two coins").await.expect_err("it is another one");
    assert_eq!(other, SubmitError::OtherContent(id("1")));
    assert_eq!(within(first.ended()).await, Ok(End::Confirmed));
    assert_eq!(within(again.ended()).await, Ok(End::Confirmed));
    assert_eq!(within(ends.next()).await, Some((id("1"), End::Confirmed)));
    let invalid = sequencer.submit("2", "invalid").await.expect("it is taken");
    let failed = End::Failed(Failure::Assembly("it makes no sense".to_owned()));
    assert_eq!(within(invalid.ended()).await, Ok(failed.clone()));
    within(sequencer.close()).await.expect("it ran");

    // After its end, and in another life.
    let sequencer = begin(2).await;
    let other = sequencer.submit("1", "two coins").await.expect_err("it is another one");
    assert_eq!(other, SubmitError::OtherContent(id("1")));
    for (name, content, end) in [("1", "a coin", End::Confirmed), ("2", "invalid", failed)] {
        let again = sequencer.submit(name, content).await.expect("it is the same");
        assert_eq!(within(again.ended()).await, Ok(end));
    }
    let long = "x".repeat(101);
    let error = sequencer.submit(&long, "").await.expect_err("it is too long");
    assert_eq!(error, SubmitError::Name { len: 101, most: 100 });
    let error = sequencer.submit("3", vec![0; (1 << 20) + 1]).await.expect_err("it is too long");
    assert_eq!(error, SubmitError::Content { len: (1 << 20) + 1, most: 1 << 20 });
    let confirmed = contract.ledger.outcomes(0).await.expect("it is readable");
    assert_eq!(confirmed.iter().filter(|it| it.result.is_ok()).count(), 1);
    within(sequencer.close()).await.expect("it ran");
    client.close().await.expect("it serves");
}

/// It was confirmed while the node was away: the application hears of it, although it asks a while after the
/// start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_reader_of_ends_has_all_since_the_start() {
    let contract = Contract::prepare(quick(0)).await;
    let me = Node::new("a");
    let intent = Intent { id: IntentId::new(&me, "old"), content: "a coin".into() };
    let mut database = store(&contract, "a.db");
    let owner = Owner { node: me.clone(), contract: ContractName::new("coins") };
    let records = vec![Record::Owner(owner), Record::Intent(intent.clone())];
    database.write(records).await.expect("it is empty");
    let inputs = vec![StateId::new("genesis-0")];
    let (intent, outputs) = (intent.id, vec![StateId::new("made")]);
    let assembly = Assembly { intent: intent.clone(), inputs, outputs, payload: "".into() };
    let (hash, signer) = (assembly.hash(), Node::new("b"));
    let transaction = Transaction { assembly, hash, epoch: Epoch(1), signer, nonce: 1 };
    let ledger = contract.ledger.clone();
    ledger.submit(&transaction).await.expect("it is written");
    let mut height = 0;
    while ledger.outcomes(0).await.expect("it is readable").is_empty() {
        let blocks = within(ledger.blocks(height)).await.expect("it is readable");
        height = blocks.last().expect("it waits for a block").height;
    }
    let node = SequencerNode::new(&client(&contract).await, "a").expect("it is a name");
    let domain = Coins { ledger: ledger.clone(), threshold: Threshold::AtLeast(1) };
    let parts = Parts { domain, ledger, store: database };
    let sequencer = within(Sequencer::start(&node, "coins", parts, SequencerOptions::default())).await;
    let sequencer = sequencer.expect("it can take part");
    while sequencer.status().await.expect("it runs").undecided > 0 {}
    let mut ends = sequencer.ends();
    assert_eq!(within(ends.next()).await, Some((intent, End::Confirmed)));
    within(sequencer.close()).await.expect("it ran");
    assert_eq!(within(ends.next()).await, None, "it has stopped");
}

/// One that was dropped leaves first; one that works is not joined by another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contract_has_one_sequencer_of_a_node_at_a_time() {
    let contract = Contract::prepare(quick(0)).await;
    let node = SequencerNode::new(&client(&contract).await, "a").expect("it is a name");
    let begin = async || {
        let (domain, ledger, store) = (Members(&["a", "b"]), Heights(&[]), store(&contract, "a.db"));
        let options = SequencerOptions::default();
        within(Sequencer::start(&node, "c", Parts { domain, ledger, store }, options)).await
    };
    let first = begin().await.expect("it can take part");
    let error = begin().await.expect_err("it takes part already");
    assert_eq!(error, SequencerError::Running(ContractName::new("c")));
    first.submit("1", "").await.expect("it is taken");
    drop(first);
    let second = begin().await.expect("it can take part again");
    assert_eq!(second.status().await.expect("it runs").undecided, 1);
    within(second.close()).await.expect("it ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_limit_is_refused_and_a_status_says_where_it_stands() {
    let contract = Contract::prepare(quick(0)).await;
    let mut options = SequencerOptions::default();
    options.max_undecided = 2;
    let sequencer = start(&contract, ["a", "c", "x"], &["a", "b"], options).await.expect("it can take part");
    for name in ["1", "2"] {
        sequencer.submit(name, "").await.expect("it is taken");
    }
    assert_eq!(sequencer.submit("3", "").await.expect_err("it is full"), SubmitError::TooMany(2));
    sequencer.submit("2", "").await.expect("it is there already");
    let status = sequencer.status().await.expect("it runs");
    assert_eq!((status.height, status.undecided, status.rank.len()), (5, 2, 2));
    assert!(status.delegate.is_some(), "{status:?}");
    within(sequencer.close()).await.expect("it ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_database_a_ledger_that_goes_back_and_keys_that_cannot_be_read_are_named() {
    let contract = Contract::prepare(quick(0)).await;
    let client = client(&contract).await;
    let node = SequencerNode::new(&client, "old").expect("it is a name");
    let (domain, store) = (Members(&["old", "b"]), store(&contract, "x"));
    let parts = Parts { domain, ledger: Heights(&[6, 3, 7]), store };
    let options = SequencerOptions::default();
    let sequencer = within(Sequencer::start(&node, "c", parts, options)).await.expect("it can take part");
    let mut warnings = sequencer.warnings();
    let put = async |name: &str, update| {
        let key = Key::new(b"geolock.seq", name.as_bytes()).expect("it is a key");
        client.transact(TxnRequest::new(), Batch::new().update(&key, update)).await.expect("it commits");
    };
    let heights = async {
        while sequencer.status().await.expect("it runs").height < 7 {
            tokio::task::yield_now().await;
        }
    };
    within(heights).await;
    put("c/to/old/b", Update::register("not a message")).await;
    put("c/beat/b", Update::counter(1)).await;
    put("c/to/old/stranger", Update::register("hello")).await;
    // An envelope with a message that is empty.
    put("c/to/old/b", Update::register(vec![0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x01, 0x1a, 0x00])).await;
    let behind = Warning::DatabaseBehind { known: 0, decided: 60 };
    assert_eq!(within(warnings.next()).await, Some(behind), "it is told at once");
    let mut keys = Vec::new();
    while keys.len() < 4 {
        match within(warnings.next()).await.expect("it runs") {
            Warning::Unreadable { key, why } => keys.push((key, why)),
            warning => assert_eq!(warning, Warning::LedgerWentBack { from: 6, to: 3 }),
        }
    }
    let named: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(named, ["c/to/old/b", "c/beat/b", "c/to/old/stranger", "c/to/old/b"], "{keys:?}");
    within(sequencer.close()).await.expect("it ran");
}

/// It is read with the lock: the coordinator goes on as without one, and the ledger decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handover_that_cannot_be_read_is_named() {
    let contract = Contract::prepare(quick(0)).await;
    let client = client(&contract).await;
    for (name, update) in [("c", Update::register("no handover")), ("d", Update::counter(1))] {
        let handover = format!("{name}/handover");
        let key = Key::new(b"geolock.seq", handover.as_bytes()).expect("it is a key");
        client.transact(TxnRequest::new(), Batch::new().update(&key, update)).await.expect("it commits");
        let sequencer = start(&contract, ["a", name, name], &["a"], SequencerOptions::default()).await;
        let sequencer = sequencer.expect("it can take part");
        let mut warnings = sequencer.warnings();
        sequencer.submit("1", "").await.expect("it is taken");
        match within(warnings.next()).await.expect("it runs") {
            Warning::Unreadable { key, .. } => assert_eq!(key, handover),
            warning => panic!("{warning}"),
        }
        within(sequencer.close()).await.expect("it ran");
    }
}

/// The command line of the example.
#[test]
fn options_of_the_example_that_cannot_be_are_named() {
    let parse = |args: &str| Options::parse(args.split(' ').map(str::to_owned)).map(drop);
    let refused = |why: &str| Err(why.to_owned());
    assert_eq!(parse("--range 0"), refused("--range is above 0"));
    assert_eq!(parse("--every 0"), refused("--every is above 0"));
    assert_eq!(parse("--block 0"), refused("--block is above 0"));
    assert_eq!(parse("--lag e=6"), refused("\"e\" is none of the nodes"));
    assert_eq!(parse("--node e"), refused("\"e\" is none of the nodes"));
    assert_eq!(parse("--lag c"), refused("--lag needs NODE=BLOCKS"));
    assert_eq!(parse("--lag c=6 --kill --partition --range 1"), Ok(()));
}

/// A contract without work says nothing at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_contract_at_rest_sends_no_message() {
    let mut contract = Contract::start(quick(5)).await;
    let watching = client(&contract).await;
    contract.all_are_confirmed_once().await;
    // Until the heartbeats have ended: a coordinator comes to rest with a beat that finds nothing in flight.
    let reader = watching.read_client().expect("it is connected");
    let mut watch = reader.watch(WatchRequest::new("geolock.seq", "")).await.expect("it serves");
    while timeout(Duration::from_secs(5), watch.next()).await.is_ok() {}
    let silent = timeout(Duration::from_secs(5), watch.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    let status = watching.describe_lock(&"seq/coins".try_into().expect("it is a name")).await;
    assert!(status.expect("it serves").holders.is_empty(), "the lock is free");
    contract.leave().await;
}
