//! Answers of the server about the locks of tokens.

use geolock_client::{DcId, LockDescription};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Token;
use super::store::Store;
use crate::retry::PAUSE;

/// Most locks that are described at a time.
pub(super) const MAX_DESCRIBED: usize = 8;

/// Describes the locks of the first [`MAX_DESCRIBED`] of these tokens. Answers that come too late are left
/// out.
pub(super) async fn describe(store: &Store, tokens: &[Token]) -> Vec<LockDescription> {
    let mut describing = JoinSet::new();
    for token in tokens.iter().take(MAX_DESCRIBED) {
        let (client, lock) = (store.client.clone(), store.keys.lock(token));
        describing.spawn(async move { client.describe_lock(&lock).await });
    }
    let mut locks = Vec::new();
    let _ = timeout(2 * PAUSE, async {
        while let Some(described) = describing.join_next().await {
            locks.extend(described.into_iter().flatten());
        }
    })
    .await;
    locks
}

/// Returns the datacenter whose request has waited for longest for one of these locks.
pub(super) fn first_waiting(locks: &[LockDescription]) -> Option<DcId> {
    let waiters = locks.iter().flat_map(|lock| &lock.waiters).filter(|waiter| !waiter.parked);
    let ids = waiters.filter_map(|waiter| Some((waiter.at_ms, waiter.request?)));
    let (_, first) = ids.min_by_key(|(at_ms, request)| (*at_ms, request.dc, request.n))?;
    DcId::new(u8::try_from(first.dc).ok()?)
}

#[cfg(test)]
mod tests {
    use geolock_client::api::proto::{RequestId, Waiter};

    use super::*;

    fn waited_for(by: &[(u64, u32, bool)]) -> LockDescription {
        let waiter = |&(at_ms, dc, parked): &(u64, u32, bool)| Waiter {
            request: Some(RequestId { dc, n: 1 }),
            at_ms,
            parked,
            ..Waiter::default()
        };
        LockDescription { waiters: by.iter().map(waiter).collect(), ..LockDescription::default() }
    }

    #[test]
    fn the_first_of_all_locks_counts_but_not_one_that_waits_for_a_datacenter_that_is_away() {
        let locks = [
            waited_for(&[]),
            waited_for(&[(3, 0, true), (5, 1, false)]),
            waited_for(&[(4, 2, false), (9, 1, false)]),
        ];
        assert_eq!(first_waiting(&locks), DcId::new(2));
        assert_eq!(first_waiting(&locks[..2]), DcId::new(1));
        assert_eq!(first_waiting(&locks[..1]), None);
        // At one time, the lower datacenter is served first.
        assert_eq!(first_waiting(&[waited_for(&[(5, 2, false), (5, 1, false)])]), DcId::new(1));
    }
}
