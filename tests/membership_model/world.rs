//! Sites, the links between them, the list of decisions, and the operations that a schedule is made of.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use geolock_api::names::{DcId, DcSet};

use crate::bugs::Bug;
use crate::checks::{Broken, Kind};
use crate::decisions::{Command, Config, Phase, Proposal, ServerId};
use crate::rng::Rng;
use crate::slots::{BySlot, LOCKS, SLOTS, Seq, Vector, covers, slot, slots};
use crate::state::{Entry, Op, Record, Rules, State, Summary};

/// The client of a lock at a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    Free,
    Shared,
    Exclusive,
}

pub struct Site {
    pub up: bool,
    /// The state up to the last sync, and the records since.
    pub durable: State,
    pub tail: Vec<Record>,
    pub now: State,
    pub holds: [Hold; LOCKS],
    /// A state was taken and no crash came since: see [`Bug::EnterNotRepeated`].
    pub took_state: bool,
}

/// A message with an entry, on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    pub to: DcId,
    pub slot: DcId,
    pub seq: Seq,
}

/// Counts of events, to see that enough happened.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    pub joins: usize,
    pub returns: usize,
    pub leaves: usize,
    pub evictions: usize,
    pub evicted_living: usize,
    pub evicted_two: usize,
    pub aborts: usize,
    pub crashes: usize,
    pub lost_tails: usize,
    pub lost_disks: usize,
    pub states: usize,
    pub merges: usize,
    pub transfers: usize,
    pub grants: usize,
    pub grants_alone: usize,
    pub conflicts_excused: usize,
    pub orphans: usize,
    pub void: usize,
    pub lowered: usize,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.joins += other.joins;
        self.returns += other.returns;
        self.leaves += other.leaves;
        self.evictions += other.evictions;
        self.evicted_living += other.evicted_living;
        self.evicted_two += other.evicted_two;
        self.aborts += other.aborts;
        self.crashes += other.crashes;
        self.lost_tails += other.lost_tails;
        self.lost_disks += other.lost_disks;
        self.states += other.states;
        self.merges += other.merges;
        self.transfers += other.transfers;
        self.grants += other.grants;
        self.grants_alone += other.grants_alone;
        self.conflicts_excused += other.conflicts_excused;
        self.orphans += other.orphans;
        self.void += other.void;
        self.lowered += other.lowered;
    }
}

/// Most messages that are on their way at a time; more are lost.
const MOST_MESSAGES: usize = 60;

pub struct World {
    pub rng: Rng,
    pub bug: Option<Bug>,
    pub configs: Vec<Config>,
    pub proposals: Vec<Proposal>,
    /// All entries that were ever durable at their maker.
    pub entries: BTreeMap<(DcId, Seq), Rc<Entry>>,
    pub messages: Vec<Message>,
    pub sites: Vec<Site>,
    /// Links that do not work.
    pub broken_links: BySlot<DcSet>,
    pub next_server: ServerId,
    /// The servers that lost their disks.
    pub lost_servers: BTreeSet<ServerId>,
    pub founders: DcSet,
    /// The state of all who applied a vector.
    pub seen_vectors: BTreeMap<Vector, Summary>,
    pub counts: Counts,
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(seed: u64, founders: DcSet, bug: Option<Bug>) -> World {
        let servers = BySlot(std::array::from_fn(|index| index as ServerId));
        let site = |index: usize| {
            let me = slot(index);
            let mut state = State::empty(me, servers[me], founders);
            state.generation = founders.contains(me).then_some(1);
            let durable = state.clone();
            let holds = [Hold::Free; LOCKS];
            Site { up: true, durable, tail: Vec::new(), now: state, holds, took_state: false }
        };
        World {
            rng: Rng::new(seed),
            bug,
            configs: vec![Config::initial(founders, servers)],
            proposals: Vec::new(),
            entries: BTreeMap::new(),
            messages: Vec::new(),
            sites: (0..SLOTS).map(site).collect(),
            broken_links: BySlot::default(),
            next_server: SLOTS as ServerId,
            lost_servers: BTreeSet::new(),
            founders,
            seen_vectors: BTreeMap::new(),
            counts: Counts::default(),
            trace: None,
        }
    }

    pub fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    pub fn is(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub fn rules(&self) -> Rules<'_> {
        Rules { configs: &self.configs, bug: self.bug }
    }

    pub fn site(&self, slot: DcId) -> &Site {
        &self.sites[slot.index()]
    }

