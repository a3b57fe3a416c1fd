//! Many streams, each on its own connection, that send requests in a closed loop or on schedule.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::locks_client::LocksClient;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{self, ClientMessage, Reason, acquire_request, release_request};
use hdrhistogram::Histogram;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};
use tokio_stream::Stream;
use tonic::transport::Channel;

use crate::fixture::Cluster;
use crate::rounds::AnyError;

pub const WHO: &str = "256 streams, 100 locks per request,";
const STREAMS: usize = 256;
const LOCKS_PER_REQUEST: usize = 100;
/// Different sets of locks in requests.
const SETS: usize = 1_024;
/// Requests of a stream in progress in a closed loop.
const CLOSED: u64 = 4;
/// A request that flow control has delayed for this long is dropped unsent.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How often a stream renews its lease, which has a TTL of a minute: an overloaded server accepts renewals,
/// too.
const RENEW: Duration = Duration::from_secs(10);
/// Tags of acquires are above those of the first calls, tags of releases above those of acquires.
const ACQUIRES: u64 = 10;
const RELEASES: u64 = 1 << 40;

pub type Sets = Arc<Vec<Vec<proto::LockMode>>>;

/// Returns the sets of locks that requests name.
pub fn sets() -> Sets {
    let name = |set: usize, i: usize| Bytes::from(format!("crowd/{set}/{i}"));
    let mode = proto::Mode::Shared.into();
    let lock = |set, i| proto::LockMode { name: name(set, i), mode, home: None };
    Arc::new((0..SETS).map(|set| (0..LOCKS_PER_REQUEST).map(|i| lock(set, i)).collect()).collect())
}

/// Outcomes of requests.
pub struct Tally {
    pub granted: u64,
    pub refused: u64,
    pub unsent: u64,
    pub time: Duration,
    /// In microseconds, from when a request was to be sent.
    latencies: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Tally {
        let latencies = Histogram::new(3).expect("3 digits are possible");
        Tally { granted: 0, refused: 0, unsent: 0, time: Duration::ZERO, latencies }
    }
}

impl Tally {
    pub fn grant(&mut self, latency: Duration) {
        self.granted += 1;
        self.latencies.record(latency.as_micros() as u64).expect("it grows");
    }

    fn add(&mut self, other: &Tally) {
        self.granted += other.granted;
        self.refused += other.refused;
        self.unsent += other.unsent;
        self.time = self.time.max(other.time);
        self.latencies.add(&other.latencies).expect("it grows");
    }

    pub fn latency(&self) -> String {
        let ms = |micros: u64| micros as f64 / 1e3;
        let at = |quantile| ms(self.latencies.value_at_quantile(quantile));
        format!("p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms", at(0.5), at(0.99), ms(self.latencies.max()))
    }
}

/// When a stream sends requests.
#[derive(Clone, Copy)]
pub enum Pace {
    /// The next one when one is over.
    Closed,
    /// At this rate, all streams together.
    Open { per_second: f64 },
}

/// Runs all streams at that pace for that time.
pub async fn crowd(cluster: &Cluster, sets: &Sets, pace: Pace, time: Duration) -> Result<Tally, AnyError> {
    let mut talks = Vec::new();
    for number in 0..STREAMS {
        talks.push(Talk::open(crate::channel(cluster).await?, number, Arc::clone(sets)).await?);
    }
    let (mut running, start) = (JoinSet::new(), Instant::now());
    for talk in talks {
        running.spawn(talk.run(pace, start, time));
    }
    let mut all = Tally::default();
    while let Some(tally) = running.join_next().await {
        all.add(&tally??);
    }
    Ok(all)
}

/// One stream of the crowd.
struct Talk {
    number: usize,
    sets: Sets,
    lease: u64,
    calls: UnboundedSender<Sent>,
    answers: tonic::Streaming<proto::ServerMessage>,
    /// When requests were sent, in a closed loop.
    asked: BTreeMap<u64, Instant>,
    next: u64,
}

impl Talk {
    async fn open(mut client: LocksClient<Channel>, number: usize, sets: Sets) -> Result<Talk, AnyError> {
        let (calls, sent) = unbounded_channel();
        let on_disconnect = proto::OnDisconnect::Release.into();
        let hello = Call::Hello(proto::Hello { revision: 1, client: "crowd".into() });
        let open = Call::OpenLease(proto::OpenLeaseRequest { ttl_ms: 60_000, on_disconnect });
        for (tag, call) in [(1, hello), (2, open.clone())] {
            calls.send(Sent::Now(ClientMessage { tag, call: Some(call) }))?;
        }
        let mut answers = client.session(Outbound { sent, schedule: None }).await?.into_inner();
        loop {
            match answers.message().await?.ok_or("the stream ended")?.answer {
                Some(Answer::LeaseOpened(opened)) => {
                    let lease = opened.lease;
                    return Ok(Talk { number, sets, lease, calls, answers, asked: BTreeMap::new(), next: 0 });
                }
                Some(Answer::Welcome(_)) => {}
                // Refused because of the load of the previous crowd.
                Some(Answer::Error(error)) if is_shed(&error) => {
                    sleep(Duration::from_millis(error.retry_after_ms)).await;
                    calls.send(Sent::Now(ClientMessage { tag: 2, call: Some(open.clone()) }))?;
                }
                other => return Err(format!("a lease was expected, this is {other:?}").into()),
            }
        }
    }

