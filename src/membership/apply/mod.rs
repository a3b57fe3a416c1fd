//! The effect of each command.

mod evict;
mod found;
mod join;
mod leave;
mod policy;
mod recover;
mod rules;
mod silence;
mod voters;

use super::attempt::Cut;
use super::command::{Command, Proposal};
use super::config::Config;
use super::history::{MAX_VOTER_SETS, VoterSet};
use super::ids::{Epoch, Index, Revision};
use super::refused::Refused;
use super::slot::EndCause;

/// The effect of a decision, as far as members have to act on it. Everything else is in the config.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// The epoch that began with it, if one did.
    pub epoch: Option<Epoch>,
    /// The cuts that it set: those of the generations that ended, and those that it set again.
    pub cuts: Vec<Cut>,
}

/// The part of a decision's effect that follows from its command alone.
pub(super) enum Effect {
    /// Marks and reports: the revision stays.
    Noted,
    /// Changes the revision only.
    Changed,
    /// Begins an epoch.
    Epoch,
    /// Begins an epoch, and sets these cuts.
    Ended(Vec<Cut>),
}

impl Config {
    /// Applies the decision with this number, which is the one after [`Config::index`]: the caller checks
    /// that, if a peer told the number.
    ///
    /// If the command is refused, the number is used up all the same, and nothing else changes.
    ///
    /// # Panics
    ///
    /// If decisions are missing before this one, or if an invariant does not hold after it.
    pub fn apply(&mut self, index: Index, proposal: &Proposal) -> Result<Applied, Refused> {
        assert_eq!(index, self.numbers.index.next(), "decisions are applied in their order, without gaps");
        self.numbers.index = index;
        let effect = decide(self, index, proposal)?;
        let mut applied = Applied::default();
        if !matches!(effect, Effect::Noted) {
            self.numbers.revision = Revision(index.0);
        }
        if matches!(effect, Effect::Epoch | Effect::Ended(_)) {
            applied.epoch = Some(self.numbers.epoch);
        }
        if let Effect::Ended(cuts) = effect {
            applied.cuts = cuts;
        }
        if let Err(broken) = self.check() {
            panic!("after decision {index}, {:?}: {broken}", proposal.command);
        }
        Ok(applied)
    }
}

/// Calls the rule of the command. Each checks everything before it changes anything.
fn decide(config: &mut Config, index: Index, proposal: &Proposal) -> Result<Effect, Refused> {
    let Proposal { checked, command } = proposal;
    if !command.is_fact() && *checked != config.numbers.revision {
        return Err(Refused::Changed { checked: *checked, now: config.numbers.revision });
    }
    if let Command::Found(founding) = command {
        return found::found(config, founding);
    }
    if config.cluster.is_none() {
        return Err(Refused::NotFounded);
    }
    match command {
        Command::Found(_) => Err(Refused::AlreadyFounded),
        Command::Invite { name, sponsor } => join::invite(config, name, *sponsor),
        Command::CancelInvitation { name } => join::cancel_invitation(config, name),
        Command::Admit(admission) => join::admit(config, index, admission),
        Command::Settled { dc, generation } => join::settled(config, *dc, *generation),
        Command::Begin(eviction) => evict::begin(config, index, eviction),
        Command::Have { attempt, by, vector } => evict::have(config, *attempt, *by, vector),
        Command::End { attempt } => evict::end(config, index, *attempt),
        Command::Abort { attempt } => evict::abort(config, *attempt),
        Command::Leaving { dc, generation } => leave::leaving(config, index, *dc, *generation),
        Command::CancelLeave { dc, generation } => leave::cancel(config, index, *dc, *generation),
        Command::Left { dc, generation, cut } => leave::left(config, index, *dc, *generation, *cut),
        Command::Silent { mark, policy } => silence::silent(config, mark, *policy),
        Command::Heard { mark } => silence::heard(config, mark),
        Command::SetPolicy(policy) => policy::set_policy(config, index, policy),
        Command::SetOptions(options) => policy::set_options(config, options),
        Command::Version { version } => policy::set_version(config, *version),
        Command::AddWitness(witness) => voters::add_witness(config, index, witness),
        Command::RemoveWitness { id } => voters::remove_witness(config, index, *id),
        Command::Vote { dc, generation, votes } => voters::vote(config, index, *dc, *generation, *votes),
        Command::SetRule { prefix, rule } => rules::set_rule(config, index, prefix, rule),
        Command::RemoveRule { prefix } => rules::remove_rule(config, index, prefix),
        Command::ConfirmDead { dc, generation } => evict::confirm_dead(config, *dc, *generation),
        Command::Recover(recovery) => recover::recover(config, index, recovery),
    }
}

/// Returns an error while an eviction is under way: everything that begins an epoch waits for its end,
/// and so do the policy and the sets that its promises and reports are counted in.
pub(super) fn no_attempt(config: &Config) -> Result<(), Refused> {
    match &config.attempt {
        None => Ok(()),
        Some(attempt) => Err(Refused::EvictionUnderWay { attempt: attempt.id, members: attempt.evicting() }),
    }
}

/// Begins the epoch of this decision, with these voters.
pub(super) fn begin_epoch(config: &mut Config, index: Index, voters: VoterSet) {
    config.numbers.epoch = Epoch(index.0);
    config.last_end = None;
    if config.voters().voters != voters.voters {
        if config.voters.sets.len() == MAX_VOTER_SETS {
            config.voters.sets.remove(0);
        }
        config.voters.sets.push(VoterSet { from: config.numbers.epoch, ..voters });
    }
}

/// Ends the generations of these members, whose epoch has begun, the statements by and about them, and the
/// rules by which they are homes.
pub(super) fn end_members(config: &mut Config, cuts: &[Cut], cause: EndCause) {
    for cut in cuts {
        let slot = config.slots.get_mut(cut.dc).expect("a member that ends has a slot");
        slot.end(config.numbers.epoch, cut.seq, cause);
        config.marks.retain(|(by, of), _| by.dc() != Some(cut.dc) && *of != cut.dc);
        config.rules.end_home(cut.dc);
    }
}
