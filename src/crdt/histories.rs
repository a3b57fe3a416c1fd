//! Random causal histories for tests: commits in three datacenters, and the orders in which a replica may
//! apply them.
//!
//! A datacenter runs transactions on snapshots: mostly of everything it has applied, sometimes older ones, so
//! that its own commits can be concurrent, too.

use crdts::CvRDT;
use proptest::prelude::{Just, Strategy};
use proptest::sample::Index;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

use super::VersionVector;
use super::value::{At, Dot};
use crate::base::time::Timestamp;
use geolock_api::names::DcId;

pub const DCS: u8 = 3;

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

/// A commit of changes to one key.
#[derive(Clone, Debug)]
pub struct Commit<C> {
    pub dot: Dot,
    pub stamp: Timestamp,
    pub seen: VersionVector,
    pub changes: Vec<C>,
}

impl<C> Commit<C> {
    pub fn at(&self, index: usize) -> At<'_> {
        let index = u32::try_from(index).expect("few operations");
        At { dot: self.dot, index, stamp: self.stamp, seen: &self.seen }
    }

    pub fn is_concurrent_with(&self, other: &Commit<C>) -> bool {
        self.dot != other.dot && !other.dot.is_in(&self.seen) && !self.dot.is_in(&other.seen)
    }

    /// Returns true if a replica at this vector can apply it: in the order of its datacenter, after
    /// everything it has seen.
    pub fn is_ready_at(&self, vector: &VersionVector) -> bool {
        vector.get(self.dot.dc) + 1 == self.dot.seq && vector.covers(&self.seen)
    }
}

/// The next event at some datacenter.
#[derive(Clone, Debug)]
pub enum Step<W> {
    /// A transaction whose snapshot is `age` steps old, stamped `late_ms` later than necessary.
    Commit { dc: u8, age: usize, late_ms: u64, wanted: Vec<W> },
    /// `to` applies everything that `from` had applied `age` steps ago.
    Sync { to: u8, from: u8, age: usize },
}

impl<W> Step<W> {
    pub fn age(&mut self) -> &mut usize {
        match self {
            Step::Commit { age, .. } | Step::Sync { age, .. } => age,
        }
    }
}

/// Generates steps with these transactions, each stamped up to `late_ms` later than necessary.
pub fn steps<W: std::fmt::Debug>(
    wanted: impl Strategy<Value = Vec<W>> + 'static,
    late_ms: u64,
) -> impl Strategy<Value = Step<W>> {
    let age = || proptest::prop_oneof![3 => Just(0_usize), 1 => 1..4_usize];
    let commit = (0..DCS, age(), 0..=late_ms, wanted);
    proptest::prop_oneof![
        3 => commit.prop_map(|(dc, age, late_ms, wanted)| Step::Commit { dc, age, late_ms, wanted }),
        2 => (0..DCS, 0..DCS, age()).prop_map(|(to, from, age)| Step::Sync { to, from, age }),
    ]
}

/// One datacenter while a history is generated.
struct Site {
    /// All its vectors so far.
    passed: Vec<VersionVector>,
    clock_ms: u64,
}

impl Site {
    fn vector(&self, age: usize) -> &VersionVector {
        &self.passed[self.passed.len().saturating_sub(1 + age)]
    }
}

/// Returns the commits in one causal order. `make` builds a change from the wanted one, its commit and its
/// index there.
pub fn play<W, C>(steps: Vec<Step<W>>, make: impl Fn(Dot, usize, W) -> C) -> Vec<Commit<C>> {
    let mut sites: Vec<Site> =
        (0..DCS).map(|_| Site { passed: vec![VersionVector::default()], clock_ms: 0 }).collect();
    let mut commits = Vec::new();
    for step in steps {
        match step {
            Step::Commit { dc: id, age, late_ms, wanted } => {
                let site = &mut sites[usize::from(id)];
                let seen = site.vector(age).clone();
                let mut now = site.vector(0).clone();
                let dot = Dot { dc: dc(id), seq: now.get(dc(id)) + 1 };
                now.raise(dot.dc, dot.seq);
                site.passed.push(now);
                site.clock_ms += 1 + late_ms;
                let changes = wanted.into_iter().enumerate().map(|(index, wanted)| make(dot, index, wanted));
                let stamp = Timestamp::from_millis(site.clock_ms);
                commits.push(Commit { dot, stamp, seen, changes: changes.collect() });
            }
            Step::Sync { to, from, age } => {
                let from = &sites[usize::from(from)];
                let (news, clock_ms) = (from.vector(age).clone(), from.clock_ms);
                let site = &mut sites[usize::from(to)];
                let mut now = site.vector(0).clone();
                now.merge(news);
                site.passed.push(now);
                site.clock_ms = site.clock_ms.max(clock_ms);
            }
        }
    }
    commits
}

/// Returns the commits in another order, each after everything it has seen.
pub fn reorder<C: Clone>(commits: &[Commit<C>], choices: &[Index]) -> Vec<Commit<C>> {
    let (mut vector, mut order) = (VersionVector::default(), Vec::new());
    for choice in choices.iter().cycle().take(commits.len()) {
        let ready: Vec<&Commit<C>> = commits.iter().filter(|commit| commit.is_ready_at(&vector)).collect();
        let next = (*choice.get(&ready)).clone();
        vector.raise(next.dot.dc, next.dot.seq);
        order.push(next);
    }
    order
}

/// Returns the highest vector at which a replica may compact: every commit that it still has to apply has
/// seen it.
pub fn stable_before<C>(rest: &[Commit<C>], vector: &VersionVector) -> VersionVector {
    let least = |dc, seq| rest.iter().map(|commit| commit.seen.get(dc)).fold(seq, u64::min);
    vector.iter().map(|(dc, seq)| (dc, least(dc, seq))).collect()
}

/// Checks a law in this number of cases.
pub fn run<T: std::fmt::Debug>(
    cases: u32,
    strategy: &impl Strategy<Value = T>,
    law: impl Fn(T) -> TestCaseResult,
) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(error) = TestRunner::new(config).run(strategy, law) {
        panic!("{error}");
    }
}
