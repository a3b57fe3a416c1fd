//! The run as the ledger has it: who dispatched in each range, and how long each switch took.

use std::collections::{BTreeMap, BTreeSet};

use geolock_recipes::sequencer::sqlite::SimOutcome;

/// Decided transactions, as they come.
#[derive(Default)]
pub struct Report {
    outcomes: Vec<SimOutcome>,
    told: usize,
    last: Option<(String, u64)>,
}

impl Report {
    pub fn take(&mut self, outcomes: Vec<SimOutcome>) {
        self.outcomes.extend(outcomes);
    }

    /// Returns the height up to which it has everything.
    pub fn height(&self) -> u64 {
        self.outcomes.last().map_or(0, |outcome| outcome.height)
    }

    /// Returns the node that dispatched the latest transaction.
    pub fn coordinator(&self) -> Option<&str> {
        self.outcomes.iter().max_by_key(|outcome| outcome.submitted_ms).map(|it| it.signer.as_str())
    }

    /// Returns the names of the confirmed intents.
    pub fn confirmed(&self) -> BTreeSet<String> {
        let confirmed = self.outcomes.iter().filter(|outcome| outcome.result.is_ok());
        confirmed.map(|outcome| format!("{:?}", outcome.intent)).collect()
    }

    /// Returns how many intents were confirmed more than once.
    pub fn duplicates(&self) -> usize {
        let confirmed = self.outcomes.iter().filter(|outcome| outcome.result.is_ok()).count();
        confirmed - self.confirmed().len()
    }

    /// Prints the ranges that are over.
    pub fn tell(&mut self, range: u64, height: u64) {
        let first = height / range * range;
        let over = self.outcomes.iter().skip(self.told).take_while(|it| it.height < first).count();
        let mut ranges: BTreeMap<u64, Vec<&SimOutcome>> = BTreeMap::new();
        for outcome in &self.outcomes[self.told..self.told + over] {
            ranges.entry(outcome.height / range).or_default().push(outcome);
        }
        for (number, mut outcomes) in ranges {
            outcomes.sort_by_key(|outcome| outcome.submitted_ms);
            let mut line = format!("blocks {:>4}..{:<4}", number * range, (number + 1) * range - 1);
            for of_one in outcomes.chunk_by(|one, other| one.signer == other.signer) {
                line += &self.last.as_ref().map_or(String::new(), |(last, at)| {
                    let is_switch = last != of_one[0].signer.as_str();
                    let gap = of_one[0].submitted_ms.saturating_sub(*at);
                    if is_switch {
                        format!("  [switch {last} -> {}: {gap} ms]", of_one[0].signer)
                    } else {
                        String::new()
                    }
                });
                let confirmed = of_one.iter().filter(|it| it.result.is_ok()).count();
                line += &format!(
                    "  {} dispatched {} (epoch {})",
                    of_one[0].signer,
                    of_one.len(),
                    of_one[0].epoch.0
                );
                for reverted in of_one.iter().filter_map(|it| it.result.as_ref().err()) {
                    line += &format!(", reverted: {reverted:?}");
                }
                debug_assert!(confirmed <= of_one.len(), "some of them are confirmed");
                let last = of_one[of_one.len() - 1];
                self.last = Some((last.signer.to_string(), last.submitted_ms));
            }
            println!("{line}");
        }
        self.told += over;
    }

    /// Prints the share of each node.
    pub fn tell_shares(&self) {
        let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
        for outcome in &self.outcomes {
            *shares.entry(outcome.signer.as_str()).or_default() += 1;
        }
        let all = self.outcomes.len().max(1);
        let share = |(node, count): (&&str, &usize)| format!("{node} {} %", count * 100 / all);
        let shares: Vec<String> = shares.iter().map(share).collect();
        println!("dispatched by {}", shares.join(", "));
    }
}
