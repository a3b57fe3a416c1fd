//! The native protocol between the Rust client and a datacenter: a connection that carries one session
//! and nothing else. `docs/wire.md` has the bytes.
//!
//! It carries the messages of the gRPC stream, so both protocols share the code that parses, authorizes and
//! answers them. It omits the parts of gRPC that one session does not need: streams, header tables, windows
//! of two levels, and the tasks between them. One task on each side reads and writes its socket itself: at
//! each wake-up, as many frames as are available.
//!
//! - **Protocol selection** is part of the TLS handshake (ALPN, [`NATIVE_PROTOCOL`]): on one
//!   port, without a round trip.
//! - **Flow control** is that of TCP: a side that cannot write because its peer does not read stops reading,
//!   too.
//! - **Renewals first**: a long message travels in pieces, and messages about a lease go between them, both
//!   ways. So neither a client's own data nor a large answer on a slow line costs it its lease.
//! - **Silence**: a side that has received nothing for a while sends a ping, which the other answers in any
//!   state.
//!
//! | file | job |
//! |---|---|
//! | `frame.rs` | bytes to frames and back; no IO |
//! | `line.rs` | a socket that shows if the peer acknowledges the bytes written to it |
//! | `socket.rs` | frames over a socket |

mod frame;
mod line;
mod socket;

pub use frame::{Decoder, End, Frame, FrameError, Kind, MAX_PIECE, MAX_START, Start, decode, put};
pub use line::Line;
pub use socket::{FrameSocket, Progress, SocketError, bound_kernel};

/// The application protocol that the Rust client prefers, by its name in the TLS handshake (ALPN).
pub const NATIVE_PROTOCOL: &[u8] = b"geolock/2";
/// Its first version, in which messages are not split into pieces.
pub const NATIVE_PROTOCOL_1: &[u8] = b"geolock/1";
