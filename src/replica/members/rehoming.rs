//! Rules that give the locks below a prefix another home (`lock_state/rehoming.rs`).
//!
//! ```text
//! decision  SetRule, RemoveRule   every member enters its epoch
//! log       Keep                  of each: the parts of locks in use there stay
//! log       Rehome                of each: all others that it owns by default belong to the next home
//! ```
//!
//! Until all members have given, no other rule and no new member is entered, nor proposed: if a member is
//! lost before it has given, no decision that waits for it comes before its eviction. A member that leaves
//! gives first.

use super::Members;
use super::decisions::may_be_relied_on;
use crate::base::bugs::{Bug, Bugs};
use crate::causal_log::{Log, Op};
use crate::crdt::HomeRules;
use crate::lock_state::Keeping;
use crate::membership::{Command, Epoch, Index};
use crate::replica::peers::reachability::Reachability;
use crate::replica::writer::Writer;
use geolock_api::names::{DcId, DcSet};

/// The parts that this member has to give by the last rule.
#[derive(Debug, Default)]
pub(super) struct Rehoming {
    is_owed: bool,
    keeping: Option<Keeping>,
}

impl Rehoming {
    /// Returns true if this member has to give parts.
    pub(super) fn is_owed(&self) -> bool {
        self.is_owed
    }

    /// Returns true if the next step goes on keeping the parts of locks in use.
    #[inline]
    pub(super) fn is_keeping(&self) -> bool {
        self.keeping.is_some()
    }

    /// The epoch of a rule is entered, or a state or a checkpoint is installed.
    pub(super) fn follow(&mut self, me: DcId, rules: &HomeRules) {
        (self.is_owed, self.keeping) = (rules.to_give(me).is_some(), None);
    }
}

impl Members {
    /// Returns true if all members that remain have given by the last rule, and none joins: then the next one
    /// may be entered. Whoever is evicted by a later epoch gives nothing any more.
    pub(super) fn may_enter_rule(&self, rules: &HomeRules) -> bool {
        let evicted = self.pending.evicted();
        evicted.is_superset(self.joins.parts()) && self.have_rehomed(rules)
    }

    /// Returns true if all members that remain have given by the last rule.
    pub(super) fn have_rehomed(&self, rules: &HomeRules) -> bool {
        rules.have_given(self.entered.staying().difference(self.pending.evicted()))
    }
}

/// Returns the members that have not given by the last rule, and those that can be reached and are not known
/// to have on disk what others gave ([`Unsettled`](crate::membership::Unsettled)).
pub(super) fn rule_unseen(
    members: &Members,
    rules: &HomeRules,
    log: &Log,
    reachability: &Reachability,
    bugs: Bugs,
) -> DcSet {
    if bugs.has(Bug::RuleUnseen) {
        return DcSet::EMPTY;
    }
    let lacks = |dc: &DcId| {
        let has = |entry| may_be_relied_on(members, log, reachability, *dc, entry);
        rules.to_give(*dc).is_some() || !rules.given().all(has)
    };
    let staying = members.entered.staying().difference(members.entered.left());
    staying.iter().filter(lacks).collect()
}

impl Writer<'_> {
    /// The epoch of a rule is entered.
    pub(super) fn begin_rule(&mut self, epoch: Epoch) {
        let command = self.members.decided.list().get(Index(epoch.0)).map(|proposal| &proposal.command);
        let (prefix, home) = match command {
            Some(Command::SetRule { prefix, rule }) => (prefix, rule.home),
            Some(Command::RemoveRule { prefix }) => (prefix, None),
            other => panic!("epoch {epoch:?} begins with the decision of that number, a rule: {other:?}"),
        };
        self.locks.member_changes().begin_rule(prefix.as_name(), home, epoch.0);
        self.follow_rules();
    }

    /// The rules about homes, or what was given by them, may have changed.
    pub(in crate::replica) fn follow_rules(&mut self) {
        self.members.rehoming.follow(self.config.dc, self.locks.owners().sponsors().rules());
    }

    /// Gives what this member owns by default to the next home, once it has kept what is in use here.
    pub(super) fn rehome(&mut self) {
        if !self.members.rehoming.is_owed {
            return;
        }
        let keeping = self.members.rehoming.keeping.take();
        let Some(mut keeping) = keeping.or_else(|| self.locks.member_changes().begin_keeping()) else {
            return self.follow_rules();
        };
        let is_over = self.locks.member_changes().keep_some(&mut keeping);
        let ops = self.locks.take_ops();
        if !ops.is_empty() {
            self.make_entries(ops);
        }
        if is_over {
            self.make_entry(vec![Op::Rehome { epoch: keeping.epoch() }]);
        } else {
            self.members.rehoming.keeping = Some(keeping);
        }
    }
}
