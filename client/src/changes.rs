//! Changes of keys, as messages.

use std::time::Duration;

use bytes::Bytes;

use geolock_api::keys::Key;
use geolock_api::proto::{self, change};
use geolock_api::value::{Update, messages};

pub(super) fn key(key: &Key) -> proto::Key {
    proto::Key { bucket: Bytes::copy_from_slice(key.bucket()), name: Bytes::copy_from_slice(key.name()) }
}

pub(super) fn change(of: &Key, update: Update) -> proto::Change {
    let update = messages::show(update);
    proto::Change { key: Some(key(of)), action: Some(change::Action::Update(update)) }
}

pub(super) fn removal(of: &Key) -> proto::Change {
    proto::Change { key: Some(key(of)), action: Some(change::Action::Remove(proto::Remove {})) }
}

/// `after` is rounded up to milliseconds, so that no key ends too early.
pub(super) fn expiry(of: &Key, after: Duration) -> proto::Change {
    let millis = i64::try_from(after.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX);
    proto::Change { key: Some(key(of)), action: Some(change::Action::ExpireMs(millis)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_never_sooner_than_asked() {
        let of = Key::new(b"b", b"k").expect("it is a key");
        let millis = |after| match expiry(&of, after).action {
            Some(change::Action::ExpireMs(millis)) => millis,
            other => panic!("{other:?} is no expiry"),
        };
        assert_eq!([0, 1, 1_000_000, 1_000_001].map(|n| millis(Duration::from_nanos(n))), [0, 1, 1, 2]);
        assert_eq!(millis(Duration::MAX), i64::MAX, "the server says what is wrong with it");
    }
}
