//! The names of the locks and keys of a space.
//!
//! | key in the bucket `geolock.tokens` | value |
//! |---|---|
//! | `SPACE/mark/ID` | the mark of a token |
//! | `SPACE/tx/TX` | the selection of a transaction |
//! | `SPACE/new/WALLET/CURRENCY` | new tokens of the pool, overwritten by each commit |
//! | `SPACE/need/WALLET/CURRENCY/TX` | the need of a selection that has waited for long |
//!
//! The ids of tokens are arbitrary bytes, so marks have a prefix of their own. In a wallet and a currency,
//! slashes and percent signs are escaped.

use bytes::Bytes;
use geolock_client::{Key, LockName};

use super::{Pool, SelectError, Token, TokenId, TxId};

/// The bucket of all keys.
pub(super) const BUCKET: &str = "geolock.tokens";

/// The names of a space.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    locks: String,
    marks: String,
    txs: String,
    news: String,
    needs: String,
}

/// The subject of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Mark(TokenId),
    News(Pool),
    Need(Pool, TxId),
}

impl Keys {
    /// `space`: checked.
    pub fn new(space: &str) -> Keys {
        Keys {
            locks: format!("tok/{space}/"),
            marks: format!("{space}/mark/"),
            txs: format!("{space}/tx/"),
            news: format!("{space}/new/"),
            needs: format!("{space}/need/"),
        }
    }

    /// Returns an error for a pool whose names make keys that are too long.
    pub fn check(&self, pool: &Pool, tx: &TxId) -> Result<(), SelectError> {
        let name = format!("{}{}/{tx}", self.needs, escaped(pool));
        let is_good = !pool.wallet.is_empty() && !pool.currency.is_empty();
        match Key::new(BUCKET.as_bytes(), name.as_bytes()) {
            Ok(_) if is_good => Ok(()),
            _ => Err(SelectError::Pool { pool: pool.clone(), len: name.len() }),
        }
    }

    /// Returns the beginning of the names of all locks.
    pub fn locks(&self) -> &str {
        &self.locks
    }

    /// Returns the beginnings of all keys that replicas follow.
    pub fn followed(&self) -> [&str; 3] {
        [&self.marks, &self.news, &self.needs]
    }

    pub fn lock(&self, token: &Token) -> LockName {
        let name = [self.locks.as_bytes(), token.id.as_bytes()].concat();
        LockName::with_home(token.home, &name).expect("space and id are so short that they fit")
    }

    pub fn token_of(&self, lock: &LockName) -> Option<TokenId> {
        let id = lock.as_bytes().strip_prefix(self.locks.as_bytes())?;
        TokenId::new(Bytes::copy_from_slice(id)).ok()
    }

    pub fn mark(&self, id: &TokenId) -> Key {
        key([self.marks.as_bytes(), id.as_bytes()].concat())
    }

    pub fn tx(&self, tx: &TxId) -> Key {
        key([self.txs.as_bytes(), tx.as_ref()].concat())
    }

    /// Of a pool that was [checked](Keys::check).
    pub fn news(&self, pool: &Pool) -> Key {
        key(format!("{}{}", self.news, escaped(pool)).into_bytes())
    }

    /// Of a pool that was [checked](Keys::check).
    pub fn need(&self, pool: &Pool, tx: &TxId) -> Key {
        key(format!("{}{}/{tx}", self.needs, escaped(pool)).into_bytes())
    }

    pub fn place_of(&self, key: &Key) -> Option<Place> {
        if let Some(id) = key.name().strip_prefix(self.marks.as_bytes()) {
            return TokenId::new(Bytes::copy_from_slice(id)).ok().map(Place::Mark);
        }
        let name = std::str::from_utf8(key.name()).ok()?;
        if let Some(pool) = name.strip_prefix(&self.news) {
            return Some(Place::News(pool_of(pool)?));
        }
        let mut parts = name.strip_prefix(&self.needs)?.splitn(3, '/');
        let (wallet, currency, tx) = (parts.next()?, parts.next()?, parts.next()?);
        let pool = Pool::new(unescaped(wallet)?, unescaped(currency)?);
        Some(Place::Need(pool, TxId::new(tx).ok()?))
    }
}

fn key(name: Vec<u8>) -> Key {
    Key::new(BUCKET.as_bytes(), &name).expect("space, id and pool were checked to be so short that they fit")
}

/// Returns the text of a pool in which the only slash is between wallet and currency.
pub(super) fn escaped(pool: &Pool) -> String {
    let escape = |text: &str| text.replace('%', "%25").replace('/', "%2F");
    format!("{}/{}", escape(&pool.wallet), escape(&pool.currency))
}

/// Reads the text of a pool.
pub(super) fn pool_of(text: &str) -> Option<Pool> {
    let (wallet, currency) = text.split_once('/')?;
    Some(Pool::new(unescaped(wallet)?, unescaped(currency)?))
}

fn unescaped(text: &str) -> Option<String> {
    let is_escaped = !text.contains('/')
        && text.split('%').skip(1).all(|rest| rest.starts_with("25") || rest.starts_with("2F"));
    is_escaped.then(|| text.replace("%2F", "/").replace("%25", "%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use geolock_client::DcId;

    fn tx(id: &str) -> TxId {
        TxId::new(id).expect("it is an id")
    }

    #[test]
    fn a_key_tells_what_it_is_about() {
        let keys = Keys::new("s");
        for (wallet, currency) in [("ann", "EUR"), ("a/b", "%2F"), ("a", "b/c"), ("%", "%252F")] {
            let pool = Pool::new(wallet, currency);
            assert_eq!(keys.place_of(&keys.news(&pool)), Some(Place::News(pool.clone())));
            let need = Place::Need(pool.clone(), tx("t/1"));
            assert_eq!(keys.place_of(&keys.need(&pool, &tx("t/1"))), Some(need));
        }
        assert_ne!(keys.news(&Pool::new("a/b", "c")), keys.news(&Pool::new("a", "b/c")));
        for id in [&b"a"[..], b"tx/t", b"new/ann/EUR", b"\xff/"] {
            let token = Token { id: TokenId::new(id).expect("it is an id"), amount: 1, home: DcId::new(1) };
            assert_eq!(keys.place_of(&keys.mark(&token.id)), Some(Place::Mark(token.id.clone())));
            assert_eq!(keys.token_of(&keys.lock(&token)), Some(token.id.clone()));
            assert_eq!(keys.lock(&token).home(), DcId::new(1));
        }
        assert_eq!(keys.place_of(&key(b"s/new/a".to_vec())), None);
        assert_eq!(keys.place_of(&key(b"s/new/%/a".to_vec())), None);
    }

    #[test]
    fn the_longest_names_fit_and_longer_ones_are_refused() {
        let space = "s".repeat(crate::selector_state::MAX_SPACE);
        let keys = Keys::new(&space);
        let id = TokenId::new(vec![7; super::super::MAX_TOKEN_ID]).expect("it is an id");
        let token = Token { id, amount: 1, home: None };
        keys.lock(&token);
        keys.mark(&token.id);
        let long = tx(&"t".repeat(crate::selector_state::MAX_TX));
        keys.tx(&long);
        assert!(keys.check(&Pool::new("w".repeat(600), "EUR"), &long).is_ok());
        let refused = keys.check(&Pool::new("w".repeat(700), "EUR"), &long);
        assert!(matches!(refused, Err(SelectError::Pool { len: 1_067, .. })), "{refused:?}");
        assert!(keys.check(&Pool::new("", "EUR"), &long).is_err());
    }
}
