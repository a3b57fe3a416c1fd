//! Datagrams in transit: a heap ordered by due time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::udp::{EcnCodepoint, Transmit};
use tokio::sync::Notify;

/// Most bytes in transit from one socket; beyond it datagrams are lost, as in a router. More than 1 Gbit/s
/// over a quarter of a second.
const MAX_ON_THE_WAY: usize = 64 << 20;

/// An owned copy of a transmit of quinn. May hold several datagrams of one size.
pub(super) struct Parcel {
    due: Instant,
    /// Breaks ties: datagrams sent first arrive first.
    number: u64,
    destination: SocketAddr,
    ecn: Option<EcnCodepoint>,
    contents: Bytes,
    segment_size: Option<usize>,
    src_ip: Option<IpAddr>,
}

impl Parcel {
    pub fn transmit(&self) -> Transmit<'_> {
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

/// The datagrams in transit.
#[derive(Default)]
pub(super) struct Line {
    parcels: Mutex<Parcels>,
    /// Notified when there is an earlier parcel than before.
    pub changed: Notify,
}

#[derive(Default)]
struct Parcels {
    heap: BinaryHeap<Reverse<Parcel>>,
    bytes: usize,
    sent: u64,
}

impl Line {
    pub fn add(&self, transmit: &Transmit<'_>, delay: Duration) {
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

    pub fn take_due(&self) -> Option<Parcel> {
        let mut parcels = self.parcels();
        if parcels.heap.peek()?.0.due > Instant::now() {
            return None;
        }
        let Reverse(parcel) = parcels.heap.pop()?;
        parcels.bytes -= parcel.contents.len();
        Some(parcel)
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.parcels().heap.peek().map(|Reverse(parcel)| parcel.due)
    }

    fn parcels(&self) -> MutexGuard<'_, Parcels> {
        self.parcels.lock().expect("nothing panics while it holds the parcels")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
