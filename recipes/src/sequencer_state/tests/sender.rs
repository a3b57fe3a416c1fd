//! A node that sends an intent, beside its coordinator, for conversations step by step.

use super::super::bugs::Bug;
use super::super::events::{LedgerView, Restored};
use super::super::machine::Machine;
use super::super::options::SequencerOptions;
use super::super::placement::{Committee, Placement};
use super::super::shared::Config;
use super::super::words::{Contract, IntentId, Node};
use super::plan::names;

/// Returns one of three nodes, which gives an intent up with its first failure, the coordinator of its
/// intents, and the name of one.
pub fn sender(bug: Option<Bug>) -> (Machine, Node, IntentId) {
    let committee = Committee::new(names(3), &names(3)[0]).expect("names differ");
    let contract = Contract::new("c");
    let rank = Placement::default().rank(&contract, &committee, 0);
    let (coordinator, me) = (rank[0].clone(), rank[1].clone());
    let options = SequencerOptions { max_failures: 1, ..SequencerOptions::default() };
    let config = Config { me: me.clone(), contract, committee, options, bug };
    let machine = Machine::new(config, &Restored::default(), &LedgerView::default());
    (machine.expect("it can take part"), coordinator, IntentId::new(&me, "pay"))
}
