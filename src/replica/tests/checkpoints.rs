//! Stories about checkpoints that take many steps, while leases, outcomes and entries come and go.

use std::time::Duration;

use super::cluster::{Cluster, SECRET, dc};
use super::store_cluster::{add, counted, step};
use crate::base::bugs::Bug;
use crate::leases::Proof;
use crate::replica::call::Call;
use crate::replica::call::store::{Step, Then};
use crate::replica::record::Checkpoint;
use crate::replica::{Event, LocalConfig, Message, OutcomeRow};
use geolock_api::names::{IdempotencyKey, LeaseId};

fn one_more() -> Step {
    step(vec![add("n", 1)], &[], Then::Commit)
}

fn commits(rows: &[OutcomeRow]) -> Vec<(LeaseId, IdempotencyKey)> {
    rows.iter().flat_map(|row| row.commits.iter().map(|(key, _)| (row.lease, *key))).collect()
}

impl Cluster {
    /// Kills a datacenter and starts it again from the bytes of a checkpoint that it makes first.
    pub fn restart_from_checkpoint(&mut self, id: u8) {
        self.handle(id, Event::Checkpoint);
        self.sync(id);
        let checkpoint = self.nodes[usize::from(id)].checkpoint.take().expect("few keys are one step");
        let bytes = checkpoint.encode().expect("it is small");
        self.restart_from(id, Checkpoint::decode(&bytes).expect("its own bytes"));
    }

    /// A datacenter that copies one row in each step, with five leases, each of which has committed once.
    fn with_slow_checkpoints(bug: Option<Bug>) -> (Cluster, Vec<LeaseId>) {
        let local = LocalConfig { checkpoint_rows: 1, ..LocalConfig::default() };
        let mut c = Cluster::with_options(1, local);
        c.bug = bug;
        c.restart(0);
        c.pass(10_000);
        let mut leases = Vec::new();
        for _ in 0..5 {
            c.open_lease(0, Duration::from_secs(10));
            leases.push(c.lease(0));
            let tag = c.begin(0, 1, None, one_more());
            c.run();
            c.committed(0, tag);
        }
        (c, leases)
    }

    /// Begins a checkpoint. Before it is done, the last of these leases commits once more, two others end,
    /// and a new one begins.
    fn makes_a_checkpoint_meanwhile(&mut self, leases: &[LeaseId]) -> Checkpoint {
        self.handle(0, Event::Checkpoint);
        self.begin(0, 2, None, one_more());
        for lease in [leases[0], leases[3]] {
            self.call(0, Call::CloseLease { lease, proof: Proof::Secret(SECRET) });
        }
        let (secret, ttl, on_disconnect) =
            (SECRET, Duration::from_secs(10), crate::leases::OnDisconnect::Keep);
        self.call(0, Call::OpenLease { secret, ttl: Some(ttl), on_disconnect });
        assert!(self.nodes[0].checkpoint.is_none(), "it takes many steps");
        loop {
            if let Some(checkpoint) = self.nodes[0].checkpoint.take() {
                return checkpoint;
            }
            self.handle(0, Event::Tick);
        }
    }

    /// The client of the last lease is back after a restart, and begins its second commit again.
    fn begins_again(&mut self) {
        self.pass(1_000);
        self.call(0, Call::AttachLease { lease: self.lease(0), secret: SECRET });
        let tag = self.begin(0, 2, None, one_more());
        self.run();
        self.committed(0, tag);
    }
}

#[test]
fn a_checkpoint_is_that_of_its_beginning_whatever_happens_before_it_is_done() {
    let (mut c, leases) = Cluster::with_slow_checkpoints(None);
    let before = c.inspect(0).checkpoint();
    let mut checkpoint = c.makes_a_checkpoint_meanwhile(&leases);
    checkpoint.leases.sort_by_key(|lease| lease.lease);
    assert_eq!((checkpoint.position, &checkpoint.leases), (before.position, &before.leases));
    assert_eq!(commits(&checkpoint.outcomes), commits(&before.outcomes));
    assert_eq!(checkpoint.commit_contents, before.commit_contents);
    assert_eq!((&checkpoint.log, &checkpoint.past), (&before.log, &before.past));

    // With the records after it, it is what all records are.
    c.sync(0);
    c.restart_from(0, checkpoint);
    let short = c.inspect(0).checkpoint();
    c.restart(0);
    let longer = c.inspect(0).checkpoint();
    assert_eq!(short.leases, longer.leases);
    assert_eq!(commits(&short.outcomes), commits(&longer.outcomes));
    assert_eq!(short.log, longer.log);
    c.begins_again();
    assert_eq!(c.reads(0, "n"), counted(6), "the second one was committed before");
}

/// The same with a crash that takes all records after the checkpoint.
fn counted_after_a_crash(bug: Option<Bug>) -> Option<geolock_api::value::Reading> {
    let (mut c, leases) = Cluster::with_slow_checkpoints(bug);
    let checkpoint = c.makes_a_checkpoint_meanwhile(&leases);
    c.nodes[0].records.truncate(checkpoint.position.0 as usize);
    c.restart_from(0, checkpoint);
    c.begins_again();
    c.reads(0, "n")
}

#[test]
fn a_commit_that_was_lost_in_a_crash_is_not_in_a_checkpoint_before_it() {
    assert_eq!(counted_after_a_crash(None), counted(6));
    assert_eq!(counted_after_a_crash(Some(Bug::LaterOutcomes)), counted(5), "the bug is noticed");
}

/// Returns the entries of a checkpoint during which the other datacenter acknowledges all of them.
fn copied_entries(bug: Option<Bug>) -> (usize, usize) {
    let local = LocalConfig { checkpoint_rows: 1, ..LocalConfig::default() };
    let mut c = Cluster::with_options(2, local);
    c.bug = bug;
    c.restart(0);
    c.link_again(0);
    c.pass(11_000);
    c.open_lease(0, Duration::from_secs(10));
    c.nodes[1].disk_is_stuck = true;
    for key in 1..=10 {
        c.begin(0, key, None, one_more());
        c.run();
    }
    let kept = c.inspect(0).checkpoint().log.len();
    c.late = |message| matches!(message, Message::Heartbeat(_));
    c.nodes[1].disk_is_stuck = false;
    c.sync(1);
    c.pass(600);
    c.handle(0, Event::Checkpoint);
    while let Some(message) = c.wires.get_mut(&(dc(1), dc(0))).expect("it is up").pop_front() {
        c.handle(0, Event::Received { peer: dc(1), message });
    }
    while c.nodes[0].checkpoint.is_none() {
        c.handle(0, Event::Tick);
    }
    let checkpoint = c.nodes[0].checkpoint.take().expect("it was just there");
    (checkpoint.log.len(), kept)
}

#[test]
fn entries_are_kept_until_a_checkpoint_has_copied_them() {
    let (copied, kept) = copied_entries(None);
    assert!(copied == kept && kept >= 10, "{copied} of {kept}");
}

#[test]
#[should_panic(expected = "are kept")]
fn entries_that_are_truncated_meanwhile_are_missed() {
    copied_entries(Some(Bug::EntriesNotKept));
}
