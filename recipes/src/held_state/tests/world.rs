//! Candidates, one lock, the record in a store, and followers in other datacenters, at the mercy of a seed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use geolock_client::FencingToken;

use super::super::follower;
use super::super::holder::{self, Denied, Effect, Event, Holder};
use super::super::{Follower, HeldValue, News, Record};
use crate::dice::{Agenda, Dice};

const TTL: u64 = 10_000;
const UNTIL: u64 = 600_000;

#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Chances in 100: a write fails or its answer is lost, is refused; a term ends by a loss, by a death.
    pub fails: u64,
    pub refused: u64,
    pub loses: u64,
    pub dies: u64,
    /// A follower was away for too long.
    pub too_old: u64,
    /// Longest way to a follower beyond 300 ms: one that is cut off hears much at once.
    pub lag: u64,
    pub without_guards: bool,
    pub bug: Option<holder::Bug>,
    pub follower_bug: Option<follower::Bug>,
}

enum Action {
    Campaign(usize),
    Arrives(u64, Effect),
    Hears(u64, Event),
    Tick(u64),
    Set(u64),
    End(u64),
    Free(u64),
    Expire,
    Deliver(usize),
    Again(usize),
}

/// A candidate from its grant on. Terms are numbered by their tokens.
struct Term {
    node: usize,
    holder: Holder,
    began: u64,
    leads: bool,
    dead: bool,
    /// Callers that have no answer.
    asked: u32,
    set: u64,
}

#[derive(Clone)]
enum Entry {
    Wrote(Record),
    Ended,
}

struct Observer {
    follower: Follower,
    position: usize,
    shown: Vec<Option<HeldValue>>,
    began_again: bool,
}

pub struct World {
    plan: Plan,
    now: u64,
    dice: Dice,
    agenda: Agenda<u64, Action>,
    candidates: VecDeque<usize>,
    held_by: Option<u64>,
    terms: BTreeMap<u64, Term>,
    log: Vec<Entry>,
    present: Option<(Record, u64)>,
    /// Token and number of the last value that may be there.
    floor: (u64, u64),
    observers: Vec<Observer>,
    pub elected: Vec<u64>,
    pub changes: usize,
}

impl World {
    pub fn new(seed: u64, plan: Plan) -> World {
        let observer = |_| Observer {
            follower: Follower::with_bug(plan.follower_bug),
            position: 0,
            shown: Vec::new(),
            began_again: false,
        };
        let mut world = World {
            plan,
            now: 0,
            dice: Dice::new(seed),
            agenda: Agenda::default(),
            candidates: VecDeque::new(),
            held_by: None,
            terms: BTreeMap::new(),
            log: Vec::new(),
            present: None,
            floor: (0, 0),
            observers: (0..3).map(observer).collect(),
            elected: Vec::new(),
            changes: 0,
        };
        (0..4).for_each(|node| world.after(5_000, Action::Campaign(node)));
        world
    }

    fn below(&mut self, most: u64) -> u64 {
        self.dice.below(most)
    }

    fn happens(&mut self, chance: u64) -> bool {
        self.dice.percent(chance)
    }

    fn after(&mut self, most: u64, action: Action) {
        let at = self.now + 1 + self.below(most);
        self.at(at, action);
    }

    fn at(&mut self, at: u64, action: Action) {
        self.agenda.enter(at, action);
    }

    pub fn run(mut self) -> Result<World, String> {
        while let Some((at, action)) = self.agenda.next() {
            self.now = at;
            match action {
                Action::Campaign(_) if at > UNTIL => {}
                Action::Campaign(node) => {
                    self.candidates.push_back(node);
                    self.grant();
                }
                Action::Arrives(token, effect) => self.arrives(token, effect)?,
                Action::Hears(token, event) => self.hears(token, event)?,
                Action::Tick(token) => self.hears(token, Event::Time)?,
                Action::Set(token) => self.set(token)?,
                Action::End(token) => self.end(token)?,
                Action::Free(token) => self.free(token),
                Action::Expire => self.expire()?,
                Action::Deliver(observer) => self.deliver(observer)?,
                Action::Again(observer) => {
                    // It reads the present record, and follows from there.
                    let record = self.present.as_ref().map(|(record, _)| record.clone());
                    (self.observers[observer].position, self.observers[observer].began_again) =
                        (self.log.len(), true);
                    self.show(observer, News::Begun(record))?;
                }
            }
        }
        self.check_end()?;
        Ok(self)
    }

