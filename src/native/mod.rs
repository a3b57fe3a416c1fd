//! Edge. The native protocol: how the Rust client and a datacenter talk on a connection that carries one session and nothing
//! else. `docs/wire.md` has the bytes.
//!
//! What it carries are the messages of the gRPC stream, so both ways share what parses, judges and answers them. What it
//! leaves out is what one session has no use for: streams, header tables, windows of two levels, and the tasks between
//! them. Here one task on each side reads and writes its socket itself: as many frames as there are for each time it wakes.
//!
//! - **Which of the two is spoken** TLS settles (ALPN, [`crate::pki::NATIVE_PROTOCOL`]): on one port, without a round trip.
//! - **Flow control** is that of TCP: who does not write any more because the other does not read, does not read either.
//! - **Renewals first**: a long message travels in pieces, and what is about a lease goes between them, both ways. So neither
//!   a client's own data nor a large answer on a slow line costs it its lease.
//! - **Silence**: a side that has heard nothing for a while sends a ping, which the other answers whatever else it does.
//!
//! | file | job |
//! |---|---|
//! | `frame.rs` | bytes to frames and back; no IO |
//! | `line.rs` | a socket that shows whether the other side takes what is written |
//! | `socket.rs` | frames over a socket |

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod line;
mod socket;

pub use frame::{Decoder, End, Frame, FrameError, Kind, MAX_PIECE, MAX_START, Start, decode, put};
pub use line::Line;
pub use socket::{FrameSocket, Progress, SocketError, bound_kernel};
