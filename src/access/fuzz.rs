//! Bodies of fuzz targets, see `crate::testkit::fuzz`.

use std::path::Path;

use super::rules::Rules;
use super::tokens::{PresentedToken, Tokens};

/// Parses a file of rules.
pub(crate) fn rules(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else { return false };
    match Rules::parse(Path::new("acl.toml"), text) {
        Ok(rules) => rules.count() > 0,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "every mistake is named");
            false
        }
    }
}

/// Parses a file of tokens, and the same bytes as a token of a caller.
pub(crate) fn tokens(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else { return false };
    let shown = PresentedToken::read(text);
    let Ok(tokens) = Tokens::parse(Path::new("tokens"), text) else { return shown.is_some() };
    assert!(!shown.is_some_and(|shown| tokens.has(&shown)), "a file of hashes holds no token");
    tokens.count() > 0
}