    fn grant(&mut self) {
        if self.held_by.is_some() {
            return;
        }
        let Some(node) = self.candidates.pop_front() else { return };
        let token = self.terms.last_key_value().map_or(0, |(last, _)| *last) + 1;
        let holder = Holder::new("0".into(), Some(Duration::from_millis(TTL))).with_bug(self.plan.bug);
        let term = Term { node, holder, began: self.now, leads: false, dead: false, asked: 1, set: 0 };
        self.terms.insert(token, term);
        self.held_by = Some(token);
        self.after(60_000, Action::End(token));
        self.after(20_000, Action::Set(token));
        self.effects(token);
    }

    fn effects(&mut self, token: u64) {
        loop {
            let Some(term) = self.terms.get_mut(&token) else { return };
            let Some(effect) = term.holder.poll_effect() else {
                if let Some(due) = term.holder.deadline() {
                    let at = term.began + u64::try_from(due.as_millis()).expect("it is a short run");
                    self.at(at.max(self.now), Action::Tick(token));
                }
                return;
            };
            match effect {
                Effect::Answer(answer) => {
                    (term.leads, term.asked) = (term.leads || answer.is_ok(), 0);
                    if answer.is_ok() && self.elected.last() != Some(&token) {
                        self.elected.push(token);
                    }
                    if answer == Err(Denied::Lost) {
                        term.leads = false;
                    }
                }
                Effect::Release => {
                    term.leads = false;
                    self.after(50, Action::Free(token));
                    return;
                }
                Effect::End => {
                    term.leads = false;
                    return;
                }
                effect => {
                    self.after(150, Action::Arrives(token, effect));
                    return;
                }
            }
        }
    }

    fn arrives(&mut self, token: u64, effect: Effect) -> Result<(), String> {
        let is_held = self.held_by == Some(token) || self.plan.without_guards;
        let is_set = self.terms[&token].leads && self.terms[&token].asked > 0;
        let fails = self.happens(self.plan.fails);
        let event = if self.happens(self.plan.refused) && is_set {
            // The value before comes back, also if the refused one was written by an attempt before.
            self.floor.1 = 0;
            Event::Refused
        } else if !is_held || fails && self.happens(50) {
            Event::NotWritten
        } else {
            match effect {
                Effect::Write(value) => self.write(token, value)?,
                _ => {
                    self.present = None;
                    self.append(Entry::Ended);
                }
            }
            // The answer may be lost.
            if fails { Event::NotWritten } else { Event::Written }
        };
        self.after(150, Action::Hears(token, event));
        Ok(())
    }

    /// Writes of a lock come in the order of their tokens, and none brings back what was replaced.
    fn write(&mut self, token: u64, value: bytes::Bytes) -> Result<(), String> {
        let number = |record: &Record| {
            let text = std::str::from_utf8(&record.held.value).expect("the world writes numbers");
            (record.held.token.0, text.parse::<u64>().expect("the world writes numbers"))
        };
        let held = HeldValue { who: String::new(), value, token: FencingToken(token) };
        let record = Record { held, ttl: Some(Duration::from_millis(TTL)) };
        if self.floor > number(&record) {
            return Err(format!("an old value is written: {:?} after {:?}", number(&record), self.floor));
        }
        self.floor = number(&record);
        let late = self.below(500);
        self.present = Some((record.clone(), self.now + 3 * TTL + late));
        self.at(self.now + 3 * TTL + late, Action::Expire);
        self.append(Entry::Wrote(record));
        Ok(())
    }

    fn append(&mut self, entry: Entry) {
        self.log.push(entry);
        (0..3).for_each(|observer| self.after(300 + self.plan.lag, Action::Deliver(observer)));
    }

    fn expire(&mut self) -> Result<(), String> {
        let Some((record, until)) = self.present.clone() else { return Ok(()) };
        let token = record.held.token.0;
        if until > self.now {
            return Ok(());
        }
        if self.terms[&token].leads && !self.terms[&token].dead {
            return Err(format!("the record of leader {token} expired"));
        }
        self.present = None;
        self.append(Entry::Ended);
        Ok(())
    }

