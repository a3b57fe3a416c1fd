//! A world of replicas: each pays from one pool, over servers and a table that keep their promises.

mod paying;
mod serving;

use std::collections::BTreeMap;
use std::time::Duration;

use geolock_client::{DcId, RequestId};

use super::super::open::{Event as OpenEvent, Open, Stage, Write};
use super::super::options::SelectorOptions;
use super::super::record::TxId;
use super::super::select::{Ask, Effect, Event, Select, Wait};
use super::super::space::{Change, Space};
use super::super::verdict::Verdict;
use super::outside::{Outside, Request, TTL, need, pool, token, total};
use super::plan::{MS, Plan, options};
use crate::dice::{Agenda, Dice};
use crate::selector_state::token::{Token, TokenId};

/// Most events of a run: one that never ends fails.
const MOST_EVENTS: u64 = 400_000;

/// A broken promise.
pub type Broken = String;

/// One payment at one replica.
struct Payment {
    replica: usize,
    amount: u64,
    select: Option<Select>,
    open: Option<Open>,
    tokens: Vec<Token>,
    /// The request of its selection, or of its locks, and that of the selection before.
    request: Option<u64>,
    /// The lease of that request.
    lease: u64,
    /// The application knows of a loss, or has given up.
    is_out: bool,
    is_recovered: bool,
    verdict: Option<Verdict>,
}

struct Replica {
    space: Space,
    lease: u64,
    is_alive: bool,
    stopped_until: Duration,
}

enum Action {
    Begin(usize),
    Time(usize),
    /// At the server.
    Asked(usize, u64, Request, Wait),
    Amended(u64, Vec<Token>, Vec<Token>),
    Freed(u64),
    GiveUp(usize, u64),
    Read(usize, u64, Vec<TokenId>, bool),
    Record(usize),
    Write(usize, u64, Write),
    Queried(usize),
    LeaseOver(usize, u64),
    Expire,
    Insert(u64),
    /// At a replica.
    Select(usize, u64, Event),
    Open(usize, OpenEvent),
    Listing(usize, Vec<Token>),
    Heard(usize, Vec<Change>),
    Granted(usize, u64, Vec<TokenId>),
    Released(usize, u64, Vec<TokenId>),
    /// Of the application.
    Step(usize),
    /// It goes on after it was stopped, and its client finds that the lease is over.
    Woken(usize),
    Recover(usize),
}

pub struct World {
    plan: Plan,
    options: SelectorOptions,
    now: Duration,
    dice: Dice,
    agenda: Agenda<Duration, Action>,
    outside: Outside,
    replicas: Vec<Replica>,
    payments: Vec<Payment>,
    /// The next moment at which something can arrive at each replica, so that nothing overtakes.
    arrives: Vec<Duration>,
    leaves: Vec<Duration>,
    pub paid: usize,
    pub losses: usize,
    pub deaths: usize,
    pub marked: usize,
    pub recovered: usize,
}

fn home(replica: usize) -> u8 {
    (replica % 3) as u8
}

fn tx(number: usize) -> TxId {
    TxId::new(format!("t{number}")).expect("it is an id")
}

