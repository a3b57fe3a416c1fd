//! Links between datacenters, with the properties of QUIC: reliable and in order while they live, and
//! everything in flight is lost when they break.
//!
//! Each way of a link has lanes, one per urgency (urgent messages overtake entries), each first in, first
//! out. A link breaks at once for both ends in truth, but each end hears of it later; until then it continues
//! to send into nothing. A direction can be *blocked* (a cut): messages wait, as retransmissions would, and
//! arrive late if the cut heals in time, or never if one end gives the connection up. Every connection has a
//! number; everything that belongs to an older one is dropped.
//!
//! This file only keeps the state and computes times; the world has the event queue.

use std::time::Duration;

use crate::base::rng::Rng;
use crate::replica::{Message, Urgency};
use crate::sim::queue::Moment;
use geolock_api::names::DcId;

/// The number of a connection of one link.
pub(super) type ConnId = u64;

/// The delay of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub delay: Duration,
    /// Random addition, up to this.
    pub jitter: Duration,
}

/// A temporary degradation of a direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weather {
    /// Random addition, up to this.
    pub jitter: Duration,
    /// Percentage of messages that have to be sent again; others wait behind them.
    pub loss_percent: u64,
    /// Minimum time between two messages of a lane.
    pub gap: Duration,
}

/// Time to detect a loss, beyond a round trip.
const LOSS_NOTICED: Duration = Duration::from_millis(25);

#[derive(Debug)]
struct Direction {
    path: Path,
    weather: Weather,
    /// Last arrival by lane, indexed by [`Urgency`].
    last: [Moment; 3],
    /// Number of cuts that block it.
    cuts: u32,
    /// Number of mutes: it carries nothing although it is up.
    mutes: u32,
    stalled: Vec<Message>,
    /// Messages that the queue of the sender's link took and that are not reported as flushed, and the number
    /// of entries among them.
    unflushed: (usize, usize),
    flush_scheduled: bool,
}

/// The state of a link, as one end believes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Down,
    /// The end will hear at that moment that the link is up.
    Rising(Moment),
    Up,
}

#[derive(Debug)]
struct Link {
    conn: ConnId,
    /// True if the connection lives, whatever the ends believe.
    alive: bool,
    /// By [`DcId`] order: the lower one first.
    ends: [End; 2],
    /// From the lower, from the higher.
    directions: [Direction; 2],
}

/// The result of sending a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The message arrives at that moment.
    Arrives { at: Moment, conn: ConnId, message: Message },
    /// The message waits for the end of a cut.
    Stalled,
    /// The link is dead, though the sender does not know.
    Lost,
}

/// All links.
#[derive(Debug)]
pub(super) struct Network {
    dcs: usize,
    links: Vec<Link>,
    /// Number of messages that overtook another one.
    pub overtaking: u64,
}

impl Network {
    pub fn new(dcs: u8, path: impl Fn(DcId, DcId) -> Path) -> Network {
        let ids: Vec<DcId> = (0..dcs).filter_map(DcId::new).collect();
        let direction = |from, to| Direction {
            path: path(from, to),
            weather: Weather::default(),
            last: [Moment::START; 3],
            cuts: 0,
            mutes: 0,
            stalled: Vec::new(),
            unflushed: (0, 0),
            flush_scheduled: false,
        };
        let mut links = Vec::new();
        for (i, &a) in ids.iter().enumerate() {
            links.extend(ids[i + 1..].iter().map(|&b| Link {
                conn: 0,
                alive: false,
                ends: [End::Down; 2],
                directions: [direction(a, b), direction(b, a)],
            }));
        }
        Network { dcs: usize::from(dcs), links, overtaking: 0 }
    }

    fn index(&self, a: DcId, b: DcId) -> usize {
        assert!(a != b, "{a} has no link to itself");
        let (low, high) = (a.min(b).index(), a.max(b).index());
        // Links are listed row by row: all of dc0, then those of dc1 to higher ones, and so on.
        low * (2 * self.dcs - low - 1) / 2 + (high - low - 1)
    }

