//! Events at the servers, and what replicas hear of them.

use std::time::Duration;

use geolock_client::DcId;

use super::super::super::open::{Event as OpenEvent, Write};
use super::super::super::record::{MarkState, TxId};
use super::super::super::select::{Event, MarkRead, Wait};
use super::super::super::space::Change;
use super::super::outside::Request;
use super::super::plan::MS;
use super::{Action, Broken, World, home, tx};
use crate::selector_state::token::{Token, TokenId};

impl World {
    fn on_asked(&mut self, number: usize, id: u64, request: Request, wait: &Wait) -> Result<(), Broken> {
        if self.replicas[request.replica].lease != request.lease {
            if request.amount.is_none() {
                self.answer(number, Action::Open(number, OpenEvent::LockFailed));
            }
            return Ok(());
        }
        let home = DcId::new(home(request.replica)).expect("it is an id");
        let is_for_all = request.amount.is_none();
        self.outside.requests.insert(id, request);
        match *wait {
            Wait::Try => {
                let granted = self.outside.grant(Some((id, home)));
                if granted.is_empty() {
                    self.outside.free(id);
                    self.refuse(number, id, is_for_all, true);
                } else {
                    self.tell_granted(number, id)?;
                }
            }
            Wait::AtMost(wait) => {
                self.at(wait, Action::GiveUp(number, id));
                self.grant()?;
            }
        }
        Ok(())
    }

