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
use super::assembling::{Footing, Progress, Step, Work};
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

    /// Assembles the next intent, and asks for permission to dispatch the first one that is ready.
    pub(super) fn work_on(&mut self, now: Duration, shared: &mut Shared) {
        if !self.may_assemble() {
            return;
        }
        let epoch = self.epoch();
        if let Some(work) = &mut self.work {
            let progress = work.step(now, shared, epoch);
            self.follow(now, shared, progress);
        }
        let ahead = self.ready.len() + self.dispatches.len() + self.handed_over.len();
        if self.work.is_none()
            && ahead < shared.options().max_ahead
            && let Some(intent) = self.pool.take(now)
        {
            self.round += 1;
            let speculation = match shared.has(Bug::SpentNotTold) {
                true => Speculation::default(),
                false => self.footing(BTreeSet::new()).speculation(),
            };
            self.work = Some(Work::begin(now, shared, intent, self.round, speculation));
        }
        if let Some(epoch) = self.may_dispatch(shared)
            && let Some(silent) = self.ready.ask(now, shared, epoch)
        {
            self.forget_sender(now, &silent);
        }
    }

    /// Returns everything that the next assembly rests on.
    fn footing(&self, broken: BTreeSet<StateId>) -> Footing {
        let mut footing = self.dispatched_footing(broken);
        self.ready.assemblies().for_each(|assembly| footing.add(assembly));
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
        let mut removed = self.ready.sieve(|assembly| {
            let is_carried = footing.carries(assembly);
            match is_carried {
                true => footing.add(assembly),
                false => footing.break_off(assembly),
            }
            is_carried
        });
        if let Some(Work { step: Step::Endorsing { assembly, .. }, .. }) = &self.work
            && !footing.carries(assembly)
        {
            removed.push(assembly.clone());
            self.work = None;
        }
        // The sender was told of outputs that will not be there: it is asked again.
        is_shaken |= !removed.is_empty();
        if let Some(Work { intent, step: Step::Assembling { .. }, .. }) = &self.work
            && is_shaken
        {
            self.pool.put_back(intent.clone(), now);
            self.work = None;
        }
        for assembly in removed.into_iter().rev() {
            self.pool.put_back(assembly.intent, now);
        }
    }

    /// Forgets intents. Returns the outputs of their assemblies, for [`Coordinator::recheck`].
    #[must_use]
    pub(super) fn forget(&mut self, is_gone: impl Fn(&IntentId) -> bool) -> BTreeSet<StateId> {
        self.pool.retain(|intent| !is_gone(intent));
        if self.work.as_ref().is_some_and(|work| is_gone(&work.intent)) {
            self.work = None;
        }
        let removed = self.ready.sieve(|assembly| !is_gone(&assembly.intent));
        removed.into_iter().flat_map(|assembly| assembly.outputs).collect()
    }

    /// Forgets all of a sender that does not answer: when it is back it misses them in the heartbeats, and
    /// delegates them again.
    fn forget_sender(&mut self, now: Duration, sender: &Node) {
        let broken = self.forget(|intent| intent.sender == *sender);
        self.recheck(now, broken);
    }

    fn follow(&mut self, now: Duration, shared: &mut Shared, progress: Progress) {
        if progress == Progress::Waits {
            return;
        }
        let Some(work) = self.work.take() else { return };
        match progress {
            Progress::Waits => {}
            Progress::Endorsed(assembly) => self.ready.push(assembly),
            Progress::TooLong => self.pool.put_back(work.intent, now + shared.options().retry),
            Progress::SenderSilent => self.forget_sender(now, &work.intent.sender),
            Progress::Denied(why) => {
                let (sender, intents) = (work.intent.sender.clone(), vec![work.intent]);
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
        let epoch = self.epoch();
        let is_asked = |work: &&mut Work| {
            work.intent == *intent && work.round == round && matches!(work.step, Step::Assembling { .. })
        };
        let footing = self.footing(BTreeSet::new());
        let is_trusting = shared.has(Bug::SpentNotTold);
        let Some(work) = self.work.as_mut().filter(is_asked) else { return };
        let retry_at = now + shared.options().retry;
        match answer {
            Assembled::Done(assembly) if assembly.intent == *intent => {
                // Something else may have been dispatched or confirmed since the question.
                if footing.carries(&assembly) || is_trusting {
                    return work.endorse(now, shared, assembly, epoch);
                }
                self.pool.put_back(intent.clone(), now);
            }
            Assembled::Done(_) | Assembled::Parked | Assembled::Invalid(_) => {
                self.pool.put_back(intent.clone(), retry_at);
            }
            Assembled::NotYours => {}
        }
        self.work = None;
    }

    pub fn on_endorsed(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        from: &Node,
        (intent, round): (&IntentId, u64),
        answer: Endorsement,
    ) {
        let is_asked = |work: &&mut Work| work.intent == *intent && work.round == round;
        let Some(work) = self.work.as_mut().filter(is_asked) else { return };
        let progress = work.on_endorsed(now, shared, from, answer);
        self.follow(now, shared, progress);
    }

    pub fn on_dispatch_granted(
        &mut self,
        now: Duration,
        shared: &mut Shared,
        intent: &IntentId,
        epoch: Epoch,
        hash: AssemblyHash,
    ) {
        if self.may_dispatch(shared) != Some(epoch) || !self.ready.is_asked(intent, hash) {
            return;
        }
        if let Some(assembly) = self.ready.pop() {
            self.last_hash = Some(self.dispatches.dispatch(now, shared, assembly, epoch));
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
        if self.epoch() != Some(epoch) || !self.ready.is_asked(intent, hash) {
            return;
        }
        let Some(assembly) = self.ready.pop() else { return };
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
                    broken.extend(self.forget(|intent| intent == transaction.intent()));
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
