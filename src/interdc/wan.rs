//! Distance, simulated: a socket that holds outgoing datagrams back by a delay per destination, loses some, or all.
//!
//! A wrapper around quinn's socket, so that real QUIC runs over it unchanged. Datagrams wait in a heap by due time; one
//! task, the pump, sends those that are due. Tokio's timer counts whole milliseconds and rounds up, which would add
//! one to two to every round trip; so the pump sleeps on a kernel timer of its own (on Linux; elsewhere on tokio's),
//! which wakes the same poll that waits for packets. A datagram that is on its way when its path is cut still arrives.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::Notify;

/// What may be on its way at once from one socket; beyond it datagrams are lost, as in a router. Above 1 Gbit/s over
/// a quarter of a second.
const MAX_ON_THE_WAY: usize = 64 << 20;

/// The distances from one datacenter's socket to the others. Cheap to clone; may be changed while in use.
#[derive(Clone)]
pub struct Wan {
    paths: Arc<Mutex<Paths>>,
}

struct Paths {
    by_destination: BTreeMap<SocketAddr, Path>,
    random: u64,
}

/// The way to one destination. By default as if there were none of this.
#[derive(Clone, Copy, Default)]
struct Path {
    one_way: Duration,
    /// Of datagrams, between 0 and 1.
    loss: f64,
    cut: bool,
}

/// What becomes of a datagram.
enum Fate {
    Now,
    After(Duration),
    Lost,
}

impl Wan {
    /// No distances yet. Which datagrams get lost is drawn from `seed`.
    pub fn new(seed: u64) -> Wan {
        // The generator below must not start at 0.
        Wan { paths: Arc::new(Mutex::new(Paths { by_destination: BTreeMap::new(), random: seed | 1 << 63 })) }
    }

    /// Delays what is sent to `destination` by `one_way`. A round trip takes twice that if the way back is as long.
    pub fn set_delay(&self, destination: SocketAddr, one_way: Duration) {
        self.change(destination, |path| path.one_way = one_way);
    }

    /// Loses that share of the datagrams to `destination`: 0 for none, 1 for all.
    pub fn set_loss(&self, destination: SocketAddr, share: f64) {
        self.change(destination, |path| path.loss = share);
    }

    /// Loses everything that is sent to `destination` from now on.
    pub fn cut(&self, destination: SocketAddr) {
        self.change(destination, |path| path.cut = true);
    }

    /// Undoes [`Wan::cut`].
    pub fn heal(&self, destination: SocketAddr) {
        self.change(destination, |path| path.cut = false);
    }

    /// A socket with these distances around `inner`, and the task that it needs. Must be called within a runtime.
    pub(super) fn wrap(&self, inner: Arc<dyn AsyncUdpSocket>) -> io::Result<(Arc<dyn AsyncUdpSocket>, Pump)> {
        let line = Arc::new(Line::default());
        let socket = DelayingSocket { inner: inner.clone(), wan: self.clone(), line: line.clone() };
        Ok((Arc::new(socket), Pump { inner, line, alarm: Alarm::new()? }))
    }

    fn change(&self, destination: SocketAddr, change: impl FnOnce(&mut Path)) {
        change(self.paths().by_destination.entry(canonical(destination)).or_default());
    }

    fn fate(&self, destination: SocketAddr) -> Fate {
        let mut paths = self.paths();
        let Some(path) = paths.by_destination.get(&canonical(destination)).copied() else { return Fate::Now };
        if path.cut || (path.loss > 0.0 && paths.draw() < path.loss) {
            return Fate::Lost;
        }
        if path.one_way.is_zero() { Fate::Now } else { Fate::After(path.one_way) }
    }

    fn loses(&self, destination: SocketAddr) -> bool {
        self.paths().by_destination.get(&canonical(destination)).is_some_and(|path| path.loss > 0.0)
    }

    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().expect("nothing panics while it holds the distances")
    }
}

impl fmt::Debug for Wan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.paths().by_destination.iter().map(|(to, path)| (to, path.one_way)))
            .finish()
    }
}

impl Paths {
    /// Between 0 and 1: xorshift64*, of which the upper 53 bits are good.
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

/// What quinn hands over to send, owned. May hold several datagrams of one size.
struct Parcel {
    due: Instant,
    /// Breaks ties: what was sent first arrives first.
    number: u64,
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    contents: Bytes,
    segment_size: Option<usize>,
    src_ip: Option<IpAddr>,
}

impl Parcel {
    fn transmit(&self) -> Transmit<'_> {
        Transmit {
            destination: self.destination,
            ecn: self.ecn,
            contents: &self.contents,
            segment_size: self.segment_size,
            src_ip: self.src_ip,
        }
    }
}

