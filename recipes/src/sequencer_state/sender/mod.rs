//! The sender: it answers for its intents until each is confirmed or has finally failed.
//!
//! All undecided intents are delegated to one node, in order, again whenever that changes or has forgotten
//! some. [`delegation`] says to whom, and how long an answer is awaited; [`assembly`] how the delegate gets
//! assemblies; [`reverts`] whose failure a revert is; [`task`] what one intent has behind it. Only the
//! delegate of the moment is granted anything.

mod assembly;
mod delegation;
mod reverts;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::assembly::Asked;
use self::delegation::{Delegation, Waits};
use self::reverts::Recent;
use self::task::{Stage, Task};
use super::bugs::Bug;
use super::events::{Effect, End, Failure, Grant, LedgerView, Record, Restored, SubmitError};
use super::options::SequencerOptions;
use super::shared::Shared;
use super::words::{AssemblyHash, Beat, Epoch, Intent, IntentId, Message, Node, Notice, Refusal, Rejection};

#[derive(Debug)]
pub(super) struct Sender {
    /// In the order in which they were submitted.
    tasks: BTreeMap<u64, Task>,
    numbers: BTreeMap<IntentId, u64>,
    last_number: u64,
    delegation: Option<Delegation>,
    asked: Option<Asked>,
    /// Before that time no dispatch is overdue: the stage of each was heard of less than `flush_timeout` ago.
    overdue_at: Duration,
    /// Those that have failed too often, and some that have ended since.
    hopeless: BTreeSet<u64>,
    recent: Recent,
}

impl Sender {
    /// Begins with what the database has, as far as the ledger has not decided it meanwhile.
    pub fn new(shared: &mut Shared, restored: &Restored, view: &LedgerView) -> Sender {
        let mut sender = Sender {
            tasks: BTreeMap::new(),
            numbers: BTreeMap::new(),
            last_number: 0,
            delegation: None,
            asked: None,
            overdue_at: Duration::MAX,
            hopeless: BTreeSet::new(),
            recent: Recent::default(),
        };
        sender.take_up(Duration::ZERO, shared, restored, view);
        sender
    }

    /// Enters the intents that only the database has, with all that it has of each, as far as the ledger has
    /// not decided it.
    fn take_up(&mut self, now: Duration, shared: &mut Shared, restored: &Restored, view: &LedgerView) {
        let missing: BTreeSet<&IntentId> =
            restored.intents.iter().map(|intent| &intent.id).filter(|id| !self.has(id)).collect();
        for intent in restored.intents.iter().filter(|intent| missing.contains(&intent.id)) {
            self.enter(intent.clone());
        }
        for grant in restored.grants.iter().filter(|grant| missing.contains(&grant.intent)) {
            let task = self.task(&grant.intent).expect("it was just entered");
            task.grants.push(grant.clone());
        }
        for (signer, notice) in restored.notices.iter().filter(|(_, it)| missing.contains(&it.intent)) {
            let is_decided = shared.chain.decided_nonce(signer) >= notice.nonce;
            let task = self.task(&notice.intent).expect("it was just entered");
            if is_decided {
                task.grants
                    .retain(|it| it.to != *signer || it.epoch != notice.epoch || it.hash != notice.hash);
            } else {
                let by = Some((signer.clone(), notice.epoch));
                task.stage = Stage::Dispatched { since: now, by };
                self.await_from(now, shared);
            }
        }
        self.tasks.values_mut().for_each(|task| task.forget_fenced(&shared.chain));
        for intent in &view.confirmed {
            self.end(shared, intent, End::Confirmed);
        }
    }

    fn enter(&mut self, intent: Intent) {
        self.last_number += 1;
        self.numbers.insert(intent.id.clone(), self.last_number);
        self.tasks.insert(self.last_number, Task::new(intent));
    }

    fn task(&mut self, intent: &IntentId) -> Option<&mut Task> {
        self.tasks.get_mut(self.numbers.get(intent)?)
    }

    /// Returns the node that the undecided intents are delegated to.
    pub fn delegate(&self) -> Option<&Node> {
        self.delegation.as_ref().map(|it| &it.to)
    }

    fn is_delegate(&self, node: &Node) -> bool {
        self.delegate() == Some(node)
    }

