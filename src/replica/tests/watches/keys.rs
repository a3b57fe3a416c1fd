//! Stories about watches of keys.

use std::time::Duration;

use super::super::cluster::Cluster;
use super::super::store_cluster::{add, key, put, step};
use super::{keys, vector};
use crate::crdt::VersionVector;
use crate::replica::call::Call;
use crate::replica::call::store::Then;
use crate::replica::call::watch::{Pattern, Subject, Watch, WatchRefusal};
use crate::replica::{Event, Notice};

impl Cluster {
    /// Returns the keys in the events of a watch, commit by commit.
    fn told(&self, id: u8, tag: u64) -> Vec<Vec<String>> {
        let of = |notice: &Notice| match notice {
            Notice::Changed(changed) if changed.watch == tag => {
                Some(changed.changes.iter().map(|change| change.key.to_string()).collect())
            }
            _ => None,
        };
        self.nodes[usize::from(id)].notices.iter().filter_map(of).collect()
    }

    /// Returns the vectors that a watch received, in order.
    fn reached(&self, id: u8, tag: u64) -> Vec<VersionVector> {
        let of = |notice: &Notice| match notice {
            Notice::Progress { watch, vector } if *watch == tag => Some(vector.clone()),
            _ => None,
        };
        self.nodes[usize::from(id)].notices.iter().filter_map(of).collect()
    }

    fn commits(&mut self, id: u8, key: u64, names: &[&str]) -> u64 {
        let changes = names.iter().map(|name| add(name, 1)).collect();
        self.begin(id, key, None, step(changes, &[], Then::Commit))
    }
}

#[test]
fn a_watch_is_told_of_every_commit_once_and_can_be_gone_on_with() {
    let mut c = Cluster::new(2, 0, 0);
    let first = c.watch(0, keys("n"), None);
    let from = c.begun(0, first);
    c.commits(0, 1, &["n1", "x"]);
    assert!(c.told(0, first).is_empty(), "it is not durable");
    c.run();
    c.commits(1, 1, &["x"]);
    let last = c.commits(1, 2, &["n2", "x", "n1"]);
    c.run();
    assert_eq!(c.told(0, first), [vec!["b/n1"], vec!["b/n2", "b/n1"]]);
    // Another datacenter, from where the first watch began: the same events, in a causal order.
    let elsewhere = c.watch(1, keys("n"), Some(from));
    assert_eq!(c.told(1, elsewhere), c.told(0, first));
    let known = c.committed(1, last);
    let ended = c.watch(1, keys("n2"), Some(known));
    c.call(1, Call::Unwatch { watch: ended });
    c.commits(0, 3, &["n2"]);
    c.run();
    assert!(c.told(1, ended).is_empty(), "the ended watch is told nothing");
    assert_eq!(c.told(1, elsewhere).len(), 3);
}

#[test]
fn a_watch_of_a_key_is_none_of_what_begins_like_it_and_names_followed_twice_are_told_once() {
    let mut c = Cluster::new(1, 0, 0);
    let one = c.watch(0, Pattern::key(&key("n")), None);
    let patterns = vec![keys("n"), Pattern::key(&key("n")), keys(""), keys("nn")];
    let all = c.call(0, Call::Watch(Watch { subject: Subject::Keys, patterns, from: None }));
    c.commits(0, 1, &["nn", "n", "m"]);
    c.commits(0, 2, &["nn"]);
    c.run();
    assert_eq!(c.told(0, one), [["b/n"]]);
    assert_eq!(c.told(0, all), [vec!["b/nn", "b/n", "b/m"], vec!["b/nn"]]);
}

#[test]
fn a_watch_knows_what_it_has_seen_elsewhere_before_it_comes_here() {
    let mut c = Cluster::new(2, 0, 0);
    c.cut(0, 1);
    let before = c.commits(1, 1, &["n1"]);
    c.run();
    let known = c.committed(1, before);
    let watch = c.watch(0, keys(""), Some(known.clone()));
    assert_eq!(c.begun(0, watch), known);
    c.commits(1, 2, &["n2"]);
    c.run();
    c.link(0, 1);
    c.pass(600);
    assert_eq!(c.told(0, watch), [["b/n2"]], "the first one came here too, and is no news");
    c.pass(5_000);
    let (reached, durable) = (c.reached(0, watch), c.inspect(0).status().durable);
    assert_eq!(reached, [durable]);
}

