//! Links: how they come up, carry messages and break.

use std::time::Duration;

use crate::base::wire::{self, PROTOCOL_VERSION};
use crate::replica::{Event, Message};
use crate::sim::failure::FailureKind;
use crate::sim::network::{ConnId, Sent};
use crate::sim::world::{Action, World, show};
use geolock_api::names::DcId;

impl World {
    /// Queues a message of a node on one of its links.
    pub(super) fn send(&mut self, from: DcId, to: DcId, message: Message) {
        if !self.network.is_up_at(from, to) {
            let what = format!("{from} sent {} to {to}, the link is down", show::message(&message));
            return self.fail(FailureKind::Contract, what);
        }
        self.tally.messages += 1;
        self.entry_messages += u64::from(matches!(message, Message::Entries(_)));
        let message = if self.plan.net.encoded { self.through_codec(message) } else { message };
        match self.network.send(self.now, from, to, message, &mut self.chance.net) {
            Sent::Arrives { at, conn, message } => {
                self.queue.push(at, Action::Arrive { from, to, conn, message });
            }
            Sent::Stalled | Sent::Lost => {}
        }
        self.tally.overtaking = self.network.overtaking;
        self.flush_soon(from, to);
    }

    fn through_codec(&mut self, message: Message) -> Message {
        let decoded = wire::encode("message", &message).and_then(|bytes| wire::decode("message", &bytes));
        match decoded {
            Ok(decoded) if decoded == message => decoded,
            Ok(decoded) => {
                self.fail(FailureKind::Codec, format!("{message:?} became {decoded:?}"));
                message
            }
            Err(error) => {
                self.fail(FailureKind::Codec, format!("{message:?}: {error}"));
                message
            }
        }
    }

    fn flush_soon(&mut self, node: DcId, peer: DcId) {
        if self.network.wants_flush(node, peer) {
            let conn = self.network.conn(node, peer);
            self.queue.push(self.now + self.plan.net.flush, Action::Flush { node, peer, conn });
        }
    }

    pub(super) fn on_flush(&mut self, node: DcId, peer: DcId, conn: ConnId) {
        let (messages, batches) = self.network.flush(node, peer, conn);
        if messages > 0 {
            self.step(node, Event::Flushed { peer, messages, batches });
        }
    }

    pub(super) fn on_arrive(&mut self, from: DcId, to: DcId, conn: ConnId, message: Message) {
        if self.is_running(to) && self.network.arrives(from, to, conn) {
            if let Message::Entries(entries) = &message
                && self.witness(to).is_none()
            {
                let durable = &self.node(to).disk.facts.applied;
                let again = entries.iter().filter(|entry| entry.seq <= durable.get(entry.dc)).count();
                self.tally.duplicates += again as u64;
            }
            if self.witness(to).is_some() {
                if matches!(message, Message::Entries(_)) {
                    self.fail(FailureKind::Contract, format!("{from} sends entries to the witness {to}"));
                }
                return self.step(to, Event::Received { peer: from, message });
            }
            if let Message::Heartbeat(_) | Message::HeartbeatV2(_) | Message::HeartbeatV1(_) = &message {
                // A crash of the sender ends the connection, so this is of its present run.
                let life = self.node(from).life;
                self.nodes[to.index()].heard.insert(from, life);
            }
            self.step(to, Event::Received { peer: from, message });
        }
    }

    /// Tries to connect after the usual pause; at most one attempt is pending.
    pub(super) fn connect_soon(&mut self, a: DcId, b: DcId) {
        let pair = (a.min(b), a.max(b));
        if self.connecting.contains(&pair) {
            return;
        }
        self.connecting.push(pair);
        let least = Duration::from_millis(5);
        let pause = self.chance.net.duration(least, self.plan.net.reconnect.max(least));
        self.queue.push(self.now + pause, Action::Connect { a: pair.0, b: pair.1 });
    }

    pub(super) fn on_connect(&mut self, a: DcId, b: DcId) {
        self.connecting.retain(|pair| *pair != (a, b));
        if self.network.is_alive(a, b) || !self.is_running(a) || !self.is_running(b) {
            return;
        }
        if !self.know_each_other(a, b) {
            return self.connect_soon(a, b);
        }
        let is_paused = |dc: DcId| self.witness(dc).is_none() && self.node(dc).is_paused();
        if is_paused(a) || is_paused(b) || self.network.is_cut(a, b) {
            return self.connect_soon(a, b);
        }
        // An end that has not heard of the end of the last connection hears of it now.
        let last = self.network.conn(a, b);
        self.on_link_down(a, b, last);
        self.on_link_down(b, a, last);
        let (conn, at_a, at_b) = self.network.connect(self.now, a, b, &mut self.chance.net);
        self.queue.push(at_a, Action::LinkUp { node: a, peer: b, conn });
        self.queue.push(at_b, Action::LinkUp { node: b, peer: a, conn });
    }