    pub fn has(&self, intent: &IntentId) -> bool {
        self.numbers.contains_key(intent)
    }

    pub fn undecided(&self) -> impl ExactSizeIterator<Item = &IntentId> {
        self.numbers.keys()
    }

    /// Takes up what only the database has, and ends what is confirmed.
    pub fn on_resumed(&mut self, now: Duration, shared: &mut Shared, restored: &Restored, view: &LedgerView) {
        self.take_up(now, shared, restored, view);
        self.give_up_hopeless(shared);
    }

    pub fn on_submit(&mut self, shared: &mut Shared, intent: Intent) {
        let id = intent.id.clone();
        let answer = match self.task(&id) {
            _ if id.sender != *shared.me() => Err(SubmitError::NotOurs(id.clone())),
            Some(task) if task.intent == intent => Ok(()),
            Some(_) => Err(SubmitError::OtherContent(id.clone())),
            None => {
                shared.persist(Record::Intent(intent.clone()));
                self.enter(intent);
                Ok(())
            }
        };
        shared.effect(Effect::Submitted { intent: id, answer });
    }

    /// Delegates what has to be delegated, and notices that the delegate is silent.
    pub fn step(&mut self, now: Duration, shared: &mut Shared) {
        if self.overdue_at <= now {
            self.take_overdue_back(now, shared);
        }
        self.revoke(now, shared);
        self.delegate_all(now, shared);
    }

    /// Delegates again what was dispatched, and of which nothing was heard for too long.
    fn take_overdue_back(&mut self, now: Duration, shared: &Shared) {
        let patience = shared.options().flush_timeout;
        self.overdue_at = Duration::MAX;
        if shared.has(Bug::DispatchTrusted) {
            return;
        }
        for task in self.tasks.values_mut() {
            match task.stage {
                Stage::Dispatched { since, .. } if since + patience <= now => task.stage = Stage::Pending,
                Stage::Dispatched { since, .. } => self.overdue_at = self.overdue_at.min(since + patience),
                Stage::Pending | Stage::Delegated { .. } => {}
            }
        }
    }

    /// Notes that a task is dispatched since then.
    fn await_from(&mut self, since: Duration, shared: &Shared) {
        self.overdue_at = self.overdue_at.min(since + shared.options().flush_timeout);
    }

    /// Returns the tasks that have failed too often.
    fn hopeless(&self) -> impl Iterator<Item = &Task> {
        self.hopeless.iter().filter_map(|number| self.tasks.get(number))
    }

    /// Asks for the permissions of hopeless intents: while one of them may be used, its intent cannot be
    /// given up, and no other transaction may ever come that fences it.
    fn revoke(&mut self, now: Duration, shared: &mut Shared) {
        let SequencerOptions { max_failures, state_timeout, .. } = *shared.options();
        let is_due = |task: &&mut Task| task.has_to_revoke(max_failures) && task.revoke_at <= now;
        let Sender { hopeless, tasks, .. } = self;
        if shared.has(Bug::GrantsNotRevoked) {
            return;
        }
        for number in hopeless.iter() {
            let Some(task) = tasks.get_mut(number).filter(is_due) else { continue };
            task.revoke_at = now + state_timeout;
            for grant in &task.grants {
                if !task.given_back.iter().any(|(it, _)| it == grant) {
                    let Grant { intent, to, epoch, hash } = grant.clone();
                    shared.send(&to, Message::Revoke { intent, epoch, hash });
                }
            }
        }
    }

    /// A coordinator gives a permission back. It is void when this node has seen the blocks that the
    /// coordinator had seen.
    pub fn on_revoked(&mut self, shared: &mut Shared, grant: Grant, height: u64) {
        let (intent, most) = (grant.intent.clone(), shared.options().max_failures);
        let seen = if shared.has(Bug::RevokedTooSoon) { u64::MAX } else { shared.chain.height() };
        let Some(task) = self.task(&intent).filter(|task| task.is_hopeless(most)) else { return };
        if task.grants.contains(&grant) && !task.given_back.iter().any(|(it, _)| *it == grant) {
            task.given_back.push((grant, height));
            task.forget_given_back(seen);
            self.give_up_if_hopeless(shared, &intent);
        }
    }

