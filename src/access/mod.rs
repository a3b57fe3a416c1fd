//! Edge. Access control: tokens, rules, and the decision about every call.
//!
//! A client is identified by its certificate or by a token ([`Principal`]). A file of rules says what each
//! client may do and on which names ([`Action`], [`Rights`]); without that file every admitted client may do
//! everything. Both files can be read again while the server runs ([`Access::reload`]); a broken one changes
//! nothing.
//!
//! The rights of a caller are computed once per caller and reading of the files, as sorted prefixes. So a
//! name is looked up by one binary search, whatever the number of rules. An [`Authorizer`] keeps the rights
//! for its stream, and detects changed rules by comparing one number; without a file, that comparison is the
//! only cost.
//!
//! | file | job |
//! |---|---|
//! | `active_rules.rs` | [`Access`], [`Authorizer`]: the rules in force, and a caller under them |
//! | `rules.rs` | the file of rules |
//! | `tokens.rs` | the file of tokens; new tokens |
//! | `rights.rs` | the rights of a caller, by prefix |
//! | `principal.rs`, `action.rs` | the vocabulary |
//! | `refused.rs` | refusals: in words, in the log, in metrics |
//! | `refused_operators.rs` | refused calls of operators, for the audit |
//! | `log_limit.rs` | [`LogLimit`]: strangers cannot fill the log |
//! | `digest.rs` | digests, by which servers compare their files |
//! | `error.rs` | errors in a file |

mod action;
mod active_rules;
mod digest;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod log_limit;
mod log_limits;
mod principal;
mod refused;
mod refused_operators;
mod rights;
mod rules;
mod tokens;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use active_rules::{Access, AccessFiles, Authorizer};
pub use error::AccessError;
pub use log_limit::LogLimit;
pub use principal::Principal;
pub use refused::{Figures, Refused, Resource};
pub use refused_operators::{MAX_REFUSED_OPERATORS, RefusedOperator};
pub use rights::Rights;
pub use rules::Rules;
pub use tokens::{NewToken, TokenError};
