//! Errors of links, and their codes on the wire.

use std::io;
use std::net::SocketAddr;

use quinn::{
    ApplicationClose, ConnectionError, ReadError, ReadExactError, TransportErrorCode, VarInt, WriteError,
};

use super::event::Lane;
use crate::base::time::brief;
use crate::base::wire::MAX_FRAME;
use crate::pki::PkiError;
use geolock_api::names::{ClusterId, DcId};

/// The reason why links could not be started. Nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum InterdcError {
    #[error("{found} cannot be used by datacenter {me} of cluster {cluster}: issue a certificate for it")]
    WrongCertificate { found: String, me: DcId, cluster: String },
    #[error("datacenter {0} is listed as a peer twice, or is this one")]
    BadPeer(DcId),
    #[error("peer_timeout of {} is out of range: 10 ms to one day", brief(*.0))]
    BadPeerTimeout(std::time::Duration),
    #[error("no protocol version: {from} to {to} is an empty range")]
    NoVersion { from: u16, to: u16 },
    #[error("could not listen on {address} (UDP); is the port taken?")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("could not set up the network thread")]
    Setup(#[from] io::Error),
    #[error("the certificates give no TLS settings")]
    Tls(#[from] PkiError),
    #[error("the TLS settings do not fit QUIC: {0}")]
    Quic(#[from] quinn::crypto::rustls::NoInitialCipherSuite),
}

/// The reason why a message was not queued. It will not be sent, and its link is down or about to go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    #[error("that link is gone")]
    Gone,
    #[error("the {lane} queue of that link is full; the link is reset, unless this is the control lane")]
    Full { lane: Lane },
    #[error("that link speaks a version without a {lane} lane")]
    NoLane { lane: Lane },
    #[error("a message of {0} bytes, where 1 to {MAX_FRAME} can be sent; the link is reset")]
    Size(usize),
}

/// The reason why a link went down.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownReason {
    #[error("nothing was heard from it for too long")]
    TimedOut,
    #[error("it closed the link: {0}")]
    ClosedByPeer(String),
    #[error("it shut down")]
    Finished,
    #[error("the connection failed: {0}")]
    Transport(String),
    #[error("it broke the framing: {0}")]
    Frame(FrameError),
    #[error("the {lane} queue towards it was full: it takes less than it is sent")]
    QueueFull { lane: Lane },
    #[error("a message of {0} bytes was to be sent to it: a bug here")]
    MessageSize(usize),
    #[error("closed here: {0}")]
    ClosedHere(String),
    #[error("it connected again")]
    Replaced,
    #[error("shutting down here")]
    ShuttingDown,
}

/// An error in the bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("a stream starts with format {found}, known here is {known}")]
    Format { found: u8, known: u8 },
    #[error("a stream for lane {0}, which is none or already has one")]
    Lane(u8),
    #[error("no streams for its messages came in time")]
    NoLanes,
    #[error("a frame of {0} bytes; the limit is {MAX_FRAME}")]
    TooLarge(u32),
    #[error("an empty frame")]
    Empty,
    #[error("a stream ends within a frame")]
    Truncated,
}

/// The reason why a hello was refused. Either side may refuse; both log it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("its cluster is {found}, ours is {ours}")]
    WrongCluster { found: ClusterId, ours: ClusterId },
    #[error("it says it is {said}, its certificate says {certificate}")]
    WrongDc { said: DcId, certificate: DcId },
    #[error(
        "{0} is no member of the cluster here: it has left or was evicted, or the founders are not given the same \
         members; a further server joins with `geolock server --join`"
    )]
    UnknownDc(DcId),
    #[error(
        "it is server {found} with this id, known here is server {known}: the lower one was evicted or has left, and \
         returns only with an empty data directory and `geolock server --join`"
    )]
    WrongGeneration { found: u32, known: u16 },
    #[error(
        "a majority of the members was gone, and the others recovered the cluster by force without {0}: it returns only \
         with an empty data directory and `geolock server --join`"
    )]
    Lost(DcId),
    #[error(
        "two servers run at the same time with the identity of {0}: its data directory or machine was copied. Stop \
         both, remove the copy, and start the other one"
    )]
    RunsTwice(DcId),
    #[error("it speaks protocol versions {} to {}, here it is {} to {}", theirs.0, theirs.1, ours.0, ours.1)]
    NoCommonVersion { theirs: (u16, u16), ours: (u16, u16) },
    #[error("no proper hello: {0}")]
    NotHello(String),
    #[error("no hello in time")]
    TimedOut,
    #[error("another connection of the two datacenters is used")]
    Duplicate,
    #[error("it showed no certificate of a datacenter")]
    Nobody,
    #[error("no server can join here now; repeat later")]
    NoJoins,
}