impl Ord for Parcel {
    fn cmp(&self, other: &Parcel) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl PartialOrd for Parcel {
    fn partial_cmp(&self, other: &Parcel) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Parcel {
    fn eq(&self, other: &Parcel) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Parcel {}

/// What is on its way.
#[derive(Default)]
struct Line {
    parcels: Mutex<Parcels>,
    /// There is an earlier parcel than before.
    changed: Notify,
}

#[derive(Default)]
struct Parcels {
    heap: BinaryHeap<Reverse<Parcel>>,
    bytes: usize,
    sent: u64,
}

impl Line {
    fn add(&self, transmit: &Transmit<'_>, delay: Duration) {
        let mut parcels = self.parcels();
        if parcels.bytes + transmit.contents.len() > MAX_ON_THE_WAY {
            return;
        }
        parcels.bytes += transmit.contents.len();
        parcels.sent += 1;
        let parcel = Parcel {
            due: Instant::now() + delay,
            number: parcels.sent,
            destination: transmit.destination,
            ecn: transmit.ecn,
            contents: Bytes::copy_from_slice(transmit.contents),
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let is_first = parcels.heap.peek().is_none_or(|Reverse(first)| parcel < *first);
        parcels.heap.push(Reverse(parcel));
        drop(parcels);
        if is_first {
            self.changed.notify_one();
        }
    }

    fn take_due(&self) -> Option<Parcel> {
        let mut parcels = self.parcels();
        if parcels.heap.peek()?.0.due > Instant::now() {
            return None;
        }
        let Reverse(parcel) = parcels.heap.pop()?;
        parcels.bytes -= parcel.contents.len();
        Some(parcel)
    }

    fn next_due(&self) -> Option<Instant> {
        self.parcels().heap.peek().map(|Reverse(parcel)| parcel.due)
    }

    fn parcels(&self) -> MutexGuard<'_, Parcels> {
        self.parcels.lock().expect("nothing panics while it holds the parcels")
    }
}

struct DelayingSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    wan: Wan,
    line: Arc<Line>,
}

impl DelayingSocket {
    fn send_one(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.wan.fate(transmit.destination) {
            Fate::Now => return self.inner.try_send(transmit),
            Fate::After(delay) => self.line.add(transmit, delay),
            Fate::Lost => {}
        }
        Ok(())
    }
}

impl fmt::Debug for DelayingSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayingSocket").field("inner", &self.inner).field("wan", &self.wan).finish()
    }
}

impl AsyncUdpSocket for DelayingSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        self.inner.clone().create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Some(size) = transmit.segment_size.filter(|_| self.wan.loses(transmit.destination)) else {
            return self.send_one(transmit);
        };
        // Each datagram has its own luck. One that does not fit the socket's buffer now is lost, too.
        for contents in transmit.contents.chunks(size) {
            let _ = self.send_one(&Transmit { contents, segment_size: None, ..transmit.clone() });
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(cx, bufs, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// Sends the delayed datagrams when they are due.
pub(super) struct Pump {
    inner: Arc<dyn AsyncUdpSocket>,
    line: Arc<Line>,
    alarm: Alarm,
}

impl Pump {
    /// Never ends by itself.
    pub(super) async fn run(self) {
        let mut writable = self.inner.clone().create_io_poller();
        loop {
            while let Some(parcel) = self.line.take_due() {
                while let Err(error) = self.inner.try_send(&parcel.transmit()) {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        // Lost, as datagrams may be.
                        break;
                    }
                    if poll_fn(|cx| writable.as_mut().poll_writable(cx)).await.is_err() {
                        break;
                    }
                }
            }
            match self.line.next_due() {
                None => self.line.changed.notified().await,
                Some(due) => tokio::select! {
                    () = self.alarm.at(due) => {}
                    () = self.line.changed.notified() => {}
                },
            }
        }
    }
}

/// A timer that is exact to some ten microseconds.
#[cfg(target_os = "linux")]
struct Alarm(tokio::io::unix::AsyncFd<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl Alarm {
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that may change their descriptor; OwnedFd never does"
    )]
    fn new() -> io::Result<Alarm> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Alarm(tokio::io::unix::AsyncFd::new(timer)?))
    }

    /// Completes at that time, or early when the timer fails: then whoever waits looks again.
    async fn at(&self, due: Instant) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        // 0 would turn it off.
        let left = due.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let setting = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            },
        };
        if timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &setting).is_err() {
            return tokio::time::sleep(left).await;
        }
        loop {
            let Ok(mut ready) = self.0.readable().await else { return };
            let expired = ready.try_io(|timer| {
                let mut count = [0; size_of::<u64>()];
                Ok(rustix::io::read(timer.get_ref(), &mut count)?)
            });
            if expired.is_ok() {
                return;
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
struct Alarm;

#[cfg(not(target_os = "linux"))]
impl Alarm {
    fn new() -> io::Result<Alarm> {
        Ok(Alarm)
    }

    async fn at(&self, due: Instant) {
        tokio::time::sleep_until(due.into()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_follows_its_seed_and_its_share() {
        let destination = SocketAddr::from(([127, 0, 0, 1], 9));
        let lost = |seed| {
            let wan = Wan::new(seed);
            wan.set_loss(destination, 0.25);
            let fates: Vec<_> = (0..10_000).map(|_| matches!(wan.fate(destination), Fate::Lost)).collect();
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
        assert!(matches!(wan.fate(destination), Fate::Now));
        wan.set_delay(destination, Duration::from_millis(5));
        wan.cut(destination);
        assert!(matches!(wan.fate(destination), Fate::Lost));
        wan.heal(destination);
        let mapped = SocketAddr::new(IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1]), 9);
        assert!(matches!(wan.fate(mapped), Fate::After(delay) if delay == Duration::from_millis(5)));
    }

    #[test]
    fn parcels_leave_in_the_order_of_their_due_times() {
        let line = Line::default();
        let send = |byte: u8, delay| {
            let destination = SocketAddr::from(([127, 0, 0, 1], 9));
            let transmit =
                Transmit { destination, ecn: None, contents: &[byte], segment_size: None, src_ip: None };
            line.add(&transmit, delay);
        };
        for (byte, delay) in [(1, 0), (2, 0), (9, 3_600), (3, 0)] {
            send(byte, Duration::from_secs(delay));
        }
        let due: Vec<_> = std::iter::from_fn(|| line.take_due()).map(|parcel| parcel.contents[0]).collect();
        assert_eq!(due, [1, 2, 3]);
        assert!(line.next_due().is_some());
    }
}
