//! Clients: their sessions, their load, and the events that the oracle gets from them.

use std::time::Duration;

use crate::base::capacity::DiskSpace;
use crate::base::rng::Rng;
use crate::causal_log::Wants;
use crate::replica::call::{Call, CallId, ClientId, IdempotencyKey, OnDisconnect, SessionId, Wait};
use crate::replica::{Event, Notice};
use crate::sim::client::{Behaviour, Client, HoldEnd, Manner, Order, Out, State, Timer};
use crate::sim::failure::FailureKind;
use crate::sim::oracle::{Holder, HolderId};
use crate::sim::plan::Habits;
use crate::sim::queue::Moment;
use crate::sim::world::{Action, Phase, Session, ToClient, World};
use geolock_api::names::{DcId, LockName, Mode};

/// After this number of requests a client sends one whose cancel overtakes its acquire.
const OVERTAKES_EVERY: u64 = 8;

/// Percentage of a client's actions that make a crowd, in plans with crowds, and the time for which a crowd
/// waits.
const CROWD_PERCENT: u64 = 6;
const CROWD_WAITS: Duration = Duration::from_millis(300);

/// The driver of a client.
#[derive(Clone, Debug)]
pub(crate) enum Driver {
    /// The plan's load.
    Random,
    /// Its calls come from a story.
    Manual,
    /// Acquires the same again as soon as it has released it.
    Repeat(Order),
}

/// After this number of commits clients pause for at least this long. A reading is checked against all
/// commits of its key, so a run whose clients never pause would take minutes and show nothing new.
const MANY_COMMITS: usize = 4_000;
const SLOW_DOWN: Duration = Duration::from_millis(50);

impl World {
    pub fn spawn_client(&mut self, dc: DcId, driver: Driver) -> usize {
        let (plan, rng) = (&self.plan.load, &mut self.chance.load);
        let release = plan.release_on_disconnect_percent;
        let manner = Manner {
            ttl: rng.duration(plan.ttl.0, plan.ttl.1).min(self.plan.longest_lease(dc)),
            on_disconnect: if rng.percent(release) { OnDisconnect::Release } else { OnDisconnect::Keep },
            stubborn: rng.percent(50),
            forgetful: self.clients.len() % 3 == 2,
            behaviour: random_behaviour(&self.plan.habits, &mut self.chance.others),
        };
        let number = self.clients.len();
        let mut client = Client::new(number, dc, manner);
        client.disks_forget = self.plan.disk.is_copied;
        client.homes_may_end = self.plan.leaves + self.plan.losses > 0;
        client.disk_was_full = self.node(dc).disk.room != DiskSpace::Enough;
        client.may_be_refused = self.plan.habits.most.is_some() || self.plan.habits.overload_every.is_some();
        client.is_moving = self.control.stayed.contains(dc);
        self.clients.push(client);
        let active = !matches!(driver, Driver::Manual);
        self.drivers.push(driver);
        self.connect_client(number);
        let beat = self.now + manner.ttl / 3;
        self.queue.push(beat, Action::Client { client: number, timer: Timer::KeepAlive });
        if active {
            self.act_later(number, self.plan.load.think);
        }
        number
    }

    pub fn client(&self, number: usize) -> &Client {
        &self.clients[number]
    }

    pub fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Lets the clients of a datacenter that leaves make nothing new there, and close the leases that they
    /// need no more.
    pub(super) fn move_clients_from(&mut self, dc: DcId) {
        let of_dc = |client: &&Client| client.dc == dc && !client.dead && !client.retired;
        let moving: Vec<usize> = self.clients.iter().filter(of_dc).map(|client| client.number).collect();
        for number in moving {
            self.drivers[number] = Driver::Manual;
            let client = &mut self.clients[number];
            client.is_moving = true;
            if client.is_ready() && client.requests().is_empty() && client.unfinished_txns() == 0 {
                self.with_client(number, |client, _, out| client.retire(out));
            }
        }
    }

    /// A datacenter has left: nothing of its clients is left there.
    pub(super) fn drop_clients_of(&mut self, dc: DcId) {
        for client in self.clients.iter_mut().filter(|client| client.dc == dc) {
            client.dead = true;
        }
    }

