//! The members of the cluster for operators: the list, and the commands that propose a decision.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};

use super::decisions::DecisionList;
use super::leading::{is_over, others};
use crate::base::time::{Timestamp, brief};
use crate::control::{ControlGroup, ProposeError};
use crate::lock_server::{MembersInput, MembersView};
use crate::membership::{
    Attempt, Command, Config, Dcs, Epoch, EvictPolicy, Evictee, Eviction, Facts, Generation, MemberName,
    Phase, PolicyChange, Prefix, PrefixRule, Proposal, Refused, Vouch,
};
use geolock_api::names::{DcId, DcSet};

/// How long an operator waits until a decision is known here, after it was made.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// How long a command waits until all members have entered the last change: usually a round trip.
const ENTERED_WITHIN: Duration = Duration::from_secs(2);
/// How long a command waits until a majority is heard, because this server, or others, may just have started;
/// and until one that is to be evicted is heard no more: it may just have been lost.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// How long a server that stops waits until another one leads the control group.
const HAND_OVER: Duration = Duration::from_secs(2);
/// How often a command of an operator is checked again because others were decided meanwhile.
const ATTEMPTS: usize = 3;

/// The state of a leave that was taken back without a decision.
const NOT_CANCELLED: &str = "it does not leave any more, and that it stays is not decided";

/// The members as operators see and change them. Cheap to clone.
#[derive(Clone)]
pub struct MembersApi {
    pub(super) me: DcId,
    /// None if this server takes no part, or not yet.
    pub(super) control: watch::Receiver<Option<ControlGroup<DecisionList>>>,
    pub(super) inputs: mpsc::Sender<MembersInput>,
    pub(super) view: watch::Receiver<MembersView>,
}

impl std::fmt::Debug for MembersApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MembersApi")
    }
}

/// A member that is to be evicted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// Its id.
    pub dc: DcId,
    /// The clock of the last heartbeat of it that anybody had heard when the operator vouched that its server
    /// does not run; 0 if that was not said.
    pub last_heard: Timestamp,
}

/// Before the first reading of any clock.
const NEVER: Timestamp = Timestamp::from_raw(1);

/// The reason why a command of an operator has no effect.
#[derive(Debug, thiserror::Error)]
pub enum ProposalError {
    /// Nothing was changed.
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// Nothing was changed: clients may have leases from before the policy.
    #[error(
        "nothing else can be changed before the policy of epoch {epoch} applies to {members}: clients there may still have \
         longer leases than it allows. They end within {}: repeat it then (`geolock member policy` names the datacenters that \
         are waited for)",
        brief(*.within), members = Dcs(*.members)
    )]
    LongerLeases { epoch: Epoch, members: DcSet, within: Duration },
    /// Nothing was changed.
    #[error(
        "nothing else can be changed before the last change of the members (epoch {epoch}) has reached {unheard}, which this \
         server does not hear: start it, or evict it if it is lost, and repeat it",
        unheard = Dcs(*.unheard)
    )]
    NotReached { epoch: Epoch, unheard: DcSet },
    /// Nothing was changed.
    #[error("this server takes no part in the control group; its log says why")]
    NoGroup,
    /// It was decided.
    #[error("decision {0} was made and is not known here yet: look again with `geolock member list`")]
    NotKnown(u64),
    /// It may be done later.
    #[error("not done yet: {0}; repeat it, or look with `geolock member list`")]
    Unfinished(String),
}

impl MembersApi {
    /// Returns this server's part in the control group, once it has begun: a moment after the start.
    async fn group(&self) -> Result<ControlGroup<DecisionList>, ProposalError> {
        let mut control = self.control.clone();
        match timeout(HEARD_WITHIN, control.wait_for(Option::is_some)).await {
            Ok(Ok(control)) => control.clone().ok_or(ProposalError::NoGroup),
            // The thread of the control group has ended, or takes too long.
            Ok(Err(_)) | Err(_) => Err(ProposalError::NoGroup),
        }
    }

