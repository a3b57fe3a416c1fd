//! Options of the actor.

use std::time::Duration;

/// What a process may choose about its actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockServerOptions {
    /// Most sessions (streams of clients) at a time. Default 16 384; further ones are refused. Each costs some
    /// 1 KiB while idle and up to `session_backlog` bytes while its client does not read.
    pub max_sessions: usize,
    /// Most inputs that wait for the actor, besides those that `max_sessions` leaves places for: sessions that are not
    /// open leave theirs to the others. Default 4 096. Beyond, clients are not read until there is room. Raising it
    /// lengthens the wait in an overloaded server, and little else.
    pub mailbox: usize,
    /// About how many bytes calls take at most that wait for the actor, besides the first 32 KiB of each session. Default
    /// 64 MiB: as much as waits for the disk. Beyond, of clients whose calls do not fit only renewals are heard until there is
    /// room, as long as they send no more than 64 KiB of other calls meanwhile.
    pub mailbox_bytes: usize,
    /// The same of one session, and of the calls of one client outside sessions, so that one that writes much leaves room to
    /// others. Default 4 MiB: two of the largest messages. Raising it lets one client have more calls under way while the disk is slow.
    pub session_mailbox: usize,
    /// The same of one client: of all its sessions, and of its calls outside them. Default 32 MiB: half of `mailbox_bytes`, so that
    /// no client takes all of them, however many sessions it has.
    pub client_mailbox: usize,
    /// About how many bytes of answers wait for a client that does not read; beyond, its session is closed.
    /// Default 16 MiB: some 100 000 grants.
    pub session_backlog: usize,
    /// A checkpoint is written when the journal has grown by this many bytes since the last. Default 128 MiB.
    /// Raising it writes less and makes a restart slower (some 100 MiB of journal are read in a second).
    pub checkpoint_after: u64,
    /// While more bytes than this wait for the disk, nothing is taken that would be written: of clients no acquires,
    /// transactions and leases, of other datacenters no entries. Renewals and heartbeats are, and what a stream sends after a
    /// call that waits (a release, a cancel) waits behind it; that of others is taken. Default
    /// 64 MiB.
    pub max_journal_backlog: u64,
    /// When calls of clients wait for the actor for longer than this, it is behind: what they begin anew (acquires,
    /// transactions, leases, watches) is refused with a time to come back, until it is not behind any more. Default 250 ms:
    /// far above what any call takes in a server that keeps up, and below what people and timeouts notice. Who is accepted
    /// in an overloaded server waits a few times as long, and before that for what flow control lets clients have sent;
    /// lowering it refuses more in short bursts.
    pub shed_after: Duration,
    /// How long a drain waits for what is held to be released. Default 10 s.
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
            shed_after: Duration::from_millis(250),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
