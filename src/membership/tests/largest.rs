//! The largest config: it bounds the snapshots of the control group.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::base::wire::encode;
use geolock_api::names::{MAX_DCS, MAX_LOCK_NAME};

fn slots() -> impl Iterator<Item = DcId> {
    (0..MAX_DCS).map(|id| dc(id as u8))
}

fn text(dc: DcId) -> (MemberName, Address) {
    let id = dc.index();
    (name(&format!("{id:0>64}")), Address::new(&format!("{id:h>256}:65535")).expect("an address"))
}

/// The largest number of each kind: it takes the most bytes.
const LAST: u64 = u64::MAX;

fn slot(dc: DcId) -> Slot {
    let (server, generation, epoch) = (ServerId([dc.index() as u8; 16]), Generation::MAX, Epoch(LAST));
    let (name, address) = text(dc);
    let member = Member {
        generation,
        server,
        name,
        address,
        phase: Phase::Settled,
        sponsor: dc,
        admitted: epoch,
        wants_vote: true,
    };
    let past = Past {
        generation,
        server,
        admitted: epoch,
        ended: epoch,
        cut: LAST,
        cause: EndCause::EvictedBySilence,
    };
    Slot { member: Some(member), past: vec![past; MAX_PAST] }
}

fn voters() -> impl Iterator<Item = Voter> {
    let members = slots().map(|dc| Voter::Member { dc, generation: Generation::MAX });
    members.chain((0..MAX_VOTERS as u64).map(|n| Voter::Witness(WitnessId(LAST - n))))
}

/// A config at all its limits. Some of them exclude each other, so no config is as large.
fn largest() -> Config {
    let mut config = List::auto(1).config;
    let last = (Index(LAST), Revision(LAST), Epoch(LAST));
    (config.numbers.index, config.numbers.revision) = (last.0, last.1);
    (config.numbers.epoch, config.numbers.policy_epoch) = (last.2, last.2);
    (config.lineage, config.evictions) = (Lineage(u32::MAX), MAX_EVICTIONS);
    slots().for_each(|dc| config.slots.fill(dc, slot(dc)));
    let few: BTreeSet<Voter> = voters().take(MAX_VOTERS).collect();
    config.voters.sets = vec![VoterSet { from: Epoch(LAST), voters: few }; MAX_VOTER_SETS];
    for (n, dc) in slots().enumerate() {
        let (name, address) = text(dc);
        let id = WitnessId(LAST - n as u64);
        config.voters.witnesses.add(id, Witness { dc, server: ServerId([1; 16]), name, address });
        if n >= MAX_VOTERS {
            config.voters.witnesses.end(id);
        }
        config.invitations.insert(text(dc).0, Some(dc));
    }
    assert_eq!(config.invitations.len(), MAX_INVITATIONS);
    for n in 0..MAX_RULES {
        let prefix = format!("{n:p>MAX_LOCK_NAME$}");
        let rule = PrefixRule { home: Some(dc(63)), operator_evicts: true };
        config.rules.set(Prefix::new(prefix.as_bytes()).expect("a prefix"), rule);
    }
    let marks = voters().flat_map(|by| slots().map(move |of| (by, of)));
    config.marks = marks.map(|of| (of, Silence { number: LAST, silent: true })).collect();
    let evictee = |dc| Evictee { dc, generation: Generation::MAX, last_heard: Timestamp::from_raw(LAST) };
    let eviction = Eviction {
        members: slots().map(evictee).collect(),
        vouch: Vouch::Operator,
        recut: Some(Epoch(LAST)),
    };
    let vector: VersionVector = slots().map(|dc| (dc, Generation::MAX.last())).collect();
    let reports: BTreeMap<DcId, VersionVector> = slots().map(|dc| (dc, vector.clone())).collect();
    let id = AttemptId(LAST);
    config.attempt = Some(Attempt { id, eviction, reports, promised: voters().collect() });
    let generations = slots().map(|dc| (dc, Generation::MAX)).collect();
    config.last_end = Some(LastEnd { epoch: Epoch(LAST), generations });
    config
}

#[test]
fn a_config_at_all_its_limits_is_within_the_bound_of_configs() {
    let size = encode("config", &largest()).expect("it fits a frame").len();
    assert!(size <= MAX_CONFIG, "{size} bytes");
    // Otherwise the bound, or a limit above, has lost its meaning.
    assert!(size > MAX_CONFIG / 2, "{size} bytes");
}
