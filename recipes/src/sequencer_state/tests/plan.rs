//! The trouble of a run.

use std::time::Duration;

use super::super::bugs::Bug;
use super::super::options::{SequencerOptions, Solo, Stickiness, Threshold};
use super::super::placement::{Committee, Placement};
use super::super::words::{Contract, Node};
use crate::dice::Dice;

/// Milliseconds.
pub type Ms = u64;

#[derive(Clone, Debug)]
pub struct Plan {
    pub nodes: usize,
    pub dcs: usize,
    /// Intents of all nodes together.
    pub intents: usize,
    pub submit_within: Ms,
    /// Chances in 100 that an intent is one of the first node.
    pub of_first: u64,
    /// States that the contract has at first. Fewer: more assemblies that rest on each other.
    pub states: u64,
    pub block: Ms,
    /// Longest way between nodes, to the lock and to the ledger.
    pub delay: Ms,
    /// Until then there is trouble of the kinds below; then all is healed.
    pub trouble_until: Ms,
    /// Everything has ended, and is at rest, so long afterwards.
    pub settles_within: Ms,
    /// An intent has ended so long after it was taken, or after the end of the trouble.
    pub patience: Ms,
    /// Nothing reverts.
    pub is_calm: bool,
    /// Chances in 100: a message is lost, comes twice; a submission to the ledger is lost.
    pub lost: u64,
    pub twice: u64,
    pub unsubmitted: u64,
    /// Chances in 100 that a node handles more before it writes the records of an event.
    pub rounds: u64,
    /// Crashes in 10 000 effects, before the effect or after it. Longest time until the restart.
    pub crashes: u64,
    pub down: Ms,
    /// A crash at that effect, before it (true) or after it.
    pub crash_at: Option<(u64, bool)>,
    /// A node that crashes at that time and is not back before the end of the trouble, or never.
    pub dies: Option<(usize, Ms, bool)>,
    /// Partitions between datacenters, and their longest time. Messages are late, or lost.
    pub cuts: usize,
    pub cut: Ms,
    pub cut_loses: bool,
    /// A partition with these datacenters on one side, from and until.
    pub cut_off: Option<(&'static [usize], Ms, Ms)>,
    /// Most blocks by which a node's view is late.
    pub lag: u64,
    /// As many blocks for each node, all through the trouble.
    pub lags: Vec<u64>,
    /// Locks that are lost, by the end of a lease.
    pub losses: usize,
    /// Chances in 100: an intent that can never be assembled; that is never endorsed; that the contract on
    /// the ledger always reverts. Not together with a node that dies for ever: a grant that it had may stay
    /// open, and such an intent is kept until another one is confirmed under a higher epoch.
    pub invalid: u64,
    pub denied: u64,
    pub refused: u64,
    pub options: SequencerOptions,
    pub bug: Option<Bug>,
}

pub const CONTRACT: &str = "contract";

/// Returns the names of so many nodes.
pub fn names(nodes: usize) -> Vec<Node> {
    (0..nodes).map(|number| Node::new(&format!("n{number}"))).collect()
}

/// No trouble at all.
pub fn calm() -> Plan {
    Plan {
        nodes: 4,
        dcs: 3,
        intents: 40,
        submit_within: 20_000,
        of_first: 0,
        states: 8,
        block: 500,
        delay: 50,
        trouble_until: 30_000,
        settles_within: 60_000,
        patience: 60_000,
        is_calm: true,
        lost: 0,
        twice: 0,
        unsubmitted: 0,
        rounds: 20,
        crashes: 0,
        down: 0,
        crash_at: None,
        dies: None,
        cuts: 0,
        cut: 0,
        cut_loses: false,
        cut_off: None,
        lag: 0,
        lags: Vec::new(),
        losses: 0,
        invalid: 0,
        denied: 0,
        refused: 0,
        options: options(),
        bug: None,
    }
}

fn options() -> SequencerOptions {
    SequencerOptions {
        block_range: 8,
        solo: Solo::Never,
        flush_timeout: Duration::from_secs(8),
        max_ahead: 6,
        batch: 3,
        max_in_flight: 20,
        ..SequencerOptions::default()
    }
}

/// No trouble, much work at a time, and a committee that refuses many intents.
pub fn denying() -> Plan {
    Plan { denied: 20, submit_within: 2_000, states: 2, ..calm() }
}

/// Messages are lost and come twice, and there is much work at a time.
pub fn lossy() -> Plan {
    Plan { lost: 10, twice: 10, submit_within: 2_000, states: 2, ..calm() }
}

/// All kinds of trouble.
pub fn trouble() -> Plan {
    Plan {
        lost: 5,
        twice: 5,
        unsubmitted: 10,
        crashes: 30,
        down: 8_000,
        cuts: 2,
        cut: 10_000,
        lag: 6,
        losses: 3,
        invalid: 3,
        denied: 3,
        submit_within: 50_000,
        trouble_until: 60_000,
        settles_within: 120_000,
        is_calm: false,
        ..calm()
    }
}

/// Trouble of kinds that the seed decides, with options that it decides, too.
pub fn any(seed: u64) -> Plan {
    let mut dice = Dice::new(seed ^ 0x5e90);
    let nodes = 2 + dice.place(4);
    let mut plan = Plan { nodes, dcs: 1 + dice.place(nodes), ..calm() };
    plan.states = 1 + dice.below(12);
    plan.block = 100 + dice.below(1_500);
    plan.delay = 1 + dice.below(250);
    (plan.submit_within, plan.trouble_until, plan.settles_within) = (50_000, 60_000, 240_000);
    let mut kind = |amount: u64| if dice.percent(50) { 1 + dice.below(amount) } else { 0 };
    (plan.lost, plan.twice, plan.unsubmitted) = (kind(15), kind(15), kind(40));
    plan.rounds = kind(80);
    (plan.crashes, plan.down) = (kind(60), 10_000);
    (plan.cuts, plan.cut, plan.cut_loses) = (kind(4) as usize, 20_000, kind(1) > 0);
    (plan.lag, plan.losses) = (kind(20), kind(6) as usize);
    (plan.invalid, plan.denied) = (kind(5), kind(5));
    let dies = kind(1) > 0;
    plan.dies = dies.then(|| (kind(nodes as u64) as usize % nodes, kind(50_000), kind(1) > 0));
    (plan.is_calm, plan.patience) = (false, 200_000);
    // A range has to last for some round trips, or nobody gets through with anything.
    let least = (10 * plan.delay + 1_000) / plan.block;
    plan.options = SequencerOptions {
        block_range: 1 + least + kind(20),
        // With a node that is gone for ever, all would be too many.
        threshold: match plan.dies {
            Some((_, _, true)) => Threshold::AtLeast((nodes - 1).max(1)),
            _ if kind(1) > 0 => Threshold::AtLeast(1 + nodes / 2),
            _ => Threshold::All,
        },
        stickiness: if kind(4) > 3 { Stickiness::Stay } else { Stickiness::Return },
        placement: if kind(4) > 3 { Placement::Ring } else { Placement::Rendezvous },
        // Above all blocks that a view is late, and some.
        flush_timeout: Duration::from_millis(5_000 + plan.block * (plan.lag + 4)),
        max_ahead: 2 + kind(12) as usize,
        batch: 1 + kind(5) as usize,
        ..plan.options
    };
    plan
}

/// As [`any`], with coordinators that go on behind a partition.
pub fn solo(seed: u64) -> Plan {
    let plan = any(seed);
    let options = SequencerOptions { solo: Solo::After(Duration::from_secs(5)), ..plan.options.clone() };
    Plan { cuts: 4, dcs: plan.dcs.max(2), options, ..plan }
}

/// One long range and much work, nearly all of one sender: a coordinator that restarts is chosen again, and
/// hears at once of that sender only.
pub fn steady() -> Plan {
    let plan =
        Plan { crashes: 60, down: 1_500, submit_within: 190_000, of_first: 95, is_calm: false, ..calm() };
    let options = SequencerOptions { block_range: 100_000, threshold: Threshold::AtLeast(2), ..plan.options };
    Plan { options, intents: 200, patience: 30_000, settles_within: 240_000, ..plan }
}

/// In one long range the preferred node dies for ever.
pub fn widowed() -> Plan {
    let plan = Plan { is_calm: false, ..calm() };
    let options = SequencerOptions { threshold: Threshold::AtLeast(2), block_range: 100_000, ..plan.options };
    let names = names(plan.nodes);
    let committee = Committee::new(names.clone(), &names[0]).expect("names differ");
    let rank = options.placement.rank(&Contract::new(CONTRACT), &committee, 0);
    let first = names.iter().position(|name| *name == rank[0]).expect("a rank has all members");
    Plan { options, dies: Some((first, 10_000, true)), ..plan }
}

/// As [`any`], and the ledger reverts many intents whatever is done: each is given up, although permissions
/// of it were lost on the way, or with the memory of their coordinators.
pub fn stubborn(seed: u64) -> Plan {
    let plan = any(seed);
    let dies = plan.dies.filter(|(_, _, for_ever)| !for_ever);
    let options = SequencerOptions { max_failures: 1 + (seed % 3) as u32, ..plan.options.clone() };
    Plan { refused: 40, crashes: plan.crashes.max(20), lost: plan.lost.max(5), dies, options, ..plan }
}

/// As [`impatient`], and a node may die for ever: not every seed comes to its end.
pub fn abandoned(seed: u64) -> Plan {
    Plan { dies: solo(seed).dies, refused: 0, ..impatient(seed) }
}

/// As [`solo`], and an intent is given up with its first failure. No node dies for ever: nothing fences its
/// permissions of epoch 0, so an intent of which it has one waits for it.
pub fn impatient(seed: u64) -> Plan {
    let plan = solo(seed);
    let dies = plan.dies.filter(|(_, _, for_ever)| !for_ever);
    let options = SequencerOptions { max_failures: 1, ..plan.options };
    Plan { options, dies, unsubmitted: 60, losses: 6, states: 2, refused: 30, ..plan }
}
