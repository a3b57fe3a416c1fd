//! The actions of the model, and their effects.

use stateright::{Model, Property};

use crate::properties;
use crate::state::{
    BELOW, Broken, Client, DCS, Dc, Entry, HomeRules, Homes, LOCKS, Mode, Op, Parts, Row, Rules, Site, State,
    Vector, View, Wants, covers,
};

/// A deliberate bug, to prove that the properties catch it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Entries and vectors are sent before they are durable.
    SendBeforeSync,
    /// After a resume the last entry of a log is applied once more.
    ApplyTwice,
    /// A lock is granted without its parts.
    GrantWhileNotOwner,
    /// Parts leave while the lock is held.
    TransferWhileHeld,
    /// After a restart the server does not wait for the clients that held locks.
    NoGrace,
    /// After a restart the clock begins at the last stamp in the log.
    ClockForgets,
    /// The clock is not moved past the stamps of others.
    ClockIgnoresOthers,
    /// A grant is answered before the arrival of its parts is durable.
    AnswerBeforeSync,
    /// A request is left in the log when it is granted.
    NotWithdrawn,
    /// After a restart the parts of homed locks are where their names say.
    HomeForgotten,
    /// A member that has entered a rule reads the homes as if all had given.
    RuleAtOnce,
    /// A member gives the parts of a lock that is in use, too.
    RehomedInUse,
    /// A restarted member gives before its client has reclaimed.
    GivesInGrace,
    /// The default owner is judged by what is known where an entry is applied.
    RuleJudgedHere,
}

