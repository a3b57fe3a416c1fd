//! A fake machine, journal and links that record the calls made to them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{
    JournalInbox, LinkInput, Links, LockServer, LockServerOptions, Machine, Parts, Store, members_port,
};
use crate::base::capacity::{DiskSpace, Load};
use crate::base::histogram::Histogram;
use crate::base::time::{DEFAULT_LEASE_TTL, Instant, Now, Timestamp};
use crate::causal_log::{Entry, Op, Wants};
use crate::crdt::{Ownership, VersionVector};
use crate::journal::{Figures, JournalError, JournalEvent, LogSize};
use crate::replica::Urgency;
use crate::replica::call::{
    Acquire, Acquires, Call, CallId, Counts, Grant, Limit, MembersStatus, Phase, Refusal, Reply, Status,
};
use crate::replica::{Checkpoint, Effect, Event, Message, Past, Position, Record};
use crate::telemetry::LinkFigures;
use geolock_api::names::{ClusterId, DcId, DcSet, FencingToken, LeaseId, LockName, Mode, RequestId};

pub(crate) fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

pub(crate) fn name(text: &str) -> LockName {
    LockName::try_from(text).expect("a test name is valid")
}

/// The number of the peer whose link reveals a simulated bug of the machine, in a step of the actor.
pub(crate) const BUGGY_PEER: u8 = 3;

/// The recorded calls, for tests to inspect.
#[derive(Default)]
pub(crate) struct Seen {
    pub events: Vec<Event>,
    pub sent: Vec<(DcId, Urgency)>,
    pub closed_links: Vec<(DcId, String)>,
    pub checkpoints: Vec<Position>,
    pub takes_bulk: Vec<bool>,
    pub store_closed: bool,
    pub links_shut_down: bool,
}

/// A lock server made of fakes.
pub(crate) struct Rig {
    pub server: LockServer,
    pub journal: Arc<JournalInbox>,
    pub links: mpsc::Sender<LinkInput>,
    seen: Arc<Mutex<Seen>>,
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    appended: Position,
    backlog: u64,
    since_checkpoint: u64,
    disk_space: DiskSpace,
    waiting_for_disk_space: bool,
}

/// When records become durable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncs {
    AtOnce,
    /// When the test calls [`Rig::sync`].
    WhenTold,
}

impl Rig {
    pub(crate) fn start(options: LockServerOptions, syncs: Syncs) -> Rig {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let disk = Arc::new(Mutex::new(Disk::default()));
        let journal = Arc::new(JournalInbox::default());
        let (links, link_events) = mpsc::channel(16);
        let parts = Parts {
            dc: dc(0),
            machine: FakeMachine::new(Arc::clone(&seen)),
            last: Position(0),
            store: FakeStore {
                disk: Arc::clone(&disk),
                journal: Arc::clone(&journal),
                syncs,
                seen: Arc::clone(&seen),
            },
            journal: Arc::clone(&journal),
            links: FakeLinks(Arc::clone(&seen)),
            link_events,
            board: Arc::default(),
            members: members_port().0,
        };
        let server = LockServer::start(options, parts).expect("there are threads");
        Rig { server, journal, links, seen, disk }
    }

    /// Makes the disk slower than the options allow, until [`Rig::sync`].
    pub(crate) fn fall_behind(&self) {
        let mut disk = self.disk.lock().expect("no test panics while it looks");
        disk.backlog = u64::MAX / 2;
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().expect("no test panics while it looks")
    }

    pub(crate) fn watch(&self) -> Arc<Mutex<Seen>> {
        Arc::clone(&self.seen)
    }

    /// Makes durable everything appended so far.
    pub(crate) fn sync(&self) {
        let mut disk = self.disk.lock().expect("no test panics while it looks");
        disk.backlog = 0;
        self.journal.put(JournalEvent::Durable(disk.appended.0));
    }