    /// Returns the name of a member, as this server sees it.
    pub fn name(&self, dc: DcId) -> Option<String> {
        Some(self.view.borrow().config.slots().member(dc)?.name.to_string())
    }

    /// Returns the members as this server sees them, and the leader of the control group if one is known.
    pub fn list(&self) -> (MembersView, Option<DcId>) {
        let mut view = self.view.borrow().clone();
        let Some(control) = self.control.borrow().clone() else { return (view, None) };
        // The machine learns a decision a moment later, and only the machine knows the entries in other
        // members' logs.
        let config = control.state().0;
        if is_newer(&config, &view.config) {
            view.config = config;
        }
        (view, control.status().leader.map(|leader| leader.dc))
    }

    /// Hands the control group over before this server stops, if it leads and another voter can be reached:
    /// otherwise nothing could be decided until the others have noticed that it is gone.
    pub async fn hand_over(&self) {
        let Some(control) = self.control.borrow().clone() else { return };
        let successors = others(&control.state().0, &control.status(), self.me, &self.view.borrow());
        if let Some(successor) = control.hand_over(&successors).await {
            tracing::info!(%successor, "this server stops: it hands the control group over");
            if timeout(HAND_OVER, control.led_elsewhere()).await.is_err() {
                tracing::warn!(%successor, "it does not lead yet: the others elect one of them");
            }
        }
    }

    /// Returns the members whose votes the control group counts by now: it follows the decisions. `None` if
    /// this server takes no part in it.
    pub fn counted_voters(&self) -> Option<DcSet> {
        let control = self.control.borrow().clone()?;
        Some(control.status().settled_voters.iter().map(|voter| voter.dc).collect())
    }

    /// Returns the members that are gone and still count as voters: the control group follows a decision a
    /// moment later.
    pub fn former_voters(&self, config: &Config) -> DcSet {
        let Some(control) = self.control.borrow().clone() else { return DcSet::EMPTY };
        let voters = control.status().voters;
        voters.iter().filter(|voter| is_over(config, **voter)).map(|voter| voter.dc).collect()
    }

    /// Allows a server with this name to join, once. Returns the number of the decision. Repeating it changes
    /// nothing.
    pub async fn invite(&self, name: MemberName, sponsor: Option<DcId>) -> Result<u64, ProposalError> {
        let is_invited = |config: &Config| config.invitations().any(|it| it == (&name, sponsor));
        if let Some(decision) = self.done_by(is_invited) {
            return Ok(decision);
        }
        let command = Command::Invite { name: name.clone(), sponsor };
        self.decide(|_| Ok(command.clone()), is_invited).await
    }

    /// Takes an invitation back. Returns the number of the decision. Refused if there is none.
    pub async fn cancel_invitation(&self, name: MemberName) -> Result<u64, ProposalError> {
        let command = Command::CancelInvitation { name: name.clone() };
        let is_cancelled = |config: &Config| config.invitations().all(|(invited, _)| *invited != name);
        self.decide(|_| Ok(command.clone()), is_cancelled).await
    }

    /// Lets a member leave, or removes a witness. Returns the number of the decision. Repeating it is
    /// harmless.
    pub async fn remove(&self, dc: DcId) -> Result<u64, ProposalError> {
        let known = self.list().0.config;
        if known.witnesses().past_dcs().contains(dc) {
            return Ok(known.index().0);
        }
        if known.witnesses().at(dc).is_some() {
            return self.remove_witness(dc).await;
        }
        let leaves =
            |config: &Config| config.slots().member(dc).is_none_or(|member| member.phase == Phase::Leaving);
        let is_leaving =
            |config: &Config| config.slots().member(dc).is_some_and(|member| member.phase == Phase::Leaving);
        if let Some(decision) = self.done_by(is_leaving) {
            return Ok(decision);
        }
        let command = |config: &Config| {
            let generation = generation_of(config, dc)?;
            Ok(Command::Leaving { dc, generation })
        };
        self.decide(command, leaves).await
    }

