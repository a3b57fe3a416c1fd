//! Watches of keys and locks, across broken connections.
//!
//! | file | job |
//! |---|---|
//! | `follow.rs` | the stream: started, and resumed at any endpoint |
//! | `keys.rs` | [`Watch`]: commits that change keys |
//! | `locks.rs` | [`LockWatch`]: moves of locks, and their holders |

mod follow;
mod keys;
mod locks;

pub use keys::{Action, Change, Changed, Watch, WatchEvent, WatchRequest};
pub use locks::{Holding, LockEvent, LockMove, LockWatch, LockWatchRequest, Moved};
