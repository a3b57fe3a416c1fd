//! The actions that a rule can allow.

use std::fmt;

/// An action of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    AcquireShared,
    AcquireExclusive,
    /// Read the holders and waiters of a lock: describe, list, watch.
    Describe,
    /// Take a lock from its holder.
    ForceRelease,
    /// Read and watch keys.
    Read,
    /// Change keys, by any change.
    Write,
    /// Actions on the server as a whole: read its audit.
    Admin,
}

/// The kind of names in rules of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Locks,
    Keys,
    Server,
}

impl Action {
    pub const ALL: [Action; 7] = [
        Action::AcquireShared,
        Action::AcquireExclusive,
        Action::Describe,
        Action::ForceRelease,
        Action::Read,
        Action::Write,
        Action::Admin,
    ];

    /// Returns the name as in rules, errors and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Action::AcquireShared => "acquire-shared",
            Action::AcquireExclusive => "acquire-exclusive",
            Action::Describe => "describe",
            Action::ForceRelease => "force-release",
            Action::Read => "read",
            Action::Write => "write",
            Action::Admin => "admin",
        }
    }

    pub fn named(name: &str) -> Option<Action> {
        Action::ALL.into_iter().find(|action| action.name() == name)
    }

    pub(super) fn on(self) -> On {
        match self {
            Action::AcquireShared | Action::AcquireExclusive | Action::Describe | Action::ForceRelease => {
                On::Locks
            }
            Action::Read | Action::Write => On::Keys,
            Action::Admin => On::Server,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
