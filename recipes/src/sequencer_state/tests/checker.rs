//! The promises of the sequencer, checked at each effect of each node, and at the end.
//!
//! It sees what no node sees: all databases, the lock at its servers, and the newest block.

use std::collections::{BTreeMap, BTreeSet};

use super::super::events::{Effect, End, Grant, Record};
use super::super::options::{SequencerOptions, Solo, Stickiness};
use super::super::words::{Epoch, IntentId, Message, Node, Notice, Transaction};
use super::database::Database;
use super::ledger::Ledger;

/// A broken promise.
pub type Broken = String;

/// The things that the checker sees at an effect of a node.
pub struct Sight<'a> {
    /// Milliseconds.
    pub now: u64,
    pub me: &'a Node,
    pub databases: &'a BTreeMap<Node, Database>,
    pub ledger: &'a Ledger,
    /// The holder of the lock, and its epoch.
    pub holder: Option<(&'a Node, Epoch)>,
    /// The node that this one takes for the coordinator.
    pub choice: &'a Node,
    /// The committee, as it ranks it.
    pub rank: &'a [Node],
    /// The node that it delegates to.
    pub delegate: Option<&'a Node>,
}

#[derive(Default)]
pub struct Checker {
    options: SequencerOptions,
    grants: BTreeMap<IntentId, Vec<Grant>>,
    nonces: BTreeMap<(Node, u64), Transaction>,
    /// For each epoch: the transactions that its coordinator has to wait for.
    handed_over: BTreeMap<Epoch, Vec<Transaction>>,
    /// The time of the first grant with a transaction in its handover, by signer and nonce.
    handed_over_at: BTreeMap<(Node, u64), u64>,
    /// The intents that were taken, with their times.
    pub submitted: BTreeMap<IntentId, u64>,
    pub ends: BTreeMap<IntentId, End>,
    pub dispatches: BTreeMap<Node, u64>,
    /// Times and epochs of dispatches, with their coordinators.
    pub dispatched_at: Vec<(u64, Epoch, Node)>,
    /// The time of the last message or heartbeat.
    pub last_message: u64,
    pub messages: u64,
    /// Questions to other nodes for their endorsements.
    pub asked_to_endorse: u64,
}

impl Checker {
    pub fn new(options: SequencerOptions) -> Checker {
        Checker { options, ..Checker::default() }
    }

    /// The lock was granted, with a handover in the snapshot of the grant.
    pub fn on_lock(&mut self, now: u64, epoch: Epoch, dispatched: Vec<Transaction>) {
        for transaction in &dispatched {
            let key = (transaction.signer.clone(), transaction.nonce);
            self.handed_over_at.entry(key).or_insert(now);
        }
        self.handed_over.insert(epoch, dispatched);
    }

    /// Checks an effect just before it is performed.
    pub fn on_effect(&mut self, sight: &Sight<'_>, effect: &Effect) -> Result<(), Broken> {
        let me = sight.me;
        let database = &sight.databases[me];
        match effect {
            Effect::Persist(Record::Grant(grant)) => self.on_grant(sight, grant)?,
            Effect::Persist(Record::Dispatch(transaction)) => self.on_dispatch(sight, transaction)?,
            Effect::Persist(Record::Ended { intent, end: End::Failed(_) }) => {
                let is_unused = |it: &Grant| {
                    let is_it = |of: &Transaction| {
                        of.intent() == intent && (of.epoch, of.hash) == (it.epoch, it.hash)
                    };
                    it.to == *me && !database.dispatches.values().any(is_it)
                };
                let grants = self.grants.get(intent).into_iter().flatten();
                let open = grants.filter(|it| !is_unused(it)).find(|it| is_open(sight.ledger, it));
                if let Some(open) = open {
                    return Err(format!("{me} gives {intent:?} up, and {open:?} may still be used"));
                }
            }
            Effect::Endorse { to, .. } if self.options.stickiness == Stickiness::Return => {
                let place = |node: &Node| sight.rank.iter().position(|it| it == node);
                if place(me) < place(to) {
                    return Err(format!("{me} endorses for {to}, and is preferred itself"));
                }
            }
            Effect::SubmitToLedger(transaction)
                if database.dispatches.get(&transaction.nonce) != Some(transaction) =>
            {
                return Err(format!("{me} submits {transaction:?} before it is written"));
            }
            Effect::Submitted { intent, answer: Ok(()) } => {
                let is_written = database.intents.iter().any(|it| it.id == *intent);
                if !is_written && !database.ended.contains_key(intent) {
                    return Err(format!("{me} takes {intent:?} before it is written"));
                }
                self.submitted.entry(intent.clone()).or_insert(sight.now);
            }
            Effect::Finished { intent, end } => {
                if database.ended.get(intent) != Some(end) {
                    return Err(format!("{me} tells the end of {intent:?} before it is written"));
                }
                self.on_end(sight.ledger, intent, end)?;
            }
            Effect::Send { to, message } => {
                if let Message::Revoked { intent, epoch, hash, .. } = message {
                    self.on_revoked(
                        sight,
                        Grant { intent: intent.clone(), to: me.clone(), epoch: *epoch, hash: *hash },
                    )?;
                }
                (self.last_message, self.messages) = (sight.now, self.messages + 1);
                self.asked_to_endorse += u64::from(matches!(message, Message::Endorse { .. }));
                check_message(sight, to, message)?;
            }
            Effect::Beat(_) => (self.last_message, self.messages) = (sight.now, self.messages + 1),
            _ => {}
        }
        Ok(())
    }

