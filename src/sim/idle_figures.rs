//! Figures of locks that are mostly idle (`docs/algorithm/ownership.md#14-idle-return`), in the same world
//! and virtual time as the other ones: the mean wait for a grant, with the default hold rule.

use std::fmt;
use std::time::Duration;

use crate::sim::scene::{Scene, dc, wants};
use geolock_api::names::Mode::{self, Exclusive, Shared};

/// Mean waits in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleFigures {
    /// dc0 writes a lock every 10 s, and others read it every second: a write, and the first read after it in
    /// each datacenter that reads.
    pub read_by_both: ReadMostly,
    /// The same; only dc1 reads.
    pub read_by_one: ReadMostly,
    /// dc0 uses a lock exclusively every 10 minutes.
    pub every_ten_minutes: f64,
    /// dc0, dc1 and dc2 use a lock exclusively for half an hour each, every 10 minutes.
    pub follow_the_sun: f64,
}

/// See [`IdleFigures`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadMostly {
    pub write: f64,
    pub first_read: f64,
}

impl fmt::Display for IdleFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, ReadMostly { write, first_read }) in
            [("dc1 and dc2", self.read_by_both), ("dc1 only", self.read_by_one)]
        {
            writeln!(
                f,
                "written in dc0 every 10 s, read in {what:<12} mean wait of a write {write:5.1} ms, of a first read {first_read:5.1} ms"
            )?;
        }
        writeln!(f, "exclusive in dc0 every 10 minutes      {:8.1} ms mean wait", self.every_ten_minutes)?;
        write!(f, "the same, 30 min. each in dc0, 1, 2    {:8.1} ms mean wait", self.follow_the_sun)
    }
}

/// Runs the fixed scenarios.
///
/// # Panics
/// If the core breaks a promise on the way.
pub fn idle_figures() -> IdleFigures {
    IdleFigures {
        read_by_both: read_mostly(&[1, 2]),
        read_by_one: read_mostly(&[1]),
        every_ten_minutes: exclusive(&[0; 3]),
        follow_the_sun: exclusive(&[0, 0, 0, 1, 1, 1, 2, 2, 2]),
    }
}

const SECOND: Duration = Duration::from_secs(1);
/// Cycles of the lock that is mostly read.
const CYCLES: usize = 4;

/// Acquires the lock and releases it. Returns the wait in milliseconds.
fn use_once(scene: &mut Scene, client: usize, mode: Mode) -> f64 {
    let key = scene.acquire(client, wants(&["idle"], mode));
    let waited = scene.granted_within(client, key, 10 * SECOND).expect("an idle lock is granted");
    scene.release(client, key);
    waited.as_secs_f64() * 1e3
}

fn read_mostly(readers: &[u8]) -> ReadMostly {
    let mut scene = Scene::new();
    let writer = scene.client(dc(0));
    let readers: Vec<usize> = readers.iter().map(|id| scene.client(dc(*id))).collect();
    use_once(&mut scene, writer, Exclusive);
    let (mut write, mut first_read) = (0.0, 0.0);
    for _ in 0..CYCLES {
        for second in 0..10 {
            for reader in &readers {
                scene.run(SECOND / readers.len() as u32);
                let waited = use_once(&mut scene, *reader, Shared);
                first_read += if second == 0 { waited } else { 0.0 };
            }
        }
        write += use_once(&mut scene, writer, Exclusive);
    }
    let cycles = CYCLES as f64;
    ReadMostly { write: write / cycles, first_read: first_read / cycles / readers.len() as f64 }
}

/// Uses a lock exclusively in these datacenters, every 10 minutes. Returns the mean wait after the first use.
fn exclusive(places: &[u8]) -> f64 {
    let mut scene = Scene::new();
    let clients = [0, 1, 2].map(|id| scene.client(dc(id)));
    use_once(&mut scene, clients[0], Exclusive);
    let mut waited = 0.0;
    for place in places {
        scene.run(600 * SECOND);
        waited += use_once(&mut scene, clients[usize::from(*place)], Exclusive);
    }
    waited / places.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_locks_wait_as_little_as_they_did() {
        let figures = idle_figures();
        println!("{figures}");
        assert!(figures.every_ten_minutes < 1.0, "{figures}");
        // Two moves of nine uses.
        assert!(figures.follow_the_sun < 40.0, "{figures}");
        // One of two readers pays for both.
        assert!(figures.read_by_both.first_read < 80.0, "{figures}");
    }
}
