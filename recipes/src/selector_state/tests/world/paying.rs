//! The application: payments with what was selected, and replicas that die, lose their lease or are stopped.

use std::time::Duration;

use super::super::super::open::{Answer, Call, Effect as OpenEffect, Event as OpenEvent, Open, Stage};
use super::super::super::record::MarkState;
use super::super::super::select::Event;
use super::super::outside::{TTL, token};
use super::super::plan::MS;
use super::{Action, Broken, Payment, World, home, tx};
use crate::selector_state::token::Token;

impl World {
    /// No other selection that may go on has one of the tokens. One whose lease is over will hear of it.
    pub(super) fn check_alone(&self, number: usize, tokens: &[Token]) -> Result<(), Broken> {
        let holds = |it: &Payment| it.request.is_some_and(|it| self.outside.requests.contains_key(&it));
        if !holds(&self.payments[number]) {
            return Ok(());
        }
        for (other, payment) in self.payments.iter().enumerate().filter(|(other, _)| *other != number) {
            let replica = &self.replicas[payment.replica];
            let is_open = payment.open.as_ref().is_some_and(|open| open.stage() == Stage::Picked);
            let goes_on = is_open && !payment.is_out && replica.is_alive && replica.stopped_until <= self.now;
            let shared = payment.tokens.iter().find(|token| tokens.contains(token));
            if let (true, true, Some(token)) = (goes_on, holds(payment), shared) {
                return Err(format!("{:?} is picked by {number} and {other}", token.id));
            }
        }
        Ok(())
    }

    pub(super) fn soon(&mut self, number: usize) {
        let work = self.random(self.plan.work);
        self.at(work, Action::Step(number));
    }

    /// The application goes on with a payment, if its replica does.
    pub(super) fn step(&mut self, number: usize) -> Result<(), Broken> {
        let replica = self.payments[number].replica;
        let living = self.replicas.iter().filter(|it| it.is_alive).count();
        if living > 1 && self.dice.percent(self.plan.dies) {
            return self.die(replica);
        }
        if self.dice.percent(self.plan.loses) {
            self.lose(replica)?;
        } else if self.dice.percent(self.plan.stops) {
            self.losses += 1;
            self.replicas[replica].stopped_until = self.now + TTL * 2;
            let lease = self.replicas[replica].lease;
            self.at(TTL, Action::LeaseOver(replica, lease));
            let after = self.random(10 * MS);
            self.at(TTL * 2 + after, Action::Woken(replica));
            self.at(Duration::ZERO, Action::Step(number));
            return Ok(());
        }
        let payment = &mut self.payments[number];
        let Some(open) = payment.open.as_ref().filter(|_| !payment.is_out) else { return Ok(()) };
        let is_paid =
            payment.tokens.iter().any(|token| self.outside.paid.get(&token.id) == Some(&tx(number)));
        match open.stage() {
            _ if open.is_busy() => {
                self.soon(number);
                Ok(())
            }
            Stage::Picked if self.dice.percent(self.plan.dropped) => self.give_up(number),
            Stage::Picked => self.open(number, OpenEvent::Call(Call::Reserve)),
            Stage::Reserved { .. } if !is_paid && self.dice.percent(self.plan.released) => {
                self.open(number, OpenEvent::Call(Call::Release))
            }
            Stage::Reserved { .. } if !is_paid => {
                let change = self.change(number);
                let inputs = self.payments[number].tokens.clone();
                self.outside.apply(self.now, &tx(number), &inputs, &change)?;
                self.paid += 1;
                self.soon(number);
                Ok(())
            }
            Stage::Reserved { .. } => {
                let change = self.change(number);
                self.open(number, OpenEvent::Call(Call::Spent(change)))
            }
            Stage::Spent { .. } | Stage::Over => self.give_up(number),
        }
    }

    pub(super) fn change(&self, number: usize) -> Vec<Token> {
        let payment = &self.payments[number];
        let sum: u64 = payment.tokens.iter().map(|token| token.amount).sum();
        let change = sum - payment.amount;
        let change = (change > 0).then(|| token(&format!("c{number}"), change, home(payment.replica)));
        change.into_iter().collect()
    }

    /// The application drops its handle.
    pub(super) fn give_up(&mut self, number: usize) -> Result<(), Broken> {
        self.payments[number].is_out = true;
        self.open(number, OpenEvent::Dropped)
    }

    pub(super) fn open(&mut self, number: usize, event: OpenEvent) -> Result<(), Broken> {
        let Some(open) = &mut self.payments[number].open else { return Ok(()) };
        open.handle(self.now, event);
        while let Some(effect) = self.payments[number].open.as_mut().and_then(Open::poll_effect) {
            self.on_open_effect(number, effect)?;
        }
        let due = self.payments[number].open.as_ref().and_then(Open::deadline);
        if let Some(due) = due {
            self.agenda.enter(due.max(self.now + MS / 100), Action::Time(number));
        }
        Ok(())
    }

