//! A world without randomness, for stories and figures: three datacenters with round trips of 80, 150 and 220
//! ms, no faults, and no clients but those of the story. The oracle checks it as any run.

use crate::base::bugs::Bugs;
use std::time::Duration;

use crate::causal_log::Wants;
use crate::replica::call::{IdempotencyKey, Wait};
use crate::sim::client::{Order, State};
use crate::sim::plan::{Plan, Profile};
use crate::sim::queue::Moment;
use crate::sim::trace::TraceMode;
use crate::sim::world::{Driver, World};
use geolock_api::names::{DcId, FencingToken, LockName, Mode};

pub(super) struct Scene {
    pub world: World,
}

pub(super) fn dc(id: u8) -> DcId {
    DcId::new(id).expect("scenes have three datacenters")
}

/// Returns wants for all of these locks in one mode.
pub(super) fn wants(locks: &[&str], mode: Mode) -> Wants {
    let name = |lock: &&str| LockName::try_from(*lock).expect("scenes name locks as they should");
    Wants::all(locks.iter().map(|lock| (name(lock), mode)).collect()).expect("scenes want some locks")
}

impl Scene {
    pub fn new() -> Scene {
        Scene::with(|_| {})
    }

    /// As [`Scene::new`], with another plan.
    pub fn with(change: impl FnOnce(&mut Plan)) -> Scene {
        let mut plan = Plan::new(Profile::Quiet, 1, 3_600);
        change(&mut plan);
        let mut scene = Scene { world: World::new(1, plan, TraceMode::Last(80), Bugs::default()) };
        // Links come up, and datacenters hear of each other.
        scene.run_ms(2_000);
        scene
    }

    pub fn now(&self) -> Moment {
        self.world.now
    }

    /// # Panics
    /// If a promise is broken.
    pub fn run(&mut self, time: Duration) {
        self.world.run_until(self.world.now + time);
        if let Some(broken) = self.world.broken() {
            panic!("{:?}: {}\n{}", broken.kind, broken.what, self.world.trace.text());
        }
    }

    pub fn run_ms(&mut self, millis: u64) {
        self.run(Duration::from_millis(millis));
    }

    /// Adds a client that only follows the story's calls, connected and with a lease.
    pub fn client(&mut self, dc: DcId) -> usize {
        let client = self.world.spawn_client(dc, Driver::Manual);
        self.run_ms(5);
        client
    }

    /// Adds a client that acquires the same locks over and over, holding them for a while each time.
    pub fn repeater(&mut self, dc: DcId, wants: Wants, hold: Duration) -> usize {
        let order = Order { wants, wait: Wait::Forever, hold: Some(hold) };
        self.world.spawn_client(dc, Driver::Repeat(order))
    }

    /// Acquires and holds until the story releases.
    pub fn acquire(&mut self, client: usize, wants: Wants) -> IdempotencyKey {
        let order = Order { wants, wait: Wait::Forever, hold: None };
        self.world.with_client(client, |client, now, out| client.acquire(now, order, out))
    }

    pub fn release(&mut self, client: usize, key: IdempotencyKey) {
        self.world.with_client(client, |client, _, out| client.end(key, out));
    }

    /// Returns the token while the request is held.
    pub fn token(&self, client: usize, key: IdempotencyKey) -> Option<FencingToken> {
        match self.world.client(client).requests().get(&key)?.state {
            State::Held { token, .. } => Some(token),
            State::Waiting | State::Ending { .. } => None,
        }
    }

    /// Runs until the request is granted. Returns how long that took from now; `None` if longer than `bound`.
    pub fn granted_within(
        &mut self,
        client: usize,
        key: IdempotencyKey,
        bound: Duration,
    ) -> Option<Duration> {
        let begun = self.now();
        while self.token(client, key).is_none() {
            if self.now().since(begun) >= bound {
                return None;
            }
            self.run(Duration::from_micros(100));
        }
        Some(self.now().since(begun))
    }
}
