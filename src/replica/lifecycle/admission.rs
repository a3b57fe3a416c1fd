//! The new work that clients may begin. Neither draining nor overload stops what is under way.

use crate::base::capacity::Load;

/// The state of admission.
#[derive(Default)]
pub(in crate::replica) struct Admission {
    /// The server is about to stop. This never ends.
    draining: bool,
    load: Load,
}

impl Admission {
    /// The server is about to stop.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    #[inline]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    #[inline]
    pub fn load(&self) -> Load {
        self.load
    }
}