    pub fn site_mut(&mut self, slot: DcId) -> &mut Site {
        &mut self.sites[slot.index()]
    }

    /// Returns the state in memory of a site.
    pub fn now(&self, slot: DcId) -> &State {
        &self.site(slot).now
    }

    pub fn latest(&self) -> &Config {
        self.configs.last().expect("there is an initial config")
    }

    /// Returns the list of decisions as far as a site knows it.
    pub fn known(&self, slot: DcId) -> &Config {
        &self.configs[self.now(slot).known]
    }

    /// Returns true if a site is of a generation that is a member as of the last decision.
    pub fn is_current(&self, slot: DcId) -> bool {
        self.now(slot).generation.is_some_and(|generation| self.latest().is_member(slot, generation))
    }

    pub fn is_linked(&self, a: DcId, b: DcId) -> bool {
        self.site(a).up && self.site(b).up && !self.broken_links[a].contains(b)
    }

    /// Appends a record to the journal of a site.
    pub fn journal(&mut self, site: DcId, record: Record) -> Result<(), Broken> {
        let rules = Rules { configs: &self.configs, bug: self.bug };
        let it = &mut self.sites[site.index()];
        if let Err(fault) = it.now.apply(rules, &record) {
            return Err(Broken::new(Kind::Fault, format!("{fault:?} at {site} by {record:?}")));
        }
        it.tail.push(record);
        self.check(site)
    }

    /// Appends an entry to the log of a site.
    pub fn append(&mut self, site: DcId, ops: Vec<Op>) -> Result<(), Broken> {
        if let Some(Op::Transfer(moves)) = ops.first() {
            self.check_targets(site, moves)?;
        }
        let state = self.now(site);
        let generation = state.generation.expect("a site with a log");
        let enters = ops.iter().find_map(|op| if let Op::Enter(epoch) = op { Some(*epoch) } else { None });
        let entry = Entry {
            slot: site,
            seq: state.applied[site].next(generation),
            epoch: enters.unwrap_or(state.entered),
            deps: state.applied,
            ops,
        };
        self.note(|| format!("{site} appends {} e{} {:?}", entry.seq, entry.epoch, entry.ops));
        self.journal(site, Record::Entry(Rc::new(entry)))
    }

    /// All records are durable, and own entries may be sent.
    pub fn sync(&mut self, site: DcId) -> Result<(), Broken> {
        let it = self.site_mut(site);
        it.durable = it.now.clone();
        let tail = std::mem::take(&mut it.tail);
        self.publish(site, &tail)
    }

    fn publish(&mut self, site: DcId, records: &[Record]) -> Result<(), Broken> {
        for record in records {
            let Record::Entry(entry) = record else { continue };
            if entry.slot != site {
                continue;
            }
            if self.entries.insert((site, entry.seq), Rc::clone(entry)).is_some_and(|old| old != *entry) {
                return Err(Broken::new(Kind::NumberTwice, format!("{} of {site}", entry.seq)));
            }
            for to in slots().filter(|to| *to != site) {
                if self.rng.percent(60) {
                    self.messages.push(Message { to, slot: site, seq: entry.seq });
                }
            }
        }
        while self.messages.len() > MOST_MESSAGES {
            let lost = self.rng.below(self.messages.len());
            self.messages.swap_remove(lost);
        }
        Ok(())
    }

    /// A site stops; of what was not durable the first `kept` records are on its disk.
    pub fn crash(&mut self, site: DcId, kept: usize) -> Result<(), Broken> {
        let (bug, rules) = (self.bug, Rules { configs: &self.configs, bug: self.bug });
        let it = &mut self.sites[site.index()];
        let mut tail = std::mem::take(&mut it.tail);
        self.counts.crashes += 1;
        self.counts.lost_tails += usize::from(kept < tail.len());
        tail.truncate(kept);
        for record in &tail {
            it.durable.apply(rules, record).expect("it was applied before the crash");
        }
        if bug == Some(Bug::PromiseForgotten) {
            it.durable.promise = None;
        }
        it.now = it.durable.clone();
        it.up = false;
        it.took_state = false;
        self.note(|| format!("{site} crashes, keeps {kept} records"));
        self.publish(site, &tail)
    }

    /// Clients that held locks reclaim them, or do not.
    pub fn restart(&mut self, site: DcId) {
        self.site_mut(site).up = true;
        for lock in 0..LOCKS {
            if self.rng.percent(50) {
                self.site_mut(site).holds[lock] = Hold::Free;
            }
        }
        self.note(|| format!("{site} restarts"));
    }

