//! The keys of the store: a bucket (a namespace) and a name in it.

use std::fmt;
use std::sync::Arc;

/// Maximum length of the name of a bucket, in bytes.
pub const MAX_BUCKET: usize = 255;
/// Maximum length of the name of a key in its bucket, in bytes.
pub const MAX_KEY: usize = 1024;

/// A key: its bucket, 1 to [`MAX_BUCKET`] arbitrary bytes, and its name, 1 to [`MAX_KEY`]. Ordered by bucket
/// length, bucket, name, so the keys of a bucket are adjacent. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<[u8]>);

/// A reason for which some bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The name of the bucket has this many bytes: none, or more than [`MAX_BUCKET`].
    #[error("a bucket has a name of 1 to {MAX_BUCKET} bytes, this one has {0}")]
    Bucket(usize),
    /// The name of the key has this many bytes: none, or more than [`MAX_KEY`].
    #[error("a key has a name of 1 to {MAX_KEY} bytes, this one has {0}")]
    Name(usize),
}

impl Key {
    /// Copies the names, if both have a valid length.
    pub fn new(bucket: &[u8], name: &[u8]) -> Result<Key, KeyError> {
        let len = u8::try_from(bucket.len()).map_err(|_| KeyError::Bucket(bucket.len()))?;
        if len == 0 {
            return Err(KeyError::Bucket(0));
        }
        if name.is_empty() || name.len() > MAX_KEY {
            return Err(KeyError::Name(name.len()));
        }
        Ok(Key([&[len], bucket, name].concat().into()))
    }

    /// Returns the name of the bucket.
    pub fn bucket(&self) -> &[u8] {
        &self.0[1..self.split()]
    }

    /// Returns the name of the key in its bucket.
    pub fn name(&self) -> &[u8] {
        &self.0[self.split()..]
    }

    /// Returns bucket and name together, unambiguous: for hashing.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes that [`Key::as_bytes`] begins with for exactly the keys of `bucket` whose names
    /// begin with `prefix`.
    pub fn prefix_bytes(bucket: &[u8], prefix: &[u8]) -> Result<Arc<[u8]>, KeyError> {
        let len = u8::try_from(bucket.len()).map_err(|_| KeyError::Bucket(bucket.len()))?;
        match (len, prefix.len()) {
            (0, _) => Err(KeyError::Bucket(0)),
            (_, 0..=MAX_KEY) => Ok([&[len], bucket, prefix].concat().into()),
            (_, longer) => Err(KeyError::Name(longer)),
        }
    }

    fn split(&self) -> usize {
        1 + usize::from(self.0[0])
    }

    #[cfg(feature = "serde")]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Key, KeyError> {
        let (len, rest) = bytes.split_first().ok_or(KeyError::Bucket(0))?;
        match rest.split_at_checked(usize::from(*len)) {
            Some((bucket, name)) => Key::new(bucket, name),
            None => Err(KeyError::Name(0)),
        }
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

/// `bucket/name`, readable: bytes that are not printable ASCII are escaped.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket().escape_ascii(), self.name().escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_bucket_and_a_name() {
        let key = Key::new(b"accounts", b"\x007").expect("it is a key");
        assert_eq!((key.bucket(), key.name()), (&b"accounts"[..], &b"\x007"[..]));
        assert_eq!(key.to_string(), "accounts/\\x007");
        assert_eq!(Key::new(b"", b"x"), Err(KeyError::Bucket(0)));
        assert_eq!(Key::new(&[1; 256], b"x"), Err(KeyError::Bucket(256)));
        assert_eq!(Key::new(b"b", b""), Err(KeyError::Name(0)));
        assert_eq!(Key::new(b"b", &[1; 1025]), Err(KeyError::Name(1025)));
        assert!(Key::new(&[1; 255], &[1; 1024]).is_ok());
    }
}
