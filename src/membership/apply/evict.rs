//! Evictions: the attempt, its reports, its end.

use geolock_api::names::{DcId, DcSet};

use super::leave::others_stay;
use super::{Effect, begin_epoch, end_members, no_attempt};
use crate::base::time::Timestamp;
use crate::crdt::VersionVector;
use crate::membership::attempt::{Attempt, Cut, LastEnd, highest};
use crate::membership::command::{Eviction, Vouch};
use crate::membership::config::{Config, MAX_EVICTIONS};
use crate::membership::ids::{AttemptId, Generation, Index, Voter};
use crate::membership::policy::EvictPolicy;
use crate::membership::refused::Refused;
use crate::membership::slot::EndCause;

impl Config {
    /// Returns those of these members that must not be heard. A joining member that ends with others may
    /// live: it grants nothing yet.
    pub fn need_silence(&self, evicting: DcSet) -> DcSet {
        let settled: DcSet = evicting.iter().filter(|dc| self.slots().is_settled(*dc)).collect();
        if settled.is_empty() { evicting } else { settled }
    }

    /// Returns true if a member that is to be evicted was started after an operator vouched that it does not
    /// run. `newest`: the clock of the newest heartbeat of a member that anybody has heard.
    pub fn evicts_started(&self, newest: impl Fn(DcId) -> Option<Timestamp>) -> bool {
        let Some(attempt) = &self.attempt else { return false };
        let members = self.need_silence(attempt.evicting());
        members.iter().any(|dc| attempt.eviction.was_started(dc, newest(dc)))
    }

    /// Returns true if the eviction under way relies on silence that a voter has taken back since: it cannot
    /// end. Whoever took it back may hear that member no more, and states no silence about it again before
    /// the attempt is over.
    pub fn lacks_silence(&self) -> bool {
        let by_silence = |it: &&Attempt| it.eviction.vouch == Vouch::Silence;
        self.attempt.as_ref().filter(by_silence).is_some_and(|it| all_silent(self, it.evicting()).is_err())
    }
}

pub(super) fn begin(config: &mut Config, index: Index, eviction: &Eviction) -> Result<Effect, Refused> {
    no_attempt(config)?;
    let members = eviction.slots();
    let increasing = eviction.members.is_sorted_by(|a, b| a.dc < b.dc);
    if members.is_empty() || !increasing {
        return Err(Refused::NobodyNamed);
    }
    for member in &eviction.members {
        config.slots().current(member.dc, member.generation)?;
    }
    policy_allows(config, eviction.vouch, members)?;
    joiners_are_in(config, members)?;
    others_stay(config, members)?;
    voters_suffice(config, members)?;
    if eviction.vouch == Vouch::Silence {
        all_silent(config, members)?;
    }
    if config.evictions >= MAX_EVICTIONS {
        return Err(Refused::NoFenceLeft);
    }
    if let Some(epoch) = eviction.recut
        && config.last_end.as_ref().is_none_or(|last| last.epoch != epoch)
    {
        return Err(Refused::NotLastEnd { epoch });
    }
    config.attempt = Some(Attempt::new(AttemptId(index.0), eviction.clone()));
    Ok(Effect::Changed)
}

pub(super) fn have(
    config: &mut Config,
    attempt: AttemptId,
    by: Voter,
    vector: &VersionVector,
) -> Result<Effect, Refused> {
    let under_way = attempt_with(config, attempt)?;
    match by {
        Voter::Member { dc, generation } => {
            config.slots().current(dc, generation)?;
            if under_way.evicting().contains(dc) {
                return Err(Refused::ReportOfEvicted { by });
            }
            report_is_possible(config, by, vector)?;
        }
        Voter::Witness(id) if !config.witnesses().contains(id) => {
            return Err(Refused::NotWitness(id));
        }
        Voter::Witness(_) => {}
    }
    if under_way.promised.contains(&by) {
        return Err(Refused::AlreadyReported { by });
    }
    let under_way = config.attempt.as_mut().expect("it was found above");
    under_way.promised.insert(by);
    if let Some(dc) = by.dc() {
        under_way.reports.insert(dc, vector.clone());
    }
    Ok(Effect::Noted)
}

pub(super) fn end(config: &mut Config, index: Index, attempt: AttemptId) -> Result<Effect, Refused> {
    let under_way = attempt_with(config, attempt)?;
    let evicting = under_way.evicting();
    let missing = config.missing_reports();
    if !missing.is_empty() {
        return Err(Refused::ReportsMissing { missing });
    }
    let (promised, needed) = (config.voters().count(&under_way.promised), config.voters().majority());
    if promised < needed {
        return Err(Refused::PromisesMissing { promised, needed });
    }
    // A voter may have taken its silence back since the attempt began.
    if under_way.eviction.vouch == Vouch::Silence {
        all_silent(config, evicting)?;
    }

    let under_way = config.attempt.take().expect("it was found above");
    let cause = match under_way.eviction.vouch {
        Vouch::Silence => EndCause::EvictedBySilence,
        Vouch::Operator | Vouch::Replacement => EndCause::Evicted,
    };
    let cuts: Vec<Cut> =
        under_way.eviction.members.iter().map(|it| under_way.cut(it.dc, it.generation)).collect();
    let vectors: Vec<&VersionVector> = under_way.reports.values().collect();
    let earlier = config.last_end.take().filter(|last| under_way.eviction.recut == Some(last.epoch));
    config.evictions += 1;
    begin_epoch(config, index, config.voters().without(evicting));
    Ok(Effect::Ended(end_with_cuts(config, cuts, cause, earlier, &vectors)))
}

