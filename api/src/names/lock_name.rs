//! Names of locks.

use std::fmt;
use std::sync::Arc;

use super::{DcId, MAX_DCS, is_deceptive};

/// Maximum length of a lock name, in bytes. The home does not count.
pub const MAX_LOCK_NAME: usize = 1024;

/// A reason for which some bytes are not a lock name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockNameError {
    /// There are no bytes.
    #[error("a lock name has at least 1 byte; this one is empty")]
    Empty,
    /// There are this many bytes, more than [`MAX_LOCK_NAME`].
    #[error("a lock name has at most {MAX_LOCK_NAME} bytes; this one has {0}")]
    TooLong(usize),
    /// No datacenter can have this number, which a message names as the home.
    #[error("`home`: no datacenter has number {0}; the numbers are below {MAX_DCS}")]
    UnknownHome(u32),
}

/// The name of a lock: 1 to [`MAX_LOCK_NAME`] arbitrary bytes, and possibly a home. Cheap to clone.
///
/// The home is a datacenter. It is part of the name: the same bytes with another home, or without one, are
/// another lock. All parts of an unused homed lock are at its home, so that datacenter uses it without asking
/// another one. Plain names are ordered by their bytes, and come before homed ones; these are ordered by
/// home, then by bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(Arc<[u8]>);

/// The first byte of the identity of a plain name. That of a homed name is 1 + its home.
const PLAIN_TAG: u8 = 0;

impl LockName {
    /// Returns the plain name with these bytes, if they are 1 to [`MAX_LOCK_NAME`].
    pub fn new(bytes: &[u8]) -> Result<LockName, LockNameError> {
        LockName::with_home(None, bytes)
    }

    /// Returns the name with these bytes, if they are 1 to [`MAX_LOCK_NAME`], and the home `home`.
    pub fn homed(home: DcId, bytes: &[u8]) -> Result<LockName, LockNameError> {
        LockName::with_home(Some(home), bytes)
    }

    /// Returns a homed name, or a plain one if `home` is `None`.
    pub fn with_home(home: Option<DcId>, bytes: &[u8]) -> Result<LockName, LockNameError> {
        match bytes.len() {
            0 => Err(LockNameError::Empty),
            1..=MAX_LOCK_NAME => {
                let tag = home.map_or(PLAIN_TAG, |home| home.get() + 1);
                Ok(LockName(std::iter::once(tag).chain(bytes.iter().copied()).collect()))
            }
            len => Err(LockNameError::TooLong(len)),
        }
    }

    /// Returns the name of these fields of a message.
    pub fn from_fields(bytes: &[u8], home: Option<u32>) -> Result<LockName, LockNameError> {
        let dc = |home| u8::try_from(home).ok().and_then(DcId::new).ok_or(LockNameError::UnknownHome(home));
        LockName::with_home(home.map(dc).transpose()?, bytes)
    }

    /// Returns the home as messages have it.
    pub fn home_field(&self) -> Option<u32> {
        self.home().map(|home| home.get().into())
    }

    /// Returns the bytes that the client chose, without the home. Several locks can have the same.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0[1..]
    }

    /// Returns the home; `None` if the name is plain.
    pub fn home(&self) -> Option<DcId> {
        self.0[0].checked_sub(1).and_then(DcId::new)
    }

    /// Returns the home and the bytes as one string of bytes: equal names, and no others, have equal ones.
    /// Valid within this process only; messages and files have another encoding.
    pub fn identity(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&str> for LockName {
    type Error = LockNameError;

    fn try_from(name: &str) -> Result<LockName, LockNameError> {
        LockName::new(name.as_bytes())
    }
}

/// Between the bytes of a homed name and its home, when it is displayed.
const HOME_SHOWN: &str = " (home ";

/// Readable: bytes that are not printable text are escaped as in Rust's byte strings, and the home follows,
/// as in `orders/7 (home dc1)`. A plain name that looks like that is escaped, so the two never look alike.
impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.as_bytes();
        match std::str::from_utf8(bytes) {
            Ok(text) if text.chars().any(is_deceptive) => fmt::Display::fmt(&bytes.escape_ascii(), f)?,
            Ok(text) if text.contains(HOME_SHOWN) => f.write_str(&text.replace(HOME_SHOWN, r" \x28home "))?,
            Ok(text) => f.write_str(text)?,
            Err(_) => fmt::Display::fmt(&bytes.escape_ascii(), f)?,
        }
        match self.home() {
            Some(home) => write!(f, "{HOME_SHOWN}{home})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dc(id: u8) -> DcId {
        DcId::new(id).expect("a small id")
    }

    fn name(home: Option<u8>, bytes: &[u8]) -> LockName {
        LockName::with_home(home.map(dc), bytes).expect("valid")
    }

    #[test]
    fn a_home_makes_another_lock_of_the_same_bytes() {
        let names = [
            name(None, b"a"),
            name(None, b"b"),
            name(Some(0), b"b"),
            name(Some(1), b"a"),
            name(Some(63), b"a"),
        ];
        assert!(names.is_sorted_by(|a, b| a < b), "plain names first, by their bytes");
        assert!(
            names
                .iter()
                .all(|one| names.iter().filter(|other| other.identity() == one.identity()).count() == 1)
        );
        assert_eq!(names.clone().map(|name| name.home_field()), [None, None, Some(0), Some(1), Some(63)]);
        assert_eq!(names[4].as_bytes(), b"a");
        assert_eq!(names[3], LockName::homed(dc(1), b"a").expect("valid"));
    }

    #[test]
    fn names_out_of_bounds_are_refused() {
        for home in [None, Some(dc(1))] {
            assert_eq!(LockName::with_home(home, b""), Err(LockNameError::Empty));
            assert!(LockName::with_home(home, &[7; MAX_LOCK_NAME]).is_ok());
            assert_eq!(LockName::with_home(home, &[7; 1025]), Err(LockNameError::TooLong(1025)));
        }
        for home in [64, 256, u32::MAX] {
            assert_eq!(LockName::from_fields(b"a", Some(home)), Err(LockNameError::UnknownHome(home)));
        }
    }

    #[test]
    fn what_people_see_tells_them_apart() {
        let shown = |home, bytes: &[u8]| name(home, bytes).to_string();
        assert_eq!(shown(Some(1), b"orders/7"), "orders/7 (home dc1)");
        assert_eq!(shown(Some(1), b"\xff"), r"\xff (home dc1)");
        assert_eq!(shown(None, b"orders/7 (home dc1)"), r"orders/7 \x28home dc1)");
        assert_eq!(shown(None, b"orders/7@dc1"), "orders/7@dc1");
    }
}
