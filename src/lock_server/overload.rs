//! Whether the server is so far behind with what it has read that it takes on nothing new.
//!
//! The measure is how long an input waits for its turn: for that of its connection, and then in the mailbox. It is measured by a
//! probe: at each look the actor sends one (`probe.rs`), and sees it again when all that was before it is worked off. A probe
//! that is still on its way is as late as it is old, so a mailbox that is full, or not read at all because the disk is behind,
//! counts too.
//!
//! What was rejected: how late the actor's own deadlines are (a pause of the machine looks the same, and leaves no queue);
//! the length of the mailbox (an input may name one lock or 10 000).
//!
//! What it does not see is what clients have sent and nobody has read: most of the wait of a crowd that goes on sending.
//! Only flow control bounds that.

use std::time::Duration;

use crate::histogram::Histogram;
use crate::room::Load;
use crate::time::Instant;

/// So many looks in a row have to find the server behind.
const LOOKS: u32 = 2;
/// An operator is told that it is over when nothing was refused for so long: overload comes and goes many times a second.
const CALM: Duration = Duration::from_secs(10);

/// See the top of this file.
#[derive(Debug)]
pub(super) struct Overload {
    after: Duration,
    /// When the probe that is on its way was put into the mailbox, or should have been.
    probe: Option<Instant>,
    is_in_mailbox: bool,
    /// How long the last one was on its way.
    waited: Duration,
    /// How long each was.
    delays: Histogram,
    looks_behind: u32,
    load: Load,
    /// When calls were refused last, until that is over.
    last_shed: Option<Instant>,
}

/// What follows from a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// If it is another one than before.
    pub load: Option<Load>,
    pub news: Option<News>,
}

/// What an operator is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Begins { behind: Duration },
    Over,
}

impl Overload {
    /// Load is shed when inputs wait for more than `after`.
    pub(super) fn new(after: Duration) -> Overload {
        Overload {
            after,
            probe: None,
            is_in_mailbox: false,
            waited: Duration::ZERO,
            delays: Histogram::default(),
            looks_behind: 0,
            load: Load::default(),
            last_shed: None,
        }
    }

    /// Whether a probe shall be put into the mailbox now.
    pub(super) fn wants_probe(&self) -> bool {
        !self.is_in_mailbox
    }

    /// A probe was put into the mailbox, or there was no room for it: it waits since the first try.
    pub(super) fn probed(&mut self, now: Instant, is_in_mailbox: bool) {
        self.probe.get_or_insert(now);
        self.is_in_mailbox = is_in_mailbox;
    }

    /// The probe has come out again.
    pub(super) fn came_out(&mut self, now: Instant) {
        self.is_in_mailbox = false;
        if let Some(sent) = self.probe.take() {
            self.waited = now.saturating_since(sent);
            self.delays.record(self.waited);
        }
    }

    /// What was told at the last look.
    pub(super) fn load(&self) -> Load {
        self.load
    }

    /// How long inputs waited in the mailbox: one for each probe, so about ten a second.
    pub(super) fn delays(&self) -> &Histogram {
        &self.delays
    }

    /// A look at it, a few times a second.
    pub(super) fn look(&mut self, now: Instant) -> Look {
        let before = self.load;
        let behind = self.probe.map_or(self.waited, |sent| now.saturating_since(sent));
        self.looks_behind = if behind > self.after { self.looks_behind + 1 } else { 0 };
        match self.looks_behind {
            0 => self.load = Load::Fits,
            LOOKS.. => self.load = Load::TooMuch,
            _ => {}
        }
        let load = (self.load != before).then_some(self.load);
        Look { load, news: self.news(now, behind) }
    }

    fn news(&mut self, now: Instant, behind: Duration) -> Option<News> {
        match (self.load, self.last_shed) {
            (Load::TooMuch, before) => {
                self.last_shed = Some(now);
                before.is_none().then_some(News::Begins { behind })
            }
            (Load::Fits, Some(last)) if now.saturating_since(last) >= CALM => {
                self.last_shed = None;
                Some(News::Over)
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

    /// What each look finds when every probe comes out after that many milliseconds, one look every 100 ms.
    fn looks(overload: &mut Overload, waits: impl IntoIterator<Item = u64>) -> Vec<Load> {
        let mut now = 0;
        let mut out_at = None;
        let mut loads = Vec::new();
        for wait in waits {
            if let Some(out) = out_at.take_if(|out| *out <= now) {
                overload.came_out(at(out));
            }
            overload.look(at(now));
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
            looks(&mut overload(), [0, 1, 99, 100, 249, 250, 3, 250].repeat(10))
                .iter()
                .all(|l| *l == Load::Fits)
        );
    }

    #[test]
    fn two_looks_in_a_row_behind_shed_and_one_that_is_not_ends_it() {
        let mut overload = overload();
        let loads = looks(&mut overload, [430, 0, 0, 0, 0, 1, 1, 1]);
        // Still on its way after 300 and after 400 ms; out at 430, which the look at 500 sees; the next one took 1 ms.
        let shed: Vec<bool> = loads.iter().map(|load| *load == Load::TooMuch).collect();
        assert_eq!(shed, [false, false, false, false, true, true, false, false]);
    }

    #[test]
    fn a_pause_of_the_whole_server_sheds_nothing() {
        let mut overload = overload();
        overload.look(at(0));
        overload.probed(at(0), true);
        overload.came_out(at(1));
        // Nothing runs for ten seconds.
        assert_eq!(overload.look(at(10_000)).load, None);
        overload.probed(at(10_000), true);
        // Even with a probe in the mailbox: one look in a row.
        assert_eq!(overload.look(at(20_000)).load, None);
        overload.came_out(at(20_001));
        overload.probed(at(20_001), true);
        overload.came_out(at(20_002));
        assert_eq!(overload.look(at(20_100)).load, None);
    }

    #[test]
    fn a_mailbox_without_room_for_a_probe_counts_from_the_first_try() {
        let mut overload = overload();
        let loads: Vec<Load> = (0..6)
            .map(|look| {
                overload.look(at(100 * look));
                overload.probed(at(100 * look), false);
                overload.load
            })
            .collect();
        assert_eq!(loads[..4], [Load::Fits; 4]);
        assert_eq!(loads[4..], [Load::TooMuch; 2]);
    }

    #[test]
    fn the_operator_is_told_once_when_it_begins_and_once_when_it_is_over() {
        let mut overload = overload();
        let mut news = Vec::new();
        for look in 0..400 {
            let now = at(100 * look);
            // For 20 s it goes to and fro.
            if overload.wants_probe() {
                overload.probed(now, true);
            } else if look % 8 == 7 || look >= 200 {
                overload.came_out(now);
                overload.probed(now, true);
            }
            news.extend(overload.look(now).news);
        }
        assert!(matches!(news[..], [News::Begins { .. }, News::Over]), "{news:?}");
    }
}