    /// Lets every living client close its lease that can do so now. Returns true if all have.
    pub fn retire_ready_clients(&mut self) -> bool {
        let living: Vec<usize> =
            self.clients.iter().filter(|c| !c.dead && !c.retired).map(|c| c.number).collect();
        for &number in living.iter() {
            if self.clients[number].is_ready() {
                self.with_client(number, |client, _, out| client.retire(out));
            }
        }
        self.clients.iter().all(|client| client.dead || client.retired)
    }

    /// Lets a client act, and performs its outputs.
    pub fn with_client<T>(
        &mut self,
        number: usize,
        act: impl FnOnce(&mut Client, Moment, &mut Vec<Out>) -> T,
    ) -> T {
        let mut outs = std::mem::take(&mut self.out);
        let result = act(&mut self.clients[number], self.now, &mut outs);
        for out in outs.drain(..) {
            self.perform_out(number, out);
        }
        self.out = outs;
        result
    }

    fn perform_out(&mut self, client: usize, out: Out) {
        match out {
            Out::Call { tag, call, beside } => {
                let Client { dc, .. } = self.clients[client];
                let main = self.clients[client].session();
                if let Some(session) =
                    main.and_then(|main| if beside { self.beside(main) } else { Some(main) })
                {
                    let at = self.now + self.plan.load.distance;
                    let action = Action::ToServer { dc, session, tag, call: *call };
                    match self.stopped_clients.get_mut(&client) {
                        Some(stalled) => stalled.push(action),
                        None => self.queue.push(at, action),
                    }
                }
            }
            Out::Timer { at, timer } => self.queue.push(at, Action::Client { client, timer }),
            Out::Holds { key, grant } => {
                let request = &self.clients[client].requests()[&key];
                let wants = request.order.wants.locks().to_vec();
                let waited = self.now.since(request.issued);
                self.tally.enough += u64::from(request.lists.is_some());
                let holder =
                    Holder { id: HolderId { client, key }, dc: self.clients[client].dc, wants, grant };
                if !self.node(holder.dc).forced.is_final(holder.grant.token) {
                    self.begin_to_hold(&holder);
                }
                self.max_wait = self.max_wait.max(waited);
                self.check_wait(client, key, waited);
                self.at_home_since.remove(&holder.id);
                self.plan_downgrade(client, key);
            }
            Out::Ends { key, why } => {
                self.holders.end(self.now, HolderId { client, key });
                self.tally.lapsed += u64::from(why != HoldEnd::Released);
                self.trace.line(self.now, format_args!("c{client}"), || format!("ends {key}: {why:?}"));
                if let (Driver::Repeat(_), HoldEnd::Released) = (&self.drivers[client], why) {
                    self.act_later(client, Duration::ZERO);
                }
            }
            Out::Downgrades { key, lock } => self.on_downgrades(HolderId { client, key }, &lock),
            Out::Over { key } => {
                self.tally.ungranted += 1;
                self.at_home_since.remove(&HolderId { client, key });
            }
            Out::HoldsInTxn { key, token, snapshot } => self.on_holds_in_txn(client, key, token, snapshot),
            Out::Committed { vector } => {
                let dc = self.clients[client].dc;
                self.passed_on[dc.index()] = (*vector).clone();
            }
            Out::NotCommitted { txn, .. } if !self.knows_outcome(client, txn) => {}
            Out::NotCommitted { txn, why } => {
                let judged = self.txns.on_never(txn, why);
                self.blame(judged);
            }
            Out::Intends { key } => {
                self.tally.insisted += 1;
                if let Some((txn, intent)) = self.clients[client].intent(key) {
                    self.txns.on_other_intent(txn, intent);
                }
            }
            Out::Retries => self.tally.retried += 1,
            Out::Reclaimed { count } => self.tally.reclaimed += count as u64,
            Out::ReclaimsStale => self.tally.stale_reclaims += 1,
            Out::Fails { kind, what } => self.fail(kind, what),
        }
    }

    pub(super) fn check_wait(&mut self, client: usize, key: IdempotencyKey, waited: Duration) {
        if let Some(bound) = self.plan.max_wait.filter(|bound| waited > *bound) {
            let what = format!("request {key} of client {client} waited {waited:?}, the bound is {bound:?}");
            self.fail(FailureKind::Starved, what);
        }
    }

