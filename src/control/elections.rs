//! Elections and heartbeats: when this member begins an election, and when it votes in one of others.
//!
//! The times of openraft are fixed when it starts. Near members would wait long for a new leader with times
//! for far ones; with times for near ones, far members would never elect one, because the answers to votes
//! and heartbeats come too late. So its own timers and lease are not used: the times here follow the round
//! trips that the links measure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use geolock_api::names::DcId;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::config::Timing;
use super::error::Refusal;
use super::fold::Fold;
use super::group::Core;
use super::member::{MemberId, ServerId};
use super::message::{Answer, Candidacy, Request};
use super::transport::ControlTransport;
use super::wire::{WireLogId, WireVote};
use crate::base::rng::Rng;
use crate::runtime::tasks::joined;

/// The round trips are read at least so often.
const MEASURE_EVERY: Duration = Duration::from_millis(500);
/// The only voter needs no answer, but some time until it is seen to lead.
const ALONE: Duration = Duration::from_millis(50);

/// The last round trip to each member that was measured since the start: one that is gone still counts.
#[derive(Default)]
struct RoundTrips(BTreeMap<DcId, Duration>);

impl RoundTrips {
    fn measure(&mut self, voters: impl Iterator<Item = DcId>, transport: &dyn ControlTransport) {
        self.0.extend(voters.filter_map(|dc| Some((dc, transport.round_trip(dc)?))));
    }

    /// Returns the largest to these members; `None` if none of them was measured.
    fn largest(&self, voters: impl Iterator<Item = DcId>) -> Option<Duration> {
        voters.filter_map(|dc| self.0.get(&dc).copied()).max()
    }
}

/// The wait for a leader.
struct Silence {
    /// When this member last did something else than to wait: it led, or stood for election.
    since: Instant,
    /// How long an election is waited for, in thousandths of a timeout: drawn anew for each, so that two
    /// candidates that have split the votes do not meet again.
    drawn: u32,
    rng: Rng,
}

impl Silence {
    fn begin(&mut self, now: Instant) {
        (self.since, self.drawn) = (now, self.rng.between(0, 750) as u32);
    }

    /// Returns when an election is due: after 1.25 to 2 timeouts.
    fn due(&self, last_sign: Option<Instant>, timing: Timing) -> Instant {
        let since = last_sign.map_or(self.since, |sign| sign.max(self.since));
        since + timing.election() * (1_250 + self.drawn) / 1_000
    }
}

