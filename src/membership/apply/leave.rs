//! A member that leaves, in order.

use geolock_api::names::{DcId, DcSet};

use super::{Effect, begin_epoch, end_members, no_attempt};

use crate::membership::attempt::Cut;
use crate::membership::config::Config;
use crate::membership::ids::{Generation, Index, Voter};
use crate::membership::refused::Refused;
use crate::membership::slot::{EndCause, Phase};

/// Begins an epoch: a member that has entered it gives nothing to that member any more.
pub(super) fn leaving(
    config: &mut Config,
    index: Index,
    dc: DcId,
    generation: Generation,
) -> Result<Effect, Refused> {
    let member = config.slots().current(dc, generation)?;
    match member.phase {
        Phase::Settled => {}
        Phase::Joining => return Err(Refused::StillJoining { dc, sponsor: member.sponsor }),
        Phase::Leaving => return Err(Refused::AlreadyLeaving { dc }),
    }
    no_attempt(config)?;
    others_stay(config, DcSet::only(dc))?;
    other_voters_stay(config, Voter::Member { dc, generation })?;
    begin_epoch(config, index, config.voters().clone());
    let member = config.slots.member_mut(dc);
    member.expect("it was found above").phase = Phase::Leaving;
    Ok(Effect::Epoch)
}

/// Begins an epoch: a member that has entered it gives that member what it asks for again.
pub(super) fn cancel(
    config: &mut Config,
    index: Index,
    dc: DcId,
    generation: Generation,
) -> Result<Effect, Refused> {
    if config.slots().current(dc, generation)?.phase != Phase::Leaving {
        return Err(Refused::NotLeaving { dc });
    }
    no_attempt(config)?;
    begin_epoch(config, index, config.voters().clone());
    let member = config.slots.member_mut(dc);
    member.expect("it was found above").phase = Phase::Settled;
    Ok(Effect::Epoch)
}

pub(super) fn left(
    config: &mut Config,
    index: Index,
    dc: DcId,
    generation: Generation,
    cut: u64,
) -> Result<Effect, Refused> {
    let member = config.slots().current(dc, generation)?;
    if member.phase != Phase::Leaving {
        return Err(Refused::NotLeaving { dc });
    }
    no_attempt(config)?;
    if let Some((joiner, _)) = config.slots().members().find(|(other, it)| it.sponsor == dc && *other != dc) {
        return Err(Refused::SponsorNeeded { dc, joiner });
    }
    // `Leave` itself is an entry.
    if cut == generation.base() || Generation::of_seq(cut) != generation {
        return Err(Refused::WrongCut { dc, generation, cut });
    }
    begin_epoch(config, index, config.voters().without(DcSet::only(dc)));
    let cuts = vec![Cut { dc, generation, seq: cut }];
    end_members(config, &cuts, EndCause::Left);
    Ok(Effect::Ended(cuts))
}

/// Returns an error if without these no member is left that stays. A leaving member does not count: its
/// departure and an eviction of all others would leave no member.
pub(super) fn others_stay(config: &Config, without: DcSet) -> Result<(), Refused> {
    if config.staying().difference(without).is_empty() {
        return Err(Refused::LastMember(without));
    }
    Ok(())
}

/// Returns an error if without this one no voter is left that stays.
pub(super) fn other_voters_stay(config: &Config, without: Voter) -> Result<(), Refused> {
    if config.staying_voters().all(|voter| voter == without) {
        return Err(Refused::LastVoter { voter: without });
    }
    Ok(())
}