    /// Gives up what has failed too often, and of which no permission can be used any more.
    fn give_up_hopeless(&mut self, shared: &mut Shared) {
        let height = shared.chain.height();
        let Sender { hopeless, tasks, .. } = self;
        hopeless.retain(|number| tasks.contains_key(number));
        let seen: Vec<IntentId> = hopeless
            .iter()
            .filter_map(|number| {
                let task = tasks.get_mut(number)?;
                task.forget_given_back(height);
                Some(task.intent.id.clone())
            })
            .collect();
        seen.iter().for_each(|intent| self.give_up_if_hopeless(shared, intent));
    }

    pub fn deadline(&self, shared: &Shared) -> Option<Duration> {
        let overdue = Some(self.overdue_at).filter(|at| *at < Duration::MAX);
        let most = shared.options().max_failures;
        let revoke = self.hopeless().filter(|task| task.has_to_revoke(most)).map(|task| task.revoke_at);
        let revoke = revoke.filter(|_| !shared.has(Bug::GrantsNotRevoked));
        overdue.into_iter().chain(self.delegation_deadline(shared)).chain(revoke).min()
    }

    pub fn on_beat(&mut self, now: Duration, shared: &Shared, from: &Node, beat: &Beat) {
        let has = |intent: &IntentId| beat.coordinates.contains(intent);
        for task in self.tasks.values_mut() {
            match &mut task.stage {
                Stage::Dispatched { since, by: Some((signer, _)) }
                    if signer == from && has(&task.intent.id) =>
                {
                    *since = now;
                }
                Stage::Delegated { accepted: true }
                    if self.delegation.as_ref().is_some_and(|it| it.to == *from) =>
                {
                    let is_forgotten = !has(&task.intent.id) || !beat.phase.coordinates();
                    if is_forgotten && !shared.has(Bug::BeatNotCompared) {
                        task.take_back();
                    }
                }
                _ => {}
            }
        }
        if let Some(delegation) = self.delegation.as_mut().filter(|it| it.to == *from) {
            delegation.on_beat(now);
        }
    }

    pub fn on_returned(&mut self, shared: &mut Shared, from: &Node, intents: &[IntentId], why: Option<&str>) {
        if !self.is_delegate(from) {
            return;
        }
        for intent in intents {
            if let Some(task) = self.task(intent) {
                task.take_back();
                if let Some(why) = why {
                    task.failures.count(Failure::Endorsement(why.to_owned()));
                    self.give_up_if_hopeless(shared, intent);
                }
            }
        }
    }

    pub fn on_ask_dispatch(
        &mut self,
        shared: &mut Shared,
        to: &Node,
        intent: &IntentId,
        epoch: Epoch,
        hash: AssemblyHash,
    ) {
        let (intent, is_delegate) = (intent.clone(), self.is_delegate(to) || shared.has(Bug::GrantToFormer));
        let most = shared.options().max_failures;
        let ignores_epochs = shared.has(Bug::GrantToLowerEpoch);
        let Some(task) = self.task(&intent) else {
            let why = Refusal::Unknown;
            return shared.send(to, Message::Refused { intent, epoch, hash, why });
        };
        let permitted = match task.permits(to, epoch, hash) {
            _ if !is_delegate || task.is_hopeless(most) => Err(Refusal::NotYours),
            Err(Refusal::OlderEpoch) if ignores_epochs => Ok(()),
            permitted => permitted,
        };
        if let Err(why) = permitted {
            return shared.send(to, Message::Refused { intent, epoch, hash, why });
        }
        let grant = Grant { intent: intent.clone(), to: to.clone(), epoch, hash };
        let is_new = !task.grants.contains(&grant);
        if is_new {
            task.grants.push(grant.clone());
            task.note_granted(hash);
        }
        let answer = Message::Granted { intent, epoch, hash };
        if shared.has(Bug::GrantAfterAnswer) {
            shared.send(to, answer.clone());
        }
        if is_new {
            shared.persist(Record::Grant(grant));
        }
        if !shared.has(Bug::GrantAfterAnswer) {
            shared.send(to, answer);
        }
    }

