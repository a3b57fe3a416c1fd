//! The first messages of two datacenters, on the first bidirectional stream of a connection:
//!
//! ```text
//!   dialler                         acceptor
//!      ── format, hello ───────────────>     checks it
//!   checks it     <─────── format, hello ──
//!      ── confirm ────────────────────>      now the link is up on both sides
//! ```
//!
//! With TLS 1.3 a dialler whose certificate is refused still sees its connection succeed at first, so only
//! the answer proves that it was accepted. And only the confirmation proves to the acceptor that the dialler
//! uses this connection (see `peer.rs`). The confirmation is a byte, not the end of the stream, because a
//! stream that is merely dropped ends, too.

use quinn::{RecvStream, SendStream};
use serde::{Deserialize, Serialize};

use super::error::{AttemptError, Refusal};
use super::frame::FORMAT;
use super::shared::Context;
use crate::base::wire;
use geolock_api::names::{ClusterId, DcId};

const MAGIC: [u8; 4] = *b"gloc";
/// Longest hello, in bytes.
const MAX_HELLO: usize = 256;
const CONFIRM: u8 = 1;

/// Wire type: it never changes. A release with another hello starts its streams with another format byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    magic: [u8; 4],
    /// First and last protocol version spoken.
    versions: (u16, u16),
    cluster: ClusterId,
    pub dc: DcId,
    /// The number of servers that had this id before.
    pub generation: u32,
    /// Identifies one run of a server.
    pub incarnation: u64,
    /// The number that the arbiter of the two gives this connection; 0 from the other side.
    pub link: u64,
    /// The arbiter's number of the last link that was up, as far as this run of the sender knows; 0 for none.
    pub last_link: u64,
}

impl Hello {
    pub(super) fn new(context: &Context, link: u64, last_link: u64) -> Hello {
        Hello {
            magic: MAGIC,
            versions: (*context.versions.start(), *context.versions.end()),
            cluster: context.cluster,
            dc: context.me,
            generation: context.generation.into(),
            incarnation: context.incarnation,
            link,
            last_link,
        }
    }

    /// Runs all checks on a decoded hello, for fuzz targets.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn probe(&self, context: &Context) -> bool {
        self.named().is_ok() & self.check(context, self.dc).is_ok()
    }

    #[cfg(test)]
    pub(super) fn of_test(versions: (u16, u16), cluster: ClusterId) -> Hello {
        let dc = DcId::new(1).expect("a small id");
        Hello { magic: MAGIC, versions, cluster, dc, generation: 0, incarnation: 5, link: 3, last_link: 0 }
    }

    /// Returns the number of the connection. The sender is the arbiter.
    pub(super) fn named(&self) -> Result<u64, Refusal> {
        if self.link == 0 {
            Err(Refusal::NotHello("it gives the connection no number".into()))
        } else {
            Ok(self.link)
        }
    }

    /// Returns the version to speak with a sender whose certificate is that of `certificate`.
    pub(super) fn check(&self, context: &Context, certificate: DcId) -> Result<u16, Refusal> {
        if self.magic != MAGIC {
            return Err(Refusal::NotHello("it does not start like one".into()));
        }
        if self.cluster != context.cluster {
            return Err(Refusal::WrongCluster { found: self.cluster, ours: context.cluster });
        }
        if self.dc != certificate {
            return Err(Refusal::WrongDc { said: self.dc, certificate });
        }
        let ours = (*context.versions.start(), *context.versions.end());
        let version = self.versions.1.min(ours.1);
        if version < self.versions.0.max(ours.0) {
            return Err(Refusal::NoCommonVersion { theirs: self.versions, ours });
        }
        Ok(version)
    }
}

pub(super) async fn write(stream: &mut SendStream, hello: &Hello) -> Result<(), AttemptError> {
    let body = wire::encode("hello", hello).map_err(|error| Refusal::NotHello(error.to_string()))?;
    let len = u16::try_from(body.len()).expect("a hello has a few dozen bytes");
    let mut bytes = vec![FORMAT];
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(&body);
    Ok(stream.write_all(&bytes).await?)
}

pub(super) async fn read(stream: &mut RecvStream) -> Result<Hello, AttemptError> {
    let format = read_format(stream).await?;
    read_body(stream, format).await
}

/// Reads the first byte of a stream, which says what follows.
pub(super) async fn read_format(stream: &mut RecvStream) -> Result<u8, AttemptError> {
    let mut format = [0];
    stream.read_exact(&mut format).await?;
    Ok(format[0])
}

/// Reads a hello after its first byte.
pub(super) async fn read_body(stream: &mut RecvStream, format: u8) -> Result<Hello, AttemptError> {
    if format != FORMAT {
        let text = format!("format {format}, known here is {FORMAT}");
        return Err(Refusal::NotHello(text).into());
    }
    let mut len = [0; 2];
    stream.read_exact(&mut len).await?;
    let len = usize::from(u16::from_be_bytes(len));
    if len > MAX_HELLO {
        return Err(Refusal::NotHello(format!("{len} bytes, the limit is {MAX_HELLO}")).into());
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    let hello = wire::decode("hello", &body).map_err(|error| Refusal::NotHello(error.to_string()))?;
    Ok(hello)
}

pub(super) async fn write_confirmation(stream: &mut SendStream) -> Result<(), AttemptError> {
    Ok(stream.write_all(&[CONFIRM]).await?)
}

pub(super) async fn read_confirmation(stream: &mut RecvStream) -> Result<(), AttemptError> {
    let mut byte = [0];
    stream.read_exact(&mut byte).await?;
    if byte != [CONFIRM] {
        return Err(Refusal::NotHello(format!("confirmed with {}", byte[0])).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_hello_never_change() {
        let hello = Hello {
            magic: MAGIC,
            versions: (1, 300),
            cluster: ClusterId::from_raw(7),
            dc: DcId::new(2).unwrap(),
            generation: 0,
            incarnation: 5,
            link: 0,
            last_link: 9,
        };
        let golden = [b'g', b'l', b'o', b'c', 1, 251, 44, 1, 7, 2, 0, 5, 0, 9];
        assert_eq!(wire::encode("hello", &hello).unwrap(), golden);
        assert_eq!(wire::decode::<Hello>("hello", &golden).unwrap(), hello);
    }
}
