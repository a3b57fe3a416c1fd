//! The locks and counters that an end of members concerns, by name: noted when it is entered, because the
//! registers that say so go then. No entry and no record: a replica that replays the log notes the same,
//! except for names that there was no room for.

use super::pending::Evicted;
use crate::base::some_names::SomeNames;
use crate::base::work;
use crate::crdt::Ownership;
use crate::membership::{Epoch, Fallen, MAX_FALLEN, RECOVERY_FENCES};
use crate::replica::writer::Writer;
use geolock_api::names::{DcSet, LockName};

/// Most locks, and most keys, that are examined for an eviction: it may come by itself, while others wait.
const EXAMINED: usize = 4_096;

/// The locks and counters of the last ends of members that were entered here.
#[derive(Default)]
pub(in crate::replica) struct Ends(Vec<Fallen>);

impl Ends {
    /// Returns them, the latest last.
    pub fn all(&self) -> &[Fallen] {
        &self.0
    }

    /// An end is entered, or was, as a checkpoint says.
    pub(super) fn note(&mut self, fallen: Fallen) {
        if self.0.iter().any(|known| known.epoch >= fallen.epoch) {
            return;
        }
        if self.0.len() == MAX_FALLEN {
            self.0.remove(0);
        }
        self.0.push(fallen);
    }
}

impl Writer<'_> {
    /// Notes the locks and counters of these members. Call it before they end.
    pub(super) fn name_fallen(&mut self, evicted: Evicted, epoch: Epoch) {
        let Evicted { members, fences, .. } = evicted;
        let owners = self.locks.owners();
        let most = if fences == RECOVERY_FENCES { usize::MAX } else { EXAMINED };
        let (mut names, count) = locks_of(owners.map(), members, most);
        // The counters have rows, too, that are at home since another member ended, and are not dropped yet:
        // when they are dropped differs after a recovery.
        let locks = count.unwrap_or_else(|| members.iter().map(|dc| owners.away_in(dc)).sum());
        let (mut counters, more_counters) = self.data.store.rights_of(members, EXAMINED);
        // The order of rows depends on what came and went before: another after a recovery from a checkpoint.
        names.sort_unstable();
        counters.sort_unstable();
        self.members.ends.note(Fallen { epoch, members, locks, names, counters, more_counters });
    }
}

/// Returns locks of which these own parts that are named after others, as many as there is room for, and the
/// number of all of them; `None` if more than `most` locks have a row, which are not all examined.
fn locks_of(map: &Ownership, members: DcSet, most: usize) -> (Vec<LockName>, Option<u64>) {
    let (mut names, mut count, mut examined) = (SomeNames::default(), 0, 0);
    let (mut last, mut counted) = (None, None);
    for (lock, part, register) in map.iter() {
        // The parts of a lock follow each other.
        if last.replace(lock) != Some(lock) {
            examined += 1;
            if examined > most {
                break;
            }
        }
        let is_owned = register.owner().is_some_and(|owner| members.contains(owner));
        if is_owned && !members.contains(part) && counted.replace(lock) != Some(lock) {
            count += 1;
            names.take(lock.clone(), lock.as_bytes().len());
        }
    }
    work::count(examined.min(most));
    (names.into_taken(), (examined <= most).then_some(count))
}