    /// Takes the leave of a member back: it stays. Only that member can, since only it knows what its log
    /// says. Returns the number of the decision. Repeating it is harmless.
    pub async fn cancel_removal(&self, dc: DcId) -> Result<u64, ProposalError> {
        let mut view = self.view.clone();
        self.await_leave(&mut view, dc).await;
        let asked = {
            let view = view.borrow_and_update();
            if let Some(decision) = cancelled(&view, dc) {
                return Ok(decision);
            }
            match phase(&view, dc) {
                None if view.config.cluster().is_none() => return Err(Refused::NotFounded.into()),
                None if view.config.slots().has_ended(dc) => return Err(Refused::HasLeft { dc }.into()),
                None => return Err(Refused::NotMember { dc }.into()),
                Some(Phase::Joining | Phase::Settled) => return Err(Refused::NotLeaving { dc }.into()),
                Some(Phase::Leaving) if dc != self.me => return Err(Refused::CancelElsewhere { dc }.into()),
                Some(Phase::Leaving) => view.stay.asked,
            }
        };
        self.inputs.send(MembersInput::CancelLeave).await.map_err(|_| ProposalError::NoGroup)?;
        let is_answered = |view: &MembersView| {
            view.stay.asked > asked && (view.stay.refused.is_some() || cancelled(view, dc).is_some())
        };
        let answered = timeout_at(Instant::now() + KNOWN_WITHIN, view.wait_for(is_answered)).await;
        let answered = answered.map_err(|_| ProposalError::Unfinished(NOT_CANCELLED.into()))?;
        let answered = answered.map_err(|_| ProposalError::NoGroup)?;
        match (cancelled(&answered, dc), answered.stay.refused.clone()) {
            (Some(decision), _) => Ok(decision),
            (None, Some(refused)) => Err(refused.into()),
            (None, None) => Err(ProposalError::Unfinished(NOT_CANCELLED.into())),
        }
    }

    /// Waits until the machine knows what the control group knows, and for a moment until a member leaves:
    /// another server may have told the operator of a decision that is not known here yet.
    async fn await_leave(&self, view: &mut watch::Receiver<MembersView>, dc: DcId) {
        let newest = self.list().0.config;
        let is_ready = |view: &MembersView| {
            let may_leave = !matches!(phase(view, dc), Some(Phase::Joining | Phase::Settled));
            !is_newer(&newest, &view.config) && (may_leave || cancelled(view, dc).is_some())
        };
        // If it is not ready by then, the answer is about what is known.
        let _ = timeout_at(Instant::now() + ENTERED_WITHIN, view.wait_for(is_ready)).await;
    }

    async fn remove_witness(&self, dc: DcId) -> Result<u64, ProposalError> {
        let command = |config: &Config| {
            let (id, _) = config.witnesses().at(dc).ok_or(Refused::NotMember { dc })?;
            Ok(Command::RemoveWitness { id })
        };
        self.decide(command, |config| config.witnesses().at(dc).is_none()).await
    }

    /// Checks that these members can be evicted now. Returns how long the leases of their clients may still
    /// last, and the last heartbeat of each, for the eviction. Waits for a moment until nobody hears them any
    /// more.
    pub async fn check_eviction(&self, lost: &[Lost]) -> Result<(Duration, Vec<Lost>), ProposalError> {
        let control = self.group().await?;
        let config = control.state().0;
        if lost.iter().all(|lost| config.slots().has_ended(lost.dc)) {
            return Ok((Duration::ZERO, Vec::new()));
        }
        let mut view = self.view.clone();
        let (_, facts) =
            self.checked(&control, &mut view, Instant::now(), |config| begin(config, lost)).await?;
        let last_heard = |dc| facts.last_clocks.get(&dc).copied().unwrap_or(NEVER);
        let heard = lost.iter().map(|lost| Lost { dc: lost.dc, last_heard: last_heard(lost.dc) });
        Ok((view.borrow().longest_lease(lost.iter().map(|lost| lost.dc)), heard.collect()))
    }

