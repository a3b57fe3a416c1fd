//! Comparison of replicas: from time to time two datacenters compare their data
//! (`docs/algorithm/log.md#35-comparing-replicas`).
//!
//! Entries normally reach every member by themselves, by any path that is left ([`crate::causal_log`]). A
//! round checks that this works: it sends entries that were lost on the way, and at equal vectors it compares
//! the data that readers see. Equal vectors with unequal digests mean a broken replica: this raises an alarm
//! that names the bucket, and is never repaired silently.

use super::sums::{Points, SumAt};
use crate::base::bugs::Bug;
use crate::base::time::{Instant, Now};
use crate::causal_log::Log;
use crate::crdt::VersionVector;
use crate::lock_state::Locks;
use crate::replica::config::ReplicaConfig;
use crate::replica::data::Data;
use crate::replica::effect::Report;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::Peers;
use crate::store_state::{Bucket, Digest};
use geolock_api::names::{DcId, DcSet, Position};

/// Most bytes of a message of digests: some 15 000 buckets with the longest names.
const MAX_DIGEST: usize = 4 << 20;
/// Stands for the name of a bucket when there are too many buckets to compare.
const TOO_MANY: &[u8] = b"(too many buckets to say which)";

/// The schedule of the rounds, and their results.
pub(in crate::replica) struct AntiEntropy {
    pub next_at: Instant,
    rounds: u64,
    /// Peers whose digests differed at the last comparison; each time that begins, one alarm is raised.
    alarmed: DcSet,
    shown: Summary,
    owned: Summary,
}

/// The points of one of the two sums.
#[derive(Default)]
struct Summary {
    points: Points,
    /// Position of the last point: nothing is hashed before there is a newer record.
    noted: Position,
    /// Peers that had another sum at some point at the last comparison.
    alarmed: DcSet,
}

/// The data that a sum covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Summed {
    /// The data that readers see.
    Shown,
    /// The owner of each part of each lock.
    Owned,
}

impl AntiEntropy {
    pub fn new(next_at: Instant) -> AntiEntropy {
        AntiEntropy {
            next_at,
            rounds: 0,
            alarmed: DcSet::EMPTY,
            shown: Summary::default(),
            owned: Summary::default(),
        }
    }

    /// Returns true if there are records, or durable ones, that are newer than the last points.
    #[inline]
    pub fn lacks_sums(&self, last: Position, durable: Position) -> bool {
        self.owned.noted < last || self.shown.noted < durable
    }
}

/// Compares the data with those of the peers.
pub(in crate::replica) struct Comparison<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a Locks,
    pub(in crate::replica) lifecycle: &'a Lifecycle,
    pub(in crate::replica) members: &'a Members,
    pub(in crate::replica) peers: &'a mut Peers,
    pub(in crate::replica) data: &'a mut Data,
}