/// QUIC application error codes: append only, retired codes keep their number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum CloseCode {
    ShuttingDown = 0,
    WrongCluster = 1,
    WrongDc = 2,
    UnknownDc = 3,
    WrongGeneration = 4,
    NoCommonVersion = 5,
    NotHello = 6,
    TimedOut = 7,
    Duplicate = 8,
    Frame = 9,
    QueueFull = 10,
    ClosedHere = 11,
    Replaced = 12,
    NoJoins = 13,
    Lost = 14,
    RunsTwice = 15,
}

impl CloseCode {
    pub(super) fn value(self) -> VarInt {
        VarInt::from_u32(self as u32)
    }
}

impl Refusal {
    pub(super) fn code(&self) -> CloseCode {
        match self {
            Refusal::WrongCluster { .. } => CloseCode::WrongCluster,
            Refusal::WrongDc { .. } => CloseCode::WrongDc,
            Refusal::UnknownDc(_) | Refusal::Nobody => CloseCode::UnknownDc,
            Refusal::WrongGeneration { .. } => CloseCode::WrongGeneration,
            Refusal::NoCommonVersion { .. } => CloseCode::NoCommonVersion,
            Refusal::NotHello(_) => CloseCode::NotHello,
            Refusal::TimedOut => CloseCode::TimedOut,
            Refusal::Duplicate => CloseCode::Duplicate,
            Refusal::NoJoins => CloseCode::NoJoins,
            Refusal::Lost(_) => CloseCode::Lost,
            Refusal::RunsTwice(_) => CloseCode::RunsTwice,
        }
    }
}

impl DownReason {
    pub(super) fn code(&self) -> CloseCode {
        match self {
            DownReason::TimedOut | DownReason::Transport(_) => CloseCode::TimedOut,
            DownReason::ClosedByPeer(_) | DownReason::Finished | DownReason::ShuttingDown => {
                CloseCode::ShuttingDown
            }
            DownReason::Frame(_) => CloseCode::Frame,
            DownReason::QueueFull { .. } | DownReason::MessageSize(_) => CloseCode::QueueFull,
            DownReason::ClosedHere(_) => CloseCode::ClosedHere,
            DownReason::Replaced => CloseCode::Replaced,
        }
    }
}

/// The reason why an attempt to get a link failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AttemptError {
    #[error("could not resolve {address}: {reason}")]
    Resolve { address: String, reason: String },
    #[error("no connection: {0}")]
    Connect(String),
    /// No packet came back from any address. QUIC begins with packets of 1 200 bytes and never splits one.
    #[error("no connection: {0}. It does not run, or no UDP packets of 1200 bytes get there and back")]
    Silent(String),
    #[error(
        "its certificate is not of the authority in this server's ca.pem: that is another cluster, or the folder tls.dc \
         is of another one ({0})"
    )]
    NotTrusted(String),
    #[error("refused by it: {0}")]
    RefusedByPeer(String),
    /// The same, because this datacenter, or this generation of it, is no member as the peer knows it.
    #[error("refused by it: {0}")]
    NotMember(String),
    /// The peer's cluster was recovered by force without this datacenter.
    #[error("refused by it for good: {0}")]
    LostToPeer(String),
    /// Two servers run with the identity of this one, as the peer sees.
    #[error("refused by it for good: {0}")]
    RunsTwice(String),
    /// The peer uses another connection instead: not a failure.
    #[error("it uses another connection")]
    Superseded,
    #[error("refused here: {0}")]
    Refused(#[from] Refusal),
    #[error("no answer in time")]
    TimedOut,
}

