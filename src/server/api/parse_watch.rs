//! Messages to calls: watches.

use super::error::BorderError;
use super::parse_store::{store_key, vector};
use crate::replica::watch_call::{MAX_PATTERNS, Pattern, Subject, Watch, WatchRefusal};
use geolock_api::names::LockName;
use geolock_api::proto;

pub(super) fn keys(message: proto::WatchRequest) -> Result<Watch, BorderError> {
    let proto::WatchRequest { prefixes, keys, from_snapshot } = message;
    check(prefixes.len() + keys.len())?;
    let prefixes = prefixes.iter().map(|of| Ok(Pattern::keys(&of.bucket, &of.prefix)?));
    let keys = keys.iter().map(|key| Ok(Pattern::key(&store_key(key)?)));
    let patterns = prefixes.chain(keys).collect::<Result<_, BorderError>>()?;
    Ok(Watch { subject: Subject::Keys, patterns, from: from_snapshot.map(vector).transpose()? })
}

pub(super) fn locks(message: proto::WatchLocksRequest) -> Result<Watch, BorderError> {
    let proto::WatchLocksRequest { names, prefixes, from_snapshot, homed } = message;
    check(names.len() + prefixes.len() + homed.len())?;
    let names = names.iter().map(|name| Ok(Pattern::lock(&LockName::new(name)?)));
    let prefixes = prefixes.iter().map(|prefix| Ok(Pattern::locks(prefix)?));
    let homed =
        homed.iter().map(|lock| Ok(Pattern::lock(&LockName::from_fields(&lock.name, Some(lock.home))?)));
    let patterns = names.chain(homed).chain(prefixes).collect::<Result<_, BorderError>>()?;
    Ok(Watch { subject: Subject::Locks, patterns, from: from_snapshot.map(vector).transpose()? })
}

/// Refuses a number of patterns that the datacenter would refuse too, before anything is allocated for them.
fn check(patterns: usize) -> Result<(), WatchRefusal> {
    if (1..=MAX_PATTERNS).contains(&patterns) { Ok(()) } else { Err(WatchRefusal::Patterns(patterns)) }
}