    pub(super) fn at_server(&mut self, action: Action) -> Result<(), Broken> {
        match action {
            Action::Asked(number, id, request, wait) => self.on_asked(number, id, request, &wait),
            Action::Amended(id, add, drop) => {
                if let Some(request) = self.outside.requests.get_mut(&id).filter(|it| it.chosen.is_none()) {
                    request.named.retain(|place| !drop.contains(&request.asked[*place]));
                    request.named.extend(request.asked.len()..request.asked.len() + add.len());
                    request.asked.extend(add);
                }
                self.grant()
            }
            Action::Freed(id) => self.free(id),
            Action::GiveUp(number, id) => {
                if self.outside.requests.get(&id).is_some_and(|it| it.chosen.is_none()) {
                    let is_for_all = self.outside.free(id).is_some_and(|it| it.amount.is_none());
                    self.refuse(number, id, is_for_all, false);
                }
                Ok(())
            }
            Action::Read(number, id, ids, is_select) => {
                let held = self.outside.requests.get(&id).is_some_and(|it| it.chosen.is_some());
                let read = held.then(|| self.outside.read(self.now, &tx(number), &ids));
                if is_select {
                    self.answer(number, Action::Select(number, id, Event::Marks(read)));
                } else {
                    let fence = self.outside.requests.get(&id).map_or(0, |it| it.fence);
                    let event = match read {
                        Some((marks, _)) => OpenEvent::Locked { fence, marks },
                        None => OpenEvent::LockFailed,
                    };
                    self.answer(number, Action::Open(number, event));
                }
                Ok(())
            }
            Action::Record(number) => {
                let record = self.outside.record(self.now, &tx(number));
                self.answer(number, Action::Select(number, 0, Event::Record(record)));
                Ok(())
            }
            Action::Write(number, id, write) => self.write(number, id, &write),
            Action::Queried(replica) => {
                let lag = self.random(self.plan.lag);
                let rows = self.outside.unspent_at(self.now.saturating_sub(lag)).values().cloned().collect();
                self.deliver(replica, self.plan.delay, Action::Listing(replica, rows));
                Ok(())
            }
            Action::LeaseOver(replica, lease) => {
                for id in self.outside.of_lease(replica, lease) {
                    let waits = |it: &&Request| it.chosen.is_none() && it.amount.is_none();
                    if let Some(request) = self.outside.requests.get(&id).filter(waits) {
                        let number = self.number_of(&request.tx);
                        self.answer(number, Action::Open(number, OpenEvent::LockFailed));
                    }
                    self.free(id)?;
                }
                // A replica that was stopped finds out when it goes on.
                if self.replicas[replica].lease == lease && self.replicas[replica].is_alive {
                    self.replicas[replica].lease += 1;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn refuse(&mut self, number: usize, id: u64, is_for_all: bool, is_try: bool) {
        if is_for_all {
            let ids: Vec<TokenId> = self.payments[number].tokens.iter().map(|it| it.id.clone()).collect();
            let (marks, _) = self.outside.read(self.now, &tx(number), &ids);
            let is_own = marks.iter().all(|mark| *mark == MarkRead::Own);
            return self.answer(number, Action::Open(number, OpenEvent::NotLocked { is_own }));
        }
        let event = if is_try { Event::NotFree } else { Event::TimedOut { by: Vec::new(), free: None } };
        self.answer(number, Action::Select(number, id, event));
    }

    pub(super) fn grant(&mut self) -> Result<(), Broken> {
        for id in self.outside.grant(None) {
            let number = self.number_of(&self.outside.requests[&id].tx);
            self.tell_granted(number, id)?;
        }
        Ok(())
    }

    fn number_of(&self, of: &TxId) -> usize {
        (0..self.payments.len()).find(|it| tx(*it) == *of).expect("each is of a payment")
    }

    pub(super) fn tell_granted(&mut self, number: usize, id: u64) -> Result<(), Broken> {
        let request = self.outside.requests[&id].clone();
        let ids = request.ids();
        self.publish_holder(request.replica, id, &ids, true);
        if request.amount.is_none() {
            self.send(request.replica, Action::Read(number, id, ids, false));
            return Ok(());
        }
        let spent = ids
            .iter()
            .find(|id| self.outside.marks.get(id).is_some_and(|(mark, _)| mark.state == MarkState::Spent));
        // A replica that is away hears of nothing.
        if let Some(spent) = spent
            && self.losses + self.deaths == 0
        {
            return Err(format!("{spent:?} is granted to payment {number}, and it is spent"));
        }
        let event = Event::Granted { chosen: request.chosen.unwrap_or_default(), fence: request.fence };
        self.answer(number, Action::Select(number, id, event));
        Ok(())
    }

    pub(super) fn free(&mut self, id: u64) -> Result<(), Broken> {
        if let Some(request) = self.outside.free(id)
            && request.chosen.is_some()
        {
            self.publish_holder(request.replica, id, &request.ids(), false);
        }
        self.grant()
    }

    pub(super) fn write(&mut self, number: usize, id: u64, write: &Write) -> Result<(), Broken> {
        let held = self.outside.requests.get(&id).filter(|it| it.chosen.is_some());
        let Some(fence) = held.map(|it| it.fence) else {
            self.answer(number, Action::Open(number, OpenEvent::NotWritten));
            return Ok(());
        };
        let payment = &self.payments[number];
        let of = (tx(number), payment.amount, payment.tokens.clone());
        let lasts = match write {
            Write::Reserved => self.options.reserve_for,
            Write::Spent(_) => self.options.spent_keep,
            Write::Removed => Duration::ZERO,
        };
        let (changes, until) = self.outside.commit(self.now, &of, fence, write, lasts)?;
        self.agenda.enter(until + MS, Action::Expire);
        self.publish(&changes);
        self.answer(number, Action::Open(number, OpenEvent::Written));
        Ok(())
    }

    pub(super) fn publish(&mut self, changes: &[Change]) {
        for replica in 0..self.replicas.len() {
            self.deliver(replica, self.plan.news, Action::Heard(replica, changes.to_vec()));
        }
    }

    /// Tells the replicas of one datacenter who holds.
    pub(super) fn publish_holder(&mut self, of: usize, number: u64, ids: &[TokenId], is_held: bool) {
        let near: Vec<usize> = (0..self.replicas.len()).filter(|it| home(*it) == home(of)).collect();
        for replica in near {
            let ids = ids.to_vec();
            self.deliver(
                replica,
                self.plan.delay,
                match is_held {
                    true => Action::Granted(replica, number, ids),
                    false => Action::Released(replica, number, ids),
                },
            );
        }
    }

    pub(super) fn ask(
        &mut self,
        number: usize,
        asked: Vec<Token>,
        amount: Option<u64>,
        most: usize,
        wait: Wait,
    ) {
        let replica = self.payments[number].replica;
        let (lease, named) = (self.replicas[replica].lease, (0..asked.len()).collect());
        let request =
            Request { replica, lease, tx: tx(number), asked, named, amount, most, chosen: None, fence: 0 };
        // Numbered in the order of the calls, as the client does.
        let id = self.outside.ask(request.clone());
        self.outside.requests.remove(&id);
        (self.payments[number].request, self.payments[number].lease) = (Some(id), lease);
        self.send(replica, Action::Asked(number, id, request, wait));
    }
}