    /// Changes the reported disk space.
    pub(crate) fn disk_space(&self, disk_space: DiskSpace) {
        self.disk.lock().expect("no test panics while it looks").disk_space = disk_space;
        self.journal.put(JournalEvent::DiskSpace(disk_space));
    }

    /// Makes the disk full: appended records find no room.
    pub(crate) fn fill_disk(&self) {
        self.disk.lock().expect("no test panics while it looks").waiting_for_disk_space = true;
        self.disk_space(DiskSpace::Full);
    }

    /// Returns how many bytes are appended and not synced.
    pub(crate) fn backlog(&self) -> u64 {
        self.disk.lock().expect("no test panics while it looks").backlog
    }

    /// Makes calls without effect until the recorded calls satisfy `done`.
    pub(crate) async fn settle(&self, done: impl Fn(&Seen) -> bool) {
        while !done(&self.seen()) {
            self.server.handle().call(Call::Status).await.expect("the server runs");
        }
    }

    /// As [`Rig::settle`], for times when no call is handled.
    pub(crate) async fn settle_without_calls(&self, done: impl Fn(&Seen) -> bool) {
        while !done(&self.seen()) {
            tokio::task::yield_now().await;
        }
    }
}

/// Grants everything at once, with two exceptions: leases are answered when they are durable, and locks with
/// a name that starts with `wait` are answered when they are cancelled.
struct FakeMachine {
    seen: Arc<Mutex<Seen>>,
    effects: VecDeque<Effect>,
    last: Position,
    /// Answers, with the positions that they wait for.
    committing: VecDeque<(Position, CallId, Reply)>,
    waiting: Vec<(CallId, u64)>,
    counts: Counts,
    draining: bool,
}

impl FakeMachine {
    fn new(seen: Arc<Mutex<Seen>>) -> FakeMachine {
        FakeMachine {
            seen,
            effects: VecDeque::new(),
            last: Position(0),
            committing: VecDeque::new(),
            waiting: Vec::new(),
            counts: Counts::default(),
            draining: false,
        }
    }

    fn checkpoint(&mut self) {
        let checkpoint = Checkpoint {
            position: self.last,
            members: DcSet::only(dc(0)),
            joined: true,
            clock: Timestamp::ZERO,
            n: 1,
            applied: VersionVector::default(),
            last_stamps: vec![],
            ownership: Ownership::new(0),
            requests: vec![],
            leases: vec![],
            contents: vec![],
            outcomes: vec![],
            log: vec![],
            past: Past::default(),
            forced: vec![],
            hashes: vec![],
            all_speak: 1,
            fork: None,
            lead_ms: 0,
            members_state: None,
            lost_commits: Vec::new(),
            commit_contents: Vec::new(),
        };
        self.effects.push_back(Effect::Checkpoint(Box::new(checkpoint)));
    }

    fn reply(&mut self, call: CallId, reply: Reply) {
        self.effects.push_back(Effect::Reply { call, reply });
    }

