//! The new work that clients may begin. Neither draining nor overload stops what is under way.

use crate::base::capacity::Load;

/// The state of admission.
#[derive(Default)]
pub(super) struct Admission {
    /// The server is about to stop. This never ends.
    draining: bool,
    load: Load,
}

impl Admission {
    pub fn drain(&mut self) {
        self.draining = true;
    }

    pub fn is_draining(&self) -> bool {
        self.draining
    }

    pub fn set_load(&mut self, load: Load) {
        self.load = load;
    }

    pub fn load(&self) -> Load {
        self.load
    }
}
