//! The errors that callers of the client see.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;

use geolock_api::proto::{self, ERROR_METADATA, LockDescription, Reason};
use geolock_api::time::brief;

/// The reason why a request was not amended. It has the candidates of before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AmendError {
    /// It is granted or over, or was not for enough of many locks.
    #[error("the request does not wait for enough of many locks any more: it is granted, or over")]
    NotWaiting,
    /// The server refused the list, or more candidates.
    #[error("the server refused to amend the request: {message} ({name})", message = .1, name = .0.as_str_name())]
    Refused(Reason, String),
}

/// The reason why a call other than an acquire failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nothing was sent.
    #[error("the client is not configured right: {0}")]
    Config(String),
    /// A file with a certificate or a key cannot be read.
    #[error("{}: {source}", file.display())]
    TlsFile {
        /// The path of the file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file with the token cannot be read.
    #[error("{}: {source}", file.display())]
    TokenFile {
        /// The path of the file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file for the token has something else in it.
    #[error("{} is no file with a token in it, as `geolock token new NAME --out FILE` makes it", file.display())]
    NoToken {
        /// The path of the file.
        file: PathBuf,
    },
    /// Nothing was sent.
    #[error("the certificates cannot be used: {0}")]
    Tls(String),
    /// No endpoint answered. The error is that of the endpoint that was tried last.
    #[error("{endpoint} {}: {source}", source.verdict())]
    Unreachable {
        /// That endpoint, as it was configured.
        endpoint: String,
        /// Its error.
        source: LinkError,
    },
    /// The server refused and changed nothing.
    #[error("the server refused: {message} ({name})", message = .1, name = .0.as_str_name())]
    Refused(Reason, String),
    /// The server does not have this call. Nothing was changed.
    #[error("the server at {endpoint} is too old for that: it does not have this call; upgrade it")]
    Unsupported {
        /// The endpoint, as it was configured.
        endpoint: String,
    },
    /// The datacenter no longer keeps the commits since the position of the watch. Read the keys, and start a
    /// new watch [after](super::WatchRequest::from_snapshot) the snapshot of that read.
    #[error("the watch cannot go on from where it was: {0}")]
    WatchTooOld(String),
    /// The locks that the call was to release are lost already.
    #[error("the locks were lost before they were released: {0}")]
    LeaseLost(#[from] LostReason),
    /// [`Client::close`](super::Client::close) was called, or the runtime of the client has ended.
    #[error("the client is closed")]
    Closed,
    /// The server did not confirm the end of the lease in time. The lease expires by itself, at the latest
    /// after its time to live.
    #[error("the server did not confirm that the lease is closed within {}; it ends by itself", brief(*.0))]
    NotConfirmed(Duration),
}

/// The reason why locks were not acquired. After any of these errors the caller holds nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The wait is over.
    #[error("not granted in time{}", only(*.free))]
    TimedOut {
        /// The holders that blocked the request, lock by lock: as many as fit into an answer, none if the
        /// answer was lost.
        locks: Vec<LockDescription>,
        /// Of a request for [enough](super::AcquireRequest::enough) locks: the sum of the weights of the
        /// candidates that were free.
        free: Option<u64>,
    },
    /// [`Wait::Try`](super::Wait::Try): fewer candidates than [enough](super::AcquireRequest::enough) are
    /// free in this datacenter at this moment.
    #[error("not enough is free at this moment: only {free}")]
    NotEnoughFree {
        /// The sum of the weights of those that are.
        free: u64,
    },
    /// [`Wait::Try`](super::Wait::Try): the locks are not free in this datacenter at this moment.
    #[error("not free at this moment")]
    NotFree,
    /// The lease of the waiting request ended. The next acquire opens another lease.
    #[error("the lease was lost while the request waited: {0}")]
    LeaseLost(LostReason),
    /// The server is about to stop.
    #[error("the server shuts down: acquire at another endpoint, or after its restart")]
    Draining,
    /// The server has reached one of its limits.
    #[error("the server is full: {message}; try again in {}", brief(*retry_after))]
    Exhausted {
        /// The limit, for people.
        message: String,
        /// The pause that the server asks for.
        retry_after: Duration,
    },
    /// The server refused because of the content of the request.
    #[error("the server refused: {message} ({name})", message = .1, name = .0.as_str_name())]
    Refused(Reason, String),
    /// The wait is over, and no endpoint answered for at least `connect_timeout` after it. If the server
    /// granted the request and the answer was lost, the locks are released when a server is reached, or when
    /// the lease ends.
    #[error("no endpoint answered in time")]
    Unreachable,
    /// As [`ClientError::Closed`].
    #[error("the client is closed")]
    Closed,
}

/// The reason why a guard lost its locks without a release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease was not renewed in time. Reported [`lease_margin`](super::lease_margin) before the lease can
    /// end at the server.
    #[error("the lease could not be renewed in time")]
    Expired,
    /// The server ended the lease. Either it said so, or its time to live has passed while this process did
    /// not run.
    #[error("the server ended the lease")]
    LeaseEnded,
    /// The endpoint that answers now belongs to another datacenter, where the lease is not valid; see
    /// [`ClientConfig::endpoints`](super::ClientConfig::endpoints).
    #[error(
        "the lease is one of {lease}, and what answers now is {answers}: a lease goes on only at endpoints of its own \
         datacenter, so name those of one datacenter only"
    )]
    OtherDatacenter {
        /// The datacenter that opened the lease.
        lease: Arc<str>,
        /// The datacenter that answers.
        answers: Arc<str>,
    },
    /// The connection broke, and the lease was opened to end with its connection.
    #[error("the connection broke, and the lease ends with it")]
    Disconnected,
    /// The restarted server refused the reclaim of the locks.
    #[error("after its restart the server could not give the locks back")]
    NotReclaimed,
    /// An operator released the locks by force
    /// ([`AdminClient::force_release`](super::AdminClient::force_release)) and gave a reason.
    #[error("taken away by {operator}: {reason}")]
    ForceReleased {
        /// `client NAME`, `token NAME` or `anonymous`, as the server authenticated the operator.
        operator: Arc<str>,
        /// The reason that the operator gave.
        reason: Arc<str>,
    },
    /// [`Client::close`](super::Client::close) was called.
    #[error("the client was closed")]
    Closed,
    /// Not a loss: the guard was released or dropped, and nothing more will be reported.
    #[error("the locks were released")]
    Released,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// An error of a connection over gRPC, or of the attempt to make one.
    #[error("{}", causes(.0))]
    Transport(#[source] tonic::transport::Error),
    /// An error of a connection over the native protocol, or of the attempt to make one.
    #[error("{0}")]
    Socket(#[source] io::Error),
    /// An error of such a connection before the TLS handshake was complete.
    #[error("{0}")]
    Handshake(#[source] io::Error),
    /// The server ended the stream, or refused to open it, with this status.
    #[error("{}", .0.message())]
    Stream(#[source] Box<tonic::Status>),
    /// The server did not answer within this time.
    #[error("no answer within {}", brief(*.0))]
    Silent(Duration),
    /// The server ended the stream without an error.
    #[error("the server closed the stream")]
    Ended,
    /// Another authority signed the certificate of the server than the one that this client trusts.
    #[error(
        "its certificate is not of the authority in this client's ca.pem: that is another cluster, or the folder given with \
         --tls is that of another one"
    )]
    NotTrusted,
    /// The certificate of the server is valid for other names than this one, at which it was dialled.
    #[error(
        "its certificate is not for that name ({0}): use a name or address that the certificate of the server has"
    )]
    OtherName(String),
    /// The answer to the TLS handshake was something else.
    #[error(
        "it does not speak TLS there: that is not the port for clients (which [listen] of the server names), perhaps that of \
         metrics"
    )]
    NoTls,
    /// The server refused the certificate of this client, for this reason.
    #[error("it does not accept this client's certificate, {0}")]
    Rejected(&'static str),
    /// The connection ended with this error before the TLS handshake was complete, so the client's
    /// credentials cannot be the cause.
    #[error(
        "{0} (before TLS was settled: if that is always so, that is not the port for clients, which [listen] of the server \
         names)"
    )]
    NotSettled(#[source] Box<LinkError>),
    /// The connection ended with this error; the server may require a certificate, and this client has none.
    #[error(
        "this client shows no certificate, and the server seems to demand one: put cert.pem and key.pem, as `geolock ca \
         issue` makes them, into the folder of ca.pem, or use a token where the server takes them ({0})"
    )]
    NoCertificate(#[source] Box<LinkError>),
    /// The connection ended with this error; the server may require a certificate beside the token, and this
    /// client has none.
    #[error(
        "{0} (if that is always so, the server may take no tokens: it then demands a certificate, cert.pem and key.pem beside \
         ca.pem)"
    )]
    OnlyToken(#[source] Box<LinkError>),
    /// The connection ended with this error; the server may refuse the certificate of this client.
    #[error(
        "{0} (if that is always so, the server does not accept this client's certificate: its log says why)"
    )]
    NotAccepted(#[source] Box<LinkError>),
}

