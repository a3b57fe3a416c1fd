//! The work of a coordinator on the intents that it has.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::bugs::Bug;
use super::super::events::Outcome;
use super::super::shared::Shared;
use super::super::words::{
    Assembled, Assembly, AssemblyHash, Endorsement, Epoch, IntentId, Message, Node, Refusal, Speculation,
    StateId,
};
use super::assembling::Assembling;
use super::endorsing::NotEndorsed;
use super::footing::Footing;
use super::{Coordinator, State};

/// Confirmed assemblies that are remembered, in units of those that may be on the way to the ledger at a
/// time. An assembly of a sender whose view is older than that reverts, and is tried again.
const SETTLED: usize = 4;

impl Coordinator {
    fn may_assemble(&self) -> bool {
        matches!(self.state, State::Electing | State::Prepared { .. } | State::Active)
    }

    fn may_dispatch(&self, shared: &Shared) -> Option<Epoch> {
        match self.state {
            // The message at hand may have shown that a preferred node is back.
            State::Active if shared.is_first() || self.is_stubborn(shared) => self.epoch(),
            State::Electing if shared.has(Bug::DispatchWhileElecting) => Some(Epoch::SOLO),
            _ => None,
        }
    }

    /// Assembles the next intent, dispatches what is permitted, and asks for the permission of the others
    /// that are ready.
    pub(super) fn work_on(&mut self, now: Duration, shared: &mut Shared) {
        if !self.may_assemble() {
            return;
        }
        if let Some(assembling) = &mut self.assembling
            && !assembling.step(now, shared)
        {
            let sender = assembling.sender.clone();
            self.forget_sender(now, &sender);
        }
        for (assembly, why) in self.endorsing.step(now, shared, self.epoch()) {
            self.on_not_endorsed(now, shared, assembly, why);
        }
        while let Some(assembly) = self.endorsing.pop(shared) {
            self.ready.push(assembly);
        }
        let on_the_way = self.dispatches.len() + self.handed_over.len();
        let ahead = self.endorsing.len() + self.ready.len() + on_the_way;
        let most = shared.options().max_ahead.saturating_sub(ahead).min(shared.options().batch);
        if self.assembling.is_none()
            && let Some(turn) = self.pool.take(now, most)
        {
            self.round += 1;
            let speculation = match shared.has(Bug::SpentNotTold) {
                true => Speculation::default(),
                false => self.footing(BTreeSet::new()).speculation(),
            };
            self.assembling = Some(Assembling::begin(now, shared, turn, self.round, speculation));
        }
        if let Some(epoch) = self.may_dispatch(shared) {
            while let Some(assembly) = self.ready.pop_granted() {
                self.last_hash = Some(self.dispatches.dispatch(now, shared, assembly, epoch));
            }
            while let Some(silent) = self.ready.ask(now, shared, epoch) {
                self.forget_sender(now, &silent);
            }
        }
    }

    /// Returns everything that the next assembly rests on.
    fn footing(&self, broken: BTreeSet<StateId>) -> Footing {
        let mut footing = self.dispatched_footing(broken);
        self.ready.assemblies().chain(self.endorsing.assemblies()).for_each(|assembly| footing.add(assembly));
        footing
    }

    fn dispatched_footing(&self, broken: BTreeSet<StateId>) -> Footing {
        let mut footing = Footing::new(broken);
        self.settled.iter().for_each(|assembly| footing.add(assembly));
        let handed_over = self.handed_over.iter().map(|it| &it.transaction);
        let transactions = handed_over.chain(self.dispatches.transactions());
        transactions.for_each(|it| footing.add(&it.assembly));
        footing
    }

    /// Puts back what cannot stand any more on what is before it. `broken`: outputs that will not be there.
    pub(super) fn recheck(&mut self, now: Duration, broken: BTreeSet<StateId>) {
        let mut is_shaken = !broken.is_empty();
        let mut footing = self.dispatched_footing(broken);
        let mut carries = |assembly: &Assembly| {
            let is_carried = footing.carries(assembly);
            match is_carried {
                true => footing.add(assembly),
                false => footing.break_off(assembly),
            }
            is_carried
        };
        let mut removed = self.ready.sieve(&mut carries);
        removed.extend(self.endorsing.sieve(&mut carries));
        // The sender was told of outputs that will not be there: it is asked again.
        is_shaken |= !removed.is_empty();
        if is_shaken {
            self.stop_assembling(now);
        }
        for assembly in removed.into_iter().rev() {
            self.pool.put_back(assembly.intent, now);
        }
    }

    /// Puts back what a sender was asked for and has not answered.
    fn stop_assembling(&mut self, now: Duration) {
        for intent in self.assembling.iter().flat_map(|it| it.intents().rev()) {
            self.pool.put_back(intent.clone(), now);
        }
        self.assembling = None;
    }

