//! A member that leaves, in order.

use geolock_api::names::{DcId, DcSet};

use super::Effect;
use crate::membership::attempt::Cut;
use crate::membership::config::Config;
use crate::membership::ids::{Generation, Index, Voter};
use crate::membership::refused::Refused;
use crate::membership::slot::{EndCause, Phase};

impl Config {
    /// Begins an epoch: who has entered it gives nothing to that member any more.
    pub(super) fn leaving(
        &mut self,
        index: Index,
        dc: DcId,
        generation: Generation,
    ) -> Result<Effect, Refused> {
        let member = self.current(dc, generation)?;
        match member.phase {
            Phase::Settled => {}
            Phase::Joining => return Err(Refused::StillJoining { dc, sponsor: member.sponsor }),
            Phase::Leaving => return Err(Refused::AlreadyLeaving { dc }),
        }
        self.no_attempt()?;
        self.others_stay(DcSet::only(dc))?;
        self.other_voters_stay(Voter::Member { dc, generation })?;
        self.begin_epoch(index, self.voters().clone());
        let member = self.slots.get_mut(&dc).and_then(|slot| slot.member.as_mut());
        member.expect("it was found above").phase = Phase::Leaving;
        Ok(Effect::Epoch)
    }

    pub(super) fn left(
        &mut self,
        index: Index,
        dc: DcId,
        generation: Generation,
        cut: u64,
    ) -> Result<Effect, Refused> {
        let member = self.current(dc, generation)?;
        if member.phase != Phase::Leaving {
            return Err(Refused::NotLeaving { dc });
        }
        self.no_attempt()?;
        if let Some((joiner, _)) = self.members().find(|(other, it)| it.sponsor == dc && *other != dc) {
            return Err(Refused::SponsorNeeded { dc, joiner });
        }
        // `Leave` itself is an entry.
        if cut == generation.base() || Generation::of_seq(cut) != generation {
            return Err(Refused::WrongCut { dc, generation, cut });
        }
        self.begin_epoch(index, self.voters().without(DcSet::only(dc)));
        let cuts = vec![Cut { dc, generation, seq: cut }];
        self.end_members(&cuts, EndCause::Left);
        Ok(Effect::Ended(cuts))
    }

    /// Returns an error if without these no member is left that stays. One that leaves does not count: it and
    /// an eviction of all others would leave nobody.
    pub(super) fn others_stay(&self, without: DcSet) -> Result<(), Refused> {
        if self.staying().difference(without).is_empty() {
            return Err(Refused::LastMember(without));
        }
        Ok(())
    }

    /// Returns an error if without this one no voter is left that stays.
    pub(super) fn other_voters_stay(&self, without: Voter) -> Result<(), Refused> {
        if self.staying_voters().all(|voter| voter == without) {
            return Err(Refused::LastVoter { voter: without });
        }
        Ok(())
    }
}
