//! Edge. Who may do what: tokens, rules, and the judgement of every call.
//!
//! A client is known by its certificate or by a token ([`Who`]). A file of rules says what each may do and on what
//! ([`Action`], [`Rights`]); without a file everybody who is let in may do everything. Both files can be read anew
//! while the server runs ([`Access::reload`]); a broken one changes nothing.
//!
//! What a caller may do is worked out once for each caller and reading of the files, into sorted prefixes, so a name is
//! judged by one binary search, whatever the number of rules. A [`Judge`] keeps that for its stream, and notices by one
//! number that there are other rules; without a file that number is all that is looked at.
//!
//! | file | job |
//! |---|---|
//! | `live.rs` | [`Access`], [`Judge`]: the rules of this moment, and a caller under them |
//! | `rules.rs` | the file of rules |
//! | `tokens.rs` | the file of tokens; making one |
//! | `rights.rs` | what a caller may do, by prefix |
//! | `who.rs`, `action.rs` | the vocabulary |
//! | `refused.rs` | what is refused, in words, in the log, in figures |
//! | `log_limit.rs` | [`LogLimit`]: what strangers can bring about does not fill the log |
//! | `error.rs` | what is wrong with a file |

mod action;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod live;
mod log_limit;
mod log_limits;
mod refused;
mod rights;
mod rules;
mod tokens;
mod who;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use error::AccessError;
pub use live::{Access, AccessFiles, Judge};
pub use log_limit::LogLimit;
pub use refused::{Figures, Refused, What};
pub use rights::Rights;
pub use rules::Rules;
pub use tokens::{NewToken, TokenError};
pub use who::Who;