fn request_id(number: u64) -> RequestId {
    RequestId { dc: DcId::new(0).expect("it is an id"), n: number }
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let options = options(&plan);
        let mut dice = Dice::new(seed);
        let rows: Vec<Token> = (plan.tokens.iter().enumerate())
            .map(|(number, amount)| token(&format!("k{number}"), *amount, dice.below(3) as u8))
            .collect();
        let mut outside = Outside::default();
        outside.initial = plan.tokens.iter().sum();
        outside.table.push((Duration::ZERO, rows.into_iter().map(|it| (it.id.clone(), it)).collect()));
        let replicas = (0..plan.replicas).map(|number| {
            let mut space = Space::new(&options, seed ^ number as u64);
            space.on_home(DcId::new(home(number)));
            Replica { space, lease: 0, is_alive: true, stopped_until: Duration::ZERO }
        });
        let replicas: Vec<Replica> = replicas.collect();
        let payments = (0..plan.payments).map(|number| Payment {
            replica: number % plan.replicas,
            amount: 1 + dice.below(plan.most),
            select: None,
            open: None,
            tokens: Vec::new(),
            request: None,
            lease: 0,
            is_out: false,
            is_recovered: false,
            verdict: None,
        });
        let payments: Vec<Payment> = payments.collect();
        let mut world = World {
            arrives: vec![Duration::ZERO; plan.replicas],
            leaves: vec![Duration::ZERO; plan.replicas],
            options,
            now: Duration::ZERO,
            dice,
            agenda: Agenda::default(),
            outside,
            replicas,
            payments,
            paid: 0,
            losses: 0,
            deaths: 0,
            marked: 0,
            recovered: 0,
            plan,
        };
        for number in 0..world.payments.len() {
            let at = world.random(world.plan.begin_within);
            world.agenda.enter(at, Action::Begin(number));
        }
        for _ in 0..world.plan.inserted {
            let at = world.random(world.plan.begin_within * 3);
            let amount = 1 + world.dice.below(5);
            world.agenda.enter(at, Action::Insert(amount));
        }
        world
    }

    fn random(&mut self, most: Duration) -> Duration {
        Duration::from_micros(self.dice.below(most.as_micros() as u64 + 1))
    }

    fn at(&mut self, after: Duration, action: Action) {
        self.agenda.enter(self.now + after, action);
    }

    /// To the server, in order.
    fn send(&mut self, replica: usize, action: Action) {
        let at = (self.now + self.random(self.plan.delay)).max(self.leaves[replica]);
        self.leaves[replica] = at;
        self.agenda.enter(at, action);
    }

    /// To a replica, in order.
    fn deliver(&mut self, replica: usize, delay: Duration, action: Action) {
        let at = (self.now + self.random(delay)).max(self.arrives[replica]);
        self.arrives[replica] = at;
        self.agenda.enter(at, action);
    }

    fn answer(&mut self, number: usize, action: Action) {
        self.deliver(self.payments[number].replica, self.plan.delay, action);
    }

    /// Runs to the end, and judges it.
    pub fn run(&mut self) -> Result<(), Broken> {
        for _ in 0..MOST_EVENTS {
            let Some((at, action)) = self.agenda.next() else { return self.judge() };
            self.now = at;
            self.perform(action)?;
        }
        Err("it goes on for ever".to_owned())
    }

    fn judge(&self) -> Result<(), Broken> {
        let living = |it: &&Payment| self.replicas[it.replica].is_alive && it.verdict.is_none();
        if let Some(waits) = self.payments.iter().position(|it| living(&it)) {
            return Err(format!("payment {waits} waits for ever"));
        }
        let is_unpaid = |it: &Payment| !matches!(it.verdict, Some(Verdict::Picked { .. }));
        if let Some(unpaid) = self.payments.iter().position(is_unpaid).filter(|_| self.plan.all_pay) {
            return Err(format!("payment {unpaid} ends with {:?}", self.payments[unpaid].verdict));
        }
        let left = total(self.outside.unspent());
        if left + self.outside.paid_amount != self.outside.initial {
            return Err(format!("{left} are left"));
        }
        let held: Vec<&Request> = self.outside.requests.values().collect();
        if let Some(held) = held.first() {
            return Err(format!("{held:?} is there at the end"));
        }
        Ok(())
    }

    /// Counts the payments with such an end.
    pub fn count(&self, is_it: impl Fn(&Verdict) -> bool) -> usize {
        self.payments.iter().filter(|it| it.verdict.as_ref().is_some_and(&is_it)).count()
    }

    /// Returns the replica at which something arrives.
    fn receiver(&self, action: &Action) -> Option<usize> {
        match action {
            Action::Begin(number)
            | Action::Time(number)
            | Action::Select(number, ..)
            | Action::Open(number, _)
            | Action::Step(number) => Some(self.payments[*number].replica),
            Action::Woken(replica)
            | Action::Listing(replica, ..)
            | Action::Heard(replica, _)
            | Action::Granted(replica, ..)
            | Action::Released(replica, ..) => Some(*replica),
            _ => None,
        }
    }

    fn perform(&mut self, action: Action) -> Result<(), Broken> {
        if let Some(replica) = self.receiver(&action) {
            let it = &self.replicas[replica];
            if !it.is_alive {
                return Ok(());
            }
            if it.stopped_until > self.now {
                let until = it.stopped_until;
                self.agenda.enter(until, action);
                return Ok(());
            }
        }
        match action {
            Action::Begin(number) => self.begin(number),
            Action::Time(number) => self.on_time(number),
            Action::Select(number, request, event) => self.on_select(number, request, event),
            Action::Open(number, event) => self.on_open(number, event),
            Action::Step(number) => self.step(number),
            Action::Woken(replica) => self.tell_of_loss(replica),
            Action::Recover(number) => self.recover(number),
            Action::Listing(replica, rows) => {
                self.replicas[replica].space.on_listing(&pool(), rows, false);
                self.news(replica)
            }
            Action::Heard(replica, changes) => {
                let now = self.now;
                let space = &mut self.replicas[replica].space;
                changes.into_iter().for_each(|change| space.on_change(now, change));
                self.news(replica)
            }
            Action::Granted(replica, number, ids) => {
                self.replicas[replica].space.on_granted(request_id(number), "", ids);
                self.news(replica)
            }
            Action::Released(replica, number, ids) => {
                self.replicas[replica].space.on_released(request_id(number), ids);
                self.news(replica)
            }
            Action::Expire => {
                let changes = self.outside.expire(self.now);
                self.publish(&changes);
                Ok(())
            }
            Action::Insert(amount) => {
                let id = format!("i{}", self.now.as_micros());
                self.outside.insert(self.now, token(&id, amount, 0));
                Ok(())
            }
            action => self.at_server(action),
        }
    }

    fn begin(&mut self, number: usize) -> Result<(), Broken> {
        let ask = Ask { tx: tx(number), pool: pool(), amount: self.payments[number].amount };
        let select = Select::new(self.now, ask, &self.options, TTL, number as u64);
        self.payments[number].select = Some(select.with_bug(self.plan.bug));
        self.select(number, Event::News)
    }

    fn on_time(&mut self, number: usize) -> Result<(), Broken> {
        if self.payments[number].select.is_some() {
            self.select(number, Event::News)
        } else if self.payments[number].open.as_ref().is_some_and(|open| open.stage() != Stage::Over) {
            self.open(number, OpenEvent::Time)
        } else {
            Ok(())
        }
    }

    /// Something has changed for all payments of a replica.
    fn news(&mut self, replica: usize) -> Result<(), Broken> {
        let of = |it: &Payment| it.replica == replica && it.select.is_some();
        let all: Vec<usize> = (0..self.payments.len()).filter(|it| of(&self.payments[*it])).collect();
        all.into_iter().try_for_each(|number| self.select(number, Event::News))
    }

    /// An answer to a request that is given up counts no more.
    fn on_select(&mut self, number: usize, request: u64, event: Event) -> Result<(), Broken> {
        if request != 0 && self.payments[number].request != Some(request) {
            return Ok(());
        }
        if matches!(event, Event::NotFree | Event::TimedOut { .. } | Event::Failed) {
            self.payments[number].request = None;
        }
        self.select(number, event)
    }

    fn select(&mut self, number: usize, event: Event) -> Result<(), Broken> {
        let replica = self.payments[number].replica;
        let Some(select) = &mut self.payments[number].select else { return Ok(()) };
        select.handle(self.now, &mut self.replicas[replica].space, event);
        while let Some(effect) = self.payments[number].select.as_mut().and_then(Select::poll_effect) {
            self.on_effect(number, effect)?;
        }
        let space = &mut self.replicas[replica].space;
        if !space.begin_queries(self.now).is_empty() {
            self.send(replica, Action::Queried(replica));
        }
        if let Some(select) = &self.payments[number].select
            && let Some(due) = select.deadline(self.now, &self.replicas[replica].space)
        {
            self.agenda.enter(due.max(self.now + MS / 100), Action::Time(number));
        }
        Ok(())
    }

    fn on_effect(&mut self, number: usize, effect: Effect) -> Result<(), Broken> {
        let replica = self.payments[number].replica;
        match effect {
            Effect::Request { tokens, most, wait } => {
                let amount = Some(self.payments[number].amount);
                self.ask(number, tokens, amount, most, wait);
            }
            Effect::Amend { add, drop } => {
                if let Some(request) = self.payments[number].request {
                    self.send(replica, Action::Amended(request, add, drop));
                }
            }
            Effect::Cancel | Effect::GiveBack => {
                if matches!(effect, Effect::GiveBack) {
                    self.marked += 1;
                }
                if let Some(request) = self.payments[number].request.take() {
                    self.send(replica, Action::Freed(request));
                }
            }
            Effect::ReadMarks(ids) => {
                let request = self.payments[number].request.unwrap_or_default();
                self.send(replica, Action::Read(number, request, ids, true));
            }
            Effect::ReadRecord => self.send(replica, Action::Record(number)),
            Effect::Announce => {
                let needed = Change::Needed(pool(), tx(number), need(self.payments[number].amount));
                self.publish(&[needed]);
            }
            Effect::Withdraw => self.publish(&[Change::NoNeed(pool(), tx(number))]),
            Effect::Finish(verdict) => return self.on_verdict(number, verdict),
        }
        Ok(())
    }

    fn on_verdict(&mut self, number: usize, verdict: Verdict) -> Result<(), Broken> {
        self.payments[number].select = None;
        let amount = self.payments[number].amount;
        match &verdict {
            Verdict::Picked { tokens, fence } => {
                let sum: u64 = tokens.iter().map(|token| token.amount).sum();
                if sum < amount {
                    return Err(format!("{tokens:?} do not reach {amount}"));
                }
                self.check_alone(number, tokens)?;
                let replica = self.payments[number].replica;
                let ids = tokens.iter().map(|token| token.id.clone());
                self.replicas[replica].space.claim(&tx(number), ids);
                let open = Open::picked(&self.options, *fence).with_bug(self.plan.bug);
                let payment = &mut self.payments[number];
                (payment.open, payment.tokens) = (Some(open), tokens.clone());
                self.soon(number);
            }
            Verdict::Insufficient { .. } => {
                // Of the time in which a query can have been made.
                // A listing, and then the record.
                let slow = 2 * (2 * self.plan.delay + self.plan.news) + self.plan.lag;
                let since = self.now.saturating_sub(slow);
                let least =
                    self.outside.table.iter().filter(|(at, _)| *at > since).map(|(_, rows)| total(rows));
                let least = least.chain([total(self.outside.unspent_at(since))]).min().unwrap_or_default();
                if least >= amount {
                    return Err(format!(
                        "payment {number} hears that {amount} are too much, and {least} are there"
                    ));
                }
            }
            Verdict::Timeout if self.losses > 0 => {}
            Verdict::Adopted(_) | Verdict::Limit { .. } | Verdict::SourceUnavailable | Verdict::Timeout => {
                return Err(format!("payment {number} ends with {verdict:?}"));
            }
            Verdict::Locked { .. } => {}
        }
        self.payments[number].verdict = Some(verdict);
        Ok(())
    }
}

/// Returns how many payments ended in each way.
pub fn ends(world: &World) -> BTreeMap<&'static str, usize> {
    let locked = world.count(|it| matches!(it, Verdict::Locked { .. }));
    let insufficient = world.count(|it| matches!(it, Verdict::Insufficient { .. }));
    let picked = world.count(|it| matches!(it, Verdict::Picked { .. }));
    BTreeMap::from([("locked", locked), ("insufficient", insufficient), ("picked", picked)])
}
