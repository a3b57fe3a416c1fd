//! The new work that clients may begin. Neither draining nor overload stops what is under way.

use crate::base::capacity::Load;

/// The state of admission.
#[derive(Default)]
pub(in crate::replica) struct Admission {
    /// The server is about to stop. This never ends.
    draining: bool,
    /// This datacenter leaves.
    leaving: bool,
    /// This server is over, for example evicted. This never ends.
    ended: bool,
    load: Load,
}

impl Admission {
    /// The server is about to stop.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// This datacenter leaves, or does not leave any more.
    pub fn set_leaving(&mut self, leaving: bool) {
        self.leaving = leaving;
    }

    /// This server is over, for example evicted: others may be granted what its clients hold.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Returns true if this server is over.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining || self.leaving || self.ended
    }

    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    #[inline]
    pub fn load(&self) -> Load {
        self.load
    }
}