/// The code of a handshake that failed since one side's certificate is of an authority that the other does
/// not know: the alert `unknown_ca` of TLS (RFC 8446, 6.2).
fn unknown_authority() -> TransportErrorCode {
    TransportErrorCode::crypto(48)
}

fn names_no_member(close: &ApplicationClose) -> bool {
    [CloseCode::UnknownDc, CloseCode::WrongGeneration].iter().any(|code| close.error_code == code.value())
}

impl From<ConnectionError> for AttemptError {
    fn from(error: ConnectionError) -> AttemptError {
        match error {
            ConnectionError::ApplicationClosed(close) if close.error_code == CloseCode::Duplicate.value() => {
                AttemptError::Superseded
            }
            ConnectionError::ApplicationClosed(close) if close.error_code == CloseCode::Lost.value() => {
                AttemptError::LostToPeer(close.to_string())
            }
            ConnectionError::ApplicationClosed(close) if close.error_code == CloseCode::RunsTwice.value() => {
                AttemptError::RunsTwice(close.to_string())
            }
            // The peer dropped the attempt before it was a connection, because there was another one. quinn
            // then closes it without a reason, or during the handshake with a code of its own.
            ConnectionError::ApplicationClosed(close) if close.reason.is_empty() => AttemptError::Superseded,
            ConnectionError::ConnectionClosed(close)
                if close.error_code == TransportErrorCode::APPLICATION_ERROR =>
            {
                AttemptError::Superseded
            }
            ConnectionError::TransportError(error) if error.code == unknown_authority() => {
                AttemptError::NotTrusted(error.reason)
            }
            ConnectionError::ConnectionClosed(close) if close.error_code == unknown_authority() => {
                let said = "this server's certificate is not of the authority in its ca.pem";
                AttemptError::RefusedByPeer(format!("{said} ({close})"))
            }
            ConnectionError::ApplicationClosed(close) if names_no_member(&close) => {
                AttemptError::NotMember(close.to_string())
            }
            ConnectionError::ApplicationClosed(close) => AttemptError::RefusedByPeer(close.to_string()),
            ConnectionError::ConnectionClosed(close) => AttemptError::RefusedByPeer(close.to_string()),
            ConnectionError::TimedOut => AttemptError::TimedOut,
            other => AttemptError::Connect(other.to_string()),
        }
    }
}

impl From<WriteError> for AttemptError {
    fn from(error: WriteError) -> AttemptError {
        match error {
            WriteError::ConnectionLost(lost) => lost.into(),
            other => AttemptError::Connect(other.to_string()),
        }
    }
}

impl From<ReadExactError> for AttemptError {
    fn from(error: ReadExactError) -> AttemptError {
        match error {
            ReadExactError::ReadError(ReadError::ConnectionLost(lost)) => lost.into(),
            ReadExactError::ReadError(other) => AttemptError::Connect(other.to_string()),
            ReadExactError::FinishedEarly(_) => Refusal::NotHello("it ends too soon".into()).into(),
        }
    }
}

impl From<ConnectionError> for DownReason {
    fn from(error: ConnectionError) -> DownReason {
        match error {
            ConnectionError::ApplicationClosed(close) => DownReason::ClosedByPeer(close.to_string()),
            ConnectionError::TimedOut => DownReason::TimedOut,
            other => DownReason::Transport(other.to_string()),
        }
    }
}

impl From<ReadError> for DownReason {
    fn from(error: ReadError) -> DownReason {
        match error {
            ReadError::ConnectionLost(lost) => lost.into(),
            other => DownReason::Transport(other.to_string()),
        }
    }
}

impl From<WriteError> for DownReason {
    fn from(error: WriteError) -> DownReason {
        match error {
            WriteError::ConnectionLost(lost) => lost.into(),
            other => DownReason::Transport(other.to_string()),
        }
    }
}

impl From<FrameError> for DownReason {
    fn from(error: FrameError) -> DownReason {
        DownReason::Frame(error)
    }
}
