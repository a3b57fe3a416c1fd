//! Edge. Small additions to the runtime and the operating system, for other edges.

pub(crate) mod fine_timer;
pub(crate) mod memory;
pub mod open_files;
pub(crate) mod tasks;
