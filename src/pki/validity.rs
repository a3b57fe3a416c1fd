//! The period of validity of a certificate.

use std::time::{Duration, SystemTime};

use x509_parser::time::ASN1Time;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Default lifetime of a new authority: ten years.
pub const CA_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Default lifetime of any other new certificate: one year.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// New certificates are valid from a little before their creation: other machines' clocks may be behind.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// The period in which a certificate is valid, to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Validity {
    /// Returns a period of that length from now on, and one hour back for clocks that are behind.
    pub fn lasting(lifetime: Duration) -> Validity {
        let now = SystemTime::now();
        Validity { from: now - BACKDATE, until: now + lifetime }
    }

    /// Returns a period of that many days from now on.
    pub fn days(days: u32) -> Validity {
        Validity::lasting(DAY * days)
    }
}

/// Returns the day of that moment (UTC) as in tables: `2027-11-21`.
pub fn day(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let time = i64::try_from(seconds).ok().and_then(|seconds| ASN1Time::from_timestamp(seconds).ok());
    time.map_or_else(|| "a day too far away".into(), |time| time.to_datetime().date().to_string())
}
