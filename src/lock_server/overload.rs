//! Detects overload: the server is so far behind with the calls it has read that it accepts nothing new
//! (`docs/algorithm/recovery.md#7-full-disk-overload`).
//!
//! The measure is the time an input waits: first for a thread to serve its connection, then in the mailbox.
//! With each sample the server sends a probe (`probe.rs`) and receives it when all inputs before it are
//! handled. A probe that is still on its way counts with its age. So a mailbox that is full, or not read
//! because the disk is behind, counts too.
//!
//! Rejected: the lateness of the actor's own deadlines (a pause of the machine has the same effect and leaves
//! no queue); the length of the mailbox (an input may name one lock or 10 000).
//!
//! Bytes that clients have sent and the server has not read are invisible here. They are most of the wait in
//! a crowd of clients that keep sending; only flow control bounds them.

use std::time::Duration;

use crate::base::capacity::Load;
use crate::base::histogram::Histogram;
use crate::base::time::Instant;

/// The server is overloaded if this many consecutive samples find it behind.
const SAMPLES_BEHIND: u32 = 2;
/// The end of an overload is logged when no call was refused for this long: overload comes and goes many
/// times a second.
const CALM: Duration = Duration::from_secs(10);

/// The state of overload detection.
#[derive(Debug)]
pub(super) struct Overload {
    after: Duration,
    /// When the probe on its way was put into the mailbox, or would have been had there been room.
    probe: Option<Instant>,
    is_in_mailbox: bool,
    /// How long the last probe was on its way.
    waited: Duration,
    /// How long each probe was on its way.
    delays: Histogram,
    samples_behind: u32,
    load: Load,
    /// When calls were last refused; `None` once that is over.
    last_shed: Option<Instant>,
}

/// The result of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LoadSample {
    /// The load, if it has changed.
    pub load: Option<Load>,
    pub change: Option<LoadChange>,
}

/// A change that is logged for the operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LoadChange {
    Begins { behind: Duration },
    Over,
}

impl Overload {
    /// The server sheds load when inputs wait for more than `after`.
    pub(super) fn new(after: Duration) -> Overload {
        Overload {
            after,
            probe: None,
            is_in_mailbox: false,
            waited: Duration::ZERO,
            delays: Histogram::default(),
            samples_behind: 0,
            load: Load::default(),
            last_shed: None,
        }
    }

    /// Returns true if a probe shall be sent now.
    pub(super) fn wants_probe(&self) -> bool {
        !self.is_in_mailbox
    }

    /// Notes that a probe was put into the mailbox, or found no room: then its wait counts from the first
    /// attempt.
    pub(super) fn probed(&mut self, now: Instant, is_in_mailbox: bool) {
        self.probe.get_or_insert(now);
        self.is_in_mailbox = is_in_mailbox;
    }

    /// Notes that the probe was taken out of the mailbox.
    pub(super) fn came_out(&mut self, now: Instant) {
        self.is_in_mailbox = false;
        if let Some(sent) = self.probe.take() {
            self.waited = now.saturating_since(sent);
            self.delays.record(self.waited);
        }
    }

    /// Returns the load that the last sample found.
    pub(super) fn load(&self) -> Load {
        self.load
    }

    /// Returns the histogram of the waits of inputs: one for each probe, so about ten a second.
    pub(super) fn delays(&self) -> &Histogram {
        &self.delays
    }

    /// Samples the load, a few times a second.
    pub(super) fn sample(&mut self, now: Instant) -> LoadSample {
        let before = self.load;
        let behind = self.probe.map_or(self.waited, |sent| now.saturating_since(sent));
        self.samples_behind = if behind > self.after { self.samples_behind + 1 } else { 0 };
        match self.samples_behind {
            0 => self.load = Load::Fits,
            SAMPLES_BEHIND.. => self.load = Load::TooMuch,
            _ => {}
        }
        let load = (self.load != before).then_some(self.load);
        LoadSample { load, change: self.change(now, behind) }
    }

    fn change(&mut self, now: Instant, behind: Duration) -> Option<LoadChange> {
        match (self.load, self.last_shed) {
            (Load::TooMuch, before) => {
                self.last_shed = Some(now);
                before.is_none().then_some(LoadChange::Begins { behind })
            }
            (Load::Fits, Some(last)) if now.saturating_since(last) >= CALM => {
                self.last_shed = None;
                Some(LoadChange::Over)
            }
            (Load::Fits, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn overload() -> Overload {
        Overload::new(Duration::from_millis(250))
    }

    /// The loads found when each probe takes that many milliseconds, with one sample every 100 ms.
    fn loads_after(overload: &mut Overload, waits: impl IntoIterator<Item = u64>) -> Vec<Load> {
        let mut now = 0;
        let mut out_at = None;
        let mut loads = Vec::new();
        for wait in waits {
            if let Some(out) = out_at.take_if(|out| *out <= now) {
                overload.came_out(at(out));
            }
            overload.sample(at(now));
            loads.push(overload.load);
            if overload.wants_probe() {
                overload.probed(at(now), true);
                out_at = Some(now + wait);
            }
            now += 100;
        }
        loads
    }

    #[test]
    fn a_server_that_keeps_up_sheds_nothing() {
        assert!(
            loads_after(&mut overload(), [0, 1, 99, 100, 249, 250, 3, 250].repeat(10))
                .iter()
                .all(|l| *l == Load::Fits)
        );
    }

    #[test]
    fn two_samples_in_a_row_behind_shed_and_one_that_is_not_ends_it() {
        let mut overload = overload();
        let loads = loads_after(&mut overload, [430, 0, 0, 0, 0, 1, 1, 1]);
        // The probe is still on its way after 300 and after 400 ms and out at 430, which the sample at 500
        // sees; the next one takes 1 ms.
        let shed: Vec<bool> = loads.iter().map(|load| *load == Load::TooMuch).collect();
        assert_eq!(shed, [false, false, false, false, true, true, false, false]);
    }

    #[test]
    fn a_pause_of_the_whole_server_sheds_nothing() {
        let mut overload = overload();
        overload.sample(at(0));
        overload.probed(at(0), true);
        overload.came_out(at(1));
        // The server does not run for ten seconds.
        assert_eq!(overload.sample(at(10_000)).load, None);
        overload.probed(at(10_000), true);
        // The same with a probe in the mailbox: only one sample in a row is behind.
        assert_eq!(overload.sample(at(20_000)).load, None);
        overload.came_out(at(20_001));
        overload.probed(at(20_001), true);
        overload.came_out(at(20_002));
        assert_eq!(overload.sample(at(20_100)).load, None);
    }

    #[test]
    fn a_mailbox_without_room_for_a_probe_counts_from_the_first_try() {
        let mut overload = overload();
        let loads: Vec<Load> = (0..6)
            .map(|sample| {
                overload.sample(at(100 * sample));
                overload.probed(at(100 * sample), false);
                overload.load
            })
            .collect();
        assert_eq!(loads[..4], [Load::Fits; 4]);
        assert_eq!(loads[4..], [Load::TooMuch; 2]);
    }

    #[test]
    fn the_operator_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let mut overload = overload();
        let mut changes = Vec::new();
        for sample in 0..400 {
            let now = at(100 * sample);
            // For 20 s the load goes up and down.
            if overload.wants_probe() {
                overload.probed(now, true);
            } else if sample % 8 == 7 || sample >= 200 {
                overload.came_out(now);
                overload.probed(now, true);
            }
            changes.extend(overload.sample(now).change);
        }
        assert!(matches!(changes[..], [LoadChange::Begins { .. }, LoadChange::Over]), "{changes:?}");
    }
}
