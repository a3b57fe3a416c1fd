//! Helpers of tests against processes and of tests in one process.

use std::time::Duration;

use geolock::client::Key;
use geolock::names::LockName;
use tokio::time::timeout;

/// Nothing here takes that long. It ends a test that would hang, and measures nothing.
pub const HANGS: Duration = Duration::from_secs(60);

/// Returns the output of the future.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(HANGS, future).await.expect("nothing takes that long")
}

/// Returns the key of that name in the bucket of the tests.
pub fn key(name: &str) -> Key {
    Key::new(b"test", name.as_bytes()).expect("a test key is valid")
}

/// Returns the name of a lock.
pub fn lock(name: &str) -> LockName {
    LockName::try_from(name).expect("a test name is valid")
}
