//! The cost of a link between two datacenters, both on loopback in one process: messages per second, round
//! trips on an idle link and with simulated distance, and the wait of an entry beside a state transfer, on
//! its own lane and on the same one. The baseline, in the same run, is a ping over plain UDP between two
//! threads.
//!
//! `cargo bench --bench interdc`
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a bench reads clocks")]

use std::net::UdpSocket;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use geolock::interdc::{Interdc, InterdcConfig, Lane, LinkEvent, LinkId, Links, Wan, WanPath};
use geolock::pki::{Credentials, playground};
use geolock_api::names::DcId;
use hdrhistogram::Histogram;
use tempfile::TempDir;
use tokio::sync::mpsc;

const PINGS: u32 = 20_000;
const PING_BYTES: usize = 64;
const SMALL: (usize, usize) = (100, 2_000_000);
const LARGE: (usize, usize) = (16 << 10, 40_000);
/// Large messages on a long path.
const FAR_MESSAGES: usize = 4_000;
/// Lost datagrams on it, in percent.
const LOSSES: [f64; 2] = [0.0, 0.1];
/// Most messages in the queue, and most bytes: well within its bound.
const IN_FLIGHT: (usize, usize) = (16_384, 16 << 20);

/// Bytes of a piece of a state, and the number of pieces in transit.
const PIECE: (usize, usize) = (256 << 10, 16);
/// Bytes per second of the path meanwhile: 100 Mbit/s.
const WIDTH: u64 = 12_500_000;
/// How long entries are measured beside them.
const BESIDE: Duration = Duration::from_secs(8);

fn main() -> Result<()> {
    let baseline = udp_pings()?;
    report("plain UDP ping", &baseline);
    {
        let mut pair = Pair::start(None)?;
        let idle = pair.pings(PINGS)?;
        report("round trip on a link", &idle);
        let ratio = idle.value_at_quantile(0.5) as f64 / baseline.value_at_quantile(0.5) as f64;
        println!("{:32} {ratio:.1} times the baseline's p50", "");
        for (bytes, messages) in [SMALL, LARGE] {
            let took = pair.one_way(bytes, messages)?;
            let per_second = messages as f64 / took.as_secs_f64();
            let megabytes = per_second * bytes as f64 / 1e6;
            println!(
                "{:32} {per_second:>10.0} messages/s  {megabytes:>6.0} MB/s",
                format!("{bytes} byte messages")
            );
        }
    }
    for rtt in [10, 80, 220].map(Duration::from_millis) {
        let mut pair = Pair::start(Some(rtt / 2))?;
        let pings = pair.pings(4_000 / rtt.as_millis() as u32)?;
        report(&format!("round trip, 2 x {:?} away", rtt / 2), &pings);
        let over = |quantile| pings.value_at_quantile(quantile) as f64 / 1e3 - rtt.as_secs_f64() * 1e6;
        println!("{:32} over by {:.0} us (p50), {:.0} us (p99)", "", over(0.5), over(0.99));
    }
    for loss in LOSSES {
        let far = WanPath { one_way: Duration::from_millis(110), loss: loss / 100.0, ..WanPath::default() };
        let mut pair = Pair::start_with(Some(far))?;
        let took = pair.one_way(LARGE.0, FAR_MESSAGES)?;
        let megabytes = (LARGE.0 * FAR_MESSAGES) as f64 / 1e6;
        println!(
            "{:32} {:.1} MB/s",
            format!("{megabytes:.0} MB, 2 x 110ms, {loss} % lost"),
            megabytes / took.as_secs_f64()
        );
    }
    let wide = WanPath { one_way: Duration::from_millis(40), bytes_per_second: WIDTH, ..WanPath::default() };
    let mut pair = Pair::start_with(Some(wide))?;
    for (what, full) in
        [("alone", None), ("beside a state", Some(Lane::State)), ("behind as much", Some(Lane::Bulk))]
    {
        let (times, megabytes) = pair.beside(full)?;
        report(&format!("an entry and back, {what}"), &times);
        println!("{:32} {megabytes:.0} MB/s of state", "");
    }
    Ok(())
}

fn report(what: &str, times: &Histogram<u64>) {
    let micros = |quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    println!("{what:32} p50 {:>9.1} us  p99 {:>9.1} us  ({} times)", micros(0.5), micros(0.99), times.len());
}

fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 60_000_000_000, 3)?)
}

fn record(times: &mut Histogram<u64>, began: Instant) {
    times.saturating_record(began.elapsed().as_nanos() as u64);
}

fn udp_pings() -> Result<Histogram<u64>> {
    let (here, there) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    here.connect(there.local_addr()?)?;
    there.connect(here.local_addr()?)?;
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = [0; PING_BYTES];
        for _ in 0..PINGS {
            there.recv(&mut buffer)?;
            there.send(&buffer)?;
        }
        Ok(())
    });
    let (mut times, mut buffer) = (histogram()?, [0; PING_BYTES]);
    for _ in 0..PINGS {
        let began = Instant::now();
        here.send(&buffer)?;
        here.recv(&mut buffer)?;
        record(&mut times, began);
    }
    echo.join().expect("the echo does not panic")?;
    Ok(times)
}

