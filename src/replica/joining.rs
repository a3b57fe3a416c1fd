//! What others know of this datacenter's log, asked by whatever way there is, before anything is written.
//!
//! A datacenter that is new, or has lost its disk, must hear from every member. One that restarts does not know whether its
//! disk is an old copy of itself, so it waits for every member, but not longer than it takes to call one unreachable: a
//! restart must not wait for one that is down. One that it has a link to says so with its heartbeats. The others are asked
//! through those: a question travels along all links, once along each in every round, and an answer goes back the way that its
//! question came.
//!
//! An answer counts if it was given to this run of the asker, and by a member that had no link to it: over one that an
//! earlier run left behind, more of the log might still have arrived. So whoever was the first to take an entry from its
//! maker took it before it answered, and the highest of all answers covers every entry that there is.

use std::collections::{BTreeMap, VecDeque};

use super::Replica;
use super::message::Message;
use super::record::Record;
use crate::causal_log::Violation;
use crate::names::{DcId, DcSet};

/// Questions under way.
pub(super) struct Joining {
    /// Names this run, once it has asked.
    run: Option<u64>,
    round: u64,
    /// The questions of other datacenters that came by here: of each its last runs, the latest last.
    asked: BTreeMap<DcId, VecDeque<Asked>>,
}

/// Runs of one datacenter whose questions may be under way at the same time. With one of them remembered, those of two runs went
/// round in circles for ever: each was news again after the other.
const RUNS: usize = 8;

/// A question of another datacenter.
#[derive(Clone, Copy)]
struct Asked {
    run: u64,
    round: u64,
    /// Who brought it, and gets the answers.
    from: DcId,
}

impl Joining {
    pub fn new() -> Joining {
        Joining { run: None, round: 0, asked: BTreeMap::new() }
    }

    /// Notes a question. Answers whether it is news.
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
    /// The data directory is an older copy: what was handed out since is not in it. To be called before the first step if that is
    /// known then.
    ///
    /// Others tell what became of the log. Nobody else knows which leases were opened, so nothing is granted before the
    /// longest of them must be over.
    pub fn begin_restored(&mut self) {
        self.persist(Record::Restored);
        self.doubt();
    }

    /// What is known here may not be all: as if nobody had been heard yet.
    pub(super) fn doubt(&mut self) {
        (self.life.joined, self.life.doubted) = (false, true);
        self.life.joins_after = Some(self.now.mono + self.config.local.max_lease_ttl);
    }

    /// Asks those that there is no link to, if there is somebody to ask through.
    pub(super) fn ask_unlinked(&mut self) {
        let linked = self.log.linked();
        let unheard = self.peers().difference(self.life.heard).difference(linked);
        if !self.asks_for_own_log() || unheard.is_empty() {
            return;
        }
        let run = match self.joining.run {
            Some(run) => run,
            // The seed differs between processes, the reading between runs of one.
            None => self.config.local.hash_seed ^ self.stamp().raw(),
        };
        self.joining.run = Some(run);
        self.joining.round += 1;
        let (of, round) = (self.config.dc, self.joining.round);
        linked.iter().for_each(|peer| self.send(peer, Message::AskLog { of, run, round }));
    }

    pub(super) fn on_ask_log(&mut self, peer: DcId, of: DcId, run: u64, round: u64) {
        if !self.config.agreed.members.contains(of) {
            return self.close_link(peer, Violation::UnknownDc { dc: of });
        }
        if of == self.config.dc || !self.joining.note(of, Asked { run, round, from: peer }) {
            return;
        }
        let known = self.log.applied().get(of);
        // Not before it is on disk: what a crash took back would be waited for, for ever. It asks again.
        if !self.log.is_linked(of) && self.log.durable().get(of) == known {
            self.send(peer, Message::KnowsLog { of, run, by: self.config.dc, seq: known });
        }
        let others = self.log.linked().difference([peer, of].into_iter().collect::<DcSet>());
        others.iter().for_each(|other| self.send(other, Message::AskLog { of, run, round }));
    }

    pub(super) fn on_knows_log(&mut self, peer: DcId, of: DcId, run: u64, by: DcId, seq: u64) {
        let members = self.config.agreed.members;
        if let Some(dc) = [of, by].into_iter().find(|dc| !members.contains(*dc)) {
            return self.close_link(peer, Violation::UnknownDc { dc });
        }
        if of == self.config.dc {
            if by != of && self.joining.run == Some(run) {
                self.note_own_log(by, seq);
            }
            return;
        }
        let asked = self.joining.asked.get(&of).and_then(|runs| runs.iter().find(|asked| asked.run == run));
        if let Some(&Asked { from, .. }) = asked
            && from != peer
            && self.log.is_linked(from)
        {
            self.send(from, Message::KnowsLog { of, run, by, seq });
        }
    }
}
