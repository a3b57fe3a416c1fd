//! The world outside of the nodes: it carries out their effects. The network, the lock's servers, and the
//! domain, whose assemblies each consume one state and make another one.

use super::super::super::events::{Effect, Event, LockEffect, LockEvent, NotAssembled};
use super::super::super::words::{Assembly, Epoch, Handover, IntentId, Node, Speculation, StateId};
use super::super::lock::Ticket;
use super::{Action, LOSS_LEAD, Packet, World};

impl World {
    pub(super) fn carry_out(&mut self, number: usize, effect: Effect) {
        let life = self.nodes[number].life;
        match effect {
            Effect::Persist(record) => {
                let database = self.databases.get_mut(&self.nodes[number].name);
                database.expect("each node has one").write(record);
            }
            Effect::Send { to, message } => {
                let to = self.number_of(&to);
                self.transmit(number, to, &Packet::Message(message));
            }
            Effect::Beat(beat) => {
                for to in (0..self.nodes.len()).filter(|to| *to != number) {
                    self.transmit(number, to, &Packet::Beat(beat.clone()));
                }
            }
            Effect::Lock(effect) => self.lock_effect(number, effect),
            Effect::SubmitToLedger(transaction) => {
                if !self.happens(self.plan.unsubmitted) {
                    self.soon(Action::Ledger(transaction));
                }
            }
            Effect::Assemble { to, round, intent, speculation } => {
                let answer = self.assemble(number, &intent.id, &speculation);
                let event = Event::Assembled { to, round, intent: intent.id, answer };
                self.agenda.enter(self.now + 1, Action::Domain(number, life, event));
            }
            Effect::Endorse { to, round, assembly } => {
                let is_denied = assembly.intent.name.starts_with("denied");
                let answer = if is_denied { Err("no".to_owned()) } else { Ok(()) };
                let event = Event::Endorsed { to, round, intent: assembly.intent, answer };
                self.agenda.enter(self.now + 1, Action::Domain(number, life, event));
            }
            Effect::Submitted { .. } | Effect::Finished { .. } => {}
        }
    }

    /// Consumes one state and makes another one.
    fn assemble(
        &mut self,
        number: usize,
        intent: &IntentId,
        speculation: &Speculation,
    ) -> Result<Assembly, NotAssembled> {
        if intent.name.starts_with("invalid") {
            return Err(NotAssembled::Invalid("it makes no sense".to_owned()));
        }
        let known = self.nodes[number].unspent.union(&speculation.created);
        let free: Vec<&StateId> = known.filter(|state| !speculation.spent.contains(state)).collect();
        if free.is_empty() {
            return Err(NotAssembled::Parked);
        }
        let input = free[self.dice.place(free.len())].clone();
        let output =
            StateId::new(&format!("{}-{}-{}", intent.sender, intent.name, self.dice.below(u64::MAX)));
        let payload = bytes::Bytes::new();
        Ok(Assembly { intent: intent.clone(), inputs: vec![input], outputs: vec![output], payload })
    }

    fn number_of(&self, name: &Node) -> usize {
        self.nodes.iter().position(|node| node.name == *name).expect("messages go to members")
    }

    fn dc(&self, number: usize) -> usize {
        number % self.plan.dcs
    }

    fn are_connected(&self, one: usize, other: usize) -> bool {
        match &self.cut {
            Some((side, until)) if self.now < *until => side.contains(&one) == side.contains(&other),
            _ => true,
        }
    }

    /// Messages of a node to another one come in order, if they come.
    fn transmit(&mut self, from: usize, to: usize, packet: &Packet) {
        if self.happens(self.plan.lost) {
            return;
        }
        let mut at = self.now + 1 + self.dice.below(self.plan.delay);
        if !self.are_connected(self.dc(from), self.dc(to)) {
            if self.plan.cut_loses {
                return;
            }
            at += self.cut.as_ref().map_or(0, |(_, until)| until - self.now);
        }
        let last = self.arrivals.entry((from, to)).or_default();
        *last = at.max(*last + 1);
        let at = *last;
        let copies = if self.happens(self.plan.twice) { 2 } else { 1 };
        for _ in 0..copies {
            self.agenda.enter(at, Action::Deliver { from, to, packet: packet.clone() });
        }
    }

    fn lock_effect(&mut self, number: usize, effect: LockEffect) {
        match effect {
            LockEffect::Acquire => {
                self.tickets += 1;
                let ticket = Ticket { node: number, number: self.tickets };
                self.nodes[number].ticket = Some(ticket);
                self.soon(Action::Acquire(ticket));
            }
            LockEffect::WriteHandover(handover) => {
                if let Some(ticket) = self.nodes[number].ticket {
                    self.soon(Action::WriteHandover(ticket.number, handover));
                }
            }
            LockEffect::Release => {
                if let Some(ticket) = self.nodes[number].ticket.take() {
                    // Behind the request for it, if that is still on its way.
                    self.agenda.enter(self.now + 2 + self.plan.delay, Action::EndTicket(ticket.number));
                }
            }
        }
    }

    pub(super) fn write_handover(&mut self, number: u64, handover: Handover) {
        if let Some((ticket, _)) = self.lock.holder.filter(|(ticket, _)| ticket.number == number) {
            self.lock.handover = Some(handover);
            self.soon(Action::LockNews(ticket, LockEvent::HandoverWritten));
        }
    }

    pub(super) fn lose_lock(&mut self) {
        if let Some((ticket, _)) = self.lock.holder {
            self.agenda.enter(self.now, Action::LockNews(ticket, LockEvent::Lost));
            self.agenda.enter(self.now + LOSS_LEAD, Action::EndTicket(ticket.number));
        }
    }

    /// Grants the lock, and tells those that wait if it can be had.
    pub(super) fn serve_lock(&mut self) {
        let World { lock, cut, now, plan, .. } = self;
        let are_connected = |one: usize, other: usize| match &cut {
            Some((side, until)) if *now < *until => side.contains(&one) == side.contains(&other),
            _ => true,
        };
        let granted: Option<(Ticket, Epoch)> = lock.grant(are_connected, |node| node % plan.dcs);
        if let Some((ticket, epoch)) = granted {
            let handover = self.lock.handover.clone();
            let dispatched = handover
                .iter()
                .flat_map(|it| it.dispatched.iter().map(|it| it.transaction.clone()))
                .collect();
            self.checker.on_lock(self.now, epoch, dispatched);
            self.blocked.remove(&ticket.number);
            self.soon(Action::LockNews(ticket, LockEvent::Granted { epoch, handover }));
        }
        for ticket in self.lock.queue.clone() {
            let is_blocked = !self.are_connected(self.lock.place, self.dc(ticket.node));
            let was_blocked = self.blocked.contains(&ticket.number);
            if is_blocked && !was_blocked {
                self.blocked.insert(ticket.number);
                self.soon(Action::LockNews(ticket, LockEvent::Blocked));
            } else if was_blocked && !is_blocked {
                self.blocked.remove(&ticket.number);
                self.soon(Action::LockNews(ticket, LockEvent::Unblocked));
            }
        }
    }
}