    /// Opens a session, or tries again later if the server is down.
    fn connect_client(&mut self, number: usize) {
        if !self.is_running(self.clients[number].dc) && self.clients[number].may_roam() {
            self.roam(number);
        }
        let dc = self.clients[number].dc;
        if !self.is_running(dc) {
            let pause = self.chance.load.around(Duration::from_millis(100));
            let again = Action::Client { client: number, timer: Timer::Reconnect };
            return self.queue.push(self.now + pause, again);
        }
        let session = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions
            .insert(session, Session { client: number, dc, deaf: false, main: session, beside: None });
        self.with_client(number, |client, now, out| client.on_connected(now, session, out));
    }

    /// A client whose server is gone changes to another one, in most cases.
    fn roam(&mut self, number: usize) {
        let rng = &mut self.chance.others;
        let to = self.nodes[rng.index(self.nodes.len())].dc;
        if rng.percent(70) && self.is_running(to) {
            self.tally.roamed += 1;
            self.trace.line(self.now, format_args!("c{number}"), || format!("goes to {to}"));
            self.with_client(number, |client, _, out| client.roam(to, out));
            self.clients[number].is_moving |= self.is_leaving(to) || self.control.stayed.contains(to);
            self.clients[number].disk_was_full |= self.node(to).disk.room != DiskSpace::Enough;
        }
    }

    /// Returns the session for a client's calls outside of its stream.
    fn beside(&mut self, main: SessionId) -> Option<SessionId> {
        let known = self.sessions.get_mut(&main)?;
        if known.beside.is_some() {
            return known.beside;
        }
        let beside = SessionId(self.next_session);
        self.next_session += 1;
        known.beside = Some(beside);
        let (client, dc, deaf) = (known.client, known.dc, known.deaf);
        self.sessions.insert(beside, Session { client, dc, deaf, main, beside: None });
        Some(beside)
    }

    pub(super) fn on_to_server(&mut self, dc: DcId, session: SessionId, tag: u64, call: Call) {
        let known = self.sessions.get(&session).filter(|known| !known.deaf);
        if let Some(client) = known.map(|known| identity(known.client))
            && self.is_running(dc)
        {
            let id = CallId { session, tag };
            self.nodes[dc.index()].promises.on_call(id, &call);
            self.nodes[dc.index()].forced.on_call(id, &call);
            self.note_begin(session, &call);
            self.step(dc, Event::Client { call: id, client, request: call });
        }
    }

    pub(super) fn on_to_client(&mut self, client: usize, session: SessionId, said: ToClient) {
        let known = &self.clients[client];
        if known.dead || known.session() != Some(session) {
            return;
        }
        self.with_client(client, |client, now, out| match said {
            ToClient::Reply { tag, reply } => client.on_reply(now, tag, reply, out),
            ToClient::Notice(Notice::LeaseEnded { lease }) => client.on_lease_ended(now, lease, out),
            ToClient::Notice(Notice::LockLost { request, .. }) => client.on_lost(now, &[request], out),
            ToClient::Notice(Notice::ForceReleased(forced)) => client.on_force_released(forced.request, out),
            ToClient::Notice(
                Notice::Changed(_) | Notice::Lock(_) | Notice::Progress { .. } | Notice::WatchEnded { .. },
            ) => {
                unreachable!("simulated clients watch nothing")
            }
        });
    }

    /// A client loses its session; the server hears of it later. Messages on their way to the client are
    /// lost, those on their way to the server may be.
    pub fn disconnect_client(&mut self, number: usize, reconnect_after: Duration) {
        let Some(session) = self.clients[number].session() else { return };
        let dc = self.clients[number].dc;
        self.trace.line(self.now, format_args!("c{number}"), || "disconnects".to_owned());
        if let Some(known) = self.sessions.get_mut(&session) {
            let deaf = self.chance.load.percent(50);
            known.deaf = deaf;
            let beside = known.beside;
            if let Some(beside) = beside.and_then(|beside| self.sessions.get_mut(&beside)) {
                beside.deaf = deaf;
            }
            let late = self.chance.load.duration(Duration::ZERO, Duration::from_millis(200));
            let at = self.now + self.plan.load.distance + late;
            self.queue.push(at, Action::SessionClosed { dc, session });
        }
        self.with_client(number, |client, _, out| client.on_disconnected(out));
        let again = Action::Client { client: number, timer: Timer::Reconnect };
        self.queue.push(self.now + reconnect_after, again);
    }