    /// A grant to another coordinator fences the ones before it, unless the ledger has decided them.
    fn on_grant(&mut self, sight: &Sight<'_>, grant: &Grant) -> Result<(), Broken> {
        let before = self.grants.entry(grant.intent.clone()).or_default();
        let is_rival =
            |it: &&Grant| it.to != grant.to && it.epoch >= grant.epoch && is_open(sight.ledger, it);
        let rival = before.iter().find(is_rival);
        if let Some(rival) = rival {
            return Err(format!("{grant:?} does not fence {rival:?}"));
        }
        before.push(grant.clone());
        Ok(())
    }

    /// A permission that is given back is not used any more.
    fn on_revoked(&mut self, sight: &Sight<'_>, grant: Grant) -> Result<(), Broken> {
        let is_it =
            |of: &&Transaction| (of.intent(), of.epoch, of.hash) == (&grant.intent, grant.epoch, grant.hash);
        if let Some(used) = sight.databases[sight.me].dispatches.values().find(is_it) {
            return Err(format!("{} gives {grant:?} back, and has {used:?}", sight.me));
        }
        // If it was used before, the ledger has decided that: in a block that the sender has to see first.
        if let Some(grants) = self.grants.get_mut(&grant.intent) {
            grants.retain(|it| *it != grant);
        }
        Ok(())
    }

    fn on_dispatch(&mut self, sight: &Sight<'_>, transaction: &Transaction) -> Result<(), Broken> {
        let (me, epoch) = (sight.me, transaction.epoch);
        match epoch {
            Epoch::SOLO if self.options.solo == Solo::Never => {
                return Err(format!("{me} dispatches without the lock"));
            }
            Epoch::SOLO => {}
            _ if sight.holder == Some((me, epoch)) => {}
            _ => {
                return Err(format!("{me} dispatches under {epoch:?}, the lock is at {:?}", sight.holder));
            }
        }
        if self.options.stickiness == Stickiness::Return && sight.choice != me {
            return Err(format!("{me} dispatches, and knows that {} is the coordinator", sight.choice));
        }
        let key = (me.clone(), transaction.nonce);
        if self.nonces.insert(key, transaction.clone()).is_some_and(|it| it != *transaction) {
            return Err(format!("{me} uses the nonce {} twice", transaction.nonce));
        }
        let intent = transaction.intent();
        let is_granted = self.grants.get(intent).is_some_and(|grants| {
            grants.iter().any(|it| it.to == *me && it.epoch == epoch && it.hash == transaction.hash)
        });
        if !is_granted {
            return Err(format!("{me} dispatches {intent:?} without a grant"));
        }
        // Its own ones come before, by their nonces. All coordinators together wait for one transaction as
        // long as one of them.
        let patience = self.options.flush_timeout.as_millis() as u64;
        let is_awaited = |it: &&Transaction| {
            let since = self.handed_over_at[&(it.signer.clone(), it.nonce)];
            it.signer != *me && !sight.ledger.is_decided(it) && sight.now < since + patience
        };
        if let Some(open) = self.handed_over.get(&epoch).into_iter().flatten().find(is_awaited) {
            return Err(format!("{me} dispatches before the ledger has decided {open:?}"));
        }
        let of_mine = self.nonces.range((me.clone(), 0)..=(me.clone(), u64::MAX));
        let open = of_mine.filter(|(_, it)| it.epoch == epoch && !sight.ledger.is_decided(it)).count();
        if open > self.options.max_ahead {
            return Err(format!("{me} is {open} ahead of the ledger"));
        }
        *self.dispatches.entry(me.clone()).or_default() += 1;
        self.dispatched_at.push((sight.now, epoch, me.clone()));
        Ok(())
    }