/// Ends the generations with these cuts, and sets the cuts of an earlier end again, if there is one. Returns
/// all of them.
///
/// The new cut of an earlier end is the highest report: a member that had entered that end has reported the
/// old cut, so it stays. If no member had, none has acted on the old cut.
pub(super) fn end_with_cuts(
    config: &mut Config,
    mut cuts: Vec<Cut>,
    cause: EndCause,
    earlier: Option<LastEnd>,
    vectors: &[&VersionVector],
) -> Vec<Cut> {
    end_members(config, &cuts, cause);
    for (dc, generation) in earlier.into_iter().flat_map(|earlier| earlier.generations) {
        let slot = config.slots.get_mut(dc).expect("a generation that ended has a slot");
        let past = slot.past.iter_mut().find(|past| past.generation == generation);
        let past = past.expect("the last end is remembered");
        past.cut = past.cut.min(highest(vectors.iter().copied(), dc, generation).seq);
        cuts.push(Cut { dc, generation, seq: past.cut });
    }
    let generations = cuts.iter().map(|cut| (cut.dc, cut.generation)).collect();
    config.last_end = Some(LastEnd { epoch: config.numbers.epoch, generations });
    cuts
}

pub(super) fn abort(config: &mut Config, attempt: AttemptId) -> Result<Effect, Refused> {
    attempt_with(config, attempt)?;
    config.attempt = None;
    Ok(Effect::Changed)
}

pub(super) fn confirm_dead(config: &mut Config, dc: DcId, generation: Generation) -> Result<Effect, Refused> {
    let past = config.slots.get_mut(dc).into_iter().flat_map(|slot| &mut slot.past);
    let mut silent = past.filter(|past| past.cause == EndCause::EvictedBySilence);
    match silent.find(|past| past.generation == generation) {
        Some(past) => past.cause = EndCause::Evicted,
        None => return Err(Refused::NothingToConfirm { dc, generation }),
    }
    Ok(Effect::Changed)
}

fn attempt_with(config: &Config, attempt: AttemptId) -> Result<&Attempt, Refused> {
    config.attempt.as_ref().filter(|it| it.id == attempt).ok_or(Refused::AttemptOver { attempt })
}

fn policy_allows(config: &Config, vouch: Vouch, members: DcSet) -> Result<(), Refused> {
    match (vouch, config.policy.evict) {
        (Vouch::Replacement, _) | (Vouch::Operator, EvictPolicy::Operator) | (_, EvictPolicy::Auto) => Ok(()),
        (_, EvictPolicy::Wait) => Err(Refused::PolicyWaits { members }),
        (Vouch::Silence, EvictPolicy::Operator) => Err(Refused::PolicyNotAuto { members }),
    }
}

/// Returns an error if a joining member is not among these although its sponsor is: its parts would go
/// with nobody's.
pub(super) fn joiners_are_in(config: &Config, members: DcSet) -> Result<(), Refused> {
    match config.slots().with_joiners(members).difference(members).iter().next() {
        Some(joiner) => {
            let dc = config.slots().sponsor(joiner).expect("a joiner has a sponsor");
            Err(Refused::SponsorNeeded { dc, joiner })
        }
        None => Ok(()),
    }
}

/// Returns an error if the voters without these members can never promise as a majority, or if none of
/// them stays.
fn voters_suffice(config: &Config, evicting: DcSet) -> Result<(), Refused> {
    let (remaining, needed) = (config.voters().without(evicting).voters.len(), config.voters().majority());
    if remaining < needed {
        return Err(Refused::NoMajority { remaining, needed });
    }
    let is_evicted = |voter: &Voter| voter.dc().is_some_and(|dc| evicting.contains(dc));
    if config.staying_voters().all(|voter| is_evicted(&voter)) {
        let voter = *config.voters().voters.first().expect("a cluster has voters");
        return Err(Refused::LastVoter { voter });
    }
    Ok(())
}

/// Returns an error unless a majority of the voters is silent about each of these that must not be heard.
fn all_silent(config: &Config, members: DcSet) -> Result<(), Refused> {
    let needed = config.voters().majority();
    for dc in config.need_silence(members).iter() {
        let about: Vec<Voter> = config.silent_about(dc).collect();
        let silent = config.voters().count(&about);
        if silent < needed {
            return Err(Refused::NotSilent { dc, silent, needed });
        }
    }
    Ok(())
}

/// Returns an error if a vector has entries of a generation that never began.
pub(super) fn report_is_possible(config: &Config, by: Voter, vector: &VersionVector) -> Result<(), Refused> {
    let wrong = vector.iter().find(|(dc, seq)| {
        let generation = Generation::of_seq(*seq);
        config.slots().generation(*dc) != Some(generation) && !config.slots().is_over(*dc, generation)
    });
    wrong.map_or(Ok(()), |(dc, seq)| Err(Refused::WrongReport { by, dc, seq }))
}
