//! The records that the replicas of a space write for each other: marks of tokens, selections, new tokens and
//! needs, and their encodings in registers of the store.

use std::fmt;

use bytes::Bytes;
use geolock_client::DcId;
use prost::Message;

use crate::selector_state::token::{MAX_AMOUNT, Token, TokenId};

/// Most bytes of the id of a transaction: the label of its locks.
pub const MAX_TX: usize = 256;

/// The id of a transaction: 1 to [`MAX_TX`] bytes. The locks of its tokens have it as their label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TxId(String);

/// An id of a transaction that is empty or too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the id of a transaction has 1 to {MAX_TX} bytes; this one has {len}")]
pub struct TxIdError {
    /// Its bytes.
    pub len: usize,
}

impl TxId {
    /// Returns an error for an id that is empty or too long.
    pub fn new(id: impl Into<String>) -> Result<TxId, TxIdError> {
        let id: String = id.into();
        match id.len() {
            1..=MAX_TX => Ok(TxId(id)),
            len => Err(TxIdError { len }),
        }
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<[u8]> for TxId {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The state of a token that a transaction has selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkState {
    /// The ledger may have a payment with it.
    Reserved,
    /// It is spent.
    Spent,
}

/// The mark of a token: it belongs to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub tx: TxId,
    pub fence: u64,
    pub state: MarkState,
}

/// A selection, for the case that another replica goes on with its transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub amount: u64,
    pub fence: u64,
    pub state: MarkState,
    /// As `keys` writes the pool.
    pub pool: Bytes,
    pub tokens: Vec<Token>,
}

/// The need of a selection that has waited for long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub amount: u64,
    pub dc: Option<DcId>,
}

/// The bytes of a key that are not what they ought to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable;

#[derive(Clone, PartialEq, Message)]
struct MarkMessage {
    #[prost(enumeration = "StateMessage", tag = "1")]
    state: i32,
    #[prost(string, tag = "2")]
    tx: String,
    #[prost(uint64, tag = "3")]
    fence: u64,
}

