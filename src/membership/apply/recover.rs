//! Forced recovery: survivors that are no majority go on alone.

use std::collections::BTreeSet;

use geolock_api::names::{DcId, DcSet};

use super::Effect;
use crate::crdt::VersionVector;
use crate::membership::attempt::{Cut, highest};
use crate::membership::command::Recovery;
use crate::membership::config::{Config, MAX_EVICTIONS, MAX_VOTERS, RECOVERY_FENCES};
use crate::membership::history::VoterSet;
use crate::membership::ids::{Index, Lineage, Voter};
use crate::membership::refused::Refused;
use crate::membership::slot::{EndCause, Phase};

impl Config {
    pub(super) fn recover(&mut self, index: Index, recovery: &Recovery) -> Result<Effect, Refused> {
        let expected = Lineage(self.lineage.0 + 1);
        if recovery.lineage != expected {
            return Err(Refused::LineageNotNext { asked: recovery.lineage, expected });
        }
        let survivors = self.survivors(recovery)?;
        let lost = self.member_set().difference(survivors);
        self.joiners_are_in(lost)?;
        if self.evictions + RECOVERY_FENCES > MAX_EVICTIONS {
            return Err(Refused::NoFenceLeft);
        }

        let vectors: Vec<&VersionVector> = recovery.survivors.iter().map(|(_, vector)| vector).collect();
        let ends = self.members().filter(|(dc, _)| lost.contains(*dc));
        let cuts: Vec<Cut> =
            ends.map(|(dc, member)| highest(vectors.iter().copied(), dc, member.generation)).collect();
        let voters = self.recovered_voters(survivors);
        let earlier = self.last_end.take();
        self.lineage = expected;
        self.evictions += RECOVERY_FENCES;
        self.attempt = None;
        self.witnesses.clear();
        self.marks.retain(|(by, _), _| by.dc().is_some());
        self.begin_epoch(index, voters);
        Ok(Effect::Ended(self.end_with_cuts(cuts, EndCause::Lost, earlier, &vectors)))
    }

    /// Returns the survivors, if they are members that have lost their majority and can go on.
    fn survivors(&self, recovery: &Recovery) -> Result<DcSet, Refused> {
        let survivors: DcSet = recovery.survivors.iter().map(|(dc, _)| *dc).collect();
        let mut members = Vec::new();
        for (dc, vector) in &recovery.survivors {
            let member = self.member(*dc).ok_or(Refused::NotMember { dc: *dc })?;
            let by = Voter::Member { dc: *dc, generation: member.generation };
            self.report_is_possible(by, vector)?;
            members.push((by, member.phase));
        }
        let increasing = recovery.survivors.is_sorted_by(|(a, _), (b, _)| a < b);
        if !increasing || members.iter().all(|(_, phase)| *phase != Phase::Settled) {
            return Err(Refused::WrongSurvivors);
        }
        let voters = self.voters().count(members.iter().map(|(by, _)| by));
        let needed = self.voters().majority();
        if voters >= needed {
            return Err(Refused::MajorityUp { voters, needed });
        }
        Ok(survivors)
    }

    /// Returns the voters of the new control group: the settled survivors that stay; if they are too many,
    /// first those that vote already.
    fn recovered_voters(&self, survivors: DcSet) -> VoterSet {
        let settled = self.members().filter(|(dc, it)| it.phase == Phase::Settled && survivors.contains(*dc));
        let mut candidates: Vec<(bool, DcId)> =
            settled.map(|(dc, _)| (!self.voters().contains_member(dc), dc)).collect();
        candidates.sort();
        let voter = |dc: DcId| Some(Voter::Member { dc, generation: self.generation(dc)? });
        let voters: BTreeSet<Voter> =
            candidates.into_iter().take(MAX_VOTERS).filter_map(|(_, dc)| voter(dc)).collect();
        VoterSet { from: self.epoch, voters }
    }
}
