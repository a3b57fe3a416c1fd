//! The state of a member, for operators and for the rest of the server.

use std::collections::BTreeSet;
use std::time::Duration;

use openraft::Instant;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;

use super::fold::Fold;
use super::founding::Founding;
use super::group::Core;
use super::member::MemberId;
use super::serve::elapsed;

/// The state of a member of the group, as it sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The leader, if one was heard of within two election timeouts; at the leader itself, if a majority
    /// has answered it within that time.
    pub leader: Option<MemberId>,
    /// True if this member is the leader in its own view.
    pub leads: bool,
    /// The term of Raft: it grows with every election.
    pub term: u64,
    /// The members that vote. While they change, those of before and after.
    pub voters: BTreeSet<MemberId>,
    /// The members that vote, also when a change that is under way has ended.
    pub settled_voters: BTreeSet<MemberId>,
    /// The members that only receive the list.
    pub learners: BTreeSet<MemberId>,
    /// Position of the last entry of the log here; the log counts more than decisions.
    pub last_log: Option<u64>,
    /// Number of the last decision that was applied here.
    pub decided: u64,
    /// The way into the group.
    pub founding: Founding,
    /// The reason why this member stopped by itself, if it did. It takes no part any more, and must be
    /// restarted.
    pub failed: Option<String>,
}

impl<F: Fold> Core<F> {
    pub(super) fn status(&self) -> Status {
        // Not while the metrics are borrowed here: a second borrow behind Raft, which waits to change them,
        // would wait for ever.
        let leader = self.leader();
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        let sets = members.get_joint_config();
        Status {
            leader,
            leads: metrics.state == ServerState::Leader,
            term: metrics.current_term,
            voters: members.voter_ids().collect(),
            settled_voters: members
                .voter_ids()
                .filter(|id| sets.iter().all(|set| set.contains(id)))
                .collect(),
            learners: members.learner_ids().collect(),
            last_log: metrics.last_log_index,
            decided: *self.decided.borrow(),
            founding: self.founding.borrow().clone(),
            failed: metrics.running_state.as_ref().err().map(ToString::to_string),
        }
    }

    /// Returns the leader, if there is a sign that it leads.
    pub(super) fn leader(&self) -> Option<MemberId> {
        self.leader_within(self.timing().leader_silence())
    }

    /// Returns true if there is a leader that must not be disturbed by an election.
    pub(super) fn hears_leader(&self) -> bool {
        self.leader_within(self.timing().lease()).is_some()
    }

    /// Returns the leader, if it was heard for so long; at the leader itself, if a majority was.
    fn leader_within(&self, limit: Duration) -> Option<MemberId> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        metrics.running_state.as_ref().ok()?;
        let leader = metrics.current_leader?;
        let mut voters = metrics.membership_config.membership().voter_ids();
        if leader == self.caller.me && voters.all(|voter| voter == leader) {
            // The only voter asks no other one, so it has no time of the last answer of a majority.
            return Some(leader);
        }
        let silence = if leader == self.caller.me {
            metrics.last_quorum_acked.as_ref().map(|acked| acked.elapsed())
        } else {
            elapsed(&self.contact, leader)
        };
        silence.filter(|silence| *silence <= limit).map(|_| leader)
    }
}