    pub(super) fn on_session_closed(&mut self, dc: DcId, session: SessionId) {
        if let Some(closed) = self.sessions.remove(&session) {
            self.step(dc, Event::SessionClosed { session });
            if let Some(beside) = closed.beside {
                self.on_session_closed(dc, beside);
            }
        }
    }

    /// The server crashed; its clients hear of it a little later.
    pub(super) fn drop_sessions_of(&mut self, dc: DcId) {
        let gone: Vec<_> =
            self.sessions.iter().filter(|(_, s)| s.dc == dc).map(|(id, s)| (*id, s.client)).collect();
        for (session, client) in gone {
            self.sessions.remove(&session);
            let after = self.chance.load.duration(Duration::ZERO, Duration::from_millis(200));
            self.queue.push(self.now + after, Action::SessionBroken { client, session });
        }
    }

    pub(super) fn on_session_broken(&mut self, client: usize, session: SessionId) {
        if self.clients[client].session() == Some(session) {
            self.with_client(client, |client, _, out| client.on_disconnected(out));
            let pause = self.chance.load.around(Duration::from_millis(100));
            self.queue.push(self.now + pause, Action::Client { client, timer: Timer::Reconnect });
        }
    }

    /// Stops a client without notice: it renews nothing, hears nothing, and counts on its lease to the end.
    pub fn kill_client(&mut self, number: usize) {
        self.trace.line(self.now, format_args!("c{number}"), || "dies".to_owned());
        self.clients[number].dead = true;
        if let Some(session) = self.clients[number].session() {
            let dc = self.clients[number].dc;
            let noticed = self.chance.load.duration(Duration::from_secs(5), Duration::from_secs(20));
            self.queue.push(self.now + noticed, Action::SessionClosed { dc, session });
        }
    }

    pub(super) fn on_client_timer(&mut self, number: usize, timer: Timer) {
        let client = &self.clients[number];
        // A dead client still counts on its locks, as long as it would by itself.
        if client.dead && !matches!(timer, Timer::LeaseOver | Timer::HoldOver(_)) {
            return;
        }
        match timer {
            Timer::KeepAlive => {
                let beat = self.now + client.manner.ttl / 3;
                self.queue.push(beat, Action::Client { client: number, timer: Timer::KeepAlive });
                self.with_client(number, |client, now, out| client.keep_alive(now, out));
            }
            Timer::LeaseOver => {
                self.with_client(number, |client, now, out| client.on_lease_timer(now, out));
            }
            Timer::Release(key) => self.with_client(number, |client, _, out| client.end(key, out)),
            Timer::Cancel(key) => {
                if client.requests().get(&key).is_some_and(|r| r.state == State::Waiting) {
                    self.with_client(number, |client, _, out| client.end(key, out));
                }
            }
            Timer::Amend(key) => self.amend_some(number, key),
            Timer::Downgrade(key) => self.with_client(number, |client, _, out| client.downgrade(key, out)),
            Timer::Reconnect => {
                if client.session().is_none() && !client.retired {
                    self.connect_client(number);
                }
            }
            Timer::OpenLease => {
                self.with_client(number, |client, now, out| client.open_lease_again(now, out));
            }
            Timer::Attach => self.with_client(number, |client, now, out| client.attach(now, out)),
            Timer::AskAgain(key) => {
                self.with_client(number, |client, now, out| client.ask_again(now, key, out));
            }
            Timer::Step(key) => self.with_client(number, |client, _, out| client.on_step_timer(key, out)),
            Timer::HoldOver(key) => self.with_client(number, |client, _, out| client.end_txn_hold(key, out)),
            Timer::GiveUp(key) => self.with_client(number, |client, _, out| client.give_up(key, out)),
            Timer::Act => self.on_act(number),
        }
    }

    fn act_later(&mut self, client: usize, after: Duration) {
        self.queue.push(self.now + after, Action::Client { client, timer: Timer::Act });
    }

    fn on_act(&mut self, number: usize) {
        if self.phase == Phase::Healing || self.clients[number].retired {
            return;
        }
        match self.drivers[number].clone() {
            Driver::Manual => {}
            Driver::Repeat(order) => {
                self.with_client(number, |client, now, out| client.acquire(now, order, out));
            }
            Driver::Random => {
                self.act_randomly(number);
                let pause = self.chance.load.around(self.plan.load.think);
                let least =
                    if self.txns.made() > MANY_COMMITS { SLOW_DOWN } else { Duration::from_micros(100) };
                self.act_later(number, pause.max(least));
            }
        }
    }

