//! Checks of the changes of a transaction, before they are committed.

use std::collections::BTreeMap;

use super::{ChangeError, Store, uncommitted};
use crate::base::bugs::Bug;
use crate::causal_log::{Action, Change};
use crate::crdt::VersionVector;
use crate::crdt::value::{self, At, Slots};
use crate::store_state::content::Content;
use crate::store_state::record::Record;
use geolock_api::keys::Key;
use geolock_api::names::Position;
use geolock_api::value::{MAX_VALUE_BYTES, OpError, Update};

impl Store {
    /// Checks that a client of this datacenter may make these changes now, one after the other.
    pub fn check(&mut self, changes: &[Change], seen: &VersionVector) -> Result<(), ChangeError> {
        let mut repeated: BTreeMap<&Key, Option<Content>> = BTreeMap::new();
        if changes.len() > 1 {
            let mut keys: Vec<&Key> = changes.iter().map(|change| &change.key).collect();
            keys.sort_unstable();
            repeated.extend(keys.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| (pair[0], None)));
        }
        for (index, Change { key, action }) in changes.iter().enumerate() {
            let at = uncommitted(self.me, index, seen);
            let Some(content) = repeated.get_mut(key) else {
                self.check_one(key, action, &at)?;
                continue;
            };
            let content = content.get_or_insert_with(|| self.newest(key));
            let checked = match action {
                Action::Update(_) | Action::Expire(_) if !content.tombstones.lets_in(&at) => {
                    Err(OpError::KeyEnded)
                }
                Action::Update(update) => {
                    let slots = &content.slots;
                    slots.check(update, self.me).and_then(|()| may_grow(slots, update))
                }
                Action::Expire(_) | Action::Remove | Action::Expired => Ok(()),
            };
            checked.map_err(|error| ChangeError { key: key.clone(), error })?;
            content.apply(action, &at);
        }
        Ok(())
    }

    fn check_one(&mut self, key: &Key, action: &Action, at: &At<'_>) -> Result<(), ChangeError> {
        let me = self.me;
        let record = self.records.find(key).map(|row| &mut self.records[row]);
        let has_ended = record.as_ref().is_some_and(|record| !record.newest_tombstones().lets_in(at));
        let has_ended = has_ended && !self.bugs.has(Bug::ChangeOfEndedKey);
        let checked = match (action, record) {
            (Action::Remove | Action::Expired, _) => Ok(()),
            (Action::Update(_) | Action::Expire(_), _) if has_ended => Err(OpError::KeyEnded),
            (Action::Expire(_), _) => Ok(()),
            (Action::Update(update), None) => Content::default().slots.check(update, me),
            (Action::Update(update), Some(record)) => {
                if record.has_effects() && !value::depends_on_state(update) {
                    let wanted = update.root_type();
                    match record.newest_type() {
                        Some(is) if is != wanted => Err(OpError::WrongType { is, wanted }),
                        _ => update.validate(),
                    }
                } else {
                    record.read(Position(u64::MAX)).slots.check(update, me)
                }
            }
        };
        let record = self.records.find(key).map(|row| &mut self.records[row]);
        let checked = checked.and_then(|()| record.map_or(Ok(()), |record| check_size(record, action)));
        checked.map_err(|error| ChangeError { key: key.clone(), error })
    }
}

/// Refuses an update that makes a value too large. The newest value is built only if it may be near the
/// limit.
fn check_size(record: &mut Record, action: &Action) -> Result<(), OpError> {
    let Action::Update(update) = action else { return Ok(()) };
    if !value::adds_elements(update) || record.weight_bound() + update.weight() <= MAX_VALUE_BYTES {
        return Ok(());
    }
    may_grow(&record.read(Position(u64::MAX)).slots, update)
}

/// Refuses an update by which a value comes beyond the limit, or further beyond it.
fn may_grow(slots: &Slots, update: &Update) -> Result<(), OpError> {
    let growth = slots.growth(update);
    let bytes = slots.weight().unwrap_or(0) + growth;
    if growth > 0 && bytes > MAX_VALUE_BYTES { Err(OpError::TooLarge { bytes }) } else { Ok(()) }
}