/// Two datacenters: one is measured, the other returns urgent messages and drops bulk messages.
struct Pair {
    here: Interdc,
    link: LinkId,
    events: mpsc::Receiver<LinkEvent>,
    _there: Interdc,
    _folder: TempDir,
}

impl Pair {
    fn start(one_way: Option<Duration>) -> Result<Pair> {
        Pair::start_with(one_way.map(|one_way| WanPath { one_way, ..WanPath::default() }))
    }

    /// Starts them with that path between them, in both directions.
    fn start_with(path: Option<WanPath>) -> Result<Pair> {
        let folder = TempDir::new()?;
        let dcs = [0, 1].map(|id| DcId::new(id).expect("a small id"));
        let certificates = playground(folder.path(), "bench", dcs)?;
        let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        let addresses = [sockets[0].local_addr()?, sockets[1].local_addr()?];
        let mut started = Vec::new();
        for (me, socket) in sockets.into_iter().enumerate() {
            let other = 1 - me;
            let wan = path.map(|path| {
                let wan = Wan::new(1);
                wan.set(addresses[other], path);
                wan
            });
            let tls = Credentials::load(&certificates.dcs[me])?;
            let peers = vec![(dcs[other], addresses[other].to_string())];
            let config =
                InterdcConfig { peers, wan, ..InterdcConfig::new(dcs[me], "bench", addresses[me], tls) };
            let (sender, events) = mpsc::channel(1024);
            started.push((Interdc::start_on(socket, config, sender)?, events));
        }
        let (there, its_events) = started.pop().context("two were started")?;
        let (here, mut events) = started.pop().context("two were started")?;
        let links = there.links();
        thread::spawn(move || echo(&links, its_events));
        let link = match events.blocking_recv() {
            Some(LinkEvent::Up { link, .. }) => link,
            other => bail!("no link: {other:?}"),
        };
        Ok(Pair { here, link, events, _there: there, _folder: folder })
    }

    fn pings(&mut self, count: u32) -> Result<Histogram<u64>> {
        let mut times = histogram()?;
        for _ in 0..count {
            let began = Instant::now();
            self.here.send(self.link, Lane::Urgent, Bytes::from_static(&[7; PING_BYTES]))?;
            loop {
                match self.events.blocking_recv() {
                    Some(LinkEvent::Received { .. }) => break,
                    Some(LinkEvent::Flushed { .. }) => {}
                    other => bail!("an echo expected, not {other:?}"),
                }
            }
            record(&mut times, began);
        }
        Ok(times)
    }

    /// Measures the round trip of an entry and its answer while another lane, or the same one, is kept full;
    /// and the rate of that lane.
    fn beside(&mut self, full: Option<Lane>) -> Result<(Histogram<u64>, f64)> {
        let piece = Bytes::from(vec![7; PIECE.0]);
        let (mut times, mut in_flight, mut pieces) = (histogram()?, 0, 0);
        let began = Instant::now();
        while began.elapsed() < BESIDE {
            let asked = Instant::now();
            self.here.send(self.link, Lane::Bulk, Bytes::from_static(LAST))?;
            in_flight += 1;
            loop {
                while full.is_some() && in_flight < PIECE.1 {
                    self.here.send(self.link, full.unwrap_or(Lane::State), piece.clone())?;
                    (in_flight, pieces) = (in_flight + 1, pieces + 1);
                }
                match self.events.blocking_recv() {
                    Some(LinkEvent::Flushed { messages, .. }) => in_flight -= messages,
                    Some(LinkEvent::Received { .. }) => break,
                    other => bail!("an echo expected, not {other:?}"),
                }
            }
            record(&mut times, asked);
        }
        Ok((times, (pieces * PIECE.0) as f64 / 1e6 / began.elapsed().as_secs_f64()))
    }

    /// Measures the time until that many bulk messages are delivered: the last one is echoed.
    fn one_way(&mut self, bytes: usize, messages: usize) -> Result<Duration> {
        let message = Bytes::from(vec![7; bytes]);
        let in_flight = IN_FLIGHT.0.min(IN_FLIGHT.1 / bytes);
        let (mut sent, mut flushed) = (0, 0);
        let began = Instant::now();
        loop {
            while sent < messages && sent - flushed < in_flight {
                self.here.send(self.link, Lane::Bulk, message.clone())?;
                sent += 1;
            }
            if sent == messages {
                self.here.send(self.link, Lane::Bulk, Bytes::from_static(LAST))?;
                sent += 1;
            }
            match self.events.blocking_recv() {
                Some(LinkEvent::Flushed { messages, .. }) => flushed += messages,
                Some(LinkEvent::Received { .. }) => return Ok(began.elapsed()),
                other => bail!("progress expected, not {other:?}"),
            }
        }
    }
}

const LAST: &[u8] = b"last";

fn echo(links: &Links, mut events: mpsc::Receiver<LinkEvent>) {
    let mut link = None;
    while let Some(event) = events.blocking_recv() {
        match event {
            LinkEvent::Up { link: up, .. } => link = Some(up),
            LinkEvent::Received { lane, bytes, .. } if lane == Lane::Urgent || bytes[..] == *LAST => {
                let Some(link) = link else { continue };
                // The other side has finished measuring when the link is gone.
                let _ = links.send(link, Lane::Urgent, bytes);
            }
            _ => {}
        }
    }
}