    async fn run(mut self, pace: Pace, start: Instant, time: Duration) -> Result<Tally, AnyError> {
        let (mut tally, unsent) = (Tally::default(), Arc::new(AtomicU64::new(0)));
        let due = match pace {
            Pace::Closed => {
                (0..CLOSED).try_for_each(|_| self.ask())?;
                Due { first: start, interval: Duration::ZERO }
            }
            Pace::Open { per_second } => {
                let interval = Duration::from_secs_f64(STREAMS as f64 / per_second);
                let due =
                    Due { first: start + interval.mul_f64(self.number as f64 / STREAMS as f64), interval };
                let schedule = self.schedule(due, start + time, &unsent);
                self.calls.send(Sent::Schedule(schedule))?;
                due
            }
        };
        let mut renewed = start;
        while let Some(left) = time.checked_sub(start.elapsed())
            && let Ok(message) = timeout(left, self.answers.message()).await
        {
            let message = message?.ok_or("the stream ended")?;
            if renewed.elapsed() > RENEW {
                renewed = Instant::now();
                self.send(1, keep_alive(self.lease))?;
            }
            let index = message.tag.wrapping_sub(ACQUIRES);
            match message.answer {
                Some(Answer::Acquired(_)) => {
                    let asked = self.asked.remove(&index).unwrap_or_else(|| due.of(index));
                    tally.grant(asked.elapsed());
                    self.send(RELEASES + index, release(self.lease, index + 1))?;
                }
                Some(Answer::Released(_)) if matches!(pace, Pace::Closed) => self.ask()?,
                // The welcome may arrive after the lease.
                Some(Answer::Released(_) | Answer::Welcome(_) | Answer::KeptAlive(_)) => {}
                Some(Answer::Error(error)) if is_shed(&error) => {
                    tally.refused += 1;
                    if let Pace::Closed = pace {
                        self.ask()?;
                    }
                }
                other => return Err(format!("this is no answer to a pair: {other:?}").into()),
            }
        }
        (tally.time, tally.unsent) = (start.elapsed(), unsent.load(Ordering::Relaxed));
        Ok(tally)
    }

    fn send(&self, tag: u64, call: Call) -> Result<(), AnyError> {
        Ok(self.calls.send(Sent::Now(ClientMessage { tag, call: Some(call) }))?)
    }

    fn ask(&mut self) -> Result<(), AnyError> {
        let index = self.next;
        self.next += 1;
        self.asked.insert(index, Instant::now());
        let message = acquire(self.lease, index, &self.sets[(self.number + index as usize) % SETS]);
        Ok(self.calls.send(Sent::Now(message))?)
    }

    fn schedule(&self, due: Due, until: Instant, unsent: &Arc<AtomicU64>) -> Schedule {
        Schedule {
            due,
            index: 0,
            until,
            number: self.number,
            lease: self.lease,
            sets: Arc::clone(&self.sets),
            unsent: Arc::clone(unsent),
            alarm: Box::pin(sleep(Duration::ZERO)),
        }
    }
}

fn is_shed(error: &proto::Error) -> bool {
    error.reason() == Reason::ResourceExhausted && error.retry_after_ms > 0
}

fn acquire(lease: u64, index: u64, set: &[proto::LockMode]) -> ClientMessage {
    let acquire = proto::AcquireRequest {
        lease,
        secret: Bytes::new(),
        locks: set.to_vec(),
        wait: Some(acquire_request::Wait::WaitForever(proto::WaitForever {})),
        idempotency_key: index + 1,
        label: String::new(),
        enough: None,
    };
    ClientMessage { tag: ACQUIRES + index, call: Some(Call::Acquire(acquire)) }
}

fn release(lease: u64, key: u64) -> Call {
    let target = Some(release_request::Target::IdempotencyKey(key));
    Call::Release(proto::ReleaseRequest { lease, secret: Bytes::new(), target })
}

fn keep_alive(lease: u64) -> Call {
    Call::KeepAlive(proto::KeepAliveRequest { lease, secret: Bytes::new() })
}

/// When requests are to be sent, by their numbers.
#[derive(Clone, Copy)]
struct Due {
    first: Instant,
    interval: Duration,
}

impl Due {
    fn of(&self, index: u64) -> Instant {
        self.first + self.interval.mul_f64(index as f64)
    }
}

/// The requests of a stream that are sent on schedule. Each is created when there is room to send it.
struct Schedule {
    due: Due,
    index: u64,
    until: Instant,
    number: usize,
    lease: u64,
    sets: Sets,
    unsent: Arc<AtomicU64>,
    alarm: Pin<Box<Sleep>>,
}

impl Schedule {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ClientMessage> {
        loop {
            let (index, due, now) = (self.index, self.due.of(self.index), Instant::now());
            if due >= self.until {
                return Poll::Pending;
            }
            if due > now {
                self.alarm.as_mut().reset(due.into());
                ready!(self.alarm.as_mut().poll(cx));
                continue;
            }
            self.index += 1;
            if now - due <= PATIENCE {
                let set = &self.sets[(self.number + index as usize) % SETS];
                return Poll::Ready(acquire(self.lease, index, set));
            }
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An item for a stream.
enum Sent {
    Now(ClientMessage),
    /// From now on, whenever there is no other message to send.
    Schedule(Schedule),
}

/// The stream from which gRPC takes messages whenever there is room.
struct Outbound {
    sent: UnboundedReceiver<Sent>,
    schedule: Option<Schedule>,
}

impl Stream for Outbound {
    type Item = ClientMessage;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClientMessage>> {
        let this = self.get_mut();
        loop {
            match this.sent.poll_recv(cx) {
                Poll::Ready(Some(Sent::Now(message))) => return Poll::Ready(Some(message)),
                Poll::Ready(Some(Sent::Schedule(schedule))) => this.schedule = Some(schedule),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => break,
            }
        }
        match &mut this.schedule {
            Some(schedule) => schedule.poll(cx).map(Some),
            None => Poll::Pending,
        }
    }
}
