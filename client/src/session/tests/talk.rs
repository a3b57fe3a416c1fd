//! A session, and a test that acts as its callers, its network and its server.

use std::time::Duration;

use bytes::Bytes;

use crate::request::{AcquireRequest, Wait};
use crate::session::{Output, Session, Settings};
use crate::tag::Tag;
use geolock_api::names::LockName;
use geolock_api::proto::client_message::Call;
use geolock_api::proto::server_message::Answer;
use geolock_api::proto::{
    self, Feature, OnDisconnect, Reason, ServerMessage, acquire_request, begin_locks, cancel_request,
    downgrade_request, release_request,
};
use geolock_api::time::Instant;

pub(super) const TTL: Duration = Duration::from_secs(9);
pub(super) const CONNECT: Duration = Duration::from_secs(2);

/// A session, its time, and the server that the test acts as.
pub(super) struct Talk {
    pub session: Session,
    pub now: Instant,
}

impl Talk {
    pub(super) fn new(endpoints: usize, on_disconnect: OnDisconnect) -> Talk {
        let session = Session::new(Settings {
            ttl: Some(TTL),
            on_disconnect,
            name: "test".into(),
            connect_timeout: CONNECT,
            endpoints,
        });
        Talk { session, now: Instant::ZERO + Duration::from_secs(1000) }
    }

    /// Returns a session with a stream and a lease.
    pub(super) fn ready() -> Talk {
        let mut talk = Talk::new(2, OnDisconnect::Keep);
        talk.session.connected(talk.now);
        assert_eq!(talk.said(), ["hello", "open lease"]);
        talk.hear(Tag::OpenLease, opened(7));
        assert!(matches!(talk.outputs()[..], [Output::LeaseOpened]));
        talk
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.session.on_time(self.now);
    }

    pub(super) fn acquire(&mut self, lock: &str, wait: Wait) -> u64 {
        let name = LockName::try_from(lock).expect("a test name is valid");
        let request = AcquireRequest::exclusive(name).wait(wait);
        self.session.acquire(self.now, request).expect("the session runs")
    }

    /// Acquires a lock, and grants it.
    pub(super) fn hold(&mut self, lock: &str, n: u64) -> u64 {
        let number = self.acquire(lock, Wait::Forever);
        self.hear(Tag::Acquire(number), granted(n));
        assert!(matches!(self.outputs()[..], [Output::Acquired { outcome: Ok(_), .. }]));
        self.said();
        number
    }

    pub(super) fn hear(&mut self, tag: Tag, answer: Answer) {
        let message = ServerMessage { tag: tag.to_wire(), answer: Some(answer) };
        self.session.on_message(self.now, message);
    }

    /// The server introduces itself.
    pub(super) fn welcome(&mut self, understands: &[Feature]) {
        let understands = understands.iter().map(|feature| (*feature).into()).collect();
        self.hear(Tag::Hello, Answer::Welcome(proto::Welcome { understands, ..Default::default() }));
    }

    pub(super) fn hear_unasked(&mut self, answer: Answer) {
        self.session.on_message(self.now, ServerMessage { tag: 0, answer: Some(answer) });
    }

    /// Breaks the stream and opens another one.
    pub(super) fn reconnect(&mut self) {
        self.session.disconnected(self.now);
        self.session.connected(self.now);
        assert_eq!(self.said(), ["hello", "attach"]);
    }

    pub(super) fn reattach(&mut self, reclaim: Restarted) {
        self.reconnect();
        let reclaim = reclaim == Restarted::Yes;
        let attached = proto::AttachLeaseResponse { ttl_ms: 9000, reclaim };
        self.hear(Tag::AttachLease, Answer::LeaseAttached(attached));
    }