    fn on_call(&mut self, call: CallId, request: Call) {
        match request {
            Call::OpenLease { ttl, .. } => {
                self.last.0 += 1;
                let lease = LeaseId::new(dc(0), self.last.0);
                let record = Record::LeaseEnded { lease };
                self.effects.push_back(Effect::Persist { position: self.last, record });
                let ttl = ttl.unwrap_or(DEFAULT_LEASE_TTL);
                self.committing.push_back((self.last, call, Reply::LeaseOpened { lease, ttl }));
            }
            Call::Acquire(acquire) => self.acquire(call, acquire),
            Call::Release { .. } => {
                self.counts.held -= 1;
                self.reply(call, Reply::Released);
            }
            Call::AcquireEnough(_) => self.reply(call, Reply::Refused(Refusal::NotFree)),
            Call::Amend(_) => self.reply(call, Reply::Amended),
            Call::Downgrade(_) => self.reply(call, Reply::Downgraded),
            Call::Cancel { .. } => {
                if let Some((waiting, _)) = self.waiting.pop() {
                    self.reply(waiting, Reply::Refused(Refusal::Cancelled));
                }
                self.reply(call, Reply::Released);
            }
            Call::KeepAlive { .. } => self.reply(call, Reply::Renewed { ttl: Duration::from_secs(10) }),
            Call::CloseLease { .. } => self.reply(call, Reply::LeaseClosed),
            Call::AttachLease { .. } => {
                self.reply(call, Reply::LeaseAttached { ttl: Duration::from_secs(10), reclaim: true });
            }
            Call::Reclaim { held, .. } => {
                let kept = held.iter().map(|held| held.request).collect();
                self.reply(call, Reply::Reclaimed { kept, lost: vec![] });
            }
            Call::Status => {
                let status = self.status();
                self.reply(call, Reply::Status(Box::new(status)));
            }
            Call::Top { .. } => self.reply(call, Reply::Top(vec![])),
            Call::ListKeys { .. } => self.reply(call, Reply::KeysListed { keys: vec![], next: None }),
            Call::List { .. } => self.reply(call, Reply::Listed { locks: vec![], next: None }),
            Call::Begin(_)
            | Call::Step(_)
            | Call::Read(_)
            | Call::Watch(_)
            | Call::Unwatch { .. }
            | Call::ForceRelease(_)
            | Call::Audit
            | Call::Decisions
            | Call::WatchTaken { .. } => {
                self.reply(call, Reply::Refused(Refusal::Draining));
            }
            // A simulated bug of the machine, for tests of how bugs end.
            Call::Describe { .. } => panic!("this machine cannot describe"),
        }
    }

    fn acquire(&mut self, call: CallId, acquire: Acquire) {
        let (lock, _): &(LockName, Mode) = &acquire.request.wants.locks()[0];
        let exhausted =
            Refusal::ResourceExhausted { limit: Limit::Leases, retry_after: Duration::from_millis(1500) };
        match lock.as_bytes() {
            _ if self.draining => self.reply(call, Reply::Refused(Refusal::Draining)),
            b"full" => self.reply(call, Reply::Refused(exhausted)),
            b"too large" => self.persist_too_much(),
            [b'w', b'a', b'i', b't', ..] => self.waiting.push((call, acquire.key.unwrap_or(0))),
            _ => {
                self.counts.held += 1;
                self.counts.grants += 1;
                let request = RequestId { dc: dc(0), n: self.counts.grants };
                let token = FencingToken(self.counts.grants);
                let snapshot = Arc::new(VersionVector::default());
                self.reply(call, Reply::Granted(Grant { request, token, snapshot }));
            }
        }
    }

    /// Emits a record above the limit of the codec: a simulated bug that is noticed.
    fn persist_too_much(&mut self) {
        let names = (0..256).map(|i| (name(&format!("{i:01000}")), Mode::Exclusive)).collect();
        let wants = Wants::all(names).expect("names differ");
        let id = RequestId { dc: dc(0), n: 1 };
        let request = Op::Request { id, at: Timestamp::ZERO, wants };
        let entry = Entry {
            cluster: ClusterId::from_raw(7),
            epoch: 0,
            prev: 0,
            lead_ms: 0,
            dc: dc(0),
            seq: 1,
            at: Timestamp::ZERO,
            deps: VersionVector::default(),
            ops: vec![request; 64],
        };
        self.last.0 += 1;
        let record = Record::Entry(Arc::new(entry));
        self.effects.push_back(Effect::Persist { position: self.last, record });
    }

    fn status(&self) -> Status {
        Status {
            dc: dc(0),
            phase: Phase::Serving,
            draining: self.draining,
            clock_skew: false,
            clock_behind_ms: 0,
            backed_for_ms: None,
            unknown_leases_ms: 0,
            disk_space: DiskSpace::default(),
            load: Load::default(),
            applied: VersionVector::default(),
            durable: VersionVector::default(),
            members: MembersStatus::default(),
            peers: vec![],
            counts: self.counts,
            acquires: Acquires::default(),
            majority_waits: Histogram::default(),
            witnesses: Vec::new(),
        }
    }
}