    /// Begins to evict members that are lost. All leases of their clients must have ended. Returns the number
    /// of the decision; they are evicted when they are listed no more.
    pub async fn evict(&self, lost: &[Lost]) -> Result<u64, ProposalError> {
        let begun = |config: &Config| {
            let evicting = config.attempt().map_or(DcSet::EMPTY, Attempt::evicting);
            lost.iter().all(|lost| evicting.contains(lost.dc) || config.slots().has_ended(lost.dc))
        };
        if let Some(decision) = self.done_by(begun) {
            return Ok(decision);
        }
        self.decide(|config| begin(config, lost), begun).await
    }

    /// Returns this datacenter.
    pub fn me(&self) -> DcId {
        self.me
    }

    /// Changes the policy. Returns the number of the decision.
    pub async fn change_policy(&self, change: PolicyChange) -> Result<u64, ProposalError> {
        let is_done = |config: &Config| change.of(config.policy()) == *config.policy();
        self.await_newest().await?;
        if let Some(decision) = self.done_by(is_done) {
            return Ok(decision);
        }
        self.decide(|config| Ok(Command::SetPolicy(change.of(config.policy()))), is_done).await
    }

    /// Gives the locks below a prefix this home, or none. Returns the number of the decision.
    pub async fn set_home(&self, prefix: Prefix, home: Option<DcId>) -> Result<u64, ProposalError> {
        let rule = |config: &Config| config.rules().get(&prefix).copied().unwrap_or_default();
        let is_set = |config: &Config| rule(config).home == home;
        self.await_newest().await?;
        if let Some(decision) = self.done_by(is_set) {
            return Ok(decision);
        }
        let command = |config: &Config| {
            let rule = PrefixRule { home, ..rule(config) };
            let prefix = prefix.clone();
            Ok(match rule == PrefixRule::default() {
                true => Command::RemoveRule { prefix },
                false => Command::SetRule { prefix, rule },
            })
        };
        self.decide(command, is_set).await
    }

    /// Waits until this member knows all decisions that another one may have told an operator of. Otherwise
    /// it could take a policy that was changed since for the present one, and say that it is set.
    async fn await_newest(&self) -> Result<(), ProposalError> {
        let control = self.group().await?;
        // A group that is not founded has decided nothing, and no leader that could be asked.
        if self.list().0.config.cluster().is_some() {
            control.read_index().await?;
        }
        Ok(())
    }

    /// Returns the number of the last decision that is known here, if a command has had its effect by then.
    fn done_by(&self, is_done: impl Fn(&Config) -> bool) -> Option<u64> {
        let config = self.list().0.config;
        (config.cluster().is_some() && is_done(&config)).then_some(config.index().0)
    }

    /// Returns the proposal of a command, with the facts by which it was checked. One that is refused for a
    /// reason that passes by itself is checked again whenever this server learns something. `begun`: when the
    /// operator gave it.
    async fn checked(
        &self,
        control: &ControlGroup<DecisionList>,
        view: &mut watch::Receiver<MembersView>,
        begun: Instant,
        command: impl Fn(&Config) -> Result<Command, Refused>,
    ) -> Result<(Proposal, Facts), ProposalError> {
        loop {
            let config = control.state().0;
            let facts = view.borrow_and_update().facts(self.me, &config);
            let refused = match config.check_proposal(&facts, command(&config)?) {
                Ok(proposal) => return Ok((proposal, facts)),
                Err(refused) => refused,
            };
            let until = begun + patience(&refused, &config);
            if !matches!(timeout_at(until, view.changed()).await, Ok(Ok(()))) {
                return Err(waits_for(refused, self.me, &config, &view.borrow()));
            }
        }
    }

    /// Proposes a command until it is decided, or refused. Returns the number of the decision. `is_done`: the
    /// command had its effect.
    async fn decide(
        &self,
        command: impl Fn(&Config) -> Result<Command, Refused>,
        is_done: impl Fn(&Config) -> bool,
    ) -> Result<u64, ProposalError> {
        let control = self.group().await?;
        let (mut attempts, begun) = (0, Instant::now());
        let mut view = self.view.clone();
        loop {
            let (proposal, _) = self.checked(&control, &mut view, begun, &command).await?;
            attempts += 1;
            let index = control.propose(&proposal).await?;
            let now = known(&control, index).await?;
            if is_done(&now) {
                return Ok(index);
            }
            if attempts == ATTEMPTS {
                return Err(Refused::Changed { checked: proposal.checked, now: now.revision() }.into());
            }
        }
    }
}

