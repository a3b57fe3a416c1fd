//! Processes that stop for longer than every timeout and then continue, as by SIGSTOP and SIGCONT. They
//! handle nothing meanwhile, their clocks run on, and their inputs wait. Peers take a stopped server for
//! dead; so do its clients, after their leases ran out by their own count.

use std::time::Duration;

use crate::replica::Event;
use crate::sim::client::Timer;
use crate::sim::world::{Action, World};
use geolock_api::names::DcId;

/// The process that an action needs.
enum Needs {
    Node(DcId),
    Client(usize),
    Nobody,
}

fn needs(action: &Action) -> Needs {
    match action {
        Action::Arrive { to: node, .. }
        | Action::Flush { node, .. }
        | Action::LinkUp { node, .. }
        | Action::LinkDown { node, .. }
        | Action::Synced { node, .. }
        | Action::TakeCheckpoint { node }
        | Action::CheckpointWritten { node, .. }
        | Action::MakeRoom { node }
        | Action::Relief { node }
        | Action::ToServer { dc: node, .. }
        | Action::SessionClosed { dc: node, .. } => Needs::Node(*node),
        // By the client's own clock it holds no longer, even if it does not check the time.
        Action::Client { timer: Timer::LeaseOver | Timer::HoldOver(_), .. } => Needs::Nobody,
        Action::ToClient { client, .. }
        | Action::SessionBroken { client, .. }
        | Action::Client { client, .. } => Needs::Client(*client),
        _ => Needs::Nobody,
    }
}

impl World {
    /// Keeps an action for later if its process is stopped; returns any other.
    pub(super) fn stall(&mut self, action: Action) -> Option<Action> {
        let stalled = match needs(&action) {
            Needs::Node(dc) => self.nodes.get_mut(dc.index()).and_then(|node| node.stalled.as_mut()),
            Needs::Client(client) => self.stopped_clients.get_mut(&client),
            Needs::Nobody => None,
        };
        match stalled {
            Some(stalled) => {
                stalled.push(action);
                None
            }
            None => Some(action),
        }
    }

    /// Longer than every lease, every timeout of peers, every heartbeat.
    fn pause_length(&mut self) -> Duration {
        let least = self.plan.load.ttl.1.max(self.plan.peer_timeout) + self.plan.heartbeat;
        self.chance.fault.duration(least, 2 * least)
    }

    pub(super) fn pause_some_node(&mut self) -> bool {
        let dc = self.random_dc();
        if !self.is_running(dc) || self.node(dc).is_paused() {
            return false;
        }
        let lasts = self.pause_length();
        self.pause_for(dc, lasts)
    }

    /// Stops the process of a node. Returns false if it does not run.
    pub(super) fn pause_for(&mut self, dc: DcId, lasts: Duration) -> bool {
        let runs = self.is_running(dc) && !self.node(dc).is_paused();
        if runs {
            let node = &mut self.nodes[dc.index()];
            node.stalled = Some(Vec::new());
            node.described_at = None;
            let life = node.life;
            self.trace.line(self.now, dc, || format!("stops for {lasts:?}"));
            self.queue.push(self.now + self.plan.peer_timeout, Action::PeersGiveUp { node: dc, life });
            self.queue.push(self.now + lasts, Action::Resume { node: dc, life });
        }
        runs
    }

    /// Its peers' links have received nothing for too long.
    pub(super) fn on_peers_give_up(&mut self, dc: DcId, life: u64) {
        if self.node(dc).is_paused() && self.node(dc).life == life {
            self.linkable().iter().filter(|peer| *peer != dc).for_each(|peer| self.break_link(dc, peer));
        }
    }

    pub(super) fn on_resume(&mut self, dc: DcId, life: u64) {
        if self.node(dc).life == life {
            self.resume_node(dc);
        }
    }

    pub(super) fn resume_node(&mut self, dc: DcId) {
        if let Some(stalled) = self.nodes[dc.index()].stalled.take() {
            self.trace.line(self.now, dc, || format!("goes on with {} inputs", stalled.len()));
            // Overdue deadlines come before the inputs that waited, or their messages would be sent on links
            // that are known to be gone.
            self.step(dc, Event::Tick);
            stalled.into_iter().for_each(|action| self.act(action));
        }
    }

    pub(super) fn pause_some_client(&mut self) -> bool {
        let Some(client) = self.some_client() else { return false };
        let lasts = self.pause_length();
        self.trace.line(self.now, format_args!("c{client}"), || format!("stops for {lasts:?}"));
        self.stopped_clients.insert(client, Vec::new());
        self.queue.push(self.now + lasts, Action::ResumeClient { client });
        true
    }

    pub(super) fn resume_client(&mut self, client: usize) {
        for action in self.stopped_clients.remove(&client).unwrap_or_default() {
            match action {
                // The client was about to send it.
                Action::ToServer { .. } => self.queue.push(self.now + self.plan.load.distance, action),
                action => self.act(action),
            }
        }
    }

    pub(super) fn resume_all(&mut self) {
        self.members().iter().for_each(|dc| self.resume_node(dc));
        let clients: Vec<usize> = self.stopped_clients.keys().copied().collect();
        clients.into_iter().for_each(|client| self.resume_client(client));
    }
}