/// Begins elections while this member votes and no leader is heard, and sends heartbeats while it leads,
/// until it shuts down.
pub(super) async fn keep_a_leader<F: Fold>(core: Arc<Core<F>>, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        () = run(&core) => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

async fn run<F: Fold>(core: &Core<F>) {
    let me = core.caller.me;
    // Each member draws other numbers.
    let rng = Rng::new(core.caller.server.seed(), u64::from(me.dc.get()));
    let (mut trips, mut silence) = (RoundTrips::default(), Silence { since: Instant::now(), drawn: 0, rng });
    silence.begin(Instant::now());
    loop {
        let voters = core.status().voters;
        let others = || voters.iter().filter(|voter| **voter != me).map(|voter| voter.dc);
        trips.measure(others(), &*core.caller.transport);
        if let Some(largest) = trips.largest(others()) {
            core.caller.timing.send_replace(Timing::for_round_trip(largest));
        }
        let (now, is_voter) = (Instant::now(), voters.contains(&me));
        let leads = core.raft.metrics().borrow_watched().state == ServerState::Leader;
        if leads || !is_voter {
            silence.begin(now);
        }
        if leads {
            if core.raft.trigger().heartbeat().await.is_err() {
                return;
            }
            sleep(core.timing().heartbeat()).await;
            continue;
        }
        let is_alone = is_voter && voters.len() == 1;
        let due = match is_alone {
            true => silence.since + ALONE,
            false => silence.due(core.last_sign(), core.timing()),
        };
        if due > now {
            tokio::select! {
                () = sleep((due - now).min(MEASURE_EVERY)) => {}
                // The others must hear of it before they begin the next election.
                () = core.is_elected() => {}
            }
            continue;
        }
        silence.begin(now);
        if (is_alone || core.stands(now).await) && core.raft.trigger().elect(false).await.is_err() {
            return;
        }
    }
}

/// The facts that a vote depends on.
struct Facts {
    vote: WireVote,
    last: Option<WireLogId>,
}

impl<F: Fold> Core<F> {
    /// Waits until this member leads.
    async fn is_elected(&self) {
        let mut metrics = self.raft.metrics();
        while metrics.borrow_watched().state != ServerState::Leader {
            if metrics.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn facts(&self) -> Result<Facts, Refusal> {
        let state = self.raft.with_raft_state(|state| {
            let vote = WireVote::from(state.vote_ref());
            (vote, state.log_ids.last().map(WireLogId::from))
        });
        let (vote, last) = state.await.map_err(|_| Refusal::Stopped)?;
        Ok(Facts { vote, last })
    }

    /// Returns true if this member is to stand for election: a majority would vote for it, and it has not
    /// promised its own vote meanwhile. Far members often ask at the same time, and would split the votes.
    async fn stands(&self, now: Instant) -> bool {
        self.asks.store(true, Ordering::Relaxed);
        let would_be = self.would_be_elected().await;
        self.asks.store(false, Ordering::Relaxed);
        would_be && self.last_sign() < Some(now)
    }

    /// Asks the voters if they would vote for this member, so that one that was cut off disturbs no leader.
    /// Returns true once a majority would.
    async fn would_be_elected(&self) -> bool {
        let Ok(facts) = self.facts().await else { return false };
        let me = self.caller.me;
        let vote = WireVote { term: facts.vote.term + 1, leader: me, committed: false };
        let candidacy = Candidacy { vote, last: facts.last, transfer: false };
        let (sets, servers) = self.voter_sets();
        let mut answers = JoinSet::new();
        for (voter, server) in servers.into_iter().filter(|(voter, _)| *voter != me) {
            let (caller, limit) = (self.caller.clone(), self.timing().answer());
            answers.spawn(async move {
                let answer = caller.ask(voter, Some(server), Request::PreVote(candidacy), limit).await;
                (voter, matches!(answer, Ok(Answer::Vote { granted: true, .. })))
            });
        }
        let mut granted = BTreeSet::from([me]);
        while let Some(answer) = answers.join_next().await {
            let (voter, is_granted) = joined(answer);
            if is_granted {
                granted.insert(voter);
            }
            if sets.iter().all(|set| 2 * set.intersection(&granted).count() > set.len()) {
                return true;
            }
        }
        false
    }

    /// Returns the sets of voters that each have to agree, and the directories of all voters.
    fn voter_sets(&self) -> (Vec<BTreeSet<MemberId>>, BTreeMap<MemberId, ServerId>) {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow_watched();
        let members = metrics.membership_config.membership();
        let servers = members.voter_ids().filter_map(|id| Some((id, *members.get_node(&id)?))).collect();
        (members.get_joint_config().clone(), servers)
    }

    /// Answers a member that asks if it would be elected. Of two that ask each other, the first goes on.
    pub(super) async fn would_vote(&self, candidacy: &Candidacy) -> Result<Answer, Refusal> {
        let Facts { vote, last } = self.facts().await?;
        let goes_first = self.asks.load(Ordering::Relaxed) && self.caller.me < candidacy.vote.leader;
        let is_free = !self.hears_leader() && !goes_first;
        let granted = is_free && candidacy.vote.term > vote.term && candidacy.last >= last;
        if granted {
            self.voted.send_replace(Some(Instant::now()));
        }
        Ok(Answer::Vote { vote, granted, last })
    }

    /// Refuses a vote.
    pub(super) async fn no_vote(&self) -> Result<Answer, Refusal> {
        let Facts { vote, last } = self.facts().await?;
        Ok(Answer::Vote { vote, granted: false, last })
    }
}