/// Returns how long a command that is refused for this reason waits until it passes by itself.
fn patience(refused: &Refused, config: &Config) -> Duration {
    match refused {
        Refused::ChangeUnderWay { .. } => ENTERED_WITHIN,
        // It is settled, and its part is split off a moment later.
        Refused::MemberJoins { dc } if config.slots().is_settled(*dc) => ENTERED_WITHIN,
        Refused::NoMajority { .. } | Refused::StillHeard { .. } => HEARD_WITHIN,
        _ => Duration::ZERO,
    }
}

/// Returns the reason why a command was refused, with the cause of a change that is under way for long. `me`:
/// this datacenter.
pub(super) fn waits_for(refused: Refused, me: DcId, config: &Config, view: &MembersView) -> ProposalError {
    let Refused::ChangeUnderWay { epoch, members } = refused else { return refused.into() };
    let unheard: DcSet = members.iter().filter(|dc| *dc != me && !view.heard.contains(*dc)).collect();
    if !unheard.is_empty() {
        return ProposalError::NotReached { epoch, unheard };
    }
    let policy = config.policy();
    let is_of_policy = policy.evict == EvictPolicy::Auto && config.policy_epoch() == epoch;
    // A member enters the policy when no lease there lasts longer than the policy allows.
    let within = view.longest_lease(members.iter()).saturating_sub(policy.max_lease_ttl());
    match is_of_policy && !within.is_zero() {
        true => ProposalError::LongerLeases { epoch, members, within },
        false => Refused::ChangeUnderWay { epoch, members }.into(),
    }
}

/// Returns the decision that has cancelled the last leave of a member.
fn cancelled(view: &MembersView, dc: DcId) -> Option<u64> {
    let (_, decision) = view.stay.cancelled.iter().find(|(other, _)| *other == dc)?;
    Some(decision.0)
}

fn phase(view: &MembersView, dc: DcId) -> Option<Phase> {
    view.config.slots().member(dc).map(|member| member.phase)
}

/// Returns true if this state is after that one: of a later group, or after more decisions of the same.
pub(super) fn is_newer(a: &Config, b: &Config) -> bool {
    (a.lineage(), a.index()) > (b.lineage(), b.index())
}

/// Returns the command that evicts members. An operator vouches for their end.
fn begin(config: &Config, lost: &[Lost]) -> Result<Command, Refused> {
    // A command that is repeated also names those that an earlier attempt has evicted.
    let lost = lost.iter().filter(|lost| !config.slots().has_ended(lost.dc));
    let lost: BTreeMap<DcId, Timestamp> = lost.map(|lost| (lost.dc, lost.last_heard)).collect();
    let evictee = |(dc, last_heard)| {
        let generation = generation_of(config, dc)?;
        Ok(Evictee { dc, generation, last_heard })
    };
    let members = lost.into_iter().map(evictee).collect::<Result<_, Refused>>()?;
    Ok(Command::Begin(Eviction { members, vouch: Vouch::Operator, recut: None }))
}

/// Returns the state after a decision, once it is known here.
async fn known(control: &ControlGroup<DecisionList>, index: u64) -> Result<Config, ProposalError> {
    control.reaches(index, KNOWN_WITHIN).await.map_err(|_| ProposalError::NotKnown(index))?;
    Ok(control.state().0)
}

/// Returns the generation of a member. Before all founders run this release there is no list of members.
fn generation_of(config: &Config, dc: DcId) -> Result<Generation, Refused> {
    if config.cluster().is_none() {
        return Err(Refused::NotFounded);
    }
    config.slots().generation(dc).ok_or(Refused::NotMember { dc })
}