    fn on_end(&mut self, ledger: &Ledger, intent: &IntentId, end: &End) -> Result<(), Broken> {
        let before = self.ends.insert(intent.clone(), end.clone());
        if before.is_some_and(|before| before != *end) {
            return Err(format!("{intent:?} ends twice"));
        }
        match end {
            End::Confirmed if !ledger.confirmed.contains(intent) => {
                Err(format!("{intent:?} is not confirmed"))
            }
            End::Failed(why) if intent.name.starts_with("good") => {
                Err(format!("{intent:?} has failed for a reason of others: {why}"))
            }
            End::Confirmed | End::Failed(_) => Ok(()),
        }
    }

    /// The application reads the ends that its node had written, and not told, before it died.
    pub fn on_restart(&mut self, database: &Database, ledger: &Ledger) -> Result<(), Broken> {
        database.ended.iter().try_for_each(|(intent, end)| self.on_end(ledger, intent, end))
    }

    /// Checks that a failed intent was not confirmed, after each block.
    pub fn on_block(&self, ledger: &Ledger) -> Result<(), Broken> {
        let is_failed = |outcome: &&super::super::events::Outcome| {
            outcome.result.is_ok()
                && matches!(self.ends.get(outcome.transaction.intent()), Some(End::Failed(_)))
        };
        match ledger.blocks.last().into_iter().flatten().find(is_failed) {
            Some(outcome) => Err(format!("{:?} had failed, and is confirmed", outcome.transaction.intent())),
            None => Ok(()),
        }
    }

    /// Returns the intents that have not ended, and when they were taken.
    pub fn open(&self) -> impl Iterator<Item = (&IntentId, u64)> {
        let open = self.submitted.iter().filter(|(intent, _)| !self.ends.contains_key(intent));
        open.map(|(intent, at)| (intent, *at))
    }
}

/// Returns true if a transaction of the grant may still be confirmed.
fn is_open(ledger: &Ledger, grant: &Grant) -> bool {
    let is_fenced = grant.epoch != Epoch::SOLO && ledger.epoch > Some(grant.epoch);
    !is_fenced && !ledger.decided.contains(&(grant.intent.clone(), grant.epoch, grant.hash))
}

/// A message tells only of what is in the database, and only the delegate is granted anything.
fn check_message(sight: &Sight<'_>, to: &Node, message: &Message) -> Result<(), Broken> {
    let me = sight.me;
    let database = &sight.databases[me];
    match message {
        Message::Granted { intent, epoch, hash } => {
            let grant = Grant { intent: intent.clone(), to: to.clone(), epoch: *epoch, hash: *hash };
            if !database.grants.contains(&grant) {
                return Err(format!("{me} grants {intent:?} before it is written"));
            }
            if sight.delegate != Some(to) {
                return Err(format!("{me} grants {intent:?} to {to}, it delegates to {:?}", sight.delegate));
            }
        }
        Message::Dispatched(notice) => {
            let Notice { intent, nonce, .. } = notice;
            if database.dispatches.get(nonce).is_none_or(|it| it.intent() != intent) {
                return Err(format!("{me} tells of {notice:?} before it is written"));
            }
        }
        Message::DispatchedAck(notice) => {
            let is_written = database.notices.iter().any(|(signer, it)| signer == to && it == notice);
            if !is_written && !database.ended.contains_key(&notice.intent) {
                return Err(format!("{me} acknowledges {notice:?} before it is written"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Nodes whose heights are in one range, and that know of the same silent nodes, name one coordinator.
pub fn check_agreement<'a>(
    views: impl Iterator<Item = (u64, &'a BTreeSet<Node>, &'a Node)>,
) -> Result<(), Broken> {
    let mut named: BTreeMap<(u64, &BTreeSet<Node>), &Node> = BTreeMap::new();
    for (range, silent, choice) in views {
        let agreed = *named.entry((range, silent)).or_insert(choice);
        if agreed != choice {
            return Err(format!("in range {range} {agreed} and {choice} are taken for the coordinator"));
        }
    }
    Ok(())
}