    fn link(&mut self, a: DcId, b: DcId) -> &mut Link {
        let index = self.index(a, b);
        &mut self.links[index]
    }

    pub fn conn(&mut self, a: DcId, b: DcId) -> ConnId {
        self.link(a, b).conn
    }

    pub fn is_alive(&self, a: DcId, b: DcId) -> bool {
        self.links[self.index(a, b)].alive
    }

    pub fn is_cut(&self, a: DcId, b: DcId) -> bool {
        self.links[self.index(a, b)].directions.iter().any(|d| d.cuts > 0)
    }

    pub fn is_cut_from(&self, from: DcId, to: DcId) -> bool {
        self.links[self.index(from, to)].directions[side(from, to)].cuts > 0
    }

    /// Returns true if `node` may send to `peer`: it has heard that the link is up, and not that it is down.
    pub fn is_up_at(&self, node: DcId, peer: DcId) -> bool {
        self.links[self.index(node, peer)].ends[side(node, peer)] == End::Up
    }

    /// Opens a new connection. Returns its number and the moments at which `a` and `b` hear of it. Both must
    /// have heard of the end of the last one.
    pub fn connect(&mut self, now: Moment, a: DcId, b: DcId, rng: &mut Rng) -> (ConnId, Moment, Moment) {
        let link = self.link(a, b);
        assert!(!link.alive, "a link between {a} and {b} is up already");
        assert!(link.ends == [End::Down; 2], "{a} and {b} were not both told that the link is down");
        link.conn += 1;
        link.alive = true;
        for direction in &mut link.directions {
            direction.last = [now; 3];
            direction.stalled.clear();
            direction.unflushed = (0, 0);
            direction.flush_scheduled = false;
        }
        // The accepting side is up as soon as it answers, the dialing side when it has the answer.
        let answer = link.directions[0].path.delay;
        let (first, second) = (now + rng.duration(Duration::ZERO, Duration::from_millis(1)), now + answer);
        let (at_a, at_b) = if rng.percent(50) { (first, second) } else { (second, first) };
        link.ends[side(a, b)] = End::Rising(at_a);
        link.ends[side(b, a)] = End::Rising(at_b);
        (link.conn, at_a, at_b)
    }

    /// Returns true if `node` now hears that connection `conn` to `peer` is up.
    pub fn rise(&mut self, node: DcId, peer: DcId, conn: ConnId) -> bool {
        let link = self.link(node, peer);
        let end = &mut link.ends[side(node, peer)];
        let rises = link.alive && link.conn == conn && matches!(end, End::Rising(_));
        if rises {
            *end = End::Up;
        }
        rises
    }

    /// Kills the connection. Both ends still have to hear of it.
    pub fn kill(&mut self, a: DcId, b: DcId) {
        let link = self.link(a, b);
        link.alive = false;
        for direction in &mut link.directions {
            direction.stalled.clear();
        }
        for end in &mut link.ends {
            if matches!(end, End::Rising(_)) {
                *end = End::Down;
            }
        }
    }

    /// Returns true if `node` now hears that connection `conn` to `peer` is gone.
    pub fn fall(&mut self, node: DcId, peer: DcId, conn: ConnId) -> bool {
        let link = self.link(node, peer);
        assert!(!link.alive || link.conn != conn, "the link between {node} and {peer} is alive");
        let end = &mut link.ends[side(node, peer)];
        let falls = link.conn == conn && *end == End::Up;
        if falls {
            *end = End::Down;
        }
        falls
    }

    /// Resets the end of `node`, which has crashed.
    pub fn forget(&mut self, node: DcId, peer: DcId) {
        self.link(node, peer).ends[side(node, peer)] = End::Down;
    }

