//! The invariants of a config, and its decoding: a config of a peer is used only if they hold.

use geolock_api::names::{DcId, DcSet, MAX_NUMBER};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use super::config::{Config, MAX_EVICTIONS, MAX_INVITATIONS, MAX_VOTERS, Numbers, RECOVERY_FENCES};
use super::history::{MAX_VOTER_SETS, VoterSet};
use super::ids::Voter;
use super::rules::MAX_RULES;
use super::slot::{MAX_PAST, Phase, Slot};

/// An invariant of [`Config`] does not hold: a bug, or a config that a peer made up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the config breaks an invariant: {0}")]
pub struct BrokenConfig(pub &'static str);

/// Returns an error with this name unless the invariant holds.
fn holds(invariant: &'static str, holds: bool) -> Result<(), BrokenConfig> {
    if holds { Ok(()) } else { Err(BrokenConfig(invariant)) }
}

impl Config {
    /// Checks all invariants. [`Config::apply`] and the decoder call it.
    pub fn check(&self) -> Result<(), BrokenConfig> {
        let Numbers { index, revision, epoch, policy_epoch } = self.numbers;
        let increasing = policy_epoch <= epoch && epoch.0 <= revision.0 && revision.0 <= index.0;
        holds("numbers are in order", increasing && index.0 <= MAX_NUMBER)?;
        if self.cluster.is_none() {
            let numbers = Numbers { index, ..Numbers::default() };
            let nothing = Config { numbers, ..Config::default() };
            return holds("nothing is known before the cluster is founded", *self == nothing);
        }
        holds("somebody stays", !self.staying().is_empty())?;
        let recoveries = u64::from(self.lineage.0) * u64::from(RECOVERY_FENCES);
        let evictions = u64::from(self.evictions);
        holds("evictions have a limit", recoveries <= evictions && evictions <= u64::from(MAX_EVICTIONS))?;
        holds("rules have a limit", self.rules.len() <= MAX_RULES)?;
        holds("invitations have a limit", self.invitations.len() <= MAX_INVITATIONS)?;
        let within = self.policy.validate().is_ok() && self.options.validate().is_ok();
        holds("policy and options are within bounds", within)?;
        self.slots.iter().map(|(_, slot)| slot).try_for_each(|slot| check_slot(self, slot))?;
        check_identities(self)?;
        check_sponsors(self)?;
        check_voters(self)?;
        check_witnesses(self)?;
        check_marks(self)?;
        check_attempt(self)?;
        check_last_end(self)?;
        check_rules(self)
    }
}

fn check_slot(config: &Config, slot: &Slot) -> Result<(), BrokenConfig> {
    holds("a slot is remembered for a use", slot.member.is_some() || !slot.past.is_empty())?;
    holds("ends are forgotten one day", slot.past.len() <= MAX_PAST)?;
    for past in &slot.past {
        let entries = past.generation.base()..=past.generation.last();
        holds("a cut is of its generation", entries.contains(&past.cut))?;
        holds(
            "a generation ends after its begin",
            past.admitted < past.ended && past.ended <= config.numbers.epoch,
        )?;
    }
    let later = slot.past.is_sorted_by(|a, b| a.generation < b.generation && a.ended < b.admitted);
    holds("generations follow each other", later)?;
    let (Some(member), last) = (&slot.member, slot.past.last()) else { return Ok(()) };
    let follows = last
        .is_none_or(|last| last.generation.next() == Some(member.generation) && last.ended < member.admitted);
    holds("a member is of the next generation", follows && member.admitted <= config.numbers.epoch)
}

fn check_identities(config: &Config) -> Result<(), BrokenConfig> {
    let members = config.slots().members().map(|(_, member)| (member.server, &member.name));
    let witnesses = config.witnesses().iter().map(|(_, witness)| (witness.server, &witness.name));
    let (mut servers, mut names): (Vec<_>, Vec<_>) = members.chain(witnesses).unzip();
    servers.extend(
        config.slots.iter().map(|(_, slot)| slot).flat_map(|slot| &slot.past).map(|past| past.server),
    );
    servers.extend(config.witnesses().past_servers());
    servers.sort_unstable();
    names.sort_unstable();
    holds("a server has one generation", servers.is_sorted_by(|a, b| a < b))?;
    holds("a name has one member", names.is_sorted_by(|a, b| a < b))
}

fn check_sponsors(config: &Config) -> Result<(), BrokenConfig> {
    for (dc, member) in config.slots().members() {
        let own = member.sponsor == dc;
        holds("a settled member is its own sponsor", own == (member.phase != Phase::Joining))?;
        holds("a sponsor is settled", config.slots().is_settled(member.sponsor))?;
    }
    Ok(())
}

fn check_voters(config: &Config) -> Result<(), BrokenConfig> {
    holds("somebody votes and stays", config.staying_voters().next().is_some())?;
    holds("sets of voters are forgotten one day", config.voters.sets.len() <= MAX_VOTER_SETS)?;
    let increase = config.voters.sets.is_sorted_by(|a, b| a.from < b.from);
    holds("sets of voters follow each other", increase && config.voters().from <= config.numbers.epoch)?;
    let sizes = config.voters.sets.iter().all(|set| (1..=MAX_VOTERS).contains(&set.voters.len()));
    holds("there are 1 to 7 voters", sizes)?;
    let VoterSet { voters, .. } = config.voters();
    let known = voters.iter().all(|voter| match voter {
        Voter::Member { dc, generation } => {
            config.slots().is_settled(*dc) && config.slots().generation(*dc) == Some(*generation)
        }
        Voter::Witness(id) => config.witnesses().contains(*id),
    });
    let witnesses = config.witnesses().iter().all(|(id, _)| voters.contains(&Voter::Witness(id)));
    holds("voters are settled members, and all witnesses", known && witnesses)
}

fn check_witnesses(config: &Config) -> Result<(), BrokenConfig> {
    let past = config.witnesses().past_dcs();
    let mut ids: Vec<DcId> = config.witnesses().iter().map(|(_, it)| it.dc).chain(past.iter()).collect();
    let slots = ids.iter().all(|dc| config.slots().get(*dc).is_none());
    ids.sort_unstable();
    holds("the id of a witness is used once", slots && ids.is_sorted_by(|a, b| a < b))
}

fn check_marks(config: &Config) -> Result<(), BrokenConfig> {
    let current =
        config.marks.keys().all(|(by, of)| config.slots().member(*of).is_some() && is_known(config, *by));
    holds("marks are by and about current generations", current)
}

fn check_attempt(config: &Config) -> Result<(), BrokenConfig> {
    let Some(attempt) = &config.attempt else { return Ok(()) };
    let named = &attempt.eviction.members;
    let current = named.iter().all(|it| config.slots().generation(it.dc) == Some(it.generation));
    let increasing = named.is_sorted_by(|a, b| a.dc < b.dc);
    holds("an attempt is about members", current && increasing && !named.is_empty())?;
    let evicting = attempt.evicting();
    holds("joiners end with their sponsors", config.slots().with_joiners(evicting) == evicting)?;
    let reported: DcSet = attempt.reports.keys().copied().collect();
    let promised: DcSet = attempt.promised.iter().filter_map(|voter| voter.dc()).collect();
    let remain = config.slots().member_set().difference(evicting).is_superset(reported);
    let known = attempt.promised.iter().all(|voter| is_known(config, *voter));
    holds("reports are of members that remain", reported == promised && remain && known)
}

fn check_last_end(config: &Config) -> Result<(), BrokenConfig> {
    let Some(last) = &config.last_end else { return Ok(()) };
    let over = last.generations.iter().all(|(dc, generation)| {
        let slot = config.slots.get(*dc);
        slot.is_some_and(|slot| {
            slot.member.is_none() && slot.past.last().is_some_and(|past| past.generation == *generation)
        })
    });
    holds("the last end is of generations that are over", last.epoch == config.numbers.epoch && over)
}

fn check_rules(config: &Config) -> Result<(), BrokenConfig> {
    // Prefixes are in order, so one that overlaps others overlaps the next.
    let prefixes: Vec<_> = config.rules.iter().map(|(prefix, _)| prefix).collect();
    holds("no rules overlap", prefixes.is_sorted_by(|a, b| !a.overlaps(b)))
}

/// Returns true for a member of that generation, and for a witness.
fn is_known(config: &Config, voter: Voter) -> bool {
    match voter {
        Voter::Member { dc, generation } => config.slots().generation(dc) == Some(generation),
        Voter::Witness(id) => config.witnesses().contains(id),
    }
}

impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Config::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Config, D::Error> {
        let config = Config::deserialize(deserializer)?;
        config.check().map_err(D::Error::custom)?;
        Ok(config)
    }
}
