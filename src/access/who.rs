//! Callers, and the patterns of callers in rules.

use std::fmt;
use std::sync::Arc;

use crate::pki::check_label;

/// A caller as the server identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// Identified by the name in its certificate.
    Client(Arc<str>),
    /// Identified by the name of its token.
    Token(Arc<str>),
    /// Not identified.
    Anonymous,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Client(name) => write!(f, "client {name}"),
            Who::Token(name) => write!(f, "token {name}"),
            Who::Anonymous => f.write_str("anonymous"),
        }
    }
}

/// A pattern of callers in a rule: `client:NAME` or `token:NAME`, with a `*` at the end for all names with
/// that prefix; `anonymous`; `*` for all callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    Client(Named),
    Token(Named),
    Anonymous,
    Everybody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Exactly(String),
    BeginsWith(String),
}

impl Whom {
    /// Parses a pattern. The error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Whom, &'static str> {
        match text.split_once(':') {
            Some(("client", name)) => Named::parse(name).map(Whom::Client),
            Some(("token", name)) => Named::parse(name).map(Whom::Token),
            None if text == "anonymous" => Ok(Whom::Anonymous),
            None if text == "*" => Ok(Whom::Everybody),
            _ => Err("a caller is `client:NAME`, `token:NAME`, `anonymous` or `*`"),
        }
    }

    pub(super) fn means(&self, who: &Who) -> bool {
        match (self, who) {
            (Whom::Client(named), Who::Client(name)) | (Whom::Token(named), Who::Token(name)) => {
                named.means(name)
            }
            (Whom::Anonymous, Who::Anonymous) | (Whom::Everybody, _) => true,
            _ => false,
        }
    }
}

impl Named {
    fn parse(text: &str) -> Result<Named, &'static str> {
        const WRONG: &str =
            "a name has 1 to 64 of a-z A-Z 0-9 . _ -, and a `*` at its end for all that begin so";
        match text.strip_suffix('*') {
            Some(prefix) if prefix.is_empty() || check_label(prefix).is_ok() => {
                Ok(Named::BeginsWith(prefix.into()))
            }
            None if check_label(text).is_ok() => Ok(Named::Exactly(text.into())),
            _ => Err(WRONG),
        }
    }

    fn means(&self, name: &str) -> bool {
        match self {
            Named::Exactly(wanted) => wanted == name,
            Named::BeginsWith(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}