pub struct Protocol {
    /// By scenario, by datacenter: the requests of its client, one after the other.
    pub scenarios: Vec<[Vec<Wants>; DCS]>,
    /// How often each may crash, by datacenter: each of these with each scenario.
    pub crashes: Vec<[u8; DCS]>,
    pub homes: Homes,
    /// The rules about the first lock, which are decided one after the other.
    pub rules: Rules,
    pub mutation: Option<Mutation>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    Ask(Dc),
    Grant(Dc),
    Release(Dc),
    /// The owner transfers the parts that the `row`-th request of its table wants of a lock.
    Serve {
        dc: Dc,
        row: usize,
        lock: usize,
    },
    /// All appended records are durable, and may be announced.
    Sync(Dc),
    /// An entry arrives, perhaps not for the first time.
    Receive {
        dc: Dc,
        maker: Dc,
        seq: u8,
    },
    /// The datacenter stops and starts again with its durable records and the first `kept` of the others.
    Crash {
        dc: Dc,
        kept: usize,
    },
    /// The datacenter enters the next rule, in its log.
    Enter(Dc),
    /// It has entered it while a client of before its restart had not come back, and gives now.
    Give(Dc),
    /// A client reclaims its locks from the restarted server.
    Reclaim(Dc),
    /// Its lease ran out before it could.
    Expired(Dc),
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut states = Vec::new();
        for scenario in 0..self.scenarios.len() as u8 {
            states.extend(self.crashes.iter().map(|crashes| self.initial(scenario, *crashes)));
        }
        states
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_some() {
            return;
        }
        for dc in 0..DCS {
            self.client_actions(state, dc, actions);
            for row in 0..state.sites[dc].view.table.len() {
                let locks = (0..LOCKS).filter(|lock| self.can_serve(state, dc, row, *lock).is_some());
                actions.extend(locks.map(|lock| Action::Serve { dc, row, lock }));
            }
            for maker in (0..DCS).filter(|maker| *maker != dc) {
                let sent = (1..=state.logs[maker].len() as u8).filter(|seq| state.is_sent(maker, *seq));
                actions.extend(sent.map(|seq| Action::Receive { dc, maker, seq }));
            }
            if self.may_enter(state, dc) {
                actions.push(Action::Enter(dc));
            }
            if self.may_give(state, dc) {
                actions.push(Action::Give(dc));
            }
            let tail = state.sites[dc].tail.len();
            if tail > 0 {
                actions.push(Action::Sync(dc));
            }
            if state.crashes_left[dc] > 0 {
                actions.extend((0..=tail).map(|kept| Action::Crash { dc, kept }));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        if let Action::Receive { dc, maker, seq } = action
            && !self.takes(last, dc, maker, seq)
        {
            return None;
        }
        let mut state = last.clone();
        match action {
            Action::Ask(dc) => self.ask(&mut state, dc),
            Action::Grant(dc) => self.grant(&mut state, dc),
            Action::Release(dc) | Action::Expired(dc) => {
                state.sites[dc].client = Client::Idle;
                state.sites[dc].done += 1;
            }
            Action::Serve { dc, row, lock } => self.serve(&mut state, dc, row, lock),
            Action::Enter(dc) => self.enter(&mut state, dc),
            Action::Give(dc) => self.give(&mut state, dc),
            Action::Sync(dc) => self.sync(&mut state, dc),
            Action::Receive { dc, maker, seq } => self.receive(&mut state, dc, maker, seq),
            Action::Crash { dc, kept } => self.crash(&mut state, dc, kept),
            Action::Reclaim(dc) => self.reclaim(&mut state, dc),
        }
        // Nothing can be lost there any more. The time until entries are durable affects only when they are
        // received and when requests are granted.
        (0..DCS).filter(|dc| last.crashes_left[*dc] == 0).for_each(|dc| self.sync(&mut state, dc));
        if self.is(Mutation::SendBeforeSync) {
            state.sites.iter_mut().for_each(|site| site.told = raised(site.told, site.applied));
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Protocol>> {
        properties::all()
    }
}

impl Protocol {
    pub fn is(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn initial(&self, scenario: u8, crashes_left: [u8; DCS]) -> State {
        let site = Site {
            applied: [0; DCS],
            durable: [0; DCS],
            tail: Default::default(),
            view: View::initial(self.homes, self.home_rules()),
            clock: 0,
            told: [0; DCS],
            client: Client::Idle,
            done: 0,
        };
        State {
            scenario,
            homes: self.homes,
            logs: Default::default(),
            sites: std::array::from_fn(|_| site.clone()),
            tokens: Default::default(),
            crashes_left,
            lost_a_tail: false,
            broken: None,
        }
    }

    fn home_rules(&self) -> HomeRules {
        HomeRules::new(self.rules, self.is(Mutation::RuleJudgedHere))
    }

    pub fn orders(&self, state: &State, dc: Dc) -> &[Wants] {
        &self.scenarios[usize::from(state.scenario)][dc]
    }

    /// Returns the locks that the client of a datacenter wants now, waits for or holds.
    pub fn wants(&self, state: &State, dc: Dc) -> Option<Wants> {
        self.orders(state, dc).get(usize::from(state.sites[dc].done)).copied()
    }

    fn client_actions(&self, state: &State, dc: Dc, actions: &mut Vec<Action>) {
        let Some(wants) = self.wants(state, dc) else { return };
        match state.sites[dc].client {
            Client::Idle => actions.push(Action::Ask(dc)),
            Client::Waiting { .. } if self.has_parts(&state.sites[dc], dc, wants) => {
                actions.push(Action::Grant(dc));
            }
            Client::Waiting { .. } | Client::Granted { .. } => {}
            Client::Holds { known: true, .. } => actions.push(Action::Release(dc)),
            Client::Holds { known: false, .. } => actions.extend([Action::Reclaim(dc), Action::Expired(dc)]),
        }
    }

    fn has_parts(&self, site: &Site, dc: Dc, wants: Wants) -> bool {
        self.is(Mutation::GrantWhileNotOwner)
            || locks_of(wants)
                .all(|(lock, mode)| site.view.parts_of(lock, dc).covers(Parts::needed(dc, mode)))
    }

    fn ask(&self, state: &mut State, dc: Dc) {
        let at = tick(&mut state.sites[dc]);
        state.sites[dc].client = Client::Waiting { at, published: false };
        self.publish(state, dc);
    }

    /// The invariant of publishing (`docs/algorithm/ownership.md#22-publishing`), with one local waiter: a
    /// request that waits and lacks a part is in the log.
    pub fn publish(&self, state: &mut State, dc: Dc) {
        let Client::Waiting { at, published: false } = state.sites[dc].client else { return };
        let Some(wants) = self.wants(state, dc) else { return };
        if !self.has_parts(&state.sites[dc], dc, wants) {
            append(state, dc, Op::Request { at, wants });
            state.sites[dc].client = Client::Waiting { at, published: true };
        }
    }

    fn grant(&self, state: &mut State, dc: Dc) {
        let Client::Waiting { at, published } = state.sites[dc].client else { return };
        let Some(wants) = self.wants(state, dc) else { return };
        let token = tick(&mut state.sites[dc]);
        state.sites[dc].client = Client::Granted { token };
        let must_wait = has_fresh_parts(state, dc, wants) && !self.is(Mutation::AnswerBeforeSync);
        if published && !self.is(Mutation::NotWithdrawn) {
            append(state, dc, Op::Withdraw { at });
        }
        if !must_wait {
            self.tell(state, dc);
        }
    }

    /// Answers the grant: the client holds its locks.
    fn tell(&self, state: &mut State, dc: Dc) {
        let Client::Granted { token } = state.sites[dc].client else { return };
        state.sites[dc].client = Client::Holds { token, known: true };
        for (lock, mode) in self.wants(state, dc).into_iter().flat_map(locks_of) {
            let last = &mut state.tokens[lock];
            let (above, of_mode) = match mode {
                Mode::Shared => (last.exclusive, &mut last.shared),
                Mode::Exclusive => (last.exclusive.max(last.shared), &mut last.exclusive),
            };
            if token <= above {
                state.broken = Some(Broken::TokenDidNotGrow);
            }
            *of_mode = token.max(*of_mode);
        }
    }

    /// Returns the parts of the lock that can leave for a request, if it is its turn.
    fn can_serve(&self, state: &State, dc: Dc, row: usize, lock: usize) -> Option<Parts> {
        let site = &state.sites[dc];
        let row = site.view.table[row];
        let mode = row.wants[lock].filter(|_| usize::from(row.dc) != dc)?;
        let here = site.view.parts_of(lock, dc);
        let leave = here.and(Parts::needed(row.dc.into(), mode));
        let in_grace =
            matches!(site.client, Client::Holds { known: false, .. }) && !self.is(Mutation::NoGrace);
        let can = leave != Parts::NONE
            && !in_grace
            && !self.is_held_against(state, dc, lock, mode)
            && !self.is_earlier_wanted(state, dc, &row, lock, mode);
        can.then_some(leave)
    }

    /// Returns true if the server knows a conflicting holder.
    fn is_held_against(&self, state: &State, dc: Dc, lock: usize, mode: Mode) -> bool {
        let held = match state.sites[dc].client {
            Client::Granted { .. } | Client::Holds { known: true, .. } => self.wants(state, dc),
            Client::Idle | Client::Waiting { .. } | Client::Holds { known: false, .. } => None,
        };
        let as_mode = held.and_then(|wants| wants[lock]);
        as_mode.is_some_and(|held| held.conflicts_with(mode)) && !self.is(Mutation::TransferWhileHeld)
    }

    /// Returns true if an earlier request conflicts with `row`. Shared requests of other datacenters that
    /// need no part from here do not count.
    fn is_earlier_wanted(&self, state: &State, dc: Dc, row: &Row, lock: usize, mode: Mode) -> bool {
        let site = &state.sites[dc];
        let here = site.view.parts_of(lock, dc);
        let stops = |earlier: &Row| {
            let wanted = earlier.wants[lock].filter(|wanted| wanted.conflicts_with(mode));
            wanted.is_some_and(|wanted| {
                let by = usize::from(earlier.dc);
                (earlier.at, earlier.dc) < (row.at, row.dc)
                    && (by == dc || here.and(Parts::needed(by, wanted)) != Parts::NONE)
            })
        };
        let waiting = match (site.client, self.wants(state, dc)) {
            (Client::Waiting { at, .. }, Some(wants)) => Some(Row { at, dc: dc as u8, wants }),
            _ => None,
        };
        site.view.table.iter().any(stops) || waiting.as_ref().is_some_and(stops)
    }

    fn serve(&self, state: &mut State, dc: Dc, row: usize, lock: usize) {
        let Some(parts) = self.can_serve(state, dc, row, lock) else { return };
        let view = &state.sites[dc].view;
        let to = view.table[row].dc;
        let versions =
            std::array::from_fn(
                |part| if parts.has(part) { view.registers[lock][part].version + 1 } else { 0 },
            );
        append(state, dc, Op::Transfer { to, lock: lock as u8, parts, versions });
        self.publish(state, dc);
    }

    fn sync(&self, state: &mut State, dc: Dc) {
        let site = &mut state.sites[dc];
        site.durable = site.applied;
        site.tail.clear();
        site.told = raised(site.told, site.durable);
        self.tell(state, dc);
    }

    /// Returns true if an arrived entry is applied: it is the next of its log, and its dependencies are here.
    fn takes(&self, state: &State, dc: Dc, maker: Dc, seq: u8) -> bool {
        let applied = &state.sites[dc].applied;
        if seq <= applied[maker] {
            return self.is(Mutation::ApplyTwice) && seq == applied[maker];
        }
        // One of a rule that is not entered here waits for that.
        let entry = state.entry(maker, seq);
        let is_entered = entry.epoch <= state.sites[dc].view.homes.entered[dc];
        seq == applied[maker] + 1 && covers(applied, &entry.deps) && is_entered
    }

    fn receive(&self, state: &mut State, dc: Dc, maker: Dc, seq: u8) {
        let entry = *state.entry(maker, seq);
        let site = &mut state.sites[dc];
        if seq > site.applied[maker] {
            if !site.view.allows(maker, &entry) {
                state.broken = Some(Broken::CorrectPeerAccused);
                return;
            }
            site.applied[maker] = seq;
            site.tail.push(maker as u8);
        }
        site.view.apply(maker, seq, &entry);
        if !self.is(Mutation::ClockIgnoresOthers) {
            site.clock = site.clock.max(entry.stamp);
        }
        if self.replay(state, &state.sites[dc].applied).0 != state.sites[dc].view {
            state.broken = Some(Broken::StateDiffers);
        }
        self.publish(state, dc);
    }

    fn crash(&self, state: &mut State, dc: Dc, kept: usize) {
        state.crashes_left[dc] -= 1;
        let site = &mut state.sites[dc];
        state.lost_a_tail |= kept < site.tail.len();
        let mut recovered = site.durable;
        site.tail.iter().take(kept).for_each(|maker| recovered[usize::from(*maker)] += 1);
        site.tail.clear();
        (site.applied, site.durable) = (recovered, recovered);
        site.client = match site.client {
            Client::Holds { token, .. } => Client::Holds { token, known: false },
            Client::Idle | Client::Waiting { .. } | Client::Granted { .. } => Client::Idle,
        };
        // A lost entry that was sent stays in the world, because its receivers have it; `told` is the
        // promise.
        if !state.is_sent(dc, recovered[dc] + 1) {
            state.logs[dc].truncate(recovered[dc].into());
        }
        let homes = if self.is(Mutation::HomeForgotten) { [None; LOCKS] } else { state.homes };
        let (view, newest) = replay_from(View::initial(homes, self.home_rules()), state, &recovered);
        let site = &mut state.sites[dc];
        site.view = view;
        site.told = raised(site.told, recovered);
        if self.is(Mutation::ClockForgets) {
            site.clock = newest;
        }
        // Withdraws own requests that no client waits for any more.
        let abandoned = site.view.table.clone().into_iter().filter(|row| usize::from(row.dc) == dc);
        abandoned.for_each(|row| append(state, dc, Op::Withdraw { at: row.at }));
    }

    /// Returns the view after the entries of a vector, applied in a causal order, and the highest stamp among
    /// them.
    fn replay(&self, state: &State, vector: &Vector) -> (View, u8) {
        replay_from(View::initial(state.homes, self.home_rules()), state, vector)
    }

    fn reclaim(&self, state: &mut State, dc: Dc) {
        let Some(wants) = self.wants(state, dc) else { return };
        let here = self.has_parts(&state.sites[dc], dc, wants);
        match &mut state.sites[dc].client {
            Client::Holds { known, .. } if here => *known = true,
            _ => state.broken = Some(Broken::ReclaimRefused),
        }
    }
}

pub fn locks_of(wants: Wants) -> impl Iterator<Item = (usize, Mode)> {
    wants.into_iter().enumerate().filter_map(|(lock, mode)| Some((lock, mode?)))
}

/// Returns the next reading of a datacenter's clock.
fn tick(site: &mut Site) -> u8 {
    site.clock += 1;
    site.clock
}

pub fn append(state: &mut State, dc: Dc, op: Op) {
    let site = &mut state.sites[dc];
    let entered = site.view.homes.entered[dc];
    let epoch = if let Op::Enter { rule, .. } = op { rule + 1 } else { entered };
    let entry = Entry { stamp: tick(site), deps: site.applied, epoch, op };
    site.view.apply(dc, site.applied[dc] + 1, &entry);
    site.applied[dc] += 1;
    site.tail.push(dc as u8);
    state.logs[dc].push(entry);
}

/// Returns true if parts of these locks came with an entry that is not durable yet: by a transfer, or because
/// their default owner has given them.
fn has_fresh_parts(state: &State, dc: Dc, wants: Wants) -> bool {
    let site = &state.sites[dc];
    let mut vector = site.durable;
    site.tail.iter().any(|maker| {
        let maker = usize::from(*maker);
        vector[maker] += 1;
        match state.entry(maker, vector[maker]).op {
            Op::Transfer { to, lock, .. } => usize::from(to) == dc && wants[usize::from(lock)].is_some(),
            Op::Enter { .. } | Op::Give { .. } => maker != dc && wants[BELOW].is_some(),
            Op::Request { .. } | Op::Withdraw { .. } => false,
        }
    })
}

fn raised(one: Vector, other: Vector) -> Vector {
    std::array::from_fn(|dc| one[dc].max(other[dc]))
}

fn replay_from(mut view: View, state: &State, vector: &Vector) -> (View, u8) {
    let (mut at, mut newest) = ([0; DCS], 0);
    while at != *vector {
        let ready = |maker: &Dc| {
            at[*maker] < vector[*maker] && covers(&at, &state.entry(*maker, at[*maker] + 1).deps)
        };
        let maker = (0..DCS).find(ready).expect("what was applied is causally closed");
        at[maker] += 1;
        let entry = state.entry(maker, at[maker]);
        view.apply(maker, at[maker], entry);
        newest = newest.max(entry.stamp);
    }
    (view, newest)
}
