//! Forced recovery: survivors that are no majority continue alone.

use std::collections::BTreeSet;

use geolock_api::names::{DcId, DcSet};

use super::evict::{end_with_cuts, joiners_are_in, report_is_possible};
use super::{Effect, begin_epoch};
use crate::crdt::VersionVector;
use crate::membership::attempt::{Cut, highest};
use crate::membership::command::Recovery;
use crate::membership::config::{Config, MAX_EVICTIONS, MAX_VOTERS, RECOVERY_FENCES};
use crate::membership::history::VoterSet;
use crate::membership::ids::{Index, Lineage, Voter};
use crate::membership::refused::Refused;
use crate::membership::slot::{EndCause, Phase};

pub(super) fn recover(config: &mut Config, index: Index, recovery: &Recovery) -> Result<Effect, Refused> {
    let expected = Lineage(config.lineage.0 + 1);
    if recovery.lineage != expected {
        return Err(Refused::LineageNotNext { asked: recovery.lineage, expected });
    }
    let survivors = survivors(config, recovery)?;
    let lost = config.slots().member_set().difference(survivors);
    joiners_are_in(config, lost)?;
    if config.evictions + RECOVERY_FENCES > MAX_EVICTIONS {
        return Err(Refused::NoFenceLeft);
    }

    let vectors: Vec<&VersionVector> = recovery.survivors.iter().map(|(_, vector)| vector).collect();
    let ends = config.slots().members().filter(|(dc, _)| lost.contains(*dc));
    let cuts: Vec<Cut> =
        ends.map(|(dc, member)| highest(vectors.iter().copied(), dc, member.generation)).collect();
    let voters = recovered_voters(config, survivors);
    let earlier = config.last_end.take();
    config.lineage = expected;
    config.evictions += RECOVERY_FENCES;
    config.attempt = None;
    for id in config.witnesses().iter().map(|(id, _)| id).collect::<Vec<_>>() {
        config.voters.witnesses.end(id);
    }
    config.marks.retain(|(by, _), _| by.dc().is_some());
    begin_epoch(config, index, voters);
    Ok(Effect::Ended(end_with_cuts(config, cuts, EndCause::Lost, earlier, &vectors)))
}

/// Returns the survivors, if they are members that have lost their majority and can continue.
fn survivors(config: &Config, recovery: &Recovery) -> Result<DcSet, Refused> {
    let survivors: DcSet = recovery.survivors.iter().map(|(dc, _)| *dc).collect();
    let mut members = Vec::new();
    for (dc, vector) in &recovery.survivors {
        let member = config.slots().member(*dc).ok_or(Refused::NotMember { dc: *dc })?;
        let by = Voter::Member { dc: *dc, generation: member.generation };
        report_is_possible(config, by, vector)?;
        members.push((by, member.phase));
    }
    let increasing = recovery.survivors.is_sorted_by(|(a, _), (b, _)| a < b);
    if !increasing || members.iter().all(|(_, phase)| *phase != Phase::Settled) {
        return Err(Refused::WrongSurvivors);
    }
    let voters = config.voters().count(members.iter().map(|(by, _)| by));
    let needed = config.voters().majority();
    if voters >= needed {
        return Err(Refused::MajorityUp { voters, needed });
    }
    Ok(survivors)
}

/// Returns the voters of the new control group: the settled survivors that stay; if they are too many,
/// first those that vote already.
fn recovered_voters(config: &Config, survivors: DcSet) -> VoterSet {
    let settled =
        config.slots().members().filter(|(dc, it)| it.phase == Phase::Settled && survivors.contains(*dc));
    let mut candidates: Vec<(bool, DcId)> =
        settled.map(|(dc, _)| (!config.voters().contains_member(dc), dc)).collect();
    candidates.sort();
    let voter = |dc: DcId| Some(Voter::Member { dc, generation: config.slots().generation(dc)? });
    let voters: BTreeSet<Voter> =
        candidates.into_iter().take(MAX_VOTERS).filter_map(|(_, dc)| voter(dc)).collect();
    VoterSet { from: config.numbers.epoch, voters }
}