#[derive(Clone, PartialEq, Message)]
struct TokenMessage {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    #[prost(uint64, tag = "2")]
    amount: u64,
    #[prost(uint32, optional, tag = "3")]
    home: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct RecordMessage {
    #[prost(enumeration = "StateMessage", tag = "1")]
    state: i32,
    #[prost(uint64, tag = "2")]
    amount: u64,
    #[prost(uint64, tag = "3")]
    fence: u64,
    #[prost(message, repeated, tag = "4")]
    tokens: Vec<TokenMessage>,
    #[prost(bytes = "bytes", tag = "5")]
    pool: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct NewsMessage {
    #[prost(message, repeated, tag = "1")]
    tokens: Vec<TokenMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct NeedMessage {
    #[prost(uint64, tag = "1")]
    amount: u64,
    #[prost(uint32, optional, tag = "2")]
    dc: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
enum StateMessage {
    Unspecified = 0,
    Reserved = 1,
    Spent = 2,
}

impl From<MarkState> for i32 {
    fn from(state: MarkState) -> i32 {
        match state {
            MarkState::Reserved => StateMessage::Reserved.into(),
            MarkState::Spent => StateMessage::Spent.into(),
        }
    }
}

fn state_of(state: StateMessage) -> Result<MarkState, Unreadable> {
    match state {
        StateMessage::Reserved => Ok(MarkState::Reserved),
        StateMessage::Spent => Ok(MarkState::Spent),
        StateMessage::Unspecified => Err(Unreadable),
    }
}

fn to_message(token: &Token) -> TokenMessage {
    let id = Bytes::copy_from_slice(token.id.as_bytes());
    TokenMessage { id, amount: token.amount, home: token.home.map(|home| home.get().into()) }
}

fn dc_of(number: Option<u32>) -> Result<Option<DcId>, Unreadable> {
    let dc = |number| u8::try_from(number).ok().and_then(DcId::new).ok_or(Unreadable);
    number.map(dc).transpose()
}

fn from_message(message: TokenMessage) -> Result<Token, Unreadable> {
    let TokenMessage { id, amount, home } = message;
    if !(1..=MAX_AMOUNT).contains(&amount) {
        return Err(Unreadable);
    }
    Ok(Token { id: TokenId::new(id).map_err(|_| Unreadable)?, amount, home: dc_of(home)? })
}

fn from_messages(tokens: Vec<TokenMessage>) -> Result<Vec<Token>, Unreadable> {
    tokens.into_iter().map(from_message).collect()
}

impl Mark {
    pub fn encode(&self) -> Bytes {
        let Mark { tx, fence, state } = self.clone();
        MarkMessage { state: state.into(), tx: tx.0, fence }.encode_to_vec().into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Mark, Unreadable> {
        let message = MarkMessage::decode(bytes).map_err(|_| Unreadable)?;
        let state = state_of(message.state())?;
        Ok(Mark { tx: TxId::new(message.tx).map_err(|_| Unreadable)?, fence: message.fence, state })
    }
}

impl Record {
    pub fn encode(&self) -> Bytes {
        let message = RecordMessage {
            state: self.state.into(),
            amount: self.amount,
            fence: self.fence,
            tokens: self.tokens.iter().map(to_message).collect(),
            pool: self.pool.clone(),
        };
        message.encode_to_vec().into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Record, Unreadable> {
        let message = RecordMessage::decode(bytes).map_err(|_| Unreadable)?;
        let state = state_of(message.state())?;
        let RecordMessage { amount, fence, tokens, pool, .. } = message;
        let tokens = from_messages(tokens)?;
        if tokens.is_empty() { Err(Unreadable) } else { Ok(Record { amount, fence, state, pool, tokens }) }
    }
}

/// Returns the bytes that tell of new tokens of a pool.
pub(crate) fn encode_news(tokens: &[Token]) -> Bytes {
    NewsMessage { tokens: tokens.iter().map(to_message).collect() }.encode_to_vec().into()
}

pub(crate) fn decode_news(bytes: &[u8]) -> Result<Vec<Token>, Unreadable> {
    from_messages(NewsMessage::decode(bytes).map_err(|_| Unreadable)?.tokens)
}

impl Need {
    pub fn encode(&self) -> Bytes {
        let dc = self.dc.map(|dc| dc.get().into());
        NeedMessage { amount: self.amount, dc }.encode_to_vec().into()
    }

    pub fn decode(bytes: &[u8]) -> Result<Need, Unreadable> {
        let NeedMessage { amount, dc } = NeedMessage::decode(bytes).map_err(|_| Unreadable)?;
        if amount == 0 { Err(Unreadable) } else { Ok(Need { amount, dc: dc_of(dc)? }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(id: &'static str, amount: u64, home: Option<u8>) -> Token {
        let id = TokenId::new(id.as_bytes()).expect("it is an id");
        Token { id, amount, home: home.and_then(DcId::new) }
    }

    #[test]
    fn what_is_written_is_read() {
        let tx = TxId::new("t").expect("it is an id");
        let mark = Mark { tx, fence: 7, state: MarkState::Spent };
        assert_eq!(Mark::decode(&mark.encode()), Ok(mark.clone()));
        // Golden bytes: an older or newer program reads them, too.
        assert_eq!(mark.encode()[..], [8, 2, 18, 1, b't', 24, 7]);
        let tokens = vec![token("a", 3, Some(0)), token("b", MAX_AMOUNT, None)];
        let pool = Bytes::from_static(b"w/EUR");
        let record = Record { amount: 5, fence: 7, state: MarkState::Reserved, pool, tokens: tokens.clone() };
        assert_eq!(Record::decode(&record.encode()), Ok(record));
        assert_eq!(encode_news(&tokens[..1])[..], [10, 7, 10, 1, b'a', 16, 3, 24, 0]);
        assert_eq!(decode_news(&encode_news(&tokens)), Ok(tokens));
        assert_eq!(decode_news(&encode_news(&[])), Ok(vec![]));
        let need = Need { amount: 9, dc: DcId::new(2) };
        assert_eq!(Need::decode(&need.encode()), Ok(need.clone()));
        assert_eq!(need.encode()[..], [8, 9, 16, 2]);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for bytes in [&b""[..], b"\xff", b"mark", &[8, 2], &[18, 1, b't'], &[8, 3, 18, 1, b't']] {
            assert_eq!(Mark::decode(bytes), Err(Unreadable), "{bytes:?}");
            assert_eq!(Record::decode(bytes), Err(Unreadable), "{bytes:?}");
        }
        let amounts = [0, MAX_AMOUNT + 1];
        for amount in amounts {
            assert_eq!(decode_news(&encode_news(&[token("a", amount, None)])), Err(Unreadable));
        }
        // A home that is no datacenter, an id that is empty.
        assert_eq!(decode_news(&[10, 7, 10, 1, b'a', 16, 3, 24, 99]), Err(Unreadable));
        assert_eq!(decode_news(&[10, 4, 10, 0, 16, 3]), Err(Unreadable));
        assert_eq!(Need::decode(&[]), Err(Unreadable));
    }

    #[test]
    fn ids_of_transactions_are_bounded() {
        assert_eq!(TxId::new(""), Err(TxIdError { len: 0 }));
        assert_eq!(TxId::new("x".repeat(257)), Err(TxIdError { len: 257 }));
        assert!(TxId::new("x".repeat(256)).is_ok());
    }
}
