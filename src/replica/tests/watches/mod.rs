//! Stories about watches: of keys, of locks, and of clients that do not keep up.

mod keys;
mod locks;
mod unread;

use super::cluster::{Cluster, dc};
use crate::crdt::VersionVector;
use crate::replica::Notice;
use crate::replica::call::store::TxnRefusal;
use crate::replica::call::watch::{LockEvent, Pattern, Subject, Watch, WatchRefusal};
use crate::replica::call::{Call, Limit, Refusal, Reply};

fn keys(prefix: &str) -> Pattern {
    Pattern::keys(b"b", prefix.as_bytes()).expect("a story follows what there can be")
}

fn locks(prefix: &str) -> Pattern {
    Pattern::locks(prefix.as_bytes()).expect("a story follows what there can be")
}

fn vector(seqs: &[(u8, u64)]) -> VersionVector {
    seqs.iter().map(|(id, seq)| (dc(*id), *seq)).collect()
}

impl Cluster {
    fn watch(&mut self, id: u8, pattern: Pattern, from: Option<VersionVector>) -> u64 {
        self.call(id, Call::Watch(Watch { subject: Subject::Keys, patterns: vec![pattern], from }))
    }

    fn watch_locks(&mut self, id: u8, patterns: Vec<Pattern>, from: Option<VersionVector>) -> u64 {
        self.call(id, Call::Watch(Watch { subject: Subject::Locks, patterns, from }))
    }

    /// Returns the vector at which a watch began.
    fn begun(&self, id: u8, tag: u64) -> VersionVector {
        match self.reply(id, tag) {
            Some(Reply::Watching { from }) => from,
            other => panic!("call {tag} at dc{id} is no watch but {other:?}"),
        }
    }

    fn watch_refused(&self, id: u8, tag: u64) -> WatchRefusal {
        match self.refused(id, tag) {
            Refusal::Watch(refusal) => refusal,
            other => panic!("call {tag} at dc{id} is not refused as a watch but {other:?}"),
        }
    }

    fn take_events(&mut self, id: u8, tag: u64) -> Vec<LockEvent> {
        let mut events = Vec::new();
        self.nodes[usize::from(id)].notices.retain(|notice| match notice {
            Notice::Lock(news) if news.watch == tag => {
                events.push(news.event.clone());
                false
            }
            _ => true,
        });
        events
    }

    fn restarts(&mut self, id: u8) {
        self.restart(id);
        self.pass(600);
    }
}

#[test]
fn a_watch_that_cannot_be_is_refused() {
    let mut c = Cluster::new(2, 0, 0);
    for from in [vector(&[(0, 100)]), vector(&[(3, 1)])] {
        let watch = c.watch(0, keys(""), Some(from.clone()));
        let Refusal::Transaction(refusal) = c.refused(0, watch) else {
            panic!("{from} is no vector of here")
        };
        let is_expected =
            matches!(refusal, TxnRefusal::SnapshotAhead { seq: 100, .. } | TxnRefusal::UnknownDc(_));
        assert!(is_expected, "{refusal:?}");
    }
    for patterns in [vec![], vec![locks("x"); 101]] {
        let count = patterns.len();
        let watch = c.watch_locks(0, patterns, None);
        assert_eq!(c.watch_refused(0, watch), WatchRefusal::Patterns(count));
    }
    assert_eq!(c.inspect(0).counts().watches, 0);
    // The names that all watches follow are bounded.
    let long = "x".repeat(1_000);
    let mut many = Vec::new();
    let refusal = loop {
        let watch = c.watch_locks(0, vec![locks(&long); 100], None);
        match c.reply(0, watch) {
            Some(Reply::Refused(refusal)) => break refusal,
            _ => many.push(watch),
        }
    };
    assert!(matches!(refusal, Refusal::ResourceExhausted { limit: Limit::Watches, .. }), "{refusal:?}");
    assert_eq!(many.len(), 592, "64 MiB of something over 100 KiB each");
    c.call(0, Call::Unwatch { watch: many[0] });
    let watch = c.watch_locks(0, vec![locks(&long); 100], None);
    c.begun(0, watch);
}
