//! Servers linked through relays, so that each link can be cut and healed.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;

use super::Cluster;
use super::relay::Relay;

/// Detects dead peers three times as fast as the default, to keep tests short.
pub const QUICK: &str = "[agreed]\nheartbeat = \"200 ms\"\npeer_timeout = \"1 s\"\n";

/// A cluster, and the network between its members if the test controls it.
pub struct Wan {
    pub cluster: Cluster,
    /// By (dialling, dialled) datacenter.
    relays: BTreeMap<(u8, u8), Relay>,
    /// The links that are up, as each end has logged so far: (logging datacenter, peer).
    up: BTreeSet<(u8, u8)>,
}

impl Wan {
    /// Starts servers with these tables in their configuration. Every link is whole.
    pub fn start(dcs: u8, more: &str) -> Wan {
        Wan::start_cut(dcs, more, &[])
    }

    /// The same, with these links cut before the servers start.
    pub fn start_cut(dcs: u8, more: &str, cuts: &[(u8, u8)]) -> Wan {
        let cluster = Cluster::prepare(dcs);
        let relay = |(from, to)| ((from, to), Relay::start(cluster.quic_address(to)));
        let relays: BTreeMap<(u8, u8), Relay> = pairs(dcs).map(relay).collect();
        for dc in 0..dcs {
            let address = |to| match relays.get(&(dc, to)) {
                Some(relay) => relay.address,
                None => cluster.quic_address(dc),
            };
            cluster.write_config(dc, address, more);
        }
        let mut wan = Wan { cluster, relays, up: BTreeSet::new() };
        cuts.iter().for_each(|(a, b)| wan.cut(*a, *b));
        wan.cluster.start_all();
        wan
    }

    /// Starts servers for [`Cluster::befall`], in builds with the feature `faults`. They know each other's
    /// real addresses: their scripts define the faults between them.
    pub fn start_faulty(dcs: u8, more: &str) -> Wan {
        let mut cluster = Cluster::prepare(dcs);
        for dc in 0..dcs {
            cluster.write_config(dc, |to| cluster.quic_address(to), more);
            cluster.write_faults(dc, "");
        }
        cluster.start_all();
        Wan { cluster, relays: BTreeMap::new(), up: BTreeSet::new() }
    }

    /// Drops everything between the two from now on, in both directions.
    pub fn cut(&self, a: u8, b: u8) {
        self.between(a, b).into_iter().for_each(Relay::cut);
    }

    pub fn heal(&self, a: u8, b: u8) {
        self.between(a, b).into_iter().for_each(Relay::heal);
    }

    pub fn heal_all(&self) {
        self.relays.values().for_each(Relay::heal);
    }

    fn between(&self, a: u8, b: u8) -> [&Relay; 2] {
        [(a, b), (b, a)].map(|pair| self.relays.get(&pair).expect("two different members"))
    }

    /// Waits until one more datagram is lost between the two.
    pub async fn loses(&self, a: u8, b: u8) {
        let [mut there, mut back] = self.between(a, b).map(Relay::dropped);
        tokio::select! {
            lost = there.changed() => lost,
            lost = back.changed() => lost,
        }
        .expect("the relays are there");
    }

    /// Returns how many datagrams were lost between the two.
    pub fn dropped(&self, a: u8, b: u8) -> u64 {
        self.between(a, b).into_iter().map(|relay| *relay.dropped().borrow()).sum()
    }

    /// Kills a server as by `kill -9`.
    pub fn kill(&mut self, dc: u8) {
        self.cluster.kill(dc);
        self.up.retain(|(from, _)| *from != dc);
    }

    /// Stops a server (SIGSTOP) until the others have given up their links to it, then resumes it.
    pub fn pause(&mut self, dc: u8) {
        self.await_whole();
        self.cluster.server(dc).signal(Signal::STOP);
        for other in (0..self.cluster.servers.len() as u8).filter(|other| *other != dc) {
            self.await_link(other, dc, false);
        }
        self.cluster.server(dc).signal(Signal::CONT);
        self.await_whole();
    }

    /// Waits until a server has ended by itself with that exit code.
    pub fn reap(&mut self, dc: u8, code: i32) {
        let mut server = self.cluster.servers[usize::from(dc)].take().expect("it was started");
        assert_eq!(server.wait(), code, "how dc{dc} ended");
        self.up.retain(|(from, _)| *from != dc);
    }

    pub fn restart(&mut self, dc: u8) {
        self.cluster.restart(dc);
    }

    /// Returns true if `dc` has a link to `peer`, as far as its log was read.
    pub fn is_linked(&mut self, dc: u8, peer: u8) -> bool {
        for line in self.cluster.server(dc).drain() {
            self.note(dc, &line);
        }
        self.up.contains(&(dc, peer))
    }

    /// Waits until `dc` logs that its link to `peer` is up, or down.
    pub fn await_link(&mut self, dc: u8, peer: u8, up: bool) {
        while self.is_linked(dc, peer) != up {
            let line = self.cluster.server(dc).line("link ");
            self.note(dc, &line);
        }
    }

    /// Waits until every server is linked to every other one.
    pub fn await_whole(&mut self) {
        pairs(self.cluster.servers.len() as u8).for_each(|(dc, peer)| self.await_link(dc, peer, true));
    }

    /// Cuts a link that is whole or about to be, and waits until both ends have noticed.
    pub fn break_link(&mut self, a: u8, b: u8) {
        self.await_link(a, b, true);
        self.await_link(b, a, true);
        let before = self.dropped(a, b);
        self.cut(a, b);
        self.await_link(a, b, false);
        self.await_link(b, a, false);
        assert!(self.dropped(a, b) > before, "it is the cut that ended the link between dc{a} and dc{b}");
    }

    fn note(&mut self, dc: u8, line: &str) {
        let Some((_, peer)) = line.split_once("peer=dc") else { return };
        let peer = peer.bytes().take_while(u8::is_ascii_digit).fold(0, |id, digit| 10 * id + (digit - b'0'));
        if line.contains("link up") {
            self.up.insert((dc, peer));
        } else if line.contains("link down") {
            self.up.remove(&(dc, peer));
        }
    }
}

/// Returns all pairs (dialling, dialled).
fn pairs(dcs: u8) -> impl Iterator<Item = (u8, u8)> {
    (0..dcs).flat_map(move |from| (0..dcs).filter(move |to| *to != from).map(move |to| (from, to)))
}
