//! Frequent calls of clients.

use geolock::client::{AcquireRequest, Client, LockGuard, Snapshot, Update};

use super::history::patient;
use super::{key, within};

pub async fn acquire(client: &Client, request: AcquireRequest) -> LockGuard {
    within(client.acquire(request)).await.expect("it is granted")
}

pub async fn put(client: &Client, name: &str, value: impl Into<Vec<u8>>) -> Snapshot {
    client.update(&key(name), Update::register(value.into())).await.expect("it can commit")
}

/// Reads the value at that snapshot.
pub async fn read(client: &Client, name: &str, at_least: &Snapshot) -> Option<Vec<u8>> {
    let (keys, at_least) = ([key(name)], patient(at_least));
    let mut view = within(client.read_many(&keys, &at_least)).await.expect("it is there in the end");
    view.values.remove(0).register().expect("it is a register").map(|bytes| bytes.to_vec())
}