#[test]
fn a_quiet_watch_is_told_how_far_it_is_complete() {
    let mut c = Cluster::new(2, 0, 0);
    let quiet = c.watch(0, keys("quiet"), None);
    c.pass(6_000);
    assert!(c.reached(0, quiet).is_empty(), "nothing happened that it could fall behind");
    c.commits(0, 1, &["n"]);
    c.commits(1, 1, &["n"]);
    c.use_lock(0, "x");
    c.run();
    assert!(c.reached(0, quiet).is_empty(), "a commit is nothing to a watch that does not follow it");
    c.pass(600);
    assert_eq!(c.reached(0, quiet), [c.inspect(0).status().durable]);
    c.pass(20_000);
    assert_eq!(c.reached(0, quiet).len(), 1, "once is enough");
    c.open_lease(0, Duration::from_secs(10));

    // Under load it does not wait for the time, so that the later entries are still remembered.
    let large = "x".repeat(300_000);
    for key in 2..10 {
        c.begin(0, key, None, step(vec![put("large", &large)], &[], Then::Commit));
        c.run();
    }
    let reached = c.reached(0, quiet);
    assert_eq!(reached.len(), 3, "every MiB or so");
    let again = c.watch(0, keys("quiet"), reached.last().cloned());
    c.begun(0, again);
}

#[test]
fn those_who_are_told_at_once_are_told_bit_by_bit() {
    let mut c = Cluster::new(1, 0, 0);
    let some: Vec<u64> = (0..1_000).map(|_| c.watch(0, keys("quiet"), None)).collect();
    let more = Call::Watch(Watch { subject: Subject::Keys, patterns: vec![keys("q")], from: None });
    let refused = c.call(0, more);
    assert_eq!(c.watch_refused(0, refused), WatchRefusal::TooMany(1_000));
    c.commits(0, 1, &["n"]);
    c.pass(600);
    assert!(c.reached(0, some[999]).is_empty(), "it has just begun");
    c.pass(5_000);
    assert!(some.iter().all(|tag| c.reached(0, *tag).len() == 1));
}

#[test]
fn a_watch_goes_on_after_a_restart() {
    let mut c = Cluster::new(2, 0, 0);
    let from = c.inspect(0).status().durable;
    c.commits(0, 1, &["n1"]);
    c.use_lock(1, "x");
    c.commits(1, 1, &["n2"]);
    c.run();
    c.restarts(0);
    let watch = c.watch(0, keys("n"), Some(from));
    assert_eq!(c.told(0, watch), [["b/n1"], ["b/n2"]]);
}

#[test]
fn a_watch_goes_on_after_a_restart_from_a_checkpoint() {
    let mut c = Cluster::new(2, 0, 0);
    let from = c.inspect(0).status().durable;
    c.commits(0, 1, &["n1"]);
    c.commits(1, 1, &["n2"]);
    // Every member has all of it, so no log keeps any of it.
    c.pass(1_500);
    assert_eq!(c.inspect(0).counts().log_entries, 0);
    c.cut(0, 1);
    c.commits(0, 2, &["n3"]);
    c.handle(0, Event::Checkpoint);
    while c.nodes[0].checkpoint.is_none() {
        c.handle(0, Event::Tick);
    }
    c.run();
    c.commits(0, 3, &["n4"]);
    c.run();
    let checkpoint = c.nodes[0].checkpoint.take().expect("it is there");
    assert_eq!((checkpoint.past.entries.len(), checkpoint.log.len()), (2, 1));
    c.restart_from(0, checkpoint);
    let watch = c.watch(0, keys("n"), Some(from));
    assert_eq!(c.told(0, watch), [["b/n1"], ["b/n2"], ["b/n3"], ["b/n4"]]);
}

#[test]
fn a_watch_cannot_go_on_from_what_is_forgotten() {
    let mut c = Cluster::new(1, 0, 0);
    let large = "x".repeat(900_000);
    for key in 1..6 {
        c.begin(0, key, None, step(vec![put("n", &large)], &[], Then::Commit));
    }
    c.run();
    let too_old = WatchRefusal::TooOld { begins: vector(&[(0, 1)]) };
    let watch = c.watch(0, keys("n"), Some(VersionVector::default()));
    assert_eq!(c.watch_refused(0, watch), too_old);
    let watch = c.watch(0, keys("n"), Some(vector(&[(0, 1)])));
    assert_eq!(c.told(0, watch).len(), 4);
    c.restarts(0);
    let watch = c.watch(0, keys("n"), Some(VersionVector::default()));
    assert_eq!(c.watch_refused(0, watch), too_old, "that is as it was");
    let watch = c.watch(0, keys("n"), Some(vector(&[(0, 2)])));
    c.begun(0, watch);
}