    pub fn send(&mut self, now: Moment, from: DcId, to: DcId, message: Message, rng: &mut Rng) -> Sent {
        let link = self.link(from, to);
        let (conn, alive) = (link.conn, link.alive);
        let receiver_up = match link.ends[side(to, from)] {
            End::Rising(at) => at,
            End::Up | End::Down => now,
        };
        let direction = &mut link.directions[side(from, to)];
        direction.unflushed.0 += 1;
        direction.unflushed.1 += usize::from(matches!(message, Message::Entries(_)));
        if !alive {
            return Sent::Lost;
        }
        if direction.is_blocked() {
            direction.stalled.push(message);
            return Sent::Stalled;
        }
        let at = direction.arrival(now, message.urgency(), rng).max(receiver_up);
        let overtakes =
            message.urgency() == Urgency::Urgent && direction.last[Urgency::InOrder as usize] > at;
        self.overtaking += u64::from(overtakes);
        Sent::Arrives { at, conn, message }
    }

    /// Returns true if the world has to schedule a flush of the link's queue; asked once per message.
    pub fn wants_flush(&mut self, from: DcId, to: DcId) -> bool {
        let direction = &mut self.link(from, to).directions[side(from, to)];
        let wanted = !direction.is_blocked() && direction.unflushed.0 > 0 && !direction.flush_scheduled;
        direction.flush_scheduled |= wanted;
        wanted
    }

    /// Takes the messages that left the queue of connection `conn` now. Returns their number and the number
    /// of entries among them.
    pub fn flush(&mut self, from: DcId, to: DcId, conn: ConnId) -> (usize, usize) {
        let link = self.link(from, to);
        let up = link.ends[side(from, to)] == End::Up && link.conn == conn;
        let direction = &mut link.directions[side(from, to)];
        if !up {
            return (0, 0);
        }
        direction.flush_scheduled = false;
        if direction.is_blocked() { (0, 0) } else { std::mem::take(&mut direction.unflushed) }
    }

    /// Returns true if a message of connection `conn` that arrives at `to` now is received there.
    pub fn arrives(&mut self, from: DcId, to: DcId, conn: ConnId) -> bool {
        let link = self.link(from, to);
        link.alive && link.conn == conn && link.ends[side(to, from)] == End::Up
    }

    /// Blocks a direction. Cuts add up.
    pub fn cut(&mut self, from: DcId, to: DcId) {
        self.link(from, to).directions[side(from, to)].cuts += 1;
    }

    /// Ends one cut. If it was the last, returns the stalled messages with their times of arrival.
    pub fn uncut(&mut self, now: Moment, from: DcId, to: DcId, rng: &mut Rng) -> Vec<(Moment, Message)> {
        let direction = &mut self.link(from, to).directions[side(from, to)];
        direction.cuts = direction.cuts.saturating_sub(1);
        direction.let_go(now, rng)
    }

    /// Mutes a direction: it carries nothing, though the link is up. Mutes add up, as cuts do.
    pub fn mute(&mut self, from: DcId, to: DcId) {
        self.link(from, to).directions[side(from, to)].mutes += 1;
    }

    pub fn is_mute(&self, from: DcId, to: DcId) -> bool {
        self.links[self.index(from, to)].directions[side(from, to)].mutes > 0
    }

    /// As [`Network::uncut`].
    pub fn unmute(&mut self, now: Moment, from: DcId, to: DcId, rng: &mut Rng) -> Vec<(Moment, Message)> {
        let direction = &mut self.link(from, to).directions[side(from, to)];
        direction.mutes = direction.mutes.saturating_sub(1);
        direction.let_go(now, rng)
    }

    /// Sets the weather between these two, both ways.
    pub fn set_weather(&mut self, a: DcId, b: DcId, weather: Weather) {
        self.link(a, b).directions.iter_mut().for_each(|direction| direction.weather = weather);
    }
}

impl Direction {
    fn is_blocked(&self) -> bool {
        self.cuts > 0 || self.mutes > 0
    }

    /// Returns the stalled messages with their times of arrival, if nothing blocks the direction any more.
    fn let_go(&mut self, now: Moment, rng: &mut Rng) -> Vec<(Moment, Message)> {
        if self.is_blocked() {
            return Vec::new();
        }
        let stalled = std::mem::take(&mut self.stalled);
        stalled.into_iter().map(|m| (self.arrival(now, m.urgency(), rng), m)).collect()
    }

