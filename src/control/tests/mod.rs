//! Tests of the control group: members in one process, on disks in memory that lose what is not synced, and a
//! network that delays, loses and cuts. Time is real; the tests wait for events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use geolock_api::names::DcId;
use openraft::async_runtime::WatchReceiver;
use serde::{Deserialize, Serialize};

use super::store::Store;
use super::transport::{Calling, ControlTransport, Unreachable};
use super::{ControlConfig, ControlGroup, Fold, MemberId, Start, StartError, Status, Timing};
use crate::base::rng::Rng;
use disk::CrashDisk;

mod agreement;
mod disk;
mod elections;
mod founding;
mod hostile;
mod large;
mod members;
mod relay;
mod restart;
mod store;
mod succession;
mod wire;

/// The list of all commands.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Names(Vec<String>);

impl Fold for Names {
    type Command = String;

    fn apply(&mut self, index: u64, name: &String) {
        assert_eq!(index, self.0.len() as u64 + 1, "decisions are numbered one by one");
        self.0.push(name.clone());
    }
}

type Group = ControlGroup<Names>;

fn dc(id: u8) -> DcId {
    DcId::new(id).expect("a small id")
}

fn member(id: u8) -> MemberId {
    MemberId { dc: dc(id), generation: 0 }
}

fn members(ids: impl IntoIterator<Item = u8>) -> BTreeSet<MemberId> {
    ids.into_iter().map(member).collect()
}

/// A network in memory.
struct Net {
    groups: Mutex<BTreeMap<DcId, Group>>,
    /// Pairs between which nothing passes.
    cuts: Mutex<BTreeSet<(DcId, DcId)>>,
    rng: Mutex<Rng>,
    /// One message of so many is lost; 0: none.
    loses: Mutex<u64>,
    /// The round trip that links show; `None`: none was measured.
    round_trip: Mutex<Option<Duration>>,
}

impl Net {
    fn passes(&self, from: DcId, to: DcId) -> bool {
        !self.cuts.lock().unwrap().contains(&(from.min(to), from.max(to)))
    }

    fn loses(&self) -> bool {
        let one_of = *self.loses.lock().unwrap();
        one_of > 0 && self.rng.lock().unwrap().below(one_of) == 0
    }

    fn delay(&self) -> Duration {
        self.rng.lock().unwrap().duration(Duration::ZERO, Duration::from_millis(3))
    }
}

/// The way of one member into the network.
struct Port {
    net: Arc<Net>,
    me: DcId,
}

impl ControlTransport for Port {
    fn call(&self, to: DcId, request: Bytes) -> Calling<'_> {
        Box::pin(async move {
            tokio::time::sleep(self.net.delay()).await;
            let group = self.net.groups.lock().unwrap().get(&to).cloned();
            let group = group.filter(|_| self.net.passes(self.me, to)).ok_or(Unreachable::NoRoute(to))?;
            if self.net.loses() {
                std::future::pending::<()>().await;
            }
            let me = self.me;
            // The member handles it, also if the caller gives up.
            let answer = tokio::spawn(async move { group.handle_request(me, request).await }).await;
            if self.net.loses() {
                std::future::pending::<()>().await;
            }
            match self.net.passes(me, to) {
                true => Ok(answer.expect("no request panics")),
                false => Err(Unreachable::LinkLost(to)),
            }
        })
    }

    fn round_trip(&self, to: DcId) -> Option<Duration> {
        self.net.round_trip.lock().unwrap().filter(|_| self.net.passes(self.me, to))
    }
}

/// Members, their disks, and the network.
struct World {
    net: Arc<Net>,
    disks: Mutex<BTreeMap<MemberId, CrashDisk>>,
}

impl World {
    fn new(seed: u64) -> World {
        let net = Net {
            groups: Mutex::default(),
            cuts: Mutex::default(),
            rng: Mutex::new(Rng::new(seed, 0)),
            loses: Mutex::new(0),
            round_trip: Mutex::default(),
        };
        World { net: Arc::new(net), disks: Mutex::default() }
    }

