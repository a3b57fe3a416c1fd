//! What a rule can allow.

use std::fmt;

/// What a caller wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    AcquireShared,
    AcquireExclusive,
    /// See who holds a lock and who waits: describe, list, watch.
    Describe,
    /// Take a lock from whoever holds it.
    ForceRelease,
    /// Read and watch keys.
    Read,
    /// Change keys, whatever the change.
    Write,
    /// What concerns the server as a whole: read its audit.
    Admin,
}

/// What the rules of an action name.
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

    /// As it stands in rules, errors and metrics.
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