impl Comparison<'_> {
    /// Begins a round with one of the linked peers.
    pub(in crate::replica) fn on_anti_entropy_due(&mut self) {
        self.peers.anti_entropy.next_at = self.now.mono + self.config.local.anti_entropy_interval;
        if self.lifecycle.state.is_starting() {
            return;
        }
        let linked: Vec<DcId> = self.log.peers().linked().iter().collect();
        if linked.is_empty() {
            return;
        }
        self.peers.anti_entropy.rounds += 1;
        // Spread by a fixed odd factor: every peer gets its turn, in an order that differs between
        // datacenters.
        let seed = self.config.local.hash_seed ^ u64::from(self.config.dc.get());
        let turn =
            self.peers.anti_entropy.rounds.wrapping_add(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let peer = linked[turn as usize % linked.len()];
        let message = self.compare();
        self.out.send(self.log, peer, message);
        // A peer of version 1 does not know this message.
        if self.lifecycle.versions.are_chained() {
            let AntiEntropy { shown, owned, .. } = &self.peers.anti_entropy;
            let durable = self.out.output_commit.durable();
            let (shown, owned) = (shown.points.to_tell(durable), owned.points.to_tell(durable));
            self.out.send(self.log, peer, Message::Sums { shown, owned });
        }
        self.out.counts.anti_entropy_rounds += 1;
    }

    /// Notes the sums at the present vectors, at the end of a step.
    pub(in crate::replica) fn note_sums(&mut self) {
        let AntiEntropy { shown, owned, .. } = &mut self.peers.anti_entropy;
        let (noted, last) = (owned.noted, self.out.position);
        assert!(noted <= last, "the ownership at {noted:?} is summed, {last:?} was the last record");
        // A member that has left enters ends without an entry, so its vector does not tell whether it has.
        if owned.noted < self.out.position && !self.members.entered.has_left(self.config.dc) {
            owned.noted = self.out.position;
            let vector = self.log.applied();
            let is_wrong = self.config.bugs.has(Bug::SumOfAnotherVector);
            let vector = if is_wrong { self.log.durable() } else { vector };
            owned.points.note(self.out.position, vector, self.locks.owners().sum());
        }
        // An installed state counts once it is durable.
        if let Some((position, vector, sum)) = self.data.store.digest_sum_at_floor()
            && shown.noted < position
            && self.log.taken().is_none()
        {
            assert!(position <= self.out.position, "the data at {position:?} is recorded");
            shown.noted = position;
            shown.points.note(position, vector.unwrap_or(self.log.durable()), sum);
        }
    }

    /// A peer sent its sums at points that it passed.
    pub(in crate::replica) fn on_sums(&mut self, peer: DcId, shown: &[SumAt], owned: &[SumAt]) {
        if self.lifecycle.state.is_forked() {
            return;
        }
        for (of, theirs) in [(Summed::Shown, shown), (Summed::Owned, owned)] {
            let AntiEntropy { shown, owned, .. } = &mut self.peers.anti_entropy;
            let ours = if of == Summed::Shown { shown } else { owned };
            let Some(agree) = ours.points.agree(theirs) else { continue };
            self.out.counts.digests_compared += 1;
            if agree {
                ours.alarmed.remove(peer);
            } else if !ours.alarmed.contains(peer) {
                ours.alarmed.insert(peer);
                self.out.counts.digest_mismatches += 1;
                self.out.report(Report::SumsDiffer { peer, of });
            }
        }
    }

    /// Returns the digest of the data at the durable vector, if it is available now.
    fn digest(&self) -> Option<Digest> {
        // An installed state counts once it is durable.
        self.data.store.digest().filter(|_| self.log.taken().is_none())
    }

    /// Returns the sum of that digest.
    fn digest_sum(&self) -> Option<u128> {
        self.data.store.digest_sum().filter(|_| self.log.taken().is_none())
    }

    fn compare(&self) -> Message {
        let sum = self.digest_sum();
        Message::Compare { durable: (**self.log.durable()).clone(), sum }
    }

    /// A peer compares: sends it the entries that it lacks, and the digests if its sum differs.
    pub(in crate::replica) fn on_compare(&mut self, peer: DcId, durable: &VersionVector, sum: Option<u128>) {
        let ours = self.log.durable().clone();
        if !durable.covers(&ours) {
            self.log.note_missing(peer, durable);
            self.out.pump = true;
        }
        if *durable != *ours {
            // The peer compares with our vector when our next heartbeat arrives, and sends the entries that
            // we lack.
            return;
        }
        let (Some(sum), Some(theirs)) = (self.digest_sum(), sum) else { return };
        self.out.counts.digests_compared += 1;
        if sum == theirs {
            self.peers.anti_entropy.alarmed.remove(peer);
            return;
        }
        let Some(digest) = self.digest() else { return };
        if digest.weight() > MAX_DIGEST {
            self.alarm(peer, vec![TOO_MANY.into()]);
        } else {
            let message = Message::Digests { durable: (*ours).clone(), digest };
            self.out.send(self.log, peer, message);
        }
    }

    /// A peer has other data at the same vector; it sent its digests bucket by bucket.
    pub(in crate::replica) fn on_digests(&mut self, peer: DcId, durable: &VersionVector, theirs: &Digest) {
        if *durable != **self.log.durable() {
            return;
        }
        let Some(digest) = self.digest() else { return };
        self.alarm(peer, digest.differences(theirs));
    }

    /// Raises an alarm once, until the two are equal again.
    fn alarm(&mut self, peer: DcId, differences: Vec<Bucket>) {
        if differences.is_empty() || self.peers.anti_entropy.alarmed.contains(peer) {
            return;
        }
        self.peers.anti_entropy.alarmed.insert(peer);
        self.out.counts.digest_mismatches += differences.len() as u64;
        for bucket in differences {
            self.out.report(Report::DigestsDiffer { peer, bucket });
        }
    }
}