/// The credentials that a client presents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    /// With or without a token.
    Certificate,
    Token,
    Nothing,
}

impl LinkError {
    /// Returns the verb for the endpoint in an error message, which says if the endpoint was reached.
    fn verdict(&self) -> &'static str {
        match self {
            LinkError::NotTrusted | LinkError::OtherName(_) | LinkError::NoTls => {
                "answers, but no session was opened"
            }
            LinkError::Rejected(_)
            | LinkError::NotSettled(_)
            | LinkError::NoCertificate(_)
            | LinkError::OnlyToken(_)
            | LinkError::NotAccepted(_) => "ended the connection",
            _ => "cannot be reached",
        }
    }

    /// Returns true if the server said that it does not accept the client's certificate: another attempt with
    /// the same certificate fails, too.
    pub fn is_refused_certificate(&self) -> bool {
        matches!(self, LinkError::Rejected(_))
    }

    /// Adds the likely cause. A server that requires a certificate, or refuses this one, just ends the
    /// connection; with TLS 1.3 that is after the client considers the handshake complete.
    pub(super) fn explained(self, shows: Shows) -> LinkError {
        let error = match self.of_tls() {
            Some(error) => error,
            None => self,
        };
        let ended_there = match &error {
            LinkError::Transport(error) => ended_by_server(error),
            LinkError::Socket(error) | LinkError::Handshake(error) => ended_by_server(error),
            // A status that the server sent has no source here.
            LinkError::Stream(status) => status.source().is_some_and(ended_by_server),
            LinkError::Ended => true,
            _ => false,
        };
        if !ended_there {
            return error;
        }
        let ended = Box::new(error);
        match shows {
            _ if ended.is_of_handshake() => LinkError::NotSettled(ended),
            Shows::Nothing => LinkError::NoCertificate(ended),
            Shows::Token => LinkError::OnlyToken(ended),
            Shows::Certificate => LinkError::NotAccepted(ended),
        }
    }

    /// Returns true if the error came before the TLS handshake was complete. With TLS 1.3, the only version
    /// that servers speak, a client learns the verdict on its certificate only later.
    fn is_of_handshake(&self) -> bool {
        match self {
            LinkError::Handshake(_) => true,
            LinkError::Transport(error) => {
                let error: &(dyn Error + 'static) = error;
                let mut all = std::iter::successors(Some(error), |&error| error.source());
                // HTTP/2 begins after the handshake, so its own errors come later.
                !all.any(|error| error.is::<hyper::Error>())
            }
            _ => false,
        }
    }

    /// Returns the fault that TLS found with the server, if it found one.
    fn of_tls(&self) -> Option<LinkError> {
        let error: &(dyn Error + 'static) = match self {
            LinkError::Transport(error) => error,
            LinkError::Socket(error) | LinkError::Handshake(error) => error,
            LinkError::Stream(status) => status.source()?,
            _ => return None,
        };
        let all = std::iter::successors(Some(error), |&error| error.source());
        let inner = |error: &'_ (dyn Error + 'static)| {
            let of_socket = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            let found = of_socket.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            found.or_else(|| error.downcast_ref()).cloned()
        };
        use rustls::CertificateError::{
            BadSignature, NotValidForName, NotValidForNameContext, UnknownIssuer,
        };
        Some(match all.into_iter().find_map(inner)? {
            rustls::Error::InvalidCertificate(UnknownIssuer | BadSignature) => LinkError::NotTrusted,
            rustls::Error::InvalidCertificate(of @ (NotValidForName | NotValidForNameContext { .. })) => {
                LinkError::OtherName(of.to_string())
            }
            rustls::Error::InvalidMessage(_) => LinkError::NoTls,
            rustls::Error::AlertReceived(alert) => LinkError::Rejected(rejected(alert)?),
            _ => return None,
        })
    }
}