impl Machine for FakeMachine {
    fn handle(&mut self, _now: Now, event: Event) {
        let own = matches!(&event, Event::Client { request: Call::Status, .. } | Event::Tick);
        if !own {
            self.seen.lock().expect("no test panics while it looks").events.push(event.clone());
        }
        match event {
            Event::Client { call, request, .. } => self.on_call(call, request),
            Event::Durable { position } => {
                while self.committing.front().is_some_and(|(at, ..)| *at <= position) {
                    let (_, call, reply) = self.committing.pop_front().expect("it was just seen");
                    self.reply(call, reply);
                }
            }
            Event::LinkUp { peer, .. } if peer == dc(BUGGY_PEER) => panic!("this machine knows no such peer"),
            Event::LinkUp { peer, .. } => {
                let message = Message::HeldBack { durable: VersionVector::default() };
                self.effects.push_back(Effect::Send { peer, message });
            }
            Event::Checkpoint => self.checkpoint(),
            Event::Drain => self.draining = true,
            _ => {}
        }
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn next_deadline(&self) -> Instant {
        Instant::FAR_FUTURE
    }
}

struct FakeStore {
    disk: Arc<Mutex<Disk>>,
    journal: Arc<JournalInbox>,
    syncs: Syncs,
    seen: Arc<Mutex<Seen>>,
}

impl FakeStore {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("no test panics while it looks")
    }
}

impl Store for FakeStore {
    fn append(&mut self, position: Position, record: &[u8]) {
        let mut disk = self.disk();
        disk.appended = position;
        disk.since_checkpoint += record.len() as u64;
        match self.syncs {
            Syncs::AtOnce => self.journal.put(JournalEvent::Durable(position.0)),
            Syncs::WhenTold => disk.backlog += record.len() as u64,
        }
    }

    fn checkpoint(&mut self, position: Position, _state: Vec<u8>) {
        self.disk().since_checkpoint = 0;
        self.seen.lock().expect("no test panics while it looks").checkpoints.push(position);
    }

    fn figures(&self) -> Figures {
        let disk = self.disk();
        Figures {
            backlog_bytes: disk.backlog,
            since_checkpoint: disk.since_checkpoint,
            log: LogSize { reclaimable: disk.since_checkpoint, ..LogSize::default() },
            disk_space: disk.disk_space,
            waiting_for_disk_space: disk.waiting_for_disk_space,
            ..Figures::default()
        }
    }

    fn sync_times(&self) -> Histogram {
        Histogram::default()
    }

    fn close(self) -> Result<(), JournalError> {
        if self.disk().waiting_for_disk_space {
            self.journal
                .put(JournalEvent::Failed(JournalError::NoRoom { lacking: "room", path: "data".into() }));
            return Err(JournalError::Stopped);
        }
        self.seen.lock().expect("no test panics while it looks").store_closed = true;
        Ok(())
    }
}

struct FakeLinks(Arc<Mutex<Seen>>);

impl FakeLinks {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().expect("no test panics while it looks")
    }
}

impl Links for FakeLinks {
    type Event = LinkInput;

    fn read(&mut self, event: LinkInput) -> LinkInput {
        event
    }

    fn send(&mut self, peer: DcId, urgency: Urgency, _message: Vec<u8>) {
        self.seen().sent.push((peer, urgency));
    }

    fn close(&mut self, peer: DcId, reason: &str) {
        self.seen().closed_links.push((peer, reason.to_owned()));
    }

    fn take_bulk(&mut self, takes: bool) {
        self.seen().takes_bulk.push(takes);
    }

    fn add_peer(&mut self, _: DcId, _: &str, _: u16) {}

    fn figures(&self) -> Vec<LinkFigures> {
        vec![]
    }

    fn have_failed(&self) -> bool {
        false
    }

    async fn shutdown(self) {
        self.seen().links_shut_down = true;
    }
}