    /// Forgets intents. Returns the outputs of their assemblies, for [`Coordinator::recheck`].
    #[must_use]
    pub(super) fn forget(&mut self, now: Duration, is_gone: impl Fn(&IntentId) -> bool) -> BTreeSet<StateId> {
        if self.assembling.as_ref().is_some_and(|it| it.intents().any(&is_gone)) {
            // The others may rest on it: their sender is asked again.
            self.stop_assembling(now);
        }
        self.pool.retain(|intent| !is_gone(intent));
        let mut removed = self.ready.sieve(|assembly| !is_gone(&assembly.intent));
        removed.extend(self.endorsing.sieve(|assembly| !is_gone(&assembly.intent)));
        removed.into_iter().flat_map(|assembly| assembly.outputs).collect()
    }

    /// Forgets all of a sender that does not answer: when it is back it misses them in the heartbeats, and
    /// delegates them again.
    fn forget_sender(&mut self, now: Duration, sender: &Node) {
        let broken = self.forget(now, |intent| intent.sender == *sender);
        self.recheck(now, broken);
    }

    /// Returns an assembly that the committee refuses, or has too little time for, and all that rest on it.
    fn on_not_endorsed(&mut self, now: Duration, shared: &mut Shared, assembly: Assembly, why: NotEndorsed) {
        let Assembly { intent, outputs, .. } = assembly;
        // First those behind it: of one sender they are put back after it.
        if !shared.has(Bug::DeniedKept) {
            self.recheck(now, outputs.into_iter().collect());
        }
        match why {
            NotEndorsed::TooLong => self.pool.put_back(intent, now + shared.options().retry),
            NotEndorsed::Denied(why) => {
                let (sender, intents) = (intent.sender.clone(), vec![intent]);
                shared.send(&sender, Message::Returned { intents, why: Some(why) });
            }
        }
    }

    pub fn on_assembled(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        intent: &IntentId,
        round: u64,
        answer: Assembled,
    ) {
        let Some(assembling) = &mut self.assembling else { return };
        if !assembling.on_answer(now, shared, intent, round) {
            return;
        }
        if let Assembled::Done(assembly) = &answer {
            assembling.add(assembly);
        }
        self.assembling.take_if(|it| it.is_done());
        let retry_at = now + shared.options().retry;
        match answer {
            Assembled::Done(assembly) if assembly.intent == *intent => {
                // Something else may have been dispatched or confirmed since the question.
                if self.footing(BTreeSet::new()).carries(&assembly) || shared.has(Bug::SpentNotTold) {
                    return self.endorsing.push(now, shared, (assembly, round), self.epoch());
                }
                // Those behind it rest on it.
                self.stop_assembling(now);
                self.pool.put_back(intent.clone(), now);
            }
            Assembled::Done(_) => {
                self.stop_assembling(now);
                self.pool.put_back(intent.clone(), retry_at);
            }
            Assembled::Parked | Assembled::Invalid(_) => self.pool.put_back(intent.clone(), retry_at),
            Assembled::NotYours => {}
        }
    }

    pub fn on_endorsed(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        from: &Node,
        asked: (&IntentId, u64),
        answer: Endorsement,
    ) {
        if let Some((assembly, why)) = self.endorsing.on_answer(now, shared, from, asked, answer) {
            self.on_not_endorsed(now, shared, assembly, why);
        }
    }

    /// Notes a permission. What may be dispatched by it is dispatched in order.
    pub fn on_dispatch_granted(
        &mut self,
        shared: &Shared,
        intent: &IntentId,
        epoch: Epoch,
        hash: AssemblyHash,
    ) {
        if self.may_dispatch(shared) == Some(epoch) {
            self.ready.grant(intent, hash);
        }
    }

    pub fn on_dispatch_refused(
        &mut self,
        now: Duration,
        shared: &Shared,
        intent: &IntentId,
        (epoch, hash): (Epoch, AssemblyHash),
        why: Refusal,
    ) {
        if self.epoch() != Some(epoch) {
            return;
        }
        let Some(assembly) = self.ready.refuse(intent, hash) else { return };
        if matches!(why, Refusal::OtherAssembly | Refusal::OlderEpoch) {
            self.pool.put_back(assembly.intent, now + shared.options().retry);
        }
        self.recheck(now, assembly.outputs.into_iter().collect());
    }

    /// Follows what the ledger has decided.
    pub fn on_block(&mut self, now: Duration, shared: &mut Shared, outcomes: &[Outcome]) {
        let mut broken = BTreeSet::new();
        for Outcome { transaction, result } in outcomes {
            match result {
                Ok(()) => {
                    broken.extend(self.forget(now, |intent| intent == transaction.intent()));
                    transaction.assembly.outputs.iter().for_each(|state| {
                        broken.remove(state);
                    });
                    self.settle(shared, &transaction.assembly);
                }
                Err(_) => broken.extend(transaction.assembly.outputs.iter().cloned()),
            }
        }
        self.dispatches.forget_decided(shared);
        self.handed_over.retain(|it| !shared.chain.has_decided(&it.transaction));
        if !outcomes.is_empty() {
            self.recheck(now, broken);
        }
    }

    /// Remembers a confirmed assembly, for senders that have not seen it: they would spend its inputs again.
    fn settle(&mut self, shared: &Shared, assembly: &Assembly) {
        self.settled.push_back(assembly.clone());
        if self.settled.len() > shared.options().max_ahead.saturating_mul(SETTLED) {
            self.settled.pop_front();
        }
    }
}