    pub(super) fn on_open_effect(&mut self, number: usize, effect: OpenEffect) -> Result<(), Broken> {
        let replica = self.payments[number].replica;
        match effect {
            OpenEffect::Lock(wait) => {
                let (tokens, most) = (self.payments[number].tokens.clone(), usize::MAX);
                self.ask(number, tokens, None, most, wait);
            }
            OpenEffect::Write(write) => {
                let request = self.payments[number].request.unwrap_or_default();
                self.send(replica, Action::Write(number, request, write));
            }
            OpenEffect::LetGo => {
                if let Some(request) = self.payments[number].request.take() {
                    self.send(replica, Action::Freed(request));
                }
            }
            OpenEffect::Answer(Answer::Done) => self.soon(number),
            OpenEffect::Answer(Answer::Fenced) => self.payments[number].is_out = true,
            // Another attempt.
            OpenEffect::Answer(Answer::Taken | Answer::Failed) => self.soon(number),
            OpenEffect::Answer(answer) => return Err(format!("payment {number} hears {answer:?}")),
            OpenEffect::End => {
                let ids = self.payments[number].tokens.iter().map(|token| token.id.clone());
                self.replicas[replica].space.unclaim(&tx(number), ids);
            }
        }
        Ok(())
    }

    pub(super) fn on_open(&mut self, number: usize, event: OpenEvent) -> Result<(), Broken> {
        self.open(number, event)
    }

    /// The replica hears that its lease is over, before the server lets the locks go.
    pub(super) fn lose(&mut self, replica: usize) -> Result<(), Broken> {
        self.losses += 1;
        let lease = self.replicas[replica].lease;
        self.replicas[replica].lease += 1;
        let margin = self.random(10 * MS) + MS;
        self.at(margin, Action::LeaseOver(replica, lease));
        self.tell_of_loss(replica)
    }

    pub(super) fn tell_of_loss(&mut self, replica: usize) -> Result<(), Broken> {
        let lease = self.replicas[replica].lease;
        let of = |it: &Payment| it.replica == replica && it.lease < lease;
        let all: Vec<usize> = (0..self.payments.len()).filter(|it| of(&self.payments[*it])).collect();
        for number in all {
            if self.payments[number].select.is_some() {
                if self.payments[number].request.is_some() {
                    self.payments[number].request = None;
                    self.select(number, Event::Failed)?;
                }
            } else if self.payments[number].open.as_ref().is_some_and(|it| it.stage() != Stage::Over) {
                let open = self.payments[number].open.as_ref();
                if open.is_some_and(|open| open.stage() == Stage::Picked && !open.is_busy()) {
                    self.payments[number].is_out = true;
                    self.open(number, OpenEvent::Lost)?;
                    self.open(number, OpenEvent::Dropped)?;
                } else {
                    self.open(number, OpenEvent::Lost)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn die(&mut self, replica: usize) -> Result<(), Broken> {
        self.deaths += 1;
        self.replicas[replica].is_alive = false;
        let lease = self.replicas[replica].lease;
        self.at(TTL, Action::LeaseOver(replica, lease));
        let reserved = |it: &Payment| {
            it.open.as_ref().is_some_and(|open| matches!(open.stage(), Stage::Reserved { .. }))
        };
        let of = |it: &Payment| it.replica == replica && reserved(it);
        let all: Vec<usize> = (0..self.payments.len()).filter(|it| of(&self.payments[*it])).collect();
        for number in all {
            // When nothing of the dead one is on its way any more.
            let after = self.random(TTL * 2);
            self.at(TTL / 10 + after, Action::Recover(number));
        }
        Ok(())
    }

    /// Another replica goes on with what a dead one had reserved.
    pub(super) fn recover(&mut self, number: usize) -> Result<(), Broken> {
        let Some(record) = self.outside.record(self.now, &tx(number)) else { return Ok(()) };
        let living = self.replicas.iter().position(|it| it.is_alive && it.stopped_until <= self.now);
        let Some(living) = living.filter(|_| !self.payments[number].is_recovered) else { return Ok(()) };
        self.recovered += 1;
        let now = self.now;
        let change = self.change(number);
        let payment = &mut self.payments[number];
        (payment.replica, payment.is_recovered, payment.is_out) = (living, true, true);
        payment.request = None;
        payment.open = Some(Open::recovered(now, &self.options, &record).with_bug(self.plan.bug));
        self.open(number, OpenEvent::Dropped)?;
        let is_paid =
            self.payments[number].tokens.iter().any(|it| self.outside.paid.get(&it.id) == Some(&tx(number)));
        match (record.state, is_paid) {
            (MarkState::Reserved, true) => self.open(number, OpenEvent::Call(Call::Spent(change))),
            (MarkState::Reserved, false) => self.open(number, OpenEvent::Call(Call::Release)),
            (MarkState::Spent, _) => Ok(()),
        }
    }
}
