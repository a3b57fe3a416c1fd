//! Simulated distance: a socket that delays outgoing datagrams per destination, and loses some or all of
//! them; that reorders them, sends some twice, or limits the bytes per second.
//!
//! It wraps quinn's socket, so that real QUIC runs over it unchanged. Datagrams wait in a heap by due time;
//! one task, the pump, sends those that are due. It sleeps on a
//! [`FineTimer`](crate::runtime::fine_timer::FineTimer): the runtime's timer would add one or two ms
//! to every round trip. A datagram that is in transit when its path is cut still arrives.
//!
//! | file | job |
//! |---|---|
//! | `mod.rs` | [`Wan`]: the paths, and the fate of a datagram |
//! | `socket.rs` | the wrapper of quinn's socket |
//! | `line.rs`, `pump.rs` | datagrams in transit; the task that sends them when due |

mod line;
mod pump;
mod socket;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use line::Line;
pub(super) use pump::Pump;
use quinn::AsyncUdpSocket;
use socket::DelayingSocket;

/// The paths from one datacenter's socket to the others. Cheap to clone; may be changed while in use.
#[derive(Clone)]
pub struct Wan {
    paths: Arc<Mutex<Paths>>,
}

struct Paths {
    by_destination: BTreeMap<SocketAddr, Path>,
    random: u64,
    tally: WanTally,
}

/// Counts of datagrams so far, over all paths.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct WanTally {
    pub lost: u64,
    /// Delayed before they were sent.
    pub delayed: u64,
    /// Sent twice.
    pub twice: u64,
}

/// The path to one destination. The default has no effect on datagrams.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct WanPath {
    pub one_way: Duration,
    /// Most random delay added to each datagram, so that they overtake each other.
    pub jitter: Duration,
    /// The share of datagrams that is lost, 0 to 1.
    pub loss: f64,
    /// The share of datagrams that arrives twice, 0 to 1.
    pub duplicate: f64,
    /// Bandwidth in bytes per second; 0 for no limit. A datagram that would wait for longer than a second for
    /// its turn is lost.
    pub bytes_per_second: u64,
    /// Everything is lost.
    pub cut: bool,
}

#[derive(Clone, Copy, Default)]
struct Path {
    set: WanPath,
    /// When a path of limited bandwidth has passed all bytes sent on it.
    free_at: Option<Instant>,
}

/// See [`WanPath::bytes_per_second`].
const MAX_TURN: Duration = Duration::from_secs(1);

/// The fate of a datagram.
enum Fate {
    Now,
    After(Duration),
    Lost,
}

impl Wan {
    /// Creates paths without effect. Losses are drawn from `seed`.
    pub fn new(seed: u64) -> Wan {
        // The state of the generator below must not be 0.
        let (by_destination, random) = (BTreeMap::new(), seed | 1 << 63);
        Wan { paths: Arc::new(Mutex::new(Paths { by_destination, random, tally: WanTally::default() })) }
    }

    /// Sets the path to `destination` from now on.
    pub fn set(&self, destination: SocketAddr, path: WanPath) {
        self.change(destination, |now| *now = path);
    }

    /// Delays datagrams to `destination` by `one_way`. A round trip takes twice that if the way back is as
    /// long.
    pub fn set_delay(&self, destination: SocketAddr, one_way: Duration) {
        self.change(destination, |path| path.one_way = one_way);
    }

    /// Loses that share of the datagrams to `destination`: 0 for none, 1 for all.
    pub fn set_loss(&self, destination: SocketAddr, share: f64) {
        self.change(destination, |path| path.loss = share);
    }

    /// Loses every datagram sent to `destination` from now on.
    pub fn cut(&self, destination: SocketAddr) {
        self.change(destination, |path| path.cut = true);
    }

    /// Undoes [`Wan::cut`].
    pub fn heal(&self, destination: SocketAddr) {
        self.change(destination, |path| path.cut = false);
    }

    /// Returns the counts of datagrams since this was created.
    pub fn tally(&self) -> WanTally {
        self.paths().tally
    }

    /// Returns a socket around `inner` with these paths, and the task that it needs. Must be called within a
    /// runtime.
    pub(super) fn wrap(&self, inner: Arc<dyn AsyncUdpSocket>) -> io::Result<(Arc<dyn AsyncUdpSocket>, Pump)> {
        let line = Arc::new(Line::default());
        let socket = DelayingSocket { inner: inner.clone(), wan: self.clone(), line: line.clone() };
        Ok((Arc::new(socket), Pump::new(inner, line)?))
    }

    fn change(&self, destination: SocketAddr, change: impl FnOnce(&mut WanPath)) {
        change(&mut self.paths().by_destination.entry(canonical(destination)).or_default().set);
    }

    /// Decides the fate of a datagram of that many bytes.
    fn fate(&self, destination: SocketAddr, bytes: usize) -> Fate {
        let mut paths = self.paths();
        let fate = paths.fate(canonical(destination), bytes);
        paths.tally.lost += u64::from(matches!(fate, Fate::Lost));
        paths.tally.delayed += u64::from(matches!(fate, Fate::After(_)));
        fate
    }

    fn duplicates(&self, destination: SocketAddr) -> bool {
        let mut paths = self.paths();
        let path = paths.by_destination.get(&canonical(destination));
        let share = path.map_or(0.0, |path| path.set.duplicate);
        let twice = paths.happens(share);
        paths.tally.twice += u64::from(twice);
        twice
    }