    /// A site loses its journal, and all its clients know.
    pub fn lose_disk(&mut self, site: DcId) {
        self.note(|| format!("{site} loses its disk"));
        self.counts.lost_disks += 1;
        self.lost_servers.insert(self.now(site).server);
        self.wipe(site);
    }

    /// The site becomes a server with an empty directory.
    pub fn wipe(&mut self, site: DcId) {
        let (server, founders) = (self.next_server, self.founders);
        self.next_server += 1;
        let it = self.site_mut(site);
        it.durable = State::empty(site, server, founders);
        it.now = it.durable.clone();
        it.tail.clear();
        it.holds = [Hold::Free; LOCKS];
        it.took_state = false;
        self.note(|| format!("{site} has an empty directory, server {server}"));
    }

    /// Returns the members whose server lost its disk. They do not come back.
    pub fn lost(&self, config: &Config) -> DcSet {
        let is_lost = |slot: &DcId| self.lost_servers.contains(&config.slots[*slot].server);
        config.members().iter().filter(is_lost).collect()
    }

    /// Returns true if a member would be left that is not leaving, ending or lost.
    pub fn somebody_is_left(&self, without: DcId) -> bool {
        let latest = self.latest();
        let ending = latest.attempt.as_ref().map_or(DcSet::EMPTY, |attempt| attempt.ending);
        let is_sure = |slot: DcId| {
            slot != without
                && self.is_current(slot)
                && latest.slots[slot].phase == Phase::Member
                && !ending.contains(slot)
        };
        slots().any(is_sure)
    }

    pub fn propose(&mut self, by: DcId, command: Command) {
        let checked = self.known(by).epoch;
        self.note(|| format!("{by} proposes {command:?} as of e{checked}"));
        self.proposals.push(Proposal { command, checked });
    }

    /// One proposal is decided, or is void.
    pub fn decide(&mut self, proposal: &Proposal) -> Result<(), Broken> {
        // The operator lets nobody go if all others lost their disks: no member would be left.
        if let Command::Leaving { slot, .. } = proposal.command
            && !self.somebody_is_left(slot)
            && !self.is(Bug::NobodyStays)
        {
            return Ok(());
        }
        let Some(config) = self.latest().decide(proposal, self.bug) else {
            self.counts.void += 1;
            return Ok(());
        };
        self.note(|| {
            format!("decision {} {:?} changes {:?}", config.number, proposal.command, config.change)
        });
        self.configs.push(config);
        self.check_decision(proposal)
    }

    /// Returns true if a site has an entry and can pass it on.
    pub fn has(&self, giver: DcId, slot: DcId, seq: Seq) -> bool {
        let state = &self.site(giver).durable;
        let in_log = seq > state.base[slot] && seq <= state.applied[slot];
        let is_of_older = seq.generation() < state.applied[slot].generation();
        state.generation.is_some() && in_log && !(is_of_older && self.latest().is_beyond_cut(slot, seq))
    }

    /// Returns the entry that a site takes next of a slot, if it may take it now.
    pub fn takes(&self, site: DcId, slot: DcId, seq: Seq) -> Option<Rc<Entry>> {
        let state = self.now(site);
        let lives = self.site(site).up && state.generation.is_some() && site != slot;
        if !lives || state.next_of(self.rules(), slot) != seq || self.is_refused(site, slot, seq) {
            return None;
        }
        let entry = self.entries.get(&(slot, seq))?;
        let in_order = covers(&state.applied, &entry.deps) && entry.epoch <= state.entered;
        in_order.then(|| Rc::clone(entry))
    }

    /// Returns true if an entry lies beyond a cut, or beyond what a promise allows.
    fn is_refused(&self, site: DcId, slot: DcId, seq: Seq) -> bool {
        let (state, known) = (self.now(site), self.known(site));
        let is_promised = state.promise.is_some_and(|promise| {
            let is_open = known.attempt.as_ref().is_some_and(|attempt| attempt.number == promise.attempt);
            is_open && promise.frozen.contains(slot) && !self.is(Bug::PromiseBroken)
        });
        is_promised || known.is_beyond_cut(slot, seq) || state.left[slot] >= seq.generation()
    }

    pub fn receive(&mut self, site: DcId, entry: Rc<Entry>) -> Result<(), Broken> {
        self.note(|| format!("{site} receives {} of {}", entry.seq, entry.slot));
        self.journal(site, Record::Entry(entry))
    }
}
