//! Figures of a cluster with round trips of 80, 150 and 220 ms and syncs of 0.3 ms, in virtual time: the cost
//! of the protocol, without the overhead of machines.

use std::fmt;
use std::time::Duration;

use crate::lock_state::{HoldPolicy, HoldRule};
use crate::sim::scene::{Scene, dc, wants};
use geolock_api::names::{DcId, Mode};

/// See [`figures`].
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Hand-offs per second of an exclusive lock that all three datacenters want all the time, `min_keep` 0.
    pub hand_offs_per_second: f64,
    /// Grants per second of the same lock under the default hold policy; clients want it again at once and
    /// hold it for 1 ms.
    pub kept_grants_per_second: f64,
    /// The longest wait for that lock.
    pub kept_worst_wait: Duration,
    /// The same lock in datacenters 40 ms apart one way, under the policy `fair`, with four clients in each
    /// that hold it for 1 ms: grants as a fraction of those that one datacenter alone has.
    pub fair_utilisation: f64,
    /// The longest wait for that lock.
    pub fair_worst_wait: Duration,
    /// Round trips to the farthest owner that an idle exclusive lock takes, the worst of several placements.
    pub idle_round_trips: f64,
    /// The same for a request for 100 such locks.
    pub idle_100_round_trips: f64,
    /// Grants per second of locks of the living datacenters, held for 1 ms, before a third one dies and
    /// after.
    pub local_grants_per_second: f64,
    /// The same while one datacenter is down.
    pub local_grants_per_second_one_down: f64,
    /// Entries sent between datacenters during 10 000 acquisitions of a lock that is at home.
    pub entries_sent_for_local_use: u64,
}

/// Upper limit of hand-offs per second: three moves of 40, 110 and 75 ms.
pub const HAND_OFF_LIMIT: f64 = 3_000.0 / (40.0 + 110.0 + 75.0);

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "three datacenters, round trips 80, 150, 220 ms, sync 0.3 ms, virtual time")?;
        writeln!(
            f,
            "hot exclusive lock, min_keep 0         {:8.2} hand-offs/s (limit {HAND_OFF_LIMIT:.2})",
            self.hand_offs_per_second
        )?;
        writeln!(
            f,
            "the same, default hold policy          {:8.1} grants/s, worst wait {:.2} s",
            self.kept_grants_per_second,
            self.kept_worst_wait.as_secs_f64()
        )?;
        writeln!(
            f,
            "40 ms one way, policy fair             {:8.3} of one datacenter alone, worst wait {:.2} s",
            self.fair_utilisation,
            self.fair_worst_wait.as_secs_f64()
        )?;
        writeln!(
            f,
            "idle exclusive lock                    {:8.3} RTT to the farthest owner",
            self.idle_round_trips
        )?;
        writeln!(f, "100 of them in one request             {:8.3} RTT", self.idle_100_round_trips)?;
        writeln!(
            f,
            "local locks, all up / one down         {:8.1} / {:.1} grants/s",
            self.local_grants_per_second, self.local_grants_per_second_one_down
        )?;
        write!(f, "10 000 uses of a lock at home          {:8} entries sent", self.entries_sent_for_local_use)
    }
}

