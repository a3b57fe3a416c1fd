//! Faults, and the healing of all of them.

use std::time::Duration;

use crate::base::capacity::DiskSpace;
use crate::replica::Event;
use crate::sim::failure::FaultKind;
use crate::sim::network::Weather;
use crate::sim::world::{Action, Phase, World};
use geolock_api::names::DcId;

/// Maximum delay that a bad link adds to a message.
const MOST_JITTER: Duration = Duration::from_millis(300);
/// Time between two messages of a very slow link.
const SLOW_GAP: Duration = Duration::from_millis(100);

impl World {
    pub(super) fn plan_faults(&mut self) {
        for (kind, every) in self.plan.faults.clone() {
            let at = self.now + self.chance.fault.around(every);
            self.queue.push(at, Action::Fault(kind));
        }
    }

    pub(super) fn on_fault(&mut self, kind: FaultKind) {
        // If too much was broken for another fault, that fault happens in the calm phase, once.
        let is_missing = self.tally.faults_of(kind) == 0;
        let is_over = self.phase == Phase::Calm && (!is_missing || !self.has_one_history());
        if self.phase == Phase::Healing || is_over {
            return;
        }
        let inflicted = self.inflict(kind);
        if inflicted {
            self.tally.faults[kind as usize] += 1;
            self.trace.line(self.now, "**", || format!("{kind:?}"));
        }
        let every = self.plan.faults.iter().find(|(planned, _)| *planned == kind).map(|(_, every)| *every);
        if let Some(every) = every {
            // If there was nothing to break, there soon will be.
            let every = if inflicted { every } else { every / 10 };
            let pause = self.chance.fault.around(every).max(Duration::from_millis(1));
            self.queue.push(self.now + pause, Action::Fault(kind));
        }
    }

