//! Edge. How many files this process may have open, and what of that is for connections.
//!
//! Every connection is a file, and so are the journal's segments, which the server cannot do without: a server that
//! lets clients take all of them fails at its next segment. So it asks for as many as it may have, and keeps some back.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files beside the connections of clients: the journal, listeners, up to 64 connections for metrics, links, name
/// look-ups, certificates that are read again.
pub const RESERVED: u64 = 160;
/// Fewer connections than this are no server.
const LEAST: u64 = 16;

/// Raises how many files this process may have open to what the system lets it have. Answers how many that are.
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // With less it goes on: what it has decides how many connections it takes.
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many of `connections` fit among so many open files.
pub fn connections_that_fit(connections: usize, open_files: u64) -> usize {
    let room = open_files.saturating_sub(RESERVED).max(LEAST);
    connections.min(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_journal() {
        let fits = [4_096, 1_000_000].map(|wanted| {
            [256, 1_024, 8_192, u64::MAX].map(|open_files| connections_that_fit(wanted, open_files))
        });
        assert_eq!(fits, [[96, 864, 4_096, 4_096], [96, 864, 8_032, 1_000_000]]);
        assert_eq!(connections_that_fit(4_096, 0), 16);
    }
}
