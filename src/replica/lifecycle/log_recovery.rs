//! Log recovery: before a datacenter writes anything, it asks the other members, directly or through others,
//! how much of its log they have (`docs/algorithm/recovery.md#3-log-recovery`).
//!
//! A datacenter that is new, or has lost its disk, must hear from every member. A restarted one does not know
//! if its disk is an old copy, so it waits for every member, but only as long as it takes to call one
//! unreachable: a restart must not wait for a member that is down. A linked member answers with its
//! heartbeats. The others are asked through the linked ones: a question travels along all links, once along
//! each in every round, and an answer returns along the path of its question.
//!
//! An answer counts if it was given to this run of the asker, by a member without a link to it: over a link
//! of an earlier run, more of the log might still have arrived. So the first member to receive an entry from
//! its maker received it before it answered, and the highest of all answers covers every entry that exists.

use super::own_log::seen_by_all;
use super::questions::Question;
use crate::base::bugs::Bug;
use crate::base::entry_number::base_of;
use crate::base::time::Now;
use crate::causal_log::{Log, Violation};
use crate::lock_state::Locks;
use crate::replica::Replica;
use crate::replica::config::ReplicaConfig;
use crate::replica::effect::Report;
use crate::replica::ids::Ids;
use crate::replica::lend::lend;
use crate::replica::lifecycle::Lifecycle;
use crate::replica::members::Members;
use crate::replica::message::Message;
use crate::replica::outputs::Outputs;
use crate::replica::peers::stability::Floor;
use crate::replica::record::Record;
use geolock_api::names::{DcId, DcSet};

impl Replica {
    /// The data directory is an old copy and lacks the numbers and readings that were used since. If that is
    /// known before the first step, call this before it.
    ///
    /// Other members know the log, but not the leases that were opened, so nothing is granted before the
    /// longest of those must be over (`docs/algorithm/recovery.md#4-doubted-datacenters`).
    pub fn begin_restored(&mut self) {
        lend!(LogRecovery, self).mark_restored();
    }
}

/// Asks the other members for the own log, and decides whether this directory has all of it.
pub(in crate::replica) struct LogRecovery<'a> {
    pub(in crate::replica) config: &'a ReplicaConfig,
    pub(in crate::replica) now: Now,
    pub(in crate::replica) out: &'a mut Outputs,
    pub(in crate::replica) ids: &'a mut Ids,
    pub(in crate::replica) log: &'a mut Log,
    pub(in crate::replica) locks: &'a mut Locks,
    pub(in crate::replica) lifecycle: &'a mut Lifecycle,
    pub(in crate::replica) members: &'a Members,
}

