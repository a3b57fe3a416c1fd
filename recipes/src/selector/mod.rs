//! Selection of tokens that no other payment has taken.

mod source;

pub use source::{MAX_AMOUNT, MAX_TOKEN_ID, Pool, SourceError, Token, TokenError, TokenId, TokenSource};