    fn act_randomly(&mut self, number: usize) {
        let client = &self.clients[number];
        let waiting = client.requests().iter().find(|(_, r)| r.state == State::Waiting).map(|(key, _)| *key);
        if let Some(key) = waiting.filter(|_| self.chance.load.percent(2)) {
            // A retry under the same key.
            self.with_client(number, |client, now, out| client.send_acquire(now, key, out));
        }
        let (txns, plain) = (self.plan.txns.percent, self.plan.txns.plain_percent);
        if txns > 0 && self.chance.txns.percent(txns) {
            self.act_in_transaction(number);
        }
        if self.plan.habits.crowd > 0 && self.chance.habits.percent(CROWD_PERCENT) {
            return self.crowd(number);
        }
        let client = &self.clients[number];
        let full = client.requests().len() + client.deferred() >= self.plan.load.concurrent;
        if full || (plain < 100 && !self.chance.txns.percent(plain)) {
            return;
        }
        let order = self.random_order(self.clients[number].dc);
        let unwanted = order.clone();
        let key = self.acquire_some(number, order);
        if self.chance.others.percent(self.plan.habits.twice_percent) {
            self.with_client(number, |client, now, out| client.send_acquire_beside(now, key, out));
        }
        // This draws no random number: the key decides.
        if key.is_multiple_of(OVERTAKES_EVERY) {
            self.with_client(number, |client, now, out| client.acquire_and_cancel(now, unwanted, out));
        }
        if self.chance.load.percent(self.plan.load.cancel_percent) {
            let at = self.now + self.chance.load.around(Duration::from_millis(150));
            self.queue.push(at, Action::Client { client: number, timer: Timer::Cancel(key) });
        }
    }

    /// Acquires one lock many times at once.
    fn crowd(&mut self, number: usize) {
        let many = self.plan.habits.crowd;
        if self.clients[number].requests().len() as u64 > many / 4 {
            return;
        }
        let Order { wants, .. } = self.random_order(self.clients[number].dc);
        let order = Order { wants, wait: Wait::AtMost(CROWD_WAITS), hold: Some(Duration::ZERO) };
        for _ in 0..many {
            let order = order.clone();
            self.with_client(number, |client, now, out| client.acquire(now, order, out));
        }
    }

    pub(super) fn random_order(&mut self, dc: DcId) -> Order {
        let (plan, rng) = (&self.plan.load, &mut self.chance.load);
        let count = rng.between(1, plan.max_locks as u64);
        let locks: Vec<(LockName, Mode)> = (0..count)
            .map(|_| {
                let hot = self.locks.cold.is_empty() || rng.percent(plan.hot_percent);
                let home = !hot && plan.home_percent > 0 && rng.percent(plan.home_percent);
                let locks = match (hot, home) {
                    (true, _) => &self.locks.hot,
                    (false, true) => &self.locks.home[dc.index()],
                    (false, false) => &self.locks.cold,
                };
                let name = rng.pick(locks).clone();
                let shared = plan.shared_percent.get(dc.index()).copied().unwrap_or(0);
                (name, if rng.percent(shared) { Mode::Shared } else { Mode::Exclusive })
            })
            .collect();
        let dice = rng.below(100);
        let wait = match dice {
            _ if dice < plan.try_percent => Wait::Try,
            _ if dice < plan.try_percent + plan.at_most_percent => Wait::AtMost(rng.around(plan.at_most)),
            _ => Wait::Forever,
        };
        let wants = Wants::all(locks).expect("a few short names are fine");
        Order { wants, wait, hold: Some(rng.around(plan.hold)) }
    }
}

/// Two simulated clients each are one client for the server, so that its leases are several.
fn identity(client: usize) -> ClientId {
    ClientId(1 + client as u64 / 2)
}

fn random_behaviour(habits: &Habits, rng: &mut Rng) -> Behaviour {
    Behaviour {
        unary: rng.percent(habits.unary_percent),
        silent: rng.percent(habits.silent_percent),
        insists: rng.percent(habits.insists_percent),
        roams: rng.percent(habits.roams_percent),
    }
}
