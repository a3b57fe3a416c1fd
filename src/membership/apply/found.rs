//! The first decision: the founders.

use std::collections::BTreeSet;

use geolock_api::names::{DcSet, MAX_DCS};

use super::Effect;

use crate::membership::command::{Founder, Founding};
use crate::membership::config::{Config, MAX_VOTERS};
use crate::membership::history::VoterSet;
use crate::membership::ids::{Epoch, Generation, Voter};
use crate::membership::refused::Refused;
use crate::membership::slot::{Member, Phase};

/// The founders are the members of epoch 0: entries that an earlier release made are of epoch 0, too, so
/// a cluster that is upgraded has nothing to enter.
pub(super) fn found(config: &mut Config, founding: &Founding) -> Result<Effect, Refused> {
    if config.cluster.is_some() {
        return Err(Refused::AlreadyFounded);
    }
    validate(&founding.founders)?;
    founding.policy.validate()?;
    founding.options.validate()?;
    config.cluster = Some(founding.cluster);
    config.version = founding.version;
    config.policy = founding.policy;
    config.options = founding.options;
    let mut voters = BTreeSet::new();
    for founder in &founding.founders {
        let generation = Generation(0);
        let member = Member {
            generation,
            server: founder.server,
            name: founder.name.clone(),
            address: founder.address.clone(),
            phase: Phase::Settled,
            sponsor: founder.dc,
            admitted: Epoch(0),
            wants_vote: true,
        };
        config.slots.admit(founder.dc, member);
        if founder.votes {
            voters.insert(Voter::Member { dc: founder.dc, generation });
        }
    }
    config.voters.sets = vec![VoterSet { from: Epoch(0), voters }];
    Ok(Effect::Changed)
}

fn validate(founders: &[Founder]) -> Result<(), Refused> {
    let voters = founders.iter().filter(|founder| founder.votes).count();
    if !(1..=MAX_DCS).contains(&founders.len()) || !(1..=MAX_VOTERS).contains(&voters) {
        return Err(Refused::Founders { founders: founders.len(), voters });
    }
    let (mut slots, mut servers, mut names) = (DcSet::EMPTY, BTreeSet::new(), BTreeSet::new());
    for founder in founders {
        let dc = founder.dc;
        let fault = if slots.contains(dc) {
            "is named twice"
        } else if !servers.insert(founder.server) {
            "has the server id of another one"
        } else if !names.insert(&founder.name) {
            "has the name of another one"
        } else {
            slots.insert(dc);
            continue;
        };
        return Err(Refused::Founder { dc, fault });
    }
    Ok(())
}
