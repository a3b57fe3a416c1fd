//! Refusals: in words for the caller, in the log, in metrics.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::action::Action;
use super::log_limit::LogLimit;
use super::log_limits::LogLimits;
use super::principal::Principal;
use geolock_api::keys::Key;
use geolock_api::names::LockName;

/// Most bytes of a name in a message.
const MAX_SHOWN: usize = 100;

/// The reason why a call is refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("this server knows its callers: show a client's certificate or a token")]
    Nobody,
    #[error("`authorization` must be `Bearer` and a token as `geolock token new` prints it")]
    NoToken,
    #[error("this server takes no tokens (api.tokens is not set): show a client's certificate")]
    TokensNotTaken,
    #[error("that token of {0} is not, or no longer, among the tokens of this server (api.tokens)")]
    UnknownToken(String),
    #[error("{principal} may not {action} {resource}: no rule of this server (api.acl) allows it")]
    Denied { principal: Principal, action: Action, resource: String },
    #[error(
        "{principal} may not {what}: no rule of this server (api.acl) allows it an action that needs one"
    )]
    NothingToDo { principal: Principal, what: &'static str },
}

impl Refused {
    /// Returns true if the caller is not identified.
    pub fn is_unknown(&self) -> bool {
        match self {
            Refused::Nobody | Refused::NoToken | Refused::TokensNotTaken | Refused::UnknownToken(_) => true,
            Refused::Denied { .. } | Refused::NothingToDo { .. } => false,
        }
    }
}

/// The object of an action.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    Lock(&'a LockName),
    /// Locks whose names begin with this prefix.
    Locks(&'a [u8]),
    Key(&'a Key),
    /// Keys whose [`Key::as_bytes`] begin with this prefix.
    Keys(&'a [u8]),
    Server,
}

impl<'a> Resource<'a> {
    pub(super) fn name(self) -> &'a [u8] {
        match self {
            Resource::Lock(lock) => lock.as_bytes(),
            Resource::Key(key) => key.as_bytes(),
            Resource::Locks(prefix) | Resource::Keys(prefix) => prefix,
            Resource::Server => &[],
        }
    }
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Lock(lock) => write!(f, "the lock {}", Readable(lock.as_bytes())),
            Resource::Locks([]) => f.write_str("all locks"),
            Resource::Locks(prefix) => write!(f, "the locks that begin with {}", Readable(prefix)),
            Resource::Key(key) => {
                write!(f, "the key {} of bucket {}", Readable(key.name()), Readable(key.bucket()))
            }
            Resource::Keys(bytes) => {
                let (bucket, prefix) = match bytes.split_first() {
                    Some((len, rest)) => rest.split_at(rest.len().min(usize::from(*len))),
                    None => return f.write_str("all keys"),
                };
                match prefix {
                    [] => write!(f, "all keys of bucket {}", Readable(bucket)),
                    _ => write!(
                        f,
                        "the keys of bucket {} that begin with {}",
                        Readable(bucket),
                        Readable(prefix)
                    ),
                }
            }
            Resource::Server => f.write_str("this server"),
        }
    }
}

/// The beginning of a name, in printable form.
struct Readable<'a>(&'a [u8]);

impl fmt::Display for Readable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = &self.0[..self.0.len().min(MAX_SHOWN)];
        let cut = if shown.len() < self.0.len() { ".." } else { "" };
        write!(f, "\"{}{cut}\"", shown.escape_ascii())
    }
}

/// Counts of refusals, and of readings of the files, since the start of the process.
#[derive(Debug, Default)]
pub struct Figures {
    /// By [`Action`].
    denied: [AtomicU64; Action::ALL.len()],
    nothing_to_do: AtomicU64,
    unknown: AtomicU64,
    pub(super) reloads: AtomicU64,
    pub(super) reloads_failed: AtomicU64,
    /// Limits lines about unidentified callers, which can have any number of addresses.
    of_unknown: LogLimit,
    /// Limits lines about identified callers, by caller and action: no caller suppresses the lines of
    /// another.
    of_known: LogLimits<(Principal, Option<Action>)>,
}

impl Figures {
    /// Returns the calls that no rule allows, by action.
    pub fn denied(&self) -> impl Iterator<Item = (Action, u64)> {
        Action::ALL.into_iter().map(|action| (action, self.denied[action as usize].load(Ordering::Relaxed)))
    }

    /// Returns how many leases were refused to callers that could not use one.
    pub fn nothing_to_do(&self) -> u64 {
        self.nothing_to_do.load(Ordering::Relaxed)
    }

    /// Returns the calls with neither certificate nor token, or with an invalid token.
    pub fn unknown(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    /// Returns how often the files were read again, and how often that failed.
    pub fn reloads(&self) -> (u64, u64) {
        (self.reloads.load(Ordering::Relaxed), self.reloads_failed.load(Ordering::Relaxed))
    }

    /// Counts a refusal. Logs it, unless a similar one of that caller, or any one of an unidentified caller,
    /// was logged within the last second. The line contains the count. `geolock audit` has the refused calls
    /// of operators with a count for each.
    pub(super) fn note(&self, refused: &Refused, from: SocketAddr) {
        let count = match refused {
            Refused::Denied { action, .. } => &self.denied[*action as usize],
            Refused::NothingToDo { .. } => &self.nothing_to_do,
            _ => &self.unknown,
        };
        count.fetch_add(1, Ordering::Relaxed);
        if self.is_told(refused, Instant::now()) {
            let so_far = self.unknown() + self.nothing_to_do() + self.denied().map(|(_, n)| n).sum::<u64>();
            tracing::warn!(%from, reason = %refused, refused_so_far = so_far, "call refused");
        }
    }

    fn is_told(&self, refused: &Refused, now: Instant) -> bool {
        match refused {
            Refused::Denied { principal, action, .. } => {
                self.of_known.allows((principal.clone(), Some(*action)), now)
            }
            Refused::NothingToDo { principal, .. } => self.of_known.allows((principal.clone(), None), now),
            _ => self.of_unknown.allows(now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(who: &str, action: Action) -> Refused {
        Refused::Denied { principal: Principal::Client(who.into()), action, resource: "a".into() }
    }

    #[test]
    fn strangers_do_not_keep_others_out_of_the_log() {
        let (figures, now) = (Figures::default(), Instant::now());
        let told = |refused: &Refused| figures.is_told(refused, now);
        let denied =
            Refused::NothingToDo { principal: Principal::Client("app".into()), what: "open a lease" };
        assert!(told(&Refused::Nobody) && !told(&Refused::NoToken));
        assert!(told(&denied) && !told(&denied));
    }

    #[test]
    fn nobody_keeps_another_one_out_of_the_log() {
        let (figures, now) = (Figures::default(), Instant::now());
        let told = |who, action| figures.is_told(&denied(who, action), now);
        assert!(told("app", Action::Read) && !told("app", Action::Read) && told("app", Action::Write));
        assert!(told("other", Action::Read));
    }

    #[test]
    fn refused_force_releases_and_reads_of_the_audit_are_a_line_a_second_and_a_count() {
        let figures = Figures::default();
        let now = Instant::now();
        for action in [Action::ForceRelease, Action::Admin] {
            let told = (0..1_000).filter(|_| figures.is_told(&denied("mallory", action), now)).count();
            assert_eq!(told, 1, "{action:?}");
            assert!(figures.is_told(&denied("bob", action), now), "mallory keeps nobody out");
        }
    }
}
