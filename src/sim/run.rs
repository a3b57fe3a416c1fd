//! One run: inject faults and check for broken promises; then heal everything and demand that every request
//! is answered, that the world goes quiet, and that enough happened.

use crate::base::bugs::Bugs;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::sim::client::Client;
use crate::sim::failure::{Failure, FailureKind, FaultKind};
use crate::sim::oracle::{Broken, verify};
use crate::sim::outcome::Outcome;
use crate::sim::plan::{IDLE_RETURN_SOON, Plan, Profile};
use crate::sim::trace::TraceMode;
use crate::sim::world::{Phase, World};
use geolock_api::names::DcId;

/// Options of a run.
#[derive(Clone, Copy, Debug)]
pub struct SimOptions {
    /// The seed; it decides everything.
    pub seed: u64,
    /// Virtual time with faults, in seconds; healing takes additional time.
    pub seconds: u64,
    /// The kinds of faults and load.
    pub profile: Profile,
    /// The trace that the run keeps.
    pub trace: TraceMode,
    /// A deliberate bug in every node.
    pub bugs: Bugs,
}

impl SimOptions {
    /// Returns the options of a run of this length, with the default profile.
    pub fn new(seed: u64, seconds: u64) -> SimOptions {
        SimOptions { seed, seconds, profile: Profile::General, trace: TraceMode::Off, bugs: Bugs::default() }
    }

    /// Returns the command that runs this seed again and shows the trace of its failure.
    pub fn replay(&self) -> String {
        let SimOptions { seed, seconds, profile, .. } = self;
        format!("geolock sim --seeds {seed}..{} --seconds {seconds} --profile {profile} --verbose", seed + 1)
    }
}

/// Number of trace lines that a failure shows.
const TRACE_LINES: usize = 60;
/// Factor by which a run may be prolonged if too little has happened.
const LONGER: u32 = 4;
/// Further time without faults after that: a datacenter that never joined may wait for all leases that its
/// disk has lost, if it had any before.
const CALM: Duration = Duration::from_secs(90);
/// Interval at which a run checks if healing is done.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time in which a world without load must go quiet, beyond leases and clocks.
const QUIET_WITHIN: Duration = Duration::from_secs(10);

/// Runs one seed. A panic of the core is a failure like any other, where panics unwind. If no trace was kept,
/// a seed that fails is run once more to get one.
pub fn run(options: &SimOptions) -> Result<Outcome, Failure> {
    match attempt(options) {
        Err(_) if matches!(options.trace, TraceMode::Off) => {
            let traced = SimOptions { trace: TraceMode::Last(TRACE_LINES), ..*options };
            Err(attempt(&traced).expect_err("a seed that failed fails again: it is the same run"))
        }
        result => result,
    }
}

fn attempt(options: &SimOptions) -> Result<Outcome, Failure> {
    let plan = Plan::new(options.profile, options.seed, options.seconds);
    judge(options, World::new(options.seed, plan, options.trace, options.bugs))
}

/// Returns the verdict over a plan that no seed would make.
#[cfg(test)]
pub(super) fn verdict_of(seed: u64, plan: Plan) -> Result<Outcome, Failure> {
    let options = SimOptions { profile: Profile::Quiet, ..SimOptions::new(seed, plan.trouble.as_secs()) };
    judge(&options, World::new(seed, plan, TraceMode::Off, Bugs::default()))
}

fn judge(options: &SimOptions, world: World) -> Result<Outcome, Failure> {
    let mut run = Run { world };
    let finished = catch_unwind(AssertUnwindSafe(|| run.play()));
    let broken = match finished {
        Ok(Ok(())) => return run.verdict(options),
        Ok(Err(broken)) => broken,
        Err(panic) => Broken::new(FailureKind::Panic, message_of(panic.as_ref())),
    };
    Err(failure(options, broken, &run.world))
}

fn failure(options: &SimOptions, broken: Broken, world: &World) -> Failure {
    let Broken { kind, what, detail } = broken;
    let SimOptions { seed, profile, .. } = *options;
    Failure { seed, profile, kind, what, detail, trace: world.trace.text(), replay: options.replay() }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}

