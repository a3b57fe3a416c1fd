//! Kills servers and cuts links at random moments under load.

use std::hash::{BuildHasher, RandomState};

use geolock::client::{CommitError, TxnError};
use tokio::sync::watch;
use tokio::time::timeout;

use super::history::Commit;
use super::wan::Wan;
use super::{HANGS, within};

/// Random numbers from a seed.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Takes the seed from `GEOLOCK_TEST_SEED`, or a new one each time. Prints it: a test that fails shows
    /// it.
    pub fn from_environment() -> Dice {
        let given = std::env::var("GEOLOCK_TEST_SEED").ok();
        let seed = match given {
            Some(seed) => seed.parse().expect("GEOLOCK_TEST_SEED is a number"),
            None => RandomState::new().hash_one(0) % 1_000_000,
        };
        println!("GEOLOCK_TEST_SEED={seed}");
        Dice(seed)
    }

    /// Returns a number below `below`, which is above 0.
    pub fn roll(&mut self, below: usize) -> usize {
        // SplitMix64: neighbouring seeds have nothing in common.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % below as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.roll(last + 1));
        }
    }
}

/// State shared by the load and the code that injects faults.
#[derive(Default)]
pub struct Load {
    tried: watch::Sender<u64>,
    closed: watch::Sender<bool>,
}

impl Load {
    /// Counts an attempt. Failed attempts count, too, so that faults continue when nothing can be done.
    pub fn tried(&self) {
        self.tried.send_modify(|tried| *tried += 1);
    }

    /// Returns the number of attempts.
    pub fn progress(&self) -> watch::Receiver<u64> {
        self.tried.subscribe()
    }

    /// Ends the load: no more work is begun.
    pub fn close(&self) {
        self.closed.send_replace(true);
        // Wakes tasks that wait for progress.
        self.tried();
    }

    pub fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }
}

/// The outcome of a transaction.
pub enum Outcome {
    Done(Commit),
    /// Nothing was committed.
    Nothing,
    Unknown,
}

/// Classifies the result of a transaction on a server that may be killed; `None`: it had nothing to do.
pub fn outcome(result: Result<Option<Commit>, CommitError>) -> Outcome {
    match result {
        Ok(Some(commit)) => Outcome::Done(commit),
        Ok(None) => Outcome::Nothing,
        Err(CommitError::NotCommitted(
            TxnError::NotBegun(_) | TxnError::Over(..) | TxnError::LeaseLost(_),
        )) => Outcome::Nothing,
        Err(CommitError::OutcomeUnknown(why)) => {
            println!("unknown: {why}");
            Outcome::Unknown
        }
        Err(error) => panic!("nothing explains this: {error}"),
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Kill,
    /// One link is cut; the third server passes entries on.
    Cut,
    /// A server has no link left.
    Isolate,
    /// A server is killed and started again while a link is cut.
    CutAndKill,
    /// Datagrams are lost for a moment, mostly too short for either side to give the link up.
    Flicker,
}

/// Counts of faults.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub kills: u32,
    /// Cuts of a link that was up, noticed by both ends.
    pub broken: u32,
}

/// Injects faults between three servers: each kind at least once, at random moments of the load. At the end
/// all servers run and all links are whole.
pub async fn make_trouble(wan: &mut Wan, dice: &mut Dice, load: &Load) -> Tally {
    make_trouble_sparing(None, wan, dice, load).await
}

/// The same, but that server is not killed.
pub async fn make_trouble_sparing(spared: Option<u8>, wan: &mut Wan, dice: &mut Dice, load: &Load) -> Tally {
    use Fault::{Cut, CutAndKill, Flicker, Isolate, Kill};
    let mut faults = [Kill, Kill, Kill, Cut, Cut, CutAndKill, Isolate, Flicker];
    dice.shuffle(&mut faults);
    let (mut tally, progress) = (Tally::default(), &mut load.progress());
    for fault in faults {
        some_progress(dice, progress).await;
        let a = dice.roll(3) as u8;
        let (b, c) = match dice.roll(2) {
            0 => ((a + 1) % 3, (a + 2) % 3),
            _ => ((a + 2) % 3, (a + 1) % 3),
        };
        println!("{fault:?} {a} {b} {c} at {}", *progress.borrow());
        match fault {
            Kill => {
                let victim = if spared == Some(a) { b } else { a };
                wan.kill(victim);
                if dice.roll(2) == 0 {
                    some_progress(dice, progress).await;
                }
                wan.restart(victim);
            }
            Cut => {
                wan.break_link(a, b);
                some_progress(dice, progress).await;
            }
            Isolate => {
                wan.cut(a, b);
                wan.break_link(a, c);
                wan.await_link(a, b, false);
                some_progress(dice, progress).await;
            }
            CutAndKill => {
                wan.break_link(a, b);
                let picked = dice.roll(3);
                let victim = [a, b, c][picked];
                let victim = if spared == Some(victim) { [b, c, a][picked] } else { victim };
                wan.kill(victim);
                wan.restart(victim);
                some_progress(dice, progress).await;
            }
            Flicker => {
                wan.cut(a, b);
                within(wan.loses(a, b)).await;
                some_progress(dice, progress).await;
            }
        }
        tally.kills += u32::from(matches!(fault, Kill | CutAndKill));
        tally.broken += u32::from(matches!(fault, Cut | Isolate | CutAndKill));
        wan.heal_all();
    }
    wan.await_whole();
    tally
}

/// Waits until the load has made a random amount of progress.
pub async fn some_progress(dice: &mut Dice, progress: &mut watch::Receiver<u64>) {
    let goal = *progress.borrow() + 1 + dice.roll(30) as u64;
    let reached = timeout(HANGS, progress.wait_for(|progress| *progress >= goal)).await;
    reached.expect("the load goes on, whatever happens").expect("the load runs");
}
