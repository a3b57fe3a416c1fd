//! The counters of all replicas, also of those that were killed.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::AddAssign;

/// The counters that a replica tells.
#[derive(Clone, Copy, Default)]
pub struct Told {
    pub payments: u64,
    pub in_vain: u64,
    pub waits: u64,
    /// Locks that it was granted, and requests that were refused.
    pub attempts: u64,
    /// Tokens.
    pub spent: u64,
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { payments, in_vain, waits, attempts, spent } = self;
        write!(f, "{payments} {in_vain} {waits} {attempts} {spent}")
    }
}

impl Told {
    pub fn parse(line: &str) -> Option<Told> {
        let numbers: Vec<u64> = line.split(' ').map(|text| text.parse().ok()).collect::<Option<_>>()?;
        let [payments, in_vain, waits, attempts, spent] = numbers[..] else { return None };
        Some(Told { payments, in_vain, waits, attempts, spent })
    }
}

impl AddAssign for Told {
    fn add_assign(&mut self, other: Told) {
        self.payments += other.payments;
        self.in_vain += other.in_vain;
        self.waits += other.waits;
        self.attempts += other.attempts;
        self.spent += other.spent;
    }
}

/// The counters of all replicas.
#[derive(Default)]
pub struct Report {
    /// By datacenter and start.
    told: BTreeMap<(u8, u32), Told>,
    before: Told,
}

impl Report {
    pub fn take(&mut self, replica: (u8, u32), told: Told) {
        self.told.insert(replica, told);
    }

    pub fn sum(&self) -> Told {
        let mut sum = Told::default();
        self.told.values().for_each(|told| sum += *told);
        sum
    }

    /// Returns the line of a second.
    pub fn line(&mut self, second: u64, replicas: usize, balance: u64) -> String {
        let sum = self.sum();
        let before = std::mem::replace(&mut self.before, sum);
        format!(
            "{second:4} s  {replicas} replicas  {:5} payments/s  {:4} waits  {:.2} attempts per token  {} in \
             vain  balance {balance}",
            sum.payments - before.payments,
            sum.waits - before.waits,
            sum.attempts as f64 / sum.spent.max(1) as f64,
            sum.in_vain,
        )
    }
}
