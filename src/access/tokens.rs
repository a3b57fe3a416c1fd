//! Tokens: credentials of a client without a certificate.
//!
//! A token is `NAME.SECRET`, where the secret has 256 bits of the operating system's randomness. It cannot be
//! guessed, so a plain SHA-256 of the whole token is as safe at rest as a slow hash, and cheap to check. The
//! file has one line per token: `NAME sha256:HEX`. Two lines of one name are two tokens of one client; that
//! is how a client gets a new token before the old one is removed.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use rustls::crypto::ring as provider;
use subtle::{Choice, ConstantTimeEq as _};

use super::digest::digest_of_all;
use super::error::AccessError;
use crate::pki::{IdentityError, check_label};

/// Most tokens of a file.
const MAX_TOKENS: usize = 10_000;
/// Longest token that is checked, in bytes: a name, a dot, 43 of the secret.
const MAX_TOKEN: usize = 256;
/// The option that names the file.
pub(super) const KEY: &str = "api.tokens";
const SECRET_BYTES: usize = 32;
const HASH: &str = "sha256:";

/// The SHA-256 of a token.
#[derive(Clone, Copy)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    fn of(token: &str) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        TokenHash(hash)
    }

    fn parse(text: &str) -> Option<TokenHash> {
        let hex = text.strip_prefix(HASH)?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let bytes: Option<Vec<u8>> = hex.chunks_exact(2).map(byte).collect();
        let whole = hex.len() == 64;
        bytes.filter(|_| whole)?.try_into().ok().map(TokenHash)
    }
}

/// As in the file.
impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HASH)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A token that a caller presented, without its secret.
#[derive(Clone, Debug)]
pub(super) struct PresentedToken {
    pub name: Arc<str>,
    hash: TokenHash,
}

impl PresentedToken {
    /// Returns `None` if the text does not have the form of a token.
    pub(super) fn read(token: &str) -> Option<PresentedToken> {
        let (name, _) = token.rsplit_once('.').filter(|_| token.len() <= MAX_TOKEN)?;
        check_label(name).ok()?;
        Some(PresentedToken { name: name.into(), hash: TokenHash::of(token) })
    }
}

/// The tokens of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Tokens(BTreeMap<Box<str>, Vec<TokenHash>>);

impl Tokens {
    /// Parses the text of a file. Errors name `path`.
    pub(super) fn parse(path: &Path, text: &str) -> Result<Tokens, AccessError> {
        let mut tokens = Tokens::default();
        let mut count = 0;
        for (index, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let at = |what| AccessError::Line { key: KEY, path: path.into(), line: index + 1, what };
            let (name, hash) = entry(&words).map_err(at)?;
            count += 1;
            if count > MAX_TOKENS {
                return Err(at(format!("at most {MAX_TOKENS} tokens")));
            }
            tokens.0.entry(name.into()).or_default().push(hash);
        }
        Ok(tokens)
    }

    /// Returns true if the token is known. Takes the same time wherever the hashes differ.
    pub(super) fn has(&self, shown: &PresentedToken) -> bool {
        let of_name = self.0.get(&*shown.name).map_or(&[][..], Vec::as_slice);
        let equal = of_name.iter().map(|known| known.0.ct_eq(&shown.hash.0));
        equal.fold(Choice::from(0), |any, this| any | this).into()
    }

    /// Returns the digest of all tokens. It reveals none of them.
    pub(super) fn digest(&self) -> [u8; 32] {
        let of = |name: &str, hash: &TokenHash| [name.as_bytes(), b" ", &hash.0].concat();
        let all = self.0.iter().flat_map(|(name, hashes)| hashes.iter().map(|hash| of(name, hash)));
        digest_of_all(all.collect())
    }

    pub(super) fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

fn entry<'a>(words: &[&'a str]) -> Result<(&'a str, TokenHash), String> {
    const FORM: &str = "a line is NAME sha256:HEX, as `geolock token new NAME` prints it";
    let [name, hash] = words else { return Err(FORM.into()) };
    check_label(name).map_err(|error| error.to_string())?;
    // The text may be a token that was put in by mistake: the error does not repeat it.
    let hash = TokenHash::parse(hash).ok_or(FORM)?;
    Ok((name, hash))
}

/// A newly generated token.
pub struct NewToken {
    token: String,
    line: String,
}

/// The reason why no token was generated.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error(transparent)]
    Name(#[from] IdentityError),
    #[error("the operating system gives no random bytes")]
    NoRandomness,
}

impl NewToken {
    /// Generates a token of `name`, with a new secret.
    pub fn generate(name: &str) -> Result<NewToken, TokenError> {
        check_label(name)?;
        let mut secret = [0; SECRET_BYTES];
        let random = provider::default_provider().secure_random;
        random.fill(&mut secret).map_err(|_| TokenError::NoRandomness)?;
        let token = format!("{name}.{}", URL_SAFE_NO_PAD.encode(secret));
        let line = format!("{name} {}", TokenHash::of(&token));
        Ok(NewToken { token, line })
    }

    /// Returns the token, for the client only.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the line for the server's file: it does not reveal the token.
    pub fn line(&self) -> &str {
        &self.line
    }
}