struct Run {
    world: World,
}

impl Run {
    fn play(&mut self) -> Result<(), Broken> {
        let trouble = self.world.plan.trouble;
        for _ in 0..LONGER {
            self.world.run_until(self.world.now + trouble);
            self.ok()?;
            if too_little(&self.world).is_none() || !self.world.has_one_history() {
                break;
            }
        }
        if too_little(&self.world).is_some() {
            self.world.heal(Phase::Calm);
            self.wait_for(CALM, |world| too_little(world).is_none())?;
        }
        self.choose_history()?;
        self.world.heal(Phase::Healing);
        self.answer_all()?;
        self.go_quiet()?;
        self.world.check_quiet();
        self.ok()
    }

    fn ok(&self) -> Result<(), Broken> {
        self.world.broken().cloned().map_or(Ok(()), Err)
    }

    /// Runs until `done`, at most for `bound`. Returns true if it was done in time.
    fn wait_for(
        &mut self,
        bound: Duration,
        mut done: impl FnMut(&mut World) -> bool,
    ) -> Result<bool, Broken> {
        let deadline = self.world.now + bound;
        while !done(&mut self.world) {
            if self.world.now >= deadline {
                return Ok(false);
            }
            self.world.run_until(self.world.now + LOOK_EVERY);
            self.ok()?;
        }
        self.ok()?;
        Ok(true)
    }

    /// If a log has two histories, all datacenters stop, people choose one history, and the cluster continues
    /// with that one. The second history may begin during healing: a datacenter whose disk is an older copy
    /// serves again before any peer could tell it so.
    fn choose_history(&mut self) -> Result<(), Broken> {
        if !self.world.plan.disk.is_copied {
            return Ok(());
        }
        self.world.heal(Phase::Calm);
        let bound = self.world.stops_or_serves_within();
        // A link must come up again to reveal hashes that no disk has any more: an installed state brings
        // hashes of entries, too.
        let heads_are_told = self.world.now + self.world.plan.peer_timeout;
        let is_over = |world: &mut World| {
            let serves = world.difference().is_none() && world.all_serve();
            world.all_forked() || (serves && world.now >= heads_are_told)
        };
        let is_seen = self.wait_for(bound, is_over)?;
        if self.world.has_one_history() {
            return Ok(());
        }
        if !is_seen {
            let what =
                self.world.difference().unwrap_or_else(|| "some have stopped, some have not".to_owned());
            return Err(Broken::new(FailureKind::ForkUnseen, what));
        }
        // A crash may have taken one of them away.
        if !self.world.all_forked() {
            return Ok(());
        }
        if !self.world.keep_one_history() {
            let what = "all lack decisions that nobody has any more: no history can be kept".to_owned();
            return Err(Broken::new(FailureKind::NotAnswered, what));
        }
        if !self.wait_for(bound, |world| world.holders.grants >= 10)? {
            let what = format!("only {} grants after a history was chosen", self.world.holders.grants);
            return Err(Broken::new(FailureKind::NotAnswered, what));
        }
        Ok(())
    }

    fn answer_all(&mut self) -> Result<(), Broken> {
        let waiting = self.world.waiting();
        let bound = self.world.plan.healing_bound(waiting);
        if self.wait_for(bound, |world| world.unfinished() == 0)? {
            return Ok(());
        }
        let still = self.world.unfinished();
        let unfinished = |c: &&Client| !c.requests().is_empty() || c.unfinished_txns() > 0;
        let stuck = self.world.clients().iter().filter(|c| !c.dead).find(unfinished);
        let whose =
            stuck.map_or_else(String::new, |client| format!(", such as {}", client.first_unfinished()));
        let what = format!("{bound:?} after healing {still} requests are not answered{whose}");
        Err(Broken::new(FailureKind::NotAnswered, what).with_detail(format!("{stuck:?}")))
    }

