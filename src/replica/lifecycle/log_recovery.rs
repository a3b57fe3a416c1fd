//! Log recovery: before a datacenter writes anything, it asks the other members, directly or through others,
//! how much of its log they have (`docs/algorithm.md#93-log-recovery`).
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

use std::collections::{BTreeMap, VecDeque};

use crate::causal_log::Violation;
use crate::names::{DcId, DcSet};
use crate::replica::Replica;
use crate::replica::message::Message;
use crate::replica::record::Record;

/// The own question, and the questions of others that passed here.
pub(in crate::replica) struct LogRecovery {
    /// Identifies this run, once it has asked.
    run: Option<u64>,
    round: u64,
    /// Questions of other datacenters that passed here: the last runs of each, latest last.
    asked: BTreeMap<DcId, VecDeque<Asked>>,
}

/// Runs of one datacenter whose questions are remembered. With only one, the questions of two runs went round
/// in circles for ever: each was new again after the other.
const RUNS: usize = 8;

/// A question of another datacenter.
#[derive(Clone, Copy)]
struct Asked {
    run: u64,
    round: u64,
    /// The peer that sent the question, and gets the answers.
    from: DcId,
}

impl LogRecovery {
    pub fn new() -> LogRecovery {
        LogRecovery { run: None, round: 0, asked: BTreeMap::new() }
    }

    /// Notes a question. Returns true if it is new.
    fn note(&mut self, of: DcId, question: Asked) -> bool {
        let runs = self.asked.entry(of).or_default();
        if let Some(known) = runs.iter_mut().find(|known| known.run == question.run) {
            let is_news = question.round > known.round;
            if is_news {
                *known = question;
            }
            return is_news;
        }
        if runs.len() == RUNS {
            runs.pop_front();
        }
        runs.push_back(question);
        true
    }
}

impl Replica {
    /// The data directory is an old copy and lacks the numbers and readings that were used since. If that is
    /// known before the first step, call this before it.
    ///
    /// Other members know the log, but not the leases that were opened, so nothing is granted before the
    /// longest of those must be over (`docs/algorithm.md#94-doubted-datacenters`).
    pub fn begin_restored(&mut self) {
        self.persist(Record::Restored);
        self.become_doubted();
    }

    /// The data here may be incomplete: as if no member had been heard yet.
    pub(in crate::replica) fn become_doubted(&mut self) {
        (self.life.joined, self.life.doubted) = (false, true);
        self.life.joins_after = Some(self.now.mono + self.config.local.max_lease_ttl);
    }

    /// Asks the members without a link to this datacenter, through the linked ones.
    pub(in crate::replica) fn ask_unlinked(&mut self) {
        let linked = self.log.linked();
        let unheard = self.peers().difference(self.life.heard).difference(linked);
        if !self.asks_for_own_log() || unheard.is_empty() {
            return;
        }
        let run = match self.log_recovery.run {
            Some(run) => run,
            // The seed differs between processes, the reading between runs of one process.
            None => self.config.local.hash_seed ^ self.stamp().raw(),
        };
        self.log_recovery.run = Some(run);
        self.log_recovery.round += 1;
        let (of, round) = (self.config.dc, self.log_recovery.round);
        linked.iter().for_each(|peer| self.send(peer, Message::AskLog { of, run, round }));
    }

    pub(in crate::replica) fn on_ask_log(&mut self, peer: DcId, of: DcId, run: u64, round: u64) {
        if !self.config.agreed.members.contains(of) {
            return self.close_link(peer, Violation::UnknownDc { dc: of });
        }
        if of == self.config.dc || !self.log_recovery.note(of, Asked { run, round, from: peer }) {
            return;
        }
        let known = self.log.applied().get(of);
        // Not before it is on disk: the asker would wait for ever for entries that a crash took back. It asks
        // again.
        if !self.log.is_linked(of) && self.log.durable().get(of) == known {
            self.send(peer, Message::KnowsLog { of, run, by: self.config.dc, seq: known });
        }
        let others = self.log.linked().difference([peer, of].into_iter().collect::<DcSet>());
        others.iter().for_each(|other| self.send(other, Message::AskLog { of, run, round }));
    }

    pub(in crate::replica) fn on_knows_log(&mut self, peer: DcId, of: DcId, run: u64, by: DcId, seq: u64) {
        let members = self.config.agreed.members;
        if let Some(dc) = [of, by].into_iter().find(|dc| !members.contains(*dc)) {
            return self.close_link(peer, Violation::UnknownDc { dc });
        }
        if of == self.config.dc {
            if by != of && self.log_recovery.run == Some(run) {
                self.note_own_log(by, seq);
            }
            return;
        }
        let asked =
            self.log_recovery.asked.get(&of).and_then(|runs| runs.iter().find(|asked| asked.run == run));
        if let Some(&Asked { from, .. }) = asked
            && from != peer
            && self.log.is_linked(from)
        {
            self.send(from, Message::KnowsLog { of, run, by, seq });
        }
    }
}
