//! What tests against processes and tests in one process share.

use std::time::Duration;

use geolock::client::Key;
use geolock::names::LockName;
use tokio::time::timeout;

/// Nothing here takes that long. It ends a test that would hang, and measures nothing.
pub const HANGS: Duration = Duration::from_secs(60);

/// What the future comes to.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANGS, future).await.expect("nothing takes that long")
}

/// The key of that name in the bucket of the tests.
pub fn key(name: &str) -> Key {
    Key::new(b"test", name.as_bytes()).expect("a test key is valid")
}

/// The name of a lock.
pub fn lock(name: &str) -> LockName {
    LockName::try_from(name).expect("a test name is valid")
}