impl LogRecovery<'_> {
    fn mark_restored(&mut self) {
        self.out.persist(Record::Restored);
        self.become_doubted();
    }

    /// The data here may be incomplete.
    pub(in crate::replica) fn become_doubted(&mut self) {
        let leases_until = self.now.mono + self.config.local.max_lease_ttl;
        self.lifecycle.on_doubt(leases_until);
        self.lifecycle.member_lease.note_told(leases_until);
    }

    /// `peer` has our entries up to `seq`.
    pub(in crate::replica) fn note_own_log(&mut self, peer: DcId, seq: u64) {
        self.note_own_log_behind(seq);
        self.lifecycle.on_heard(peer);
        if self.lifecycle.may_join(self.log.applied()) {
            self.join();
        }
    }

    /// Some member has our entries up to `seq`.
    pub(in crate::replica) fn note_own_log_behind(&mut self, seq: u64) {
        // Others may have the log of an earlier server with this slot.
        if self.members.decided.awaits_state() {
            return;
        }
        if !self.lifecycle.own_log.note_known(seq, self.log.applied()) {
            return;
        }
        let ours = self.log.applied().get(self.config.dc);
        // While the old disk catches up, its entries come one after the other; this is not reported.
        if !self.lifecycle.own_log.is_doubted() || seq > ours + 1 {
            self.out.report(Report::OwnLogBehind { ours, theirs: seq });
        }
        self.note_older_copy();
    }

    /// This disk is an old copy, or an empty one in the place of a used one, although no operator marked it.
    /// The datacenter becomes doubted, also after further restarts
    /// (`docs/algorithm/recovery.md#4-doubted-datacenters`).
    ///
    /// A directory that never joined is no exception. A really new directory has written nothing, so no
    /// member knows of its log. If one does, leases were opened that this directory does not know, and their
    /// locks are not free before these leases are over. A doubt that has begun is not begun again: nothing
    /// was granted since.
    fn note_older_copy(&mut self) {
        if !self.lifecycle.own_log.has_joined() && self.config.bugs.has(Bug::LostDiskNotDoubted) {
            return;
        }
        if !self.lifecycle.own_log.is_doubted() {
            self.mark_restored();
        }
    }

    /// Checks the stability floors that a peer knows. If it knows one of every member, all of them, this one
    /// included, announced that their further commits have seen the minimum. A disk that lacks some of it
    /// is an old copy.
    pub(in crate::replica) fn note_floors(&mut self, floors: &[Floor]) {
        // An earlier server with this slot may have announced something: it says nothing of this directory.
        if self.members.decided.awaits_state() {
            return;
        }
        let base = self.members.decided.own_base();
        let counts = |floor: &&Floor| floor.dc != self.config.dc || base_of(floor.after) == base;
        let floors: Vec<&Floor> = floors.iter().filter(counts).collect();
        let seen = seen_by_all(self.members.entered.all(), &floors);
        if let Some(seen) = seen.filter(|seen| !self.log.applied().covers(seen)) {
            self.note_older_copy();
            self.lifecycle.own_log.note_relied_on(&seen);
        }
    }

    /// Every member was heard, nothing is missing, and unknown leases are over.
    pub(in crate::replica) fn join(&mut self) {
        assert!(!self.lifecycle.own_log.has_joined(), "a directory joins once");
        if self.lifecycle.own_log.is_doubted() {
            self.ids.pass_lost_tokens(self.out);
        }
        self.lifecycle.on_joined();
        self.out.persist(Record::Joined);
    }

    /// Asks the members without a link to this datacenter, through the linked ones.
    pub(in crate::replica) fn ask_unlinked(&mut self) {
        let linked = self.log.peers().linked();
        if self.lifecycle.own_log.to_ask(linked).is_empty() {
            return;
        }
        let run = match self.lifecycle.questions.run() {
            Some(run) => run,
            // The seed differs between processes, the reading between runs of one process.
            None => self.config.local.hash_seed ^ self.ids.stamp(self.out).raw(),
        };
        let (of, round) = (self.config.dc, self.lifecycle.questions.begin_round(run));
        linked.iter().for_each(|peer| self.out.send(self.log, peer, Message::AskLog { of, run, round }));
    }

    pub(in crate::replica) fn on_ask_log(
        &mut self,
        peer: DcId,
        of: DcId,
        run: u64,
        round: u64,
    ) -> Result<(), Violation> {
        if !self.members.entered.contains(of) && self.members.decided.may_lack_members() {
            // A new member, of which this datacenter has not heard.
            return Ok(());
        }
        if !self.members.entered.contains(of) {
            return Err(Violation::UnknownDc { dc: of });
        }
        let question = Question { run, round, from: peer };
        if of == self.config.dc || !self.lifecycle.questions.note(of, question) {
            return Ok(());
        }
        let known = self.log.applied().get(of);
        // Not before it is on disk: the asker would wait for ever for entries that a crash took back. It asks
        // again.
        if !self.log.peer(of).is_linked() && self.log.durable().get(of) == known {
            self.out.send(self.log, peer, Message::KnowsLog { of, run, by: self.config.dc, seq: known });
        }
        let others = self.log.peers().linked().difference([peer, of].into_iter().collect::<DcSet>());
        others.iter().for_each(|other| self.out.send(self.log, other, Message::AskLog { of, run, round }));
        Ok(())
    }

    pub(in crate::replica) fn on_knows_log(
        &mut self,
        peer: DcId,
        of: DcId,
        run: u64,
        (by, seq): (DcId, u64),
    ) -> Result<(), Violation> {
        let members = self.members.entered.all();
        let strange = [of, by].into_iter().find(|dc| !members.contains(*dc));
        if strange.is_some() && self.members.decided.may_lack_members() {
            return Ok(());
        }
        if let Some(dc) = strange {
            return Err(Violation::UnknownDc { dc });
        }
        if of == self.config.dc {
            if by != of && self.lifecycle.questions.run() == Some(run) {
                self.note_own_log(by, seq);
            }
            return Ok(());
        }
        if let Some(from) = self.lifecycle.questions.sender(of, run)
            && from != peer
            && self.log.peer(from).is_linked()
        {
            self.out.send(self.log, from, Message::KnowsLog { of, run, by, seq });
        }
        Ok(())
    }
}