    fn hears(&mut self, token: u64, event: Event) -> Result<(), String> {
        let Some(term) = self.terms.get_mut(&token).filter(|term| !term.dead) else { return Ok(()) };
        let led = term.leads;
        let now = Duration::from_millis(self.now - term.began);
        term.holder.handle(now, event);
        self.effects(token);
        if !led && self.terms[&token].leads {
            let others =
                self.terms.iter().filter(|(other, term)| **other != token && term.leads && !term.dead);
            if let Some((other, _)) = others.last() {
                return Err(format!("{other} and {token} lead"));
            }
        }
        Ok(())
    }

    fn set(&mut self, token: u64) -> Result<(), String> {
        if self.terms.get(&token).is_none_or(|term| !term.leads || term.dead) {
            return Ok(());
        }
        self.after(20_000, Action::Set(token));
        let term = self.terms.get_mut(&token).expect("it was just there");
        // A driver passes it on only while nothing is under way.
        if term.asked > 0 || term.holder.deadline().is_none() {
            return Ok(());
        }
        (term.set, term.asked) = (term.set + 1, 1);
        let value = term.set.to_string();
        self.hears(token, Event::Set(value.into()))
    }

    /// The term ends: its node dies or is told of the loss, before the lock is free; or it resigns.
    fn end(&mut self, token: u64) -> Result<(), String> {
        let (dies, loses) = (self.happens(self.plan.dies), self.happens(self.plan.loses));
        let term = self.terms.get_mut(&token).expect("it was granted");
        let node = term.node;
        if dies {
            term.dead = true;
            self.after(TTL, Action::Free(token));
        } else if loses {
            self.hears(token, Event::Lost)?;
            self.after(200, Action::Free(token));
        } else if term.leads && term.holder.deadline().is_some() {
            self.hears(token, Event::Leave)?;
        } else {
            self.after(1_000, Action::End(token));
            return Ok(());
        }
        self.after(5_000, Action::Campaign(node));
        Ok(())
    }

    fn free(&mut self, token: u64) {
        if self.held_by == Some(token) {
            self.held_by = None;
            self.grant();
        }
    }

    fn deliver(&mut self, observer: usize) -> Result<(), String> {
        if self.happens(self.plan.too_old) {
            self.after(300, Action::Again(observer));
            return Ok(());
        }
        let position = self.observers[observer].position;
        let Some(entry) = self.log.get(position).cloned() else { return Ok(()) };
        self.observers[observer].position += 1;
        // A read after an end is as far as the watch, or ahead of it.
        let ahead = if self.happens(30) { self.log.len() } else { position + 1 };
        let news = match entry {
            Entry::Wrote(record) => News::Wrote(record),
            Entry::Ended => News::ReadAgain(match &self.log[ahead - 1] {
                Entry::Wrote(record) => Some(record.clone()),
                Entry::Ended => None,
            }),
        };
        self.show(observer, news)
    }

    fn show(&mut self, observer: usize, news: News) -> Result<(), String> {
        let Observer { follower, shown, .. } = &mut self.observers[observer];
        let Some(change) = follower.handle(news) else { return Ok(()) };
        self.changes += 1;
        let token = |held: &Option<HeldValue>| held.as_ref().map(|held| held.token.0);
        let highest = shown.iter().filter_map(token).max();
        if token(&change).is_some_and(|new| highest > Some(new)) {
            return Err(format!("an observer sees {change:?} after {highest:?}"));
        }
        shown.push(change);
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        for (number, observer) in self.observers.iter().enumerate() {
            let token = |held: &Option<HeldValue>| held.as_ref().map(|held| held.token.0);
            let mut seen: Vec<u64> = observer.shown.iter().filter_map(token).collect();
            seen.dedup();
            let left_out = self.elected.iter().find(|token| !seen.contains(token));
            if let Some(left_out) = left_out.filter(|_| !observer.began_again) {
                return Err(format!("observer {number} has left out {left_out}"));
            }
            let last = self.present.as_ref().map(|(record, _)| record.held.clone());
            if observer.position == self.log.len() && observer.shown.last() != Some(&last) {
                return Err(format!(
                    "observer {number} sees {:?} at last, not {last:?}",
                    observer.shown.last()
                ));
            }
        }
        let hangs = self.terms.iter().find(|(_, term)| term.asked > 0 && !term.dead);
        hangs.map_or(Ok(()), |(token, _)| Err(format!("a caller of {token} has no answer")))
    }
}