    fn go_quiet(&mut self) -> Result<(), Broken> {
        let closed = self.wait_for(self.world.plan.load.ttl.1 * 3, World::retire_ready_clients)?;
        if !closed {
            let what = "some client never got its lease back to close it".to_owned();
            return Err(Broken::new(FailureKind::NotAnswered, what));
        }
        let plan = &self.world.plan;
        let bound = QUIET_WITHIN
            + 4 * IDLE_RETURN_SOON
            + 3 * plan.load.ttl.1
            + 2 * plan.clock.restart_ahead
            + plan.doubts_for()
            + 2 * plan.peer_timeout;
        if self.wait_for(bound, |world| world.unrest().is_none())? {
            return Ok(());
        }
        let what = self.world.unrest().unwrap_or_else(|| "it became quiet at the last moment".to_owned());
        Err(Broken::new(FailureKind::NotQuiet, what))
    }

    fn verdict(self, options: &SimOptions) -> Result<Outcome, Failure> {
        let mut world = self.world;
        let mut outcome = world.tally.clone();
        outcome.cluster_ms = world.now.0 / 1_000_000;
        outcome.grants = world.holders.grants;
        outcome.hand_offs = world.holders.hand_offs;
        outcome.most_work = world.most_work;
        outcome.idle_returns = world.idle_returns();
        world.txns.count(&mut outcome);
        outcome.trace_hash = world.trace.hash();
        if !world.has_one_history() {
            // The history to compare with was split.
            return Ok(outcome);
        }
        if let Some(what) = too_little(&world) {
            return Err(failure(options, Broken::new(FailureKind::NothingHappened, what), &world));
        }
        let holds = std::mem::take(&mut world.holders).into_history(world.now);
        verify(holds).map_err(|broken| failure(options, broken, &world))?;
        Ok(outcome)
    }
}

/// Returns a description of something that did not happen often enough for the run to prove anything.
fn too_little(world: &World) -> Option<String> {
    let (grants, hand_offs) = (world.holders.grants, world.holders.hand_offs);
    // Locks need not move if all remaining clients are in one datacenter.
    let places: BTreeSet<DcId> = world.clients().iter().filter(|c| !c.dead).map(|c| c.dc).collect();
    // A member that leaves admits nobody, and may take it back late.
    let (hardly_serves, cancels) = (world.plan.hardly_serves(), world.plan.cancels > 0);
    let least = match (hardly_serves, cancels) {
        (true, _) => 1,
        (false, true) => 5,
        (false, false) => 10,
    };
    if grants < least || (hand_offs == 0 && places.len() > 1 && !hardly_serves) {
        return Some(format!("only {grants} grants and {hand_offs} hand-offs"));
    }
    let mut done = Outcome::default();
    world.txns.count(&mut done);
    // A member that joins may be evicted with its sponsor.
    let joined = world.tally.joins + world.tally.evictions;
    if world.plan.founders < world.plan.dcs && joined == 0 {
        return Some("no datacenter joined".to_owned());
    }
    // After one change there may be too few members for the other.
    let ended = world.tally.leaves + world.tally.evictions;
    if world.plan.leaves > 0 && ended + world.tally.stays == 0 {
        return Some("no datacenter left".to_owned());
    }
    // One that is cut off may be back in time.
    let may_be_back = world.plan.by_time || world.plan.absences;
    if world.plan.losses > 0 && !may_be_back && ended == 0 {
        return Some("no datacenter was evicted".to_owned());
    }
    // Members may be on their way in or out all the time.
    let changes = world.plan.dcs > world.plan.founders || world.plan.leaves > 0 || world.plan.losses > 0;
    if world.plan.rules > 0 && !changes && world.tally.rules == 0 {
        return Some("no rule was set".to_owned());
    }
    if world.lacks_version() {
        return Some("the version that all servers speak is not used".to_owned());
    }
    if let Some(what) = world.plan.txns.too_little(&done).filter(|_| !hardly_serves) {
        return Some(what);
    }
    // The last member that is left has no link.
    let is_alone = world.members().len() == 1;
    let is_possible = |kind: FaultKind| kind != FaultKind::LinkReset || !is_alone;
    let missing = |kind: &FaultKind| is_possible(*kind) && world.tally.faults_of(*kind) == 0;
    let kind = world.plan.faults.iter().map(|(kind, _)| *kind).find(missing)?;
    Some(format!("{kind:?} was planned and never happened"))
}