    /// Injects a fault. Returns true if there was something to break.
    fn inflict(&mut self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::Crash => {
                let dc = self.victim();
                self.crash_for_a_while(dc)
            }
            FaultKind::CrashAll => {
                let crashed = self.members().iter().filter(|dc| self.crash_for_a_while(*dc)).count();
                crashed > 0
            }
            FaultKind::LinkReset => {
                let Some((a, b)) = self.some_living_link() else { return false };
                self.break_link(a, b);
                true
            }
            FaultKind::CutPair => {
                let (a, b) = self.random_pair();
                if self.plan.keep_connected && self.is_anything_cut() {
                    return false;
                }
                let lasts = self.cut_length();
                self.cut_for(a, b, lasts);
                self.cut_for(b, a, lasts);
                true
            }
            FaultKind::CutOneWay => {
                let (a, b) = self.random_pair();
                let lasts = self.cut_length();
                self.cut_for(a, b, lasts);
                true
            }
            FaultKind::Isolate => {
                let dc = self.random_dc();
                let lasts = self.cut_length();
                for peer in self.linkable().iter().filter(|peer| *peer != dc) {
                    self.cut_for(dc, peer, lasts);
                    self.cut_for(peer, dc, lasts);
                }
                true
            }
            FaultKind::Flap => self.flap_some_link(),
            FaultKind::WallJump => self.jump_some_clock(),
            FaultKind::ClientDies => self.kill_some_client(),
            FaultKind::ClientDisconnects => self.disconnect_some_client(),
            FaultKind::DiskFull => {
                let dc = self.random_dc();
                self.fill_disk_for_a_while(dc)
            }
            FaultKind::Split => self.split_for_a_while(),
            FaultKind::Lossy => self.worsen(Weather { loss_percent: 5, ..Weather::default() }),
            FaultKind::Jitter => self.worsen(Weather { jitter: MOST_JITTER, ..Weather::default() }),
            FaultKind::Slow => self.worsen(Weather { gap: SLOW_GAP, ..Weather::default() }),
            FaultKind::Mute => {
                let (from, to) = self.random_pair();
                let lasts = self.cut_length();
                self.mute(from, to);
                self.queue.push(self.now + lasts, Action::Unmute { from, to });
                true
            }
            FaultKind::Pause => self.pause_some_node(),
            FaultKind::ClientPause => self.pause_some_client(),
            FaultKind::DiskRolledBack | FaultKind::DiskRestored | FaultKind::DiskLost => {
                self.damage_some_disk(kind)
            }
        }
    }

    fn jump_some_clock(&mut self) -> bool {
        let dc = self.random_dc();
        if self.node(dc).behind_ms.is_some() {
            return false;
        }
        let most = self.plan.clock.jump.as_millis() as i64;
        let by = self.chance.fault.signed(most);
        let mut jumped = self.node(dc).clock.clone();
        jumped.jump(by);
        // With so many others ahead, this one is in the majority: then the steps are followed, and after
        // healing nothing moves until time has caught up (`docs/algorithm/grants.md#23-clock-skew`).
        let ahead = self.nodes.iter().filter(|node| node.dc != dc && node.clock.was_ahead()).count();
        let is_possible = !jumped.was_ahead() || ahead < self.nodes.len() / 2;
        if is_possible {
            self.nodes[dc.index()].clock = jumped;
        }
        is_possible
    }

    fn flap_some_link(&mut self) -> bool {
        let (a, b) = self.random_pair();
        let mut at = self.now;
        for _ in 0..self.chance.fault.between(3, 8) {
            self.queue.push(at, Action::Break { a, b });
            at = at + self.chance.fault.around(Duration::from_millis(120));
        }
        true
    }

    /// Cuts some datacenters off from the rest.
    fn split_for_a_while(&mut self) -> bool {
        let members = self.members();
        // At least one on each side.
        let some = self.chance.fault.between(1, (1 << members.len()) - 2);
        let is_in = |dc: DcId| some & 1 << dc.index() != 0;
        let lasts = self.cut_length();
        for from in members.iter() {
            for to in members.iter().filter(|to| is_in(from) != is_in(*to)) {
                self.cut_for(from, to, lasts);
            }
        }
        true
    }

    /// Makes a link worse for a while.
    fn worsen(&mut self, weather: Weather) -> bool {
        let (a, b) = self.random_pair();
        let lasts = self.cut_length();
        self.network.set_weather(a, b, weather);
        self.queue.push(self.now + lasts, Action::Clear { a, b });
        true
    }

    /// Returns the next datacenter to crash: any, except where the plan has only one writer, which then is
    /// the one.
    fn victim(&mut self) -> DcId {
        match self.plan.max_wait_at_home {
            Some(_) => self.members().iter().last().expect("a cluster has members"),
            None => self.random_dc(),
        }
    }

    pub(super) fn random_dc(&mut self) -> DcId {
        let index = self.chance.fault.index(self.nodes.len());
        self.nodes[index].dc
    }

    fn random_pair(&mut self) -> (DcId, DcId) {
        let first = self.chance.fault.index(self.nodes.len());
        let other = (first + 1 + self.chance.fault.index(self.nodes.len() - 1)) % self.nodes.len();
        (self.nodes[first].dc, self.nodes[other].dc)
    }

    fn some_living_link(&mut self) -> Option<(DcId, DcId)> {
        let members = self.members();
        let pairs = members.iter().flat_map(|a| members.iter().filter(move |b| a < *b).map(move |b| (a, b)));
        let living: Vec<_> = pairs.filter(|(a, b)| self.network.is_alive(*a, *b)).collect();
        (!living.is_empty()).then(|| *self.chance.fault.pick(&living))
    }

    fn is_anything_cut(&self) -> bool {
        let members = self.members();
        members.iter().any(|a| members.iter().any(|b| a != b && self.network.is_cut(a, b)))
    }

    fn cut_length(&mut self) -> Duration {
        self.chance.fault.around(self.plan.cut)
    }

    pub(super) fn cut_for(&mut self, from: DcId, to: DcId, lasts: Duration) {
        self.cut(from, to);
        self.queue.push(self.now + lasts, Action::Uncut { from, to });
    }

    fn crash_for_a_while(&mut self, dc: DcId) -> bool {
        let runs = self.is_running(dc);
        if runs {
            self.crash(dc);
            let down = self.chance.fault.around(self.plan.down);
            self.restart_later(dc, down);
        }
        runs
    }

    fn fill_disk_for_a_while(&mut self, dc: DcId) -> bool {
        let had_room = self.node(dc).disk.room == DiskSpace::Enough && !self.node(dc).is_paused();
        if had_room {
            let room = if self.chance.fault.percent(60) { DiskSpace::Full } else { DiskSpace::Low };
            self.set_room(dc, room);
            let lasts = self.cut_length();
            self.queue.push(self.now + lasts, Action::MakeRoom { node: dc });
        }
        had_room
    }

    /// Sets the space of a disk; its node hears of it, if it runs.
    pub(super) fn set_room(&mut self, dc: DcId, room: DiskSpace) {
        self.nodes[dc.index()].disk.room = room;
        let short = room != DiskSpace::Enough;
        let clients = self.clients.iter_mut().filter(|client| client.dc == dc);
        clients.for_each(|client| client.disk_was_full |= short);
        self.step(dc, Event::Disk { room });
    }

    pub(super) fn some_client(&mut self) -> Option<usize> {
        let clients =
            self.clients.iter().filter(|c| !c.dead && !self.stopped_clients.contains_key(&c.number));
        let living: Vec<usize> = clients.map(|client| client.number).collect();
        (!living.is_empty()).then(|| *self.chance.fault.pick(&living))
    }

    fn kill_some_client(&mut self) -> bool {
        let Some(number) = self.some_client() else { return false };
        let dc = self.clients[number].dc;
        self.kill_client(number);
        let pause = self.chance.fault.around(Duration::from_millis(500));
        self.queue.push(self.now + pause, Action::Spawn { dc });
        true
    }

    fn disconnect_some_client(&mut self) -> bool {
        let Some(number) = self.some_client() else { return false };
        let connected = self.clients[number].session().is_some();
        let long = self.chance.fault.percent(20);
        let pause = if long { self.plan.load.ttl.1 * 3 / 2 } else { Duration::from_millis(100) };
        let pause = self.chance.fault.around(pause);
        self.disconnect_client(number, pause);
        connected
    }

    /// Ends all faults: links carry, nodes run, clocks are right, disks have space.
    pub fn heal(&mut self, phase: Phase) {
        self.trace.line(self.now, "**", || "all faults are healed".to_owned());
        self.phase = phase;
        self.resume_all();
        self.heal_witnesses();
        let right = self.nodes.iter().filter(|node| !node.clock.was_wrong()).count();
        // So many others confirm the step to a clock that was behind.
        let confirmed = right >= self.nodes.len() / 2;
        for from in self.members().iter() {
            for to in self.members().iter().filter(|to| *to != from) {
                while self.network.is_cut_from(from, to) {
                    self.uncut(from, to);
                }
                while self.network.is_mute(from, to) {
                    self.unmute(from, to);
                }
                self.network.set_weather(from, to, Weather::default());
            }
            self.set_room(from, DiskSpace::Enough);
            self.on_relief(from);
            self.set_clock_right(from);
            let clock = &self.nodes[from.index()].clock;
            if clock.was_ahead() || (clock.was_wrong() && !confirmed) {
                // A server with `ClockSkew` is an operator's task: set the clock, restart the server.
                // One that was behind is right as soon as its clock is.
                self.crash(from);
            }
            if !self.is_running(from) {
                self.start_node(from);
                self.learn_again(from);
            }
        }
    }
}
