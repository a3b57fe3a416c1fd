//! Tokens and their pools.

use std::fmt;

use bytes::Bytes;
use geolock_client::DcId;

/// Most bytes of the id of a token: with the prefix of its space it is the name of a lock.
pub const MAX_TOKEN_ID: usize = 900;
/// Largest amount of a token: that of a signed 64-bit column.
pub const MAX_AMOUNT: u64 = i64::MAX as u64;

/// The tokens of one wallet in one currency.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pool {
    /// The wallet.
    pub wallet: String,
    /// The currency.
    pub currency: String,
}

impl Pool {
    /// Names a pool.
    pub fn new(wallet: impl Into<String>, currency: impl Into<String>) -> Pool {
        Pool { wallet: wallet.into(), currency: currency.into() }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.wallet, self.currency)
    }
}

/// The id of a token, 1 to [`MAX_TOKEN_ID`] bytes. It is never used for another token.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId(Bytes);

impl TokenId {
    /// Returns an error for an id that is empty or too long.
    pub fn new(id: impl Into<Bytes>) -> Result<TokenId, TokenError> {
        let id: Bytes = id.into();
        match id.len() {
            1..=MAX_TOKEN_ID => Ok(TokenId(id)),
            len => Err(TokenError::Id { len }),
        }
    }

    /// Returns the bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A token, as its source lists it. It never changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Its amount, 1 to [`MAX_AMOUNT`].
    pub amount: u64,
    /// The home of its lock: the datacenter that made the token, and probably spends it. All replicas read it
    /// from the source; none computes it.
    pub home: Option<DcId>,
}

/// A token that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The id is empty or too long.
    #[error("the id of a token has 1 to {MAX_TOKEN_ID} bytes; this one has {len}")]
    Id {
        /// The bytes of the id.
        len: usize,
    },
    /// The amount is out of range.
    #[error("the amount of a token is 1 to {MAX_AMOUNT}; that of {id} is {amount}")]
    Amount {
        /// The token.
        id: TokenId,
        /// Its amount.
        amount: u64,
    },
    /// A source has listed a token twice.
    #[error("the source lists token {id} twice: correct its query")]
    Twice {
        /// The token.
        id: TokenId,
    },
}
