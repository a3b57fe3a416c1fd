//! Following keys and locks, also over broken connections.
//!
//! | file | job |
//! |---|---|
//! | `follow.rs` | the stream: begun, gone on with, begun again elsewhere |
//! | `keys.rs` | [`Watch`]: commits that change keys |
//! | `locks.rs` | [`LockWatch`]: where locks move, who holds them |

mod follow;
mod keys;
mod locks;

pub use keys::{Action, Change, Changed, News, Watch, WatchRequest};
pub use locks::{Holding, LockEvent, LockMove, LockWatch, LockWatchRequest, Moved};