    pub(super) fn on_link_up(&mut self, node: DcId, peer: DcId, conn: ConnId) {
        if self.is_running(node) && self.network.rise(node, peer, conn) {
            let speaks = |dc| match self.witness(dc) {
                Some(_) => PROTOCOL_VERSION,
                None => self.node(dc).speaks(),
            };
            let version = if self.plan.txns.old_links { 2 } else { speaks(node).min(speaks(peer)) };
            self.step(node, Event::LinkUp { peer, version });
        }
    }

    pub(super) fn on_link_down(&mut self, node: DcId, peer: DcId, conn: ConnId) {
        if !self.is_running(node) {
            return;
        }
        // Overdue work comes first, every piece of it, or its messages would be sent on a link that is known
        // to be gone.
        self.step(node, Event::Tick);
        let is_due = |world: &World| match world.witness(node) {
            Some(_) => world.witness_is_due(node),
            None => world.node(node).tick.is_some_and(|tick| tick <= world.now),
        };
        while self.is_running(node) && is_due(self) {
            self.step(node, Event::Tick);
        }
        if self.network.fall(node, peer, conn) {
            self.step(node, Event::LinkDown { peer });
        }
    }

    /// Breaks a link: everything in flight is lost, both ways. The ends hear of it at different times.
    pub fn break_link(&mut self, a: DcId, b: DcId) {
        if !self.network.is_alive(a, b) {
            return;
        }
        self.trace.line(self.now, "net", || format!("the link between {a} and {b} breaks"));
        let conn = self.network.conn(a, b);
        self.network.kill(a, b);
        for (node, peer) in [(a, b), (b, a)] {
            let after = self.chance.net.duration(Duration::ZERO, Duration::from_millis(150));
            self.queue.push(self.now + after, Action::LinkDown { node, peer, conn });
        }
        self.connect_soon(a, b);
    }

    /// Breaks all links of a node that has just crashed. Its peers learn it from the silence.
    pub(super) fn drop_links_of(&mut self, dc: DcId) {
        for peer in self.linkable().iter().filter(|peer| *peer != dc) {
            if self.network.is_alive(dc, peer) {
                let conn = self.network.conn(dc, peer);
                self.network.kill(dc, peer);
                let after = self.chance.net.duration(Duration::ZERO, self.plan.peer_timeout);
                self.queue.push(self.now + after, Action::LinkDown { node: peer, peer: dc, conn });
            }
            self.network.forget(dc, peer);
        }
    }

    /// Blocks the direction from `from` to `to`.
    pub fn cut(&mut self, from: DcId, to: DcId) {
        self.trace.line(self.now, "net", || format!("nothing gets from {from} to {to} any more"));
        self.network.cut(from, to);
        let conn = self.network.conn(from, to);
        let patience = self.plan.peer_timeout;
        self.queue.push(self.now + patience, Action::IdleTimeout { a: from, b: to, conn });
    }

    pub fn uncut(&mut self, from: DcId, to: DcId) {
        self.trace.line(self.now, "net", || format!("a cut from {from} to {to} heals"));
        let conn = self.network.conn(from, to);
        for (at, message) in self.network.uncut(self.now, from, to, &mut self.chance.net) {
            self.queue.push(at, Action::Arrive { from, to, conn, message });
        }
        self.flush_soon(from, to);
    }

    /// Mutes a direction: the link is up and carries nothing that way.
    pub(super) fn mute(&mut self, from: DcId, to: DcId) {
        self.trace.line(self.now, "net", || format!("{from} does not answer {to} any more"));
        self.network.mute(from, to);
    }

    pub(super) fn unmute(&mut self, from: DcId, to: DcId) {
        let conn = self.network.conn(from, to);
        for (at, message) in self.network.unmute(self.now, from, to, &mut self.chance.net) {
            self.queue.push(at, Action::Arrive { from, to, conn, message });
        }
        self.flush_soon(from, to);
    }

    pub(super) fn on_idle_timeout(&mut self, a: DcId, b: DcId, conn: ConnId) {
        if self.network.is_cut(a, b) && self.network.conn(a, b) == conn {
            self.break_link(a, b);
        }
    }
}
