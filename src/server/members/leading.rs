//! The duties of the leader: it proposes the first decision, and lets Raft's members follow the decisions.
//! Everything here is repeated until it is done, and harmless if a former leader does it, too.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use super::decisions::{DecisionList, founder_id};
use crate::control::{ControlGroup, MemberId, MemberStep, ServerId, Status};
use crate::interdc::Links;
use crate::lock_server::{MembersInput, MembersView};
use crate::membership::{Command, Config, EndCause, Founding, Generation, Phase, Proposal, Voter};
use geolock_api::names::DcId;

/// How often the leader looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// The leader looks for lost directories each time after so many looks.
const LOOKS_PER_SEARCH: u64 = 10;
/// The least time between two looks.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) struct Leading {
    pub me: MemberId,
    pub group: ControlGroup<DecisionList>,
    /// The first decision, at the founders.
    pub founding: Option<Founding>,
    pub view: watch::Receiver<MembersView>,
    pub inputs: mpsc::Sender<MembersInput>,
    pub links: Links,
}

impl Leading {
    /// Runs for ever.
    pub(super) async fn run(self) {
        let mut view = self.view.clone();
        for look in 0_u64.. {
            sleep(PAUSE).await;
            // Soon after each decision: until the voters follow it, the loss of one may leave no majority. An
            // error means that the lock server has stopped.
            if !matches!(timeout(INTERVAL, view.changed()).await, Ok(Ok(())) | Err(_)) {
                sleep(INTERVAL).await;
            }
            self.release_left();
            let status = self.group.status();
            if status.leads {
                self.lead().await;
                if look.is_multiple_of(LOOKS_PER_SEARCH) {
                    self.release_lost().await;
                }
            }
            self.propose_vote(&status);
        }
    }

    async fn lead(&self) {
        let config = self.group.state().0;
        if config.cluster().is_none() {
            return self.propose_founding(&config).await;
        }
        let successors = successors(&config, &self.group.status(), self.me, &self.view.borrow());
        if let Some(successor) = self.group.hand_over(&successors).await {
            tracing::info!(%successor, "this member leaves: it hands the control group over");
            return;
        }
        // All steps at once: as long as one that is gone counts as a voter, the loss of another one may
        // leave no majority.
        let (mut last, mut unknown) = (None, BTreeSet::new());
        let next = |unknown: &_| next_step(&config, &self.group.status(), unknown);
        while let Some(due) = next(&unknown).filter(|due| last != Some(*due)) {
            last = Some(due);
            let Some(step) = self.with_directory(&config, due, &mut unknown).await else { continue };
            match self.group.change(step).await {
                Ok(()) => tracing::info!(?step, "the voters follow the decisions"),
                Err(error) => {
                    tracing::debug!(?step, %error, "the voters do not follow the decisions yet");
                    return;
                }
            }
        }
    }

    /// Removes founders that do not vote and have lost their directory from Raft's members, so that they
    /// are taken in again. A voter that has lost its directory may have forgotten its vote: it stays until an
    /// operator replaces it.
    async fn release_lost(&self) {
        let config = self.group.state().0;
        let heard = self.view.borrow().heard;
        let learners = self.group.status().learners.into_iter();
        for member in learners.filter(|it| heard.contains(it.dc) && is_founder(&config, *it)) {
            if !self.group.has_lost_directory(member).await {
                continue;
            }
            let removed = self.group.change(MemberStep::Remove(member)).await;
            tracing::info!(%member, ?removed, "it has lost its directory, without a vote: it is taken in again");
        }
    }

    /// Returns the step with the name of the member's directory. A founder that did not vote at first is a
    /// member under a name that follows from its slot ([`founder_id`]), so its directory is asked for. If it
    /// does not answer now, notes it in `unknown` and returns `None`.
    async fn with_directory(
        &self,
        config: &Config,
        step: MemberStep,
        unknown: &mut BTreeSet<MemberId>,
    ) -> Option<MemberStep> {
        let member = match step {
            MemberStep::AddLearner { member, .. } if is_founder(config, member) => member,
            _ => return Some(step),
        };
        let directory = self.group.directory_of(member).await;
        if directory.is_none() {
            unknown.insert(member);
        }
        directory.map(|server| MemberStep::AddLearner { member, server })
    }

    /// Proposes that a member that joined gets its vote.
    fn propose_vote(&self, status: &Status) {
        let view = self.view.borrow();
        let Some(leader) = status.leader else { return };
        if vote_proposer(&view, leader.dc, self.me.dc) != Some(self.me.dc) {
            return;
        }
        let config = self.group.state().0;
        // A founder that was never reached keeps no other member from its vote.
        let members = config.slots().members().map(|(dc, it)| MemberId { dc, generation: it.generation.0 });
        let founders = members.filter(|member| is_founder(&config, *member)).collect();
        if next_step(&config, status, &founders).is_none()
            && let Some(command) = next_vote(&config, &view)
        {
            // If the mailbox of the lock server is full or it stops, the next round repeats it.
            let _ = self.inputs.try_send(MembersInput::Propose(Box::new(command)));
        }
    }

    async fn propose_founding(&self, config: &Config) {
        let Some(founding) = self.founding.clone() else { return };
        let proposal = Proposal { checked: config.revision(), command: Command::Found(founding) };
        match self.group.propose(&proposal).await {
            Ok(index) => {
                tracing::info!(index, "the list of decisions begins with the members of the configuration")
            }
            Err(error) => tracing::warn!(%error, "the list of decisions did not begin"),
        }
    }

