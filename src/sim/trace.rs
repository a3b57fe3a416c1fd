//! The trace that a person reads when a seed fails, and the hash that proves that a seed gives the same run.
//!
//! Writing lines costs more than everything else, so a run keeps none unless it is asked to; the hash is
//! always computed. A seed that failed is run again with lines.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::sim::queue::Moment;

/// The use of the lines.
#[derive(Clone, Copy, Debug)]
pub enum TraceMode {
    /// Only hash.
    Off,
    /// Keep this number of the last ones.
    Last(usize),
    /// Call this function with every line at once, and keep the last ones too.
    Each(fn(&str)),
}

/// Number of lines that are kept when every line is printed.
const KEPT_WHEN_PRINTING: usize = 1;

#[derive(Debug)]
pub(super) struct Trace {
    mode: TraceMode,
    lines: VecDeque<String>,
    hash: u64,
}

impl Trace {
    pub fn new(mode: TraceMode) -> Trace {
        Trace { mode, lines: VecDeque::new(), hash: 0xcbf2_9ce4_8422_2325 }
    }

    /// Adds a number to the hash.
    pub fn mix(&mut self, value: u64) {
        // One round of splitmix64's finaliser over the sum: order matters, and it is cheap.
        let mut z = (self.hash ^ value).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^= z >> 27;
        self.hash = z.wrapping_mul(0x94d0_49bb_1331_11eb) ^ (z >> 31);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Adds a line: time, actor, event. `what` is only called if the line is used.
    pub fn line(&mut self, at: Moment, who: impl std::fmt::Display, what: impl FnOnce() -> String) {
        let kept = match self.mode {
            TraceMode::Off => return,
            TraceMode::Last(kept) => kept,
            TraceMode::Each(_) => KEPT_WHEN_PRINTING,
        };
        let line = format!("{at} {who:<4} {}", what());
        if let TraceMode::Each(print) = self.mode {
            print(&line);
        }
        if self.lines.len() >= kept {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            // Writing to a String never fails.
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut trace = Trace::new(TraceMode::Last(2));
        for i in 0..5 {
            trace.line(Moment::from_millis(i), "dc0", || format!("line {i}"));
        }
        assert_eq!(trace.text(), "   0.003000 dc0  line 3\n   0.004000 dc0  line 4\n");
    }

    #[test]
    fn the_hash_depends_on_order() {
        let hash = |values: [u64; 2]| {
            let mut trace = Trace::new(TraceMode::Off);
            values.iter().for_each(|v| trace.mix(*v));
            trace.hash()
        };
        assert_ne!(hash([1, 2]), hash([2, 1]));
        assert_eq!(hash([1, 2]), hash([1, 2]));
    }
}
