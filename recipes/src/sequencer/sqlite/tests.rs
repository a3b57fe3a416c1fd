//! The rows of both, and the rules of the ledger.

use std::time::Duration;

use bytes::Bytes;
use tempfile::TempDir;

use super::super::application::{Ledger as _, NodeStore as _};
use super::*;
use crate::sequencer_state::{
    Assembly, Contract, End, Epoch, Failure, Grant, Intent, IntentId, Node, Notice, Owner, Record, Revert,
    StateId, Transaction as Sequenced,
};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn id(name: &str) -> IntentId {
    IntentId::new(&Node::new("a"), name)
}

fn transaction(name: &str, epoch: u64, nonce: u64, [input, output]: [&str; 2]) -> Sequenced {
    let (inputs, outputs) = (vec![StateId::new(input)], vec![StateId::new(output)]);
    let assembly = Assembly { intent: id(name), inputs, outputs, payload: Bytes::from_static(b"p") };
    let (hash, signer) = (assembly.hash(), Node::new("b"));
    Sequenced { assembly, hash, epoch: Epoch(epoch), signer, nonce }
}

#[tokio::test]
async fn a_store_has_what_was_written_also_when_it_is_opened_again() {
    let folder = folder();
    let path = folder.path().join("node.db");
    let mut store = SqliteStore::open(&path).expect("it can be made");
    let intent = |name: &str| Intent { id: id(name), content: Bytes::from_static(b"content") };
    let of = transaction("1", u64::MAX, 7, ["i", "o"]);
    let grant = |name: &str| Grant { intent: id(name), to: Node::new("b"), epoch: of.epoch, hash: of.hash };
    let notice = Notice { intent: id("1"), epoch: of.epoch, hash: of.hash, nonce: 7 };
    let owner = Owner { node: Node::new("a"), contract: Contract::new("c") };
    let mut records = vec![Record::Owner(owner.clone())];
    records.extend(["3", "1", "2"].map(|name| Record::Intent(intent(name))));
    records.extend(["3", "1"].map(|name| Record::Grant(grant(name))));
    records.push(Record::Notice { signer: Node::new("b"), notice: notice.clone() });
    records.push(Record::Dispatch(transaction("1", 1, 6, ["i", "o"])));
    records.push(Record::Dispatch(of.clone()));
    records.push(Record::DispatchOver { nonce: 6 });
    let end = End::Failed(Failure::Endorsement("no".to_owned()));
    records.push(Record::Ended { intent: id("3"), end: end.clone() });
    store.write(records).await.expect("it is written");
    drop(store);
    let mut store = SqliteStore::open(&path).expect("it is there");
    let restored = store.load().await.expect("it is readable");
    assert_eq!(restored.owner, Some(owner));
    assert_eq!(restored.intents, [intent("1"), intent("2")], "in their order");
    assert_eq!(restored.grants, [grant("1")]);
    assert_eq!(restored.notices, [(Node::new("b"), notice)]);
    assert_eq!((restored.dispatches, restored.last_nonce), (vec![of], 7));
    assert_eq!(store.find(&id("3")).await.expect("it is readable"), Some((intent("3"), Some(end))));
    assert_eq!(store.find(&id("1")).await.expect("it is readable"), Some((intent("1"), None)));
    assert_eq!(store.find(&id("4")).await.expect("it is readable"), None);
    store.forget_ended(1).await.expect("it is written");
    assert!(store.find(&id("3")).await.expect("it is readable").is_some(), "the last one stays");
    store.forget_ended(0).await.expect("it is written");
    assert_eq!(store.find(&id("3")).await.expect("it is readable"), None);
    assert_eq!(store.load().await.expect("it is readable").intents.len(), 2);
}

#[tokio::test]
async fn a_write_is_whole_or_not_at_all() {
    let folder = folder();
    let mut store = SqliteStore::open(folder.path().join("node.db")).expect("it can be made");
    let intent = Intent { id: id("1"), content: Bytes::new() };
    let twice = vec![Record::Intent(intent.clone()), Record::Intent(intent)];
    assert!(store.write(twice).await.is_err(), "its name is there");
    assert!(store.load().await.expect("it is readable").intents.is_empty());
}

/// Each rule of the contract, and the order of nonces.
#[tokio::test]
async fn a_ledger_confirms_each_intent_once_and_says_why_it_reverts() {
    let folder = folder();
    let rule: SimRule = |assembly| match &*assembly.intent.name {
        "refused" => Err("not so".to_owned()),
        _ => Ok(()),
    };
    let block = Duration::from_millis(100);
    let mut options = SimLedgerOptions { block, rule: Some(rule), ..SimLedgerOptions::default() };
    let path = folder.path().join("ledger.db");
    let ledger = SimLedger::open(&path, options.clone()).expect("it can be made");
    let all = [
        (transaction("1", 5, 1, ["genesis-0", "x"]), Ok(())),
        // On top of the one before, in the same block.
        (transaction("2", 5, 2, ["x", "y"]), Ok(())),
        (transaction("1", 5, 3, ["genesis-1", "z"]), Err(Revert::DuplicateIntent)),
        (transaction("3", 4, 4, ["genesis-1", "z"]), Err(Revert::StaleEpoch)),
        (transaction("3", 5, 5, ["x", "z"]), Err(Revert::Spent)),
        (transaction("refused", 5, 6, ["y", "z"]), Err(Revert::Contract("not so".to_owned()))),
        // Alone behind a partition.
        (transaction("4", 0, 7, ["y", "z"]), Ok(())),
    ];
    for (transaction, _) in all.iter().rev() {
        ledger.submit(transaction).await.expect("it is written");
        ledger.submit(transaction).await.expect("it is there");
    }
    ledger.submit(&transaction("5", 5, 9, ["z", "w"])).await.expect("it waits for the nonce before");
    let mut height = 0;
    let outcomes = loop {
        let blocks = ledger.blocks(height).await.expect("it is readable");
        height = blocks.last().expect("it waits for a block").height;
        let outcomes: Vec<_> = blocks.into_iter().flat_map(|block| block.outcomes).collect();
        if !outcomes.is_empty() {
            break outcomes;
        }
    };
    let found: Vec<_> = outcomes.into_iter().map(|it| (it.transaction, it.result)).collect();
    assert_eq!(found, all);
    ledger.submit(&all[0].0).await.expect("it was decided");
    let view = ledger.view(vec![id("1"), id("3")]).await.expect("it is readable");
    assert_eq!(view.confirmed.into_iter().collect::<Vec<_>>(), [id("1")]);
    assert_eq!((view.epoch, view.decided_nonces[&Node::new("b")]), (Some(Epoch(5)), 7));
    let unspent = ledger.unspent().await.expect("it is readable");
    assert!(unspent.contains(&StateId::new("z")) && !unspent.contains(&StateId::new("y")));
    // Another view of the same file, which is late.
    options.lag = 1_000;
    let late = SimLedger::open(&path, options).expect("it is there");
    let view = late.view(vec![id("1")]).await.expect("it is readable");
    assert_eq!((view.height, view.confirmed.len(), view.epoch), (0, 0, None));
    let unspent = late.unspent().await.expect("it is readable");
    assert_eq!(unspent.len(), 16, "all that it began with");
}
