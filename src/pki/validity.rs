//! From when until when a certificate is good.

use std::time::{Duration, SystemTime};

use x509_parser::time::ASN1Time;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a new authority is good by default: ten years.
pub const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How long any other new certificate is good by default: one year.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// New certificates count from a little before they were made: other machines' clocks may be behind.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// The time in which a certificate is good, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Validity {
    /// From now on (and an hour back, for clocks that are behind), for that long.
    pub fn lasting(lifetime: Duration) -> Validity {
        let now = SystemTime::now();
        Validity { from: now - BACKDATE, until: now + lifetime }
    }

    /// From now on, for that many days.
    pub fn days(days: u32) -> Validity {
        Validity::lasting(DAY * days)
    }
}

/// The day of that moment (UTC), as people write it in tables: `2027-11-21`.
pub fn day(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = i64::try_from(seconds).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    time.map_or_else(|| "a day too far away".into(), |time| time.to_datetime().date().to_string())
}