    pub(super) fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.session.take_outputs(&mut outputs);
        outputs
    }

    /// Returns the messages that the session sent, in short.
    pub(super) fn said(&mut self) -> Vec<String> {
        let mut messages = std::collections::VecDeque::new();
        self.session.take_messages(&mut messages);
        if let Some(renewal) = self.session.take_renewal() {
            messages.push_front(renewal);
        }
        messages.into_iter().map(|message| in_short(message.call.expect("a call is set"))).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Restarted {
    Yes,
    No,
}

pub(super) fn in_short(call: Call) -> String {
    match call {
        Call::Hello(_) => "hello".into(),
        Call::OpenLease(_) => "open lease".into(),
        Call::AttachLease(_) => "attach".into(),
        Call::KeepAlive(_) => "keep alive".into(),
        Call::CloseLease(_) => "close lease".into(),
        Call::Acquire(acquire) => {
            let wait = match acquire.wait {
                Some(acquire_request::Wait::WaitMs(millis)) => format!("{millis} ms"),
                Some(acquire_request::Wait::TryOnce(_)) => "try".into(),
                _ => "forever".into(),
            };
            let first = acquire.locks.first().map(|lock| String::from_utf8_lossy(&lock.name).into_owned());
            let lock = first.unwrap_or_else(|| "enough".into());
            format!("acquire {lock} key {} {wait}", acquire.idempotency_key)
        }
        Call::Release(release) => match release.target {
            Some(release_request::Target::IdempotencyKey(key)) => format!("release key {key}"),
            other => panic!("releases go by key, this is {other:?}"),
        },
        Call::Amend(amend) => format!("amendment {} of key {}", amend.revision, amend.idempotency_key),
        Call::Cancel(cancel) => match cancel.target {
            Some(cancel_request::Target::IdempotencyKey(key)) => format!("cancel key {key}"),
            other => panic!("cancellations go by key, this is {other:?}"),
        },
        Call::Downgrade(downgrade) => match downgrade.target {
            Some(downgrade_request::Target::IdempotencyKey(key)) => {
                format!("downgrade {} key {key}", String::from_utf8_lossy(&downgrade.name))
            }
            other => panic!("downgrades go by key, this is {other:?}"),
        },
        Call::Reclaim(reclaim) => {
            let keys: Vec<u64> = reclaim.held.iter().map(|held| held.idempotency_key).collect();
            format!("reclaim keys {keys:?}{}", if reclaim.more { " and more" } else { "" })
        }
        Call::Begin(begin) => {
            let secret = if begin.secret.is_empty() { "" } else { " with the secret" };
            let step = begin.step.expect("a begin has a step");
            let lock = begin.locks.map_or(String::new(), |locks| {
                let wait = match locks.wait {
                    Some(begin_locks::Wait::WaitMs(millis)) => format!(" {millis} ms"),
                    Some(begin_locks::Wait::TryOnce(_)) => " try".into(),
                    _ => " forever".into(),
                };
                format!(" under {}{wait}", String::from_utf8_lossy(&locks.locks[0].name))
            });
            format!(
                "begin key {}{lock} acknowledged {} {}{secret}",
                begin.idempotency_key,
                begin.acknowledged_through,
                step_in_short(&step)
            )
        }
        Call::Step(next_step) => {
            let secret = if next_step.secret.is_empty() { "" } else { " with the secret" };
            let step = step_in_short(&next_step.step.expect("it has a step"));
            format!(
                "step key {} after {} {step}{secret}",
                next_step.idempotency_key, next_step.applied_changes
            )
        }
        Call::Read(_) => "read".into(),
    }
}

pub(super) fn opened(lease: u64) -> Answer {
    let secret = Bytes::from_static(&[1; 16]);
    Answer::LeaseOpened(proto::OpenLeaseResponse { lease, secret, ttl_ms: 9000, boot_id: 1 })
}

pub(super) fn granted(n: u64) -> Answer {
    let request = Some(proto::RequestId { dc: 0, n });
    Answer::Acquired(proto::AcquireResponse { request, token: n, ..Default::default() })
}

pub(super) fn reclaimed(kept: &[u64]) -> Answer {
    let kept = kept.iter().map(|n| proto::RequestId { dc: 0, n: *n }).collect();
    Answer::Reclaimed(proto::ReclaimResponse { kept, lost: vec![] })
}

pub(super) fn kept_alive() -> Answer {
    Answer::KeptAlive(proto::KeepAliveResponse { ttl_ms: 9000, boot_id: 1 })
}

pub(super) fn released() -> Answer {
    Answer::Released(proto::ReleaseResponse {})
}

pub(super) fn refused(reason: Reason) -> Answer {
    Answer::Error(proto::Error { reason: reason.into(), ..proto::Error::default() })
}

fn step_in_short(step: &proto::Step) -> String {
    let then = match step.then() {
        proto::Then::Commit => "commit",
        proto::Then::Abort => "abort",
        proto::Then::Continue | proto::Then::Unspecified => "continue",
    };
    format!("{} changes {} reads {then}", step.changes.len(), step.reads.len())
}