    /// Returns true if the path may treat one datagram differently from the next.
    fn is_fickle(&self, destination: SocketAddr) -> bool {
        let paths = self.paths();
        let path = paths.by_destination.get(&canonical(destination));
        path.is_some_and(|Path { set, .. }| {
            set.loss > 0.0 || set.duplicate > 0.0 || set.bytes_per_second > 0 || !set.jitter.is_zero()
        })
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().expect("nothing panics while it holds the distances")
    }
}

impl fmt::Debug for Wan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.paths().by_destination.iter().map(|(to, path)| (to, path.set))).finish()
    }
}

impl Path {
    /// Returns how long a datagram waits until it has passed a path of limited bandwidth; `None` if too long.
    fn turn(&mut self, bytes: usize) -> Option<Duration> {
        let now = Instant::now();
        let takes = Duration::from_secs_f64(bytes as f64 / self.set.bytes_per_second as f64);
        let passed = self.free_at.map_or(now, |at| at.max(now)) + takes;
        let turn = passed - now;
        (turn <= MAX_TURN).then(|| {
            self.free_at = Some(passed);
            turn
        })
    }
}

impl Paths {
    fn fate(&mut self, destination: SocketAddr, bytes: usize) -> Fate {
        let Some(Path { set, .. }) = self.by_destination.get(&destination).copied() else {
            return Fate::Now;
        };
        if set.cut || self.happens(set.loss) {
            return Fate::Lost;
        }
        let jitter = if set.jitter.is_zero() { Duration::ZERO } else { set.jitter.mul_f64(self.draw()) };
        let turn = match self.by_destination.get_mut(&destination) {
            Some(path) if set.bytes_per_second > 0 => path.turn(bytes),
            _ => Some(Duration::ZERO),
        };
        match turn.map(|turn| turn + set.one_way + jitter) {
            None => Fate::Lost,
            Some(Duration::ZERO) => Fate::Now,
            Some(delay) => Fate::After(delay),
        }
    }

    /// Draws if an event of that probability happens.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.draw() < share
    }

    /// Returns a number between 0 and 1: xorshift64*, whose upper 53 bits are used.
    fn draw(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let scrambled = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d);
        (scrambled >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A dual-stack socket sees IPv4 addresses mapped into IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn loss_follows_its_seed_and_its_share() {
        let destination = SocketAddr::from(([127, 0, 0, 1], 9));
        let lost = |seed| {
            let wan = Wan::new(seed);
            wan.set_loss(destination, 0.25);
            let fates: Vec<_> =
                (0..10_000).map(|_| matches!(wan.fate(destination, 1_200), Fate::Lost)).collect();
            let tally =
                WanTally { lost: fates.iter().filter(|lost| **lost).count() as u64, ..WanTally::default() };
            assert_eq!(wan.tally(), tally);
            fates
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
        let share = lost(1).into_iter().filter(|lost| *lost).count();
        assert!((2_300..2_700).contains(&share), "{share}");
    }

    #[test]
    fn a_path_is_cut_and_healed() {
        let destination = SocketAddr::from(([127, 0, 0, 1], 9));
        let wan = Wan::new(1);
        assert!(matches!(wan.fate(destination, 1_200), Fate::Now));
        wan.set_delay(destination, Duration::from_millis(5));
        wan.cut(destination);
        assert!(matches!(wan.fate(destination, 1_200), Fate::Lost));
        wan.heal(destination);
        let mapped = SocketAddr::new(IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1]), 9);
        assert!(matches!(wan.fate(mapped, 1_200), Fate::After(delay) if delay == Duration::from_millis(5)));
    }

    #[test]
    fn a_narrow_path_passes_one_after_the_other_and_loses_what_would_wait_too_long() {
        let destination = SocketAddr::from(([127, 0, 0, 1], 9));
        let wan = Wan::new(1);
        wan.set(destination, WanPath { bytes_per_second: 1_000, ..WanPath::default() });
        let delay = |bytes| match wan.fate(destination, bytes) {
            Fate::After(delay) => delay,
            Fate::Now | Fate::Lost => Duration::ZERO,
        };
        let (first, second) = (delay(300), delay(300));
        assert!(first <= Duration::from_millis(300) && second > first, "{first:?} {second:?}");
        assert!(matches!(wan.fate(destination, 1_000), Fate::Lost));
        assert!(delay(100) > second, "what was lost took no turn");
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_some_are_sent_twice() {
        let destination = SocketAddr::from(([127, 0, 0, 1], 9));
        let wan = Wan::new(1);
        let (one_way, jitter) = (Duration::from_millis(5), Duration::from_millis(300));
        wan.set(destination, WanPath { one_way, jitter, duplicate: 0.25, ..WanPath::default() });
        let delays: Vec<Duration> = (0..1_000)
            .map(|_| match wan.fate(destination, 1) {
                Fate::After(delay) => delay,
                Fate::Now | Fate::Lost => panic!("it is delayed"),
            })
            .collect();
        assert!(delays.iter().all(|delay| (one_way..one_way + jitter).contains(delay)));
        assert!(!delays.is_sorted(), "they overtake each other");
        let twice = (0..10_000).filter(|_| wan.duplicates(destination)).count();
        assert!((2_300..2_700).contains(&twice), "{twice}");
        assert_eq!(wan.tally(), WanTally { lost: 0, delayed: 1_000, twice: twice as u64 });
    }
}
