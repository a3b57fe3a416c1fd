//! Access tokens: the credentials of a client without a certificate.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use super::error::ClientError;

/// Longest token, in bytes.
const MAX_TOKEN: usize = 256;

/// A token as `geolock token new` makes it. It is secret: the client sends it to servers only, and only over
/// TLS.
#[derive(Clone)]
pub struct ClientToken(MetadataValue<Ascii>);

impl ClientToken {
    /// Reads a file that contains a token and nothing else but white space around it.
    pub fn from_file(file: impl AsRef<Path>) -> Result<ClientToken, ClientError> {
        let file = file.as_ref();
        let mut text = String::new();
        // One byte more than the longest token with its line end, to detect a longer one.
        let read =
            File::open(file).and_then(|opened| opened.take(MAX_TOKEN as u64 + 3).read_to_string(&mut text));
        read.map_err(|source| ClientError::TokenFile { file: file.into(), source })?;
        ClientToken::new(text.trim()).ok_or_else(|| ClientError::NoToken { file: file.into() })
    }

    /// Returns `None` if the text does not have the form of a token.
    pub fn new(token: &str) -> Option<ClientToken> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_token = token.len() <= MAX_TOKEN && token.contains('.') && token.bytes().all(plain);
        let value = is_token.then(|| MetadataValue::try_from(format!("Bearer {token}")))?;
        let mut value = value.ok()?;
        value.set_sensitive(true);
        Some(ClientToken(value))
    }
}

/// Does not print the token.
impl std::fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a token")
    }
}

/// Adds the token, if there is one, to every call.
#[derive(Clone, Debug)]
pub(super) struct Bearer(pub Option<ClientToken>);

impl Bearer {
    /// Returns the value of the `authorization` header, if there is a token.
    pub(super) fn authorization(&self) -> Option<&[u8]> {
        self.0.as_ref().map(|ClientToken(value)| value.as_encoded_bytes())
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Bearer(Some(ClientToken(value))) = self {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn of_file(content: &[u8]) -> Result<ClientToken, ClientError> {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(content).expect("it is written");
        ClientToken::from_file(file.path())
    }

    #[test]
    fn a_token_stands_alone_in_its_file() {
        let token = of_file(b"\n ci.abc-_9 \n").expect("a token");
        assert_eq!(token.0.as_encoded_bytes(), b"Bearer ci.abc-_9");
        assert!(!format!("{token:?}").contains("abc"), "a secret");
        for wrong in [&b""[..], b"\n", b"nodot", b"a.b c", b"a.b\nc.d", &[b'.'; 300], b"a.\xc3\xbc"] {
            assert!(matches!(of_file(wrong), Err(ClientError::NoToken { .. })), "{wrong:?}");
        }
        assert!(matches!(of_file(b"a.\xff"), Err(ClientError::TokenFile { .. })));
        assert!(matches!(ClientToken::from_file("/no/such"), Err(ClientError::TokenFile { .. })));
    }
}
