//! The heavier checks, made now and then, and those of the quiet at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::replica::Inspect;
use crate::replica::call::{Call, Counts, Phase as ReplicaPhase, Status};
use crate::sim::client::{Client, State};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Broken, HolderId, READER};
use crate::sim::world::{Action, World};
use crate::store_state::Content;
use geolock_api::keys::Key;
use geolock_api::names::{DcId, Mode};
use geolock_api::value::Reading;

/// Interval of the heavier checks.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// A description is answered within a second, whatever happens; clocks may run slow by 1 %.
const DESCRIBED_WITHIN: Duration = Duration::from_millis(1_100);

impl World {
    pub(super) fn on_sample(&mut self) {
        self.queue.push(self.now + SAMPLE_EVERY, Action::Sample);
        self.copy_disks();
        self.check_replicas(Stage::Running);
        self.check_waits();
        self.check_behind();
        self.check_descriptions();
        self.check_graces();
    }

    /// Compares the state of the replicas.
    fn check_replicas(&mut self, stage: Stage) {
        let has_one_history = self.has_one_history();
        if !has_one_history && stage == Stage::Running {
            return;
        }
        let running = self.nodes.iter().filter_map(|node| Some((node.dc, node.inspect()?)));
        let counts =
            |(dc, replica): &(DcId, Inspect<'_>)| replica.has_state() && !self.control.evicted.contains(*dc);
        let replicas: Vec<(DcId, Inspect<'_>)> = running.filter(counts).collect();
        for (i, (a, first)) in replicas.iter().enumerate() {
            // One that has left enters epochs without an entry.
            let is_alike = |r: &Inspect<'_>| (r.applied(), r.epoch()) == (first.applied(), first.epoch());
            for (b, second) in replicas[i + 1..].iter().filter(|(_, r)| is_alike(r)) {
                let same_table = first.ownership() == second.ownership()
                    && first.request_table() == second.request_table();
                if !same_table || shown(&first.contents()) != shown(&second.contents()) {
                    let (vector, first, second) = (first.applied(), first.checkpoint(), second.checkpoint());
                    let broken = Broken::new(
                        FailureKind::Diverged,
                        format!("{a} and {b} applied {vector} and differ"),
                    );
                    return self.blame(Err(broken.with_detail(format!("{first:?}\n{second:?}"))));
                }
            }
        }
        for (dc, replica) in replicas.iter().filter(|_| has_one_history) {
            let mut judged = self.txns.check_contents(*dc, replica.applied(), &shown(&replica.contents()));
            if stage == Stage::Quiet {
                judged = judged.and_then(|()| self.txns.check_all(replica.applied()));
            }
            if judged.is_err() {
                return self.blame(judged);
            }
        }
        let names = self.locks.hot.iter().chain(&self.locks.cold);
        for (lock, part) in names.flat_map(|lock| replicas.iter().map(move |(part, _)| (lock, *part))) {
            let owns = |(dc, r): &&(DcId, Inspect)| {
                !r.has_left()
                    && r.members().contains(part)
                    && r.owner_of(lock, part) == *dc
                    && !self.is_out_of_date(*dc)
            };
            let believe = replicas.iter().filter(owns).count();
            let kind = match (believe, stage) {
                (1, _) | (0, Stage::Running) => continue,
                (0, Stage::Quiet) => FailureKind::NoOwner,
                _ => FailureKind::TwoOwners,
            };
            let what = format!("{believe} believe that they own part {part} of {lock}");
            return self.fail(kind, what);
        }
    }

    fn check_waits(&mut self) {
        let mut waits = Vec::new();
        for client in self.clients.iter().filter(|client| !client.dead) {
            let waiting = client.requests().iter().filter(|(_, r)| r.state == State::Waiting);
            waits.extend(waiting.map(|(key, r)| (client.number, *key, r.issued)));
        }
        for (client, key, issued) in waits {
            self.check_wait(client, key, self.now.since(issued));
            self.check_wait_at_home(HolderId { client, key });
            self.check_spared(HolderId { client, key });
        }
    }

    /// A reader whose own part is at home, of a lock that nobody holds in conflict, waits only for a due
    /// writer elsewhere; and for a dead one not for long. In the profile with this check, the last datacenter
    /// is the only one that writes.
    fn check_wait_at_home(&mut self, id: HolderId) {
        let Some(bound) = self.plan.max_wait_at_home else { return };
        let client = &self.clients[id.client];
        let Some(replica) = self.node(client.dc).inspect() else { return };
        let writer_is_dead = self.nodes.last().is_some_and(|node| node.replica.is_none());
        let free = writer_is_dead
            && client.is_ready()
            && client.requests()[&id.key].order.wants.locks().iter().all(|(lock, mode)| {
                *mode == Mode::Shared
                    && replica.owner_of(lock, client.dc) == client.dc
                    && !self.holders.conflicts(lock, *mode)
            });
        if !free {
            self.at_home_since.remove(&id);
            return;
        }
        let since = *self.at_home_since.entry(id).or_insert(self.now);
        if self.now.since(since) > bound {
            let what = format!("{id:?} waits since {since} for readers' locks that nobody keeps from it");
            self.fail(FailureKind::Starved, what);
        }
    }

    /// Asks for descriptions, and checks that the last ones were answered.
    fn check_descriptions(&mut self) {
        for dc in self.members().iter() {
            if self.node(dc).is_paused() {
                continue;
            }
            if let Some(asked) = self.node(dc).described_at {
                if self.now.since(asked) > DESCRIBED_WITHIN {
                    let what = format!("{dc} did not describe a lock that it was asked for at {asked}");
                    self.fail(FailureKind::Contract, what);
                }
            } else if self.is_running(dc) && self.chance.load.percent(10) && !self.locks.hot.is_empty() {
                let lock = self.chance.load.pick(&self.locks.hot).clone();
                self.nodes[dc.index()].described_at = Some(self.now);
                self.operator_call(dc, self.now.0, Call::Describe { lock });
            }
        }
    }

    /// Returns the status of a datacenter; `None` while it is down.
    pub fn status(&mut self, dc: DcId) -> Option<Box<Status>> {
        self.operator_call(dc, self.now.0, Call::Status);
        self.nodes[dc.index()].status.take()
    }

    /// Returns the number of waiting requests of living clients that were not cancelled.
    pub fn waiting(&self) -> usize {
        let living = || self.clients.iter().filter(|client| !client.dead);
        let requests = living().flat_map(|client| client.requests().values());
        let txns: usize = living().map(Client::unfinished_txns).sum();
        let deferred: usize = living().map(Client::deferred).sum();
        requests.filter(|r| r.state == State::Waiting).count() + txns + deferred
    }

    /// Returns the number of requests of living clients that are not over.
    pub fn unfinished(&self) -> usize {
        let living = self.clients.iter().filter(|client| !client.dead);
        living.map(|c| c.requests().len() + c.unfinished_txns() + c.deferred()).sum()
    }

    /// Returns a description of the first thing that keeps the world from being quiet.
    pub fn unrest(&mut self) -> Option<String> {
        let mut applied = None;
        if !self.still_joining().is_empty() {
            return Some(format!("{:?} did not join", self.still_joining()));
        }
        if !self.still_leaving().is_empty() {
            return Some(format!("{:?} did not leave", self.still_leaving()));
        }
        if !self.control.lost.is_empty() {
            return Some(format!("{:?} were lost and not evicted", self.control.lost));
        }
        if let Some(dc) = self.behind_decisions() {
            return Some(format!("{dc} has not entered the last epoch"));
        }
        for dc in self.members().iter() {
            let Some(status) = self.status(dc) else { return Some(format!("{dc} is down")) };
            if let Some(gauge) = raised_gauge(&status.counts) {
                return Some(format!("{dc} still has {gauge}: {:?}", status.counts));
            }
            if self.plan.returns_idle_locks() && status.counts.locks_moved > 0 {
                return Some(format!("{dc} knows {} locks that are not home", status.counts.locks_moved));
            }
            if status.counts.locks_away_here > self.plan.max_away_locks as u64 {
                return Some(format!("{dc} keeps parts of {} locks", status.counts.locks_away_here));
            }
            let shows = self.shown_keys(dc);
            if status.counts.keys != shows {
                return Some(format!("{dc} shows {shows} keys and keeps {}", status.counts.keys));
            }
            if status.phase != ReplicaPhase::Serving {
                return Some(format!("{dc} is {:?}", status.phase));
            }
            if status.peers.iter().any(|peer| !peer.connected || !peer.reachable || peer.unacked_entries > 0)
            {
                return Some(format!("{dc} sees its peers as {:?}", status.peers));
            }
            let vector = applied.get_or_insert_with(|| status.applied.clone());
            if *vector != status.applied || status.applied != status.durable {
                return Some(format!("{dc} applied {}, another {vector}", status.applied));
            }
        }
        None
    }

    /// Returns the numbers of idle returns by age, by number, and beside shared requests.
    pub fn idle_returns(&self) -> [u64; 3] {
        let counts = self.nodes.iter().filter_map(|node| Some(node.inspect()?.counts()));
        counts.fold([0; 3], |[age, number, shared], counts| {
            [
                age + counts.idle_returns_age,
                number + counts.idle_returns_number,
                shared + counts.idle_returns_shared,
            ]
        })
    }

    /// Returns the number of keys with a value in a datacenter.
    fn shown_keys(&self, dc: DcId) -> u64 {
        self.node(dc).inspect().map_or(0, |replica| shown(&replica.contents()).len() as u64)
    }

    /// In the quiet: all replicas are equal, and every part has exactly one owner.
    pub fn check_quiet(&mut self) {
        self.check_replicas(Stage::Quiet);
        self.check_audits();
        self.check_watchers();
    }
}

/// Returns the readings of all keys that have a value.
pub(super) fn shown(contents: &[(Key, Content)]) -> BTreeMap<Key, Reading> {
    let readings = contents.iter().map(|(key, content)| (key, content.slots().read(READER)));
    readings.filter_map(|(key, reading)| Some((key.clone(), reading?))).collect()
}

/// In the quiet every log is delivered; while running it need not be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Quiet,
}

/// Returns the name of a gauge that is above its floor.
fn raised_gauge(counts: &Counts) -> Option<&'static str> {
    let gauges = [
        (counts.leases, "leases"),
        (counts.held, "held requests"),
        (counts.waiting, "waiting requests"),
        (counts.published, "published requests"),
        (counts.remote_requests, "remote requests"),
        (counts.parked, "parked requests"),
        (counts.locks_active, "active locks"),
        (counts.log_entries, "log entries"),
        (counts.held_back, "held back entries"),
        (counts.transactions, "transactions"),
        (counts.uncompacted_changes, "effects of commits that are not folded"),
        (counts.tombstones_pending, "marks of removals"),
        (counts.keys_expiring, "keys that are to lapse"),
        (counts.waiting_for_majority, "commits that wait for a majority"),
    ];
    gauges.iter().find(|(value, _)| *value > 0).map(|(_, name)| *name)
}