/// Returns the meaning of a server's alert about the certificate of its client.
fn rejected(alert: rustls::AlertDescription) -> Option<&'static str> {
    use rustls::AlertDescription::{CertificateExpired, CertificateRevoked, CertificateUnknown, UnknownCA};
    Some(match alert {
        CertificateRevoked => "which was revoked: have another one issued (`geolock ca issue`)",
        // TLS has one alert for both.
        CertificateExpired => {
            "which has expired or is not valid yet, by the server's clock: compare the clocks of both, or have another one \
             issued (`geolock ca issue`)"
        }
        UnknownCA => {
            "which is not of the authority of its cluster: use the folder that was issued for this cluster"
        }
        // The chain is valid, but the certificate is not one of a client.
        CertificateUnknown => {
            "which is not that of a client of its cluster: use a folder that was made with `geolock ca issue --client`"
        }
        _ => return None,
    })
}

/// Returns true if a connection was established and the other side ended it.
fn ended_by_server(error: &(dyn Error + 'static)) -> bool {
    let all = std::iter::successors(Some(error), |&error| error.source());
    let of_socket = all.filter_map(|error| error.downcast_ref::<io::Error>()).next();
    // HTTP/2 hides the error of its socket; a failed connect shows it.
    of_socket.is_none_or(|error| {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof};
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(error) => matches!(error, rustls::Error::AlertReceived(_)),
            // Of an alert after the handshake, HTTP/2 keeps only the kind of the error.
            None => matches!(
                error.kind(),
                BrokenPipe | ConnectionAborted | ConnectionReset | InvalidData | UnexpectedEof
            ),
        }
    })
}