    pub fn on_dispatched(&mut self, now: Duration, shared: &mut Shared, from: &Node, notice: &Notice) {
        let answer = Message::DispatchedAck(notice.clone());
        let Some(task) = self.task(&notice.intent) else {
            return shared.send(from, answer);
        };
        let is_granted = |it: &Grant| it.to == *from && it.epoch == notice.epoch && it.hash == notice.hash;
        // Without a grant: the ledger has decided it, or refuses it. Its own outcome ends the notices.
        if !task.grants.iter().any(is_granted) {
            return;
        }
        let by = Some((from.clone(), notice.epoch));
        (task.stage, task.assembly) = (Stage::Dispatched { since: now, by }, None);
        let written = Record::Notice { signer: from.clone(), notice: notice.clone() };
        let effects = match shared.has(Bug::NoticeAfterAck) {
            true => [Some(answer.clone()), None],
            false => [None, Some(answer)],
        };
        let [before, after] = effects;
        before.into_iter().for_each(|answer| shared.send(from, answer));
        shared.persist(written);
        after.into_iter().for_each(|answer| shared.send(from, answer));
        self.await_from(now, shared);
    }

    fn note_if_hopeless(&mut self, shared: &Shared, intent: &IntentId) {
        let most = shared.options().max_failures;
        if let Some(number) = self.numbers.get(intent)
            && self.tasks.get(number).is_some_and(|task| task.is_hopeless(most))
        {
            self.hopeless.insert(*number);
        }
    }

    /// Gives an intent up that has failed too often, once no grant of it can be used any more.
    fn give_up_if_hopeless(&mut self, shared: &mut Shared, intent: &IntentId) {
        self.note_if_hopeless(shared, intent);
        let most = shared.options().max_failures;
        let is_careless = shared.has(Bug::GivenUpTooSoon);
        let Some(task) = self.task(intent) else { return };
        if (task.grants.is_empty() && !task.is_dispatched() || is_careless)
            && let Some(failure) = task.failures.too_many(most).cloned()
        {
            self.end(shared, intent, End::Failed(failure));
        }
    }

    fn end(&mut self, shared: &mut Shared, intent: &IntentId, end: End) {
        let Some(number) = self.numbers.remove(intent) else { return };
        self.tasks.remove(&number);
        let written = Effect::Persist(Record::Ended { intent: intent.clone(), end: end.clone() });
        let told = Effect::Finished { intent: intent.clone(), end };
        let order = match shared.has(Bug::EndToldBeforeWritten) {
            true => [told, written],
            false => [written, told],
        };
        order.into_iter().for_each(|effect| shared.effect(effect));
    }

    pub fn on_delegated(
        &mut self,
        now: Duration,
        shared: &Shared,
        from: &Node,
        [accepted, dispatched, full]: [&[IntentId]; 3],
    ) {
        if !self.is_delegate(from) {
            return;
        }
        for intent in accepted {
            if let Some(task) = self.task(intent).filter(|it| matches!(it.stage, Stage::Delegated { .. })) {
                task.stage = Stage::Delegated { accepted: true };
            }
        }
        for intent in dispatched {
            if let Some(task) = self.task(intent).filter(|task| !task.is_dispatched()) {
                task.stage = Stage::Dispatched { since: now, by: None };
            }
        }
        if !dispatched.is_empty() {
            self.await_from(now, shared);
        }
        full.iter().for_each(|intent| {
            if let Some(task) = self.task(intent) {
                task.take_back();
            }
        });
        let is_answered = self.window(shared).all(|task| task.stage != Stage::Delegated { accepted: false });
        let delegation = self.delegation.as_mut().expect("the delegate has answered");
        if !full.is_empty() {
            delegation.waits = Waits::Later { at: now + shared.options().retry };
        } else if is_answered {
            delegation.waits = Waits::ForBeats { since: now };
        }
    }

    pub fn on_rejected(&mut self, now: Duration, shared: &mut Shared, from: &Node, why: &Rejection) {
        if !self.is_delegate(from) {
            return;
        }
        self.tasks.values_mut().for_each(Task::take_back);
        let again = Waits::Later { at: now + shared.options().retry };
        let waits = match why {
            Rejection::WrongRange { height } if shared.options().range(*height) > shared.range() => {
                Waits::ForRange(shared.options().range(*height))
            }
            Rejection::WrongRange { .. } | Rejection::Flushing => again,
            Rejection::NotCoordinator { who } => {
                shared.presence.hear(now, who);
                again
            }
        };
        if let Some(delegation) = &mut self.delegation {
            delegation.waits = waits;
        }
    }
}
