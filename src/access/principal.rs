//! Callers, and the patterns of callers in rules.

use std::fmt;
use std::sync::Arc;

use crate::pki::check_label;

/// A caller as the server identifies it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Identified by the name in its certificate.
    Client(Arc<str>),
    /// Identified by the name of its token.
    Token(Arc<str>),
    /// Not identified.
    Anonymous,
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::Client(name) => write!(f, "client {name}"),
            Principal::Token(name) => write!(f, "token {name}"),
            Principal::Anonymous => f.write_str("anonymous"),
        }
    }
}

/// A pattern of callers in a rule: `client:NAME` or `token:NAME`, with a `*` at the end for all names with
/// that prefix; `anonymous`; `*` for all callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PrincipalPattern {
    Client(NamePattern),
    Token(NamePattern),
    Anonymous,
    Everybody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamePattern {
    Exactly(String),
    BeginsWith(String),
}

impl PrincipalPattern {
    /// Parses a pattern. The error states the fault.
    pub(super) fn parse(text: &str) -> Result<PrincipalPattern, &'static str> {
        match text.split_once(':') {
            Some(("client", name)) => NamePattern::parse(name).map(PrincipalPattern::Client),
            Some(("token", name)) => NamePattern::parse(name).map(PrincipalPattern::Token),
            None if text == "anonymous" => Ok(PrincipalPattern::Anonymous),
            None if text == "*" => Ok(PrincipalPattern::Everybody),
            _ => Err("a caller is `client:NAME`, `token:NAME`, `anonymous` or `*`"),
        }
    }

    pub(super) fn matches(&self, principal: &Principal) -> bool {
        match (self, principal) {
            (PrincipalPattern::Client(pattern), Principal::Client(name))
            | (PrincipalPattern::Token(pattern), Principal::Token(name)) => pattern.matches(name),
            (PrincipalPattern::Anonymous, Principal::Anonymous) | (PrincipalPattern::Everybody, _) => true,
            _ => false,
        }
    }
}

/// As in the file.
impl fmt::Display for PrincipalPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrincipalPattern::Client(name) => write!(f, "client:{name}"),
            PrincipalPattern::Token(name) => write!(f, "token:{name}"),
            PrincipalPattern::Anonymous => f.write_str("anonymous"),
            PrincipalPattern::Everybody => f.write_str("*"),
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NamePattern::Exactly(name) => f.write_str(name),
            NamePattern::BeginsWith(prefix) => write!(f, "{prefix}*"),
        }
    }
}

impl NamePattern {
    fn parse(text: &str) -> Result<NamePattern, &'static str> {
        const WRONG: &str =
            "a name has 1 to 64 of a-z A-Z 0-9 . _ -, and a `*` at its end for all that begin so";
        match text.strip_suffix('*') {
            Some(prefix) if prefix.is_empty() || check_label(prefix).is_ok() => {
                Ok(NamePattern::BeginsWith(prefix.into()))
            }
            None if check_label(text).is_ok() => Ok(NamePattern::Exactly(text.into())),
            _ => Err(WRONG),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            NamePattern::Exactly(wanted) => wanted == name,
            NamePattern::BeginsWith(prefix) => name.starts_with(prefix.as_str()),
        }
    }
}