    fn disk(&self, me: MemberId) -> CrashDisk {
        self.disks.lock().unwrap().entry(me).or_default().clone()
    }

    fn config(&self, me: MemberId, start: Start) -> ControlConfig {
        ControlConfig {
            me,
            dir: "unused".into(),
            start,
            timing: Timing::with_election(Duration::from_millis(250)),
            transport: Arc::new(Port { net: self.net.clone(), me: me.dc }),
        }
    }

    async fn try_start(&self, me: MemberId, start: Start) -> Result<Group, StartError> {
        let store = Store::on(self.disk(me), me)?;
        let group = Group::start_on(store, self.config(me, start)).await?;
        self.net.groups.lock().unwrap().insert(me.dc, group.clone());
        Ok(group)
    }

    async fn start(&self, me: MemberId, start: Start) -> Group {
        self.try_start(me, start).await.expect("it starts")
    }

    /// Starts a group of these founders.
    async fn found(&self, ids: impl IntoIterator<Item = u8> + Clone) -> Vec<Group> {
        let founders = members(ids.clone());
        let mut groups = Vec::new();
        for id in ids {
            groups.push(self.start(member(id), Start::Found(founders.clone())).await);
        }
        for group in &groups {
            until(group, |status| status.leader.is_some()).await;
        }
        groups
    }

    /// Kills a member: its disk is as a loss of power leaves it, and nothing more comes of it.
    async fn kill(&self, group: &Group) {
        let me = group.0.caller.me;
        self.net.groups.lock().unwrap().remove(&me.dc);
        let left = self.disk(me).after_power_loss(&mut self.net.rng.lock().unwrap());
        self.disks.lock().unwrap().insert(me, left);
        // Its tasks write to a disk that nobody reads any more, and reach nobody.
        self.isolate(me.dc);
        group.shutdown().await;
        self.heal(me.dc);
    }

    fn cut(&self, a: DcId, b: DcId) {
        self.net.cuts.lock().unwrap().insert((a.min(b), a.max(b)));
    }

    fn isolate(&self, one: DcId) {
        (0..64).map(dc).filter(|other| *other != one).for_each(|other| self.cut(one, other));
    }

    fn heal(&self, one: DcId) {
        self.net.cuts.lock().unwrap().retain(|(a, b)| *a != one && *b != one);
    }
}

impl Group {
    /// This member begins no election before the test ends, unless it votes for another one.
    fn begin_no_elections(&self) {
        self.0.voted.send_replace(Some(Instant::now() + Duration::from_secs(3_600)));
    }
}

/// Waits until the status of a member is as wanted.
async fn until(group: &Group, wanted: impl Fn(&Status) -> bool) -> Status {
    let core = &group.0;
    let (mut metrics, mut decided) = (core.raft.metrics(), core.decided.clone());
    let (mut contact, mut founding) = (core.contact.subscribe(), core.founding.subscribe());
    loop {
        metrics.borrow_watched();
        contact.borrow_and_update();
        founding.borrow_and_update();
        decided.borrow_and_update();
        let status = group.status();
        if wanted(&status) {
            return status;
        }
        let changed = async {
            tokio::select! {
                changed = metrics.changed() => changed.is_ok(),
                changed = contact.changed() => changed.is_ok(),
                changed = founding.changed() => changed.is_ok(),
                changed = decided.changed() => changed.is_ok(),
            }
        };
        let changed = tokio::time::timeout(Duration::from_secs(60), changed).await;
        assert!(changed.is_ok_and(|changed| changed), "waited in vain at {}: {status:?}", core.caller.me);
    }
}

/// Proposes a command until it is decided.
async fn decide(group: &Group, name: &str) -> u64 {
    loop {
        if let Ok(index) = group.propose(&name.to_owned()).await {
            return index;
        }
    }
}

fn names(group: &Group) -> Vec<String> {
    group.0.list.lock().state.0.clone()
}
