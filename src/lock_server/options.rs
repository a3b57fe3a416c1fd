//! Options of the actor.

use std::time::Duration;

/// Options of one lock server process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockServerOptions {
    /// Most sessions (streams of clients) at a time. Default 16 384; further ones are refused. Each costs
    /// about 1 KiB while idle and up to `session_backlog` bytes while its client does not read.
    pub max_sessions: usize,
    /// Most inputs that wait in the mailbox, besides the places reserved by `max_sessions`: sessions that are
    /// not open leave their places to others. Default 4 096. When it is full, the server reads from no client
    /// until there is space. Raising it lengthens the wait in an overloaded server, and has little other
    /// effect.
    pub mailbox: usize,
    /// About how many bytes waiting calls take at most, besides the first 32 KiB of each session. Default 64
    /// MiB: as much as may wait for the disk. Of a client whose call does not fit, only renewals are handled
    /// until there is space, as long as it sends no more than 64 KiB of other calls meanwhile.
    pub mailbox_bytes: usize,
    /// The same limit for one session, and for the calls of one client outside sessions, so that a client
    /// that writes much leaves room for others. Default 4 MiB: two of the largest messages. Raising it lets
    /// one client have more calls in progress while the disk is slow.
    pub session_mailbox: usize,
    /// The same limit for one client: all its sessions and its calls outside them. Default 32 MiB: half of
    /// `mailbox_bytes`, so that no client takes all of them, however many sessions it has.
    pub client_mailbox: usize,
    /// About how many bytes of answers wait for a client that does not read; beyond that its session is
    /// closed. Default 16 MiB: about 100 000 grants.
    pub session_backlog: usize,
    /// A checkpoint is written when the journal has grown by this many bytes since the last one. Default
    /// 128 MiB. Raising it writes less and makes a restart slower (about 100 MiB of journal are read per
    /// second).
    pub checkpoint_after: u64,
    /// While more bytes than this wait for the disk, the server accepts nothing that would be written: no
    /// acquires, transactions and leases of clients, no entries of other datacenters. It still accepts
    /// renewals and heartbeats. A release or cancel waits behind an earlier call of its stream that waits; on
    /// other streams it is handled. Default 64 MiB.
    pub max_journal_backlog: u64,
    /// The server is overloaded when calls of clients wait for longer than this. Then it refuses new work of
    /// clients (acquires, transactions, leases, watches) with a time to retry, until calls wait less. Default
    /// 250 ms: far above the time that any call takes in a server that keeps up, and too short for people and
    /// timeouts to notice. A call that is accepted in an overloaded server waits a few times as long, and
    /// before that for the calls that flow control allowed clients to send. Lowering it refuses more calls in
    /// short bursts.
    pub max_queue_delay: Duration,
    /// How long a drain waits for held locks to be released. Default 10 s.
    pub drain_timeout: Duration,
}

impl Default for LockServerOptions {
    fn default() -> LockServerOptions {
        LockServerOptions {
            max_sessions: 16_384,
            mailbox: 4_096,
            mailbox_bytes: 64 << 20,
            session_mailbox: 4 << 20,
            client_mailbox: 32 << 20,
            session_backlog: 16 << 20,
            checkpoint_after: 128 << 20,
            max_journal_backlog: 64 << 20,
            max_queue_delay: Duration::from_millis(250),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