    /// Ends the links to members that have left, and to witnesses that were removed, once Raft needs them no
    /// more.
    fn release_left(&self) {
        let (config, status) = (self.group.state().0, self.group.status());
        let is_in = |dc: DcId| status.voters.iter().chain(&status.learners).any(|member| member.dc == dc);
        for dc in config.witnesses().past_dcs().iter().filter(|dc| !is_in(*dc)) {
            self.links.remove_peer(dc, 0, "it is no witness any more");
        }
        let has_left = |dc: &DcId| config.slots().member(*dc).is_none() && !is_in(*dc);
        for dc in config.slots().iter().map(|(dc, _)| dc).filter(has_left) {
            let Some(past) = config.slots().last_past(dc) else { continue };
            // These decisions may be older than those by which a later server became a peer.
            match past.cause {
                EndCause::Lost => self.links.lose_peer(dc, past.generation.0),
                _ => self.links.remove_peer(dc, past.generation.0, "it has left the cluster"),
            }
        }
    }
}

/// Returns the voters of which one is to lead instead of `me`; none if `me` stays. A leader that ends takes
/// its own vote away, and then nothing can be decided before an election times out. A witness leads only if
/// no member can: it sees no member enter a change.
pub(super) fn successors(
    config: &Config,
    status: &Status,
    me: MemberId,
    view: &MembersView,
) -> BTreeSet<MemberId> {
    match is_over(config, me) || leaves(config, me) {
        true => others(config, status, me.dc, view),
        false => BTreeSet::new(),
    }
}

fn leaves(config: &Config, it: MemberId) -> bool {
    config.slots().member(it.dc).is_some_and(|member| member.phase == Phase::Leaving)
}

/// Returns the voters that can be reached, stay, and could lead instead of `me`.
pub(super) fn others(config: &Config, status: &Status, me: DcId, view: &MembersView) -> BTreeSet<MemberId> {
    let stays = |it: &&MemberId| it.dc != me && !is_over(config, **it) && !leaves(config, **it);
    let (witnesses, members): (BTreeSet<MemberId>, BTreeSet<MemberId>) = status
        .settled_voters
        .iter()
        .filter(stays)
        .filter(|it| view.heard.contains(it.dc) || view.witnesses.0.contains(it.dc))
        .partition(|it| config.witnesses().has_id(it.dc));
    if members.is_empty() { witnesses } else { members }
}

/// Returns the next change that makes Raft's members those of the decisions, without taking in those of
/// `unknown`, whose directory is not known.
pub(super) fn next_step(
    config: &Config,
    status: &Status,
    unknown: &BTreeSet<MemberId>,
) -> Option<MemberStep> {
    let is_in = |member: &MemberId| status.voters.contains(member) || status.learners.contains(member);
    let witnesses =
        || config.witnesses().iter().map(|(_, it)| (MemberId { dc: it.dc, generation: 0 }, it.server));
    let members = || {
        let members = config.slots().members();
        let members = members.map(|(dc, it)| (MemberId { dc, generation: it.generation.0 }, it.server));
        members.chain(witnesses())
    };
    let added = members()
        .find(|(member, _)| !is_in(member) && !unknown.contains(member))
        .map(|(member, server)| MemberStep::AddLearner { member, server: ServerId::from_bytes(server.0) });
    let votes = |member: &MemberId| {
        let voter = Voter::Member { dc: member.dc, generation: Generation(member.generation) };
        config.voters().voters.contains(&voter) || config.witnesses().at(member.dc).is_some()
    };
    // A change that a former leader has begun and not ended: its member is among the voters, but not in both
    // sets of them. Until it is ended a decision needs a majority of each set.
    let unsettled = || status.voters.difference(&status.settled_voters);
    let promoted = || status.learners.iter().chain(unsettled()).copied().find(votes).map(MemberStep::Promote);
    // First its vote goes, then itself.
    let is_over = |member: &&MemberId| is_over(config, **member);
    let demoted = || status.voters.iter().find(is_over).copied().map(MemberStep::Demote);
    let removed = || status.learners.iter().find(is_over).copied().map(MemberStep::Remove);
    added.or_else(promoted).or_else(demoted).or_else(removed)
}

/// Returns true for a member under the name that follows from its slot. Its directory has another one.
fn is_founder(config: &Config, member: MemberId) -> bool {
    let named = |cluster| founder_id(cluster, member.dc);
    let current = config.slots().member(member.dc).filter(|it| it.generation.0 == member.generation);
    current.is_some_and(|it| config.cluster().map(named) == Some(it.server))
}

/// Returns true for a member that is gone, or a witness that was removed.
pub(super) fn is_over(config: &Config, member: MemberId) -> bool {
    config.slots().is_over(member.dc, Generation(member.generation))
        || config.witnesses().past_dcs().contains(member.dc)
}

/// Returns the member that proposes votes, as `me` sees it. A witness that leads does not see who has entered
/// the last change: then the first voter that stays and is heard does it. If two propose, one is refused.
pub(super) fn vote_proposer(view: &MembersView, leader: DcId, me: DcId) -> Option<DcId> {
    let config = &view.config;
    if !config.witnesses().has_id(leader) {
        return Some(leader);
    }
    let votes = |dc: &DcId| config.voters().contains_member(*dc);
    let is_up = |dc: &DcId| *dc == me || view.heard.contains(*dc);
    config.staying().iter().find(|dc| votes(dc) && is_up(dc))
}

/// Returns the decision that gives a member its vote, once all have entered the last change. One that is not
/// heard would only be missing in a majority.
pub(super) fn next_vote(config: &Config, view: &MembersView) -> Option<Command> {
    let dc = config.next_voter()?;
    let generation = config.slots().generation(dc)?;
    let have_entered = view.config.index() == config.index() && view.behind().is_empty();
    let may_vote = have_entered && view.heard.contains(dc);
    may_vote.then_some(Command::Vote { dc, generation, votes: true })
}

#[cfg(test)]
mod tests;