    fn arrival(&mut self, now: Moment, urgency: Urgency, rng: &mut Rng) -> Moment {
        let Weather { jitter, loss_percent, gap } = self.weather;
        let jitter = rng.duration(Duration::ZERO, self.path.jitter.max(jitter));
        let is_lost = loss_percent > 0 && rng.percent(loss_percent);
        let again = if is_lost { 2 * self.path.delay + LOSS_NOTICED } else { Duration::ZERO };
        let lane = &mut self.last[urgency as usize];
        *lane = (now + self.path.delay + jitter + again).max(*lane + gap);
        *lane
    }
}

/// Returns the index of `node`'s end, and of the direction from it.
fn side(node: DcId, peer: DcId) -> usize {
    usize::from(node > peer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crdt::VersionVector;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn entries() -> Message {
        Message::Entries(Vec::new())
    }

    fn urgent() -> Message {
        Message::HeldBack { durable: VersionVector::default() }
    }

    /// Returns two datacenters, 10 ms apart, whose link is up at both ends.
    fn pair() -> (Network, Rng) {
        let path = Path { delay: Duration::from_millis(10), jitter: Duration::from_millis(5) };
        let (mut net, mut rng) = (Network::new(3, |_, _| path), Rng::new(1, 1));
        let (conn, _, _) = net.connect(Moment::START, dc(0), dc(1), &mut rng);
        assert!(net.rise(dc(0), dc(1), conn) && net.rise(dc(1), dc(0), conn));
        (net, rng)
    }

    fn arrival(sent: Sent) -> Moment {
        match sent {
            Sent::Arrives { at, .. } => at,
            other => panic!("it arrives, but was {other:?}"),
        }
    }

    #[test]
    fn every_pair_has_its_own_link() {
        let path = Path { delay: Duration::ZERO, jitter: Duration::ZERO };
        let net = Network::new(5, |_, _| path);
        let mut seen: Vec<usize> = Vec::new();
        for a in 0..5 {
            seen.extend((a + 1..5).map(|b| net.index(dc(b), dc(a))));
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn a_lane_is_first_in_first_out() {
        let (mut net, mut rng) = pair();
        let times: Vec<Moment> =
            (0..200).map(|i| arrival(net.send(Moment(i), dc(0), dc(1), entries(), &mut rng))).collect();
        assert!(times.is_sorted());
        let overtakes = arrival(net.send(Moment(201), dc(0), dc(1), urgent(), &mut rng));
        assert!(overtakes <= Moment(201) + Duration::from_millis(15));
    }

    #[test]
    fn a_dead_link_swallows_what_is_sent_until_its_end_is_told() {
        let (mut net, mut rng) = pair();
        net.kill(dc(0), dc(1));
        assert!(net.is_up_at(dc(0), dc(1)));
        assert_eq!(net.send(Moment(5), dc(0), dc(1), entries(), &mut rng), Sent::Lost);
        assert!(!net.arrives(dc(1), dc(0), 1));
        assert!(net.fall(dc(0), dc(1), 1));
        assert!(!net.fall(dc(0), dc(1), 1), "once is enough");
        assert!(!net.is_up_at(dc(0), dc(1)));
    }

    #[test]
    fn what_stalls_in_a_cut_arrives_late_and_in_order() {
        let (mut net, mut rng) = pair();
        net.cut(dc(0), dc(1));
        assert_eq!(net.send(Moment(1), dc(0), dc(1), entries(), &mut rng), Sent::Stalled);
        assert_eq!(net.send(Moment(2), dc(0), dc(1), urgent(), &mut rng), Sent::Stalled);
        assert!(!net.wants_flush(dc(0), dc(1)), "a blocked queue does not drain");
        let healed = Moment::from_millis(500);
        let late = net.uncut(healed, dc(0), dc(1), &mut rng);
        assert_eq!(late.len(), 2);
        assert!(late.iter().all(|(at, _)| *at >= healed + Duration::from_millis(10)));
        assert!(net.wants_flush(dc(0), dc(1)));
        assert_eq!(net.flush(dc(0), dc(1), 1).0, 2);
    }
}