/// Runs the fixed scenarios.
///
/// # Panics
/// If the core breaks a promise on the way.
pub fn figures() -> Figures {
    let (kept_grants_per_second, kept_worst_wait) = kept_hot_lock();
    let (local_grants_per_second, local_grants_per_second_one_down) = one_down();
    let (fair_utilisation, fair_worst_wait) = fair_hot_lock();
    let many: Vec<String> = (0..100).map(|i| format!("many{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    Figures {
        hand_offs_per_second: hand_offs(),
        kept_grants_per_second,
        kept_worst_wait,
        fair_utilisation,
        fair_worst_wait,
        idle_round_trips: idle_round_trips(&["idle"]),
        idle_100_round_trips: idle_round_trips(&many),
        local_grants_per_second,
        local_grants_per_second_one_down,
        entries_sent_for_local_use: local_use(),
    }
}

const MS: Duration = Duration::from_millis(1);

fn hand_offs() -> f64 {
    let policy = HoldPolicy::Fixed { min_keep: Duration::ZERO, max_keep: Duration::from_secs(1) };
    let mut scene = Scene::with(|plan| plan.hold = vec![HoldRule { policy, ..HoldRule::default() }]);
    for id in 0..3 {
        scene.repeater(dc(id), wants(&["hot"], Mode::Exclusive), Duration::from_micros(100));
    }
    scene.run(Duration::from_secs(10));
    let before = scene.world.holders.hand_offs;
    scene.run(Duration::from_secs(60));
    (scene.world.holders.hand_offs - before) as f64 / 60.0
}

fn kept_hot_lock() -> (f64, Duration) {
    let mut scene = Scene::new();
    for id in 0..3 {
        scene.repeater(dc(id), wants(&["hot"], Mode::Exclusive), MS);
    }
    scene.run(Duration::from_secs(10));
    let before = scene.world.holders.grants;
    scene.run(Duration::from_secs(60));
    ((scene.world.holders.grants - before) as f64 / 60.0, scene.world.max_wait)
}

fn fair_hot_lock() -> (f64, Duration) {
    let contended = |dcs: u8| {
        let mut scene = Scene::with(|plan| {
            plan.hold = vec![HoldRule { policy: HoldPolicy::FAIR, ..HoldRule::default() }];
            plan.net.delays.iter_mut().for_each(|(_, delay)| *delay = 40 * MS);
        });
        for id in (0..dcs).flat_map(|id| [id; 4]) {
            scene.repeater(dc(id), wants(&["hot"], Mode::Exclusive), MS);
        }
        scene.run(Duration::from_secs(10));
        let before = scene.world.holders.grants;
        scene.world.max_wait = Duration::ZERO;
        scene.run(Duration::from_secs(60));
        ((scene.world.holders.grants - before) as f64, scene.world.max_wait)
    };
    let ((alone, _), (together, worst)) = (contended(1), contended(3));
    (together / alone, worst)
}

/// Returns the duration of an exclusive acquisition, in round trips to the farthest owner: the worst of locks
/// whose parts are all at home and of locks whose parts are all in one other datacenter.
fn idle_round_trips(locks: &[&str]) -> f64 {
    let round_trip = |a: u8, b: u8| 2 * Scene::new().world.plan.net.path(dc(a), dc(b)).delay;
    let farthest = |from: u8| (0..3).filter(|to| *to != from).map(|to| round_trip(from, to)).max();
    let mut worst: f64 = 0.0;
    for from in 0..3 {
        let mut scene = Scene::new();
        let took = acquisition(&mut scene, dc(from), locks);
        worst = worst.max(took.as_secs_f64() / farthest(from).unwrap_or_default().as_secs_f64());
        for to in (0..3).filter(|to| *to != from) {
            let mut scene = Scene::new();
            acquisition(&mut scene, dc(from), locks);
            scene.run(Duration::from_secs(2));
            let took = acquisition(&mut scene, dc(to), locks);
            worst = worst.max(took.as_secs_f64() / round_trip(from, to).as_secs_f64());
        }
    }
    worst
}

/// Acquires all the locks and releases them.
fn acquisition(scene: &mut Scene, at: DcId, locks: &[&str]) -> Duration {
    let client = scene.client(at);
    let key = scene.acquire(client, wants(locks, Mode::Exclusive));
    let took = scene.granted_within(client, key, Duration::from_secs(10));
    scene.release(client, key);
    took.expect("an idle lock is granted")
}

fn one_down() -> (f64, f64) {
    let mut scene = Scene::new();
    for (id, lock) in [(0, "a"), (1, "b")] {
        scene.repeater(dc(id), wants(&[lock], Mode::Exclusive), MS);
    }
    scene.run(Duration::from_secs(2));
    let rate = |scene: &mut Scene| {
        let before = scene.world.holders.grants;
        scene.run(Duration::from_secs(10));
        (scene.world.holders.grants - before) as f64 / 10.0
    };
    let all_up = rate(&mut scene);
    scene.world.crash(dc(2));
    (all_up, rate(&mut scene))
}

fn local_use() -> u64 {
    let mut scene = Scene::new();
    scene.repeater(dc(0), wants(&["home"], Mode::Exclusive), MS);
    scene.run(Duration::from_secs(2));
    let (before, grants) = (scene.world.entry_messages, scene.world.holders.grants);
    while scene.world.holders.grants < grants + 10_000 {
        scene.run(Duration::from_secs(1));
    }
    scene.world.entry_messages - before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_as_good_as_they_were() {
        let figures = figures();
        assert!(figures.hand_offs_per_second >= 13.0, "{figures}");
        assert!(figures.hand_offs_per_second <= HAND_OFF_LIMIT, "{figures}");
        assert!(figures.idle_round_trips <= 1.02, "{figures}");
        assert!(figures.idle_100_round_trips <= 1.02, "{figures}");
        assert_eq!(figures.entries_sent_for_local_use, 0, "{figures}");
        let (up, down) = (figures.local_grants_per_second, figures.local_grants_per_second_one_down);
        assert!(down >= 0.99 * up && up > 100.0, "{figures}");
        // (members - 1) x max_keep, and the moves.
        assert!(figures.kept_worst_wait <= Duration::from_millis(2_700), "{figures}");
        assert!(figures.kept_grants_per_second >= 500.0, "{figures}");
        assert!(figures.fair_utilisation >= 0.9, "{figures}");
        assert!(figures.fair_worst_wait <= Duration::from_secs(1), "{figures}");
    }
}