/// Returns an error with all its causes: gRPC's own text is just "transport error".
fn causes(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = if text.is_empty() { said } else { format!("{text}: {said}") };
        }
        cause = error.source();
    }
    if text.is_empty() { error.to_string() } else { text }
}

/// Returns the refusal that a server attached to a status.
pub(super) fn error_of(status: &tonic::Status) -> Option<proto::Error> {
    let detail = status.metadata().get_bin(ERROR_METADATA).and_then(|value| value.to_bytes().ok());
    detail.and_then(|bytes| proto::Error::decode(bytes).ok())
}

/// Translates the status of a failed unary call.
pub(super) fn of_status(endpoint: &str, status: tonic::Status) -> ClientError {
    match error_of(&status) {
        Some(error) => ClientError::Refused(error.reason(), error.message),
        None if status.code() == tonic::Code::Unimplemented => {
            ClientError::Unsupported { endpoint: endpoint.to_owned() }
        }
        None => ClientError::Unreachable {
            endpoint: endpoint.to_owned(),
            source: LinkError::Stream(Box::new(status)),
        },
    }
}

/// Returns how much of an amount was free, for a message.
fn only(free: Option<u64>) -> String {
    free.map_or(String::new(), |free| format!(": only {free} free"))
}

/// Returns the refusal of a call that needs this feature.
pub(super) fn not_understood(feature: proto::Feature) -> proto::Error {
    let what = match feature {
        proto::Feature::Home => "a lock with a home",
        proto::Feature::Under => "a transaction under the guards of its client",
        proto::Feature::Cancel => "that a change of the members is taken back",
        proto::Feature::Unspecified => "this call",
    };
    let message = format!("the server is of a release that does not understand {what}: upgrade it");
    proto::Error { reason: Reason::NotYet.into(), message, ..Default::default() }
}

/// Translates the refusal of an acquire.
pub(super) fn of_refusal(error: proto::Error) -> AcquireError {
    match error.reason() {
        Reason::TimedOut => AcquireError::TimedOut { locks: error.locks, free: error.free },
        Reason::NotFree => match error.free {
            Some(free) => AcquireError::NotEnoughFree { free },
            None => AcquireError::NotFree,
        },
        Reason::Draining => AcquireError::Draining,
        Reason::ResourceExhausted => AcquireError::Exhausted {
            message: error.message,
            retry_after: Duration::from_millis(error.retry_after_ms),
        },
        reason => AcquireError::Refused(reason, error.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tls_finds_wrong_with_a_server_is_said_with_what_to_do() {
        let said = |error: rustls::Error| {
            let source = LinkError::Socket(io::Error::new(io::ErrorKind::InvalidData, error))
                .explained(Shows::Certificate);
            ClientError::Unreachable { endpoint: "there:1".into(), source }.to_string()
        };
        let other = said(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer));
        assert!(other.starts_with("there:1 answers") && other.contains("ca.pem"), "{other}");
        let plain = said(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(plain.starts_with("there:1 answers") && plain.contains("does not speak TLS"), "{plain}");
        let revoked = said(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateRevoked));
        assert!(revoked.starts_with("there:1 ended") && revoked.contains("revoked"), "{revoked}");
        let old = said(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired));
        assert!(old.contains("expired or is not valid yet"), "{old}");
        let broken = |shows| LinkError::Socket(io::ErrorKind::BrokenPipe.into()).explained(shows).to_string();
        let (nothing, token) = (broken(Shows::Nothing), broken(Shows::Token));
        assert!(nothing.starts_with("this client shows no certificate"), "{nothing}");
        assert!(token.contains("may take no tokens") && !token.contains("shows no"), "{token}");
        let early = LinkError::Handshake(io::ErrorKind::UnexpectedEof.into()).explained(Shows::Nothing);
        assert!(early.to_string().contains("not the port for clients"), "{early}");
    }

    #[test]
    fn a_server_that_does_not_have_a_call_is_too_old() {
        let error = of_status("there:1", tonic::Status::unimplemented(""));
        assert!(matches!(&error, ClientError::Unsupported { endpoint } if endpoint == "there:1"));
        assert!(error.to_string().contains("too old"), "{error}");
    }
}
