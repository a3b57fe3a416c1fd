//! Edge. The limit of open files of this process, and the share of it for connections.
//!
//! Every connection is a file, and so are the journal's segments, which the server needs. A server whose
//! clients use all files fails at its next segment. So it raises its limit as far as it may, and reserves
//! some files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of files beside the connections of clients: the journal, listeners, up to 64 connections for
/// metrics, links, name look-ups, certificates that are reloaded.
pub const RESERVED: u64 = 160;
/// Minimum number of connections of a useful server.
const LEAST: u64 = 16;

/// Raises the soft limit of open files of this process to its hard limit. Returns the limit.
pub fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // With a lower limit the server runs, too: it takes fewer connections.
        if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
            tracing::warn!(%error, "the limit of open files stays as it is");
        }
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns how many of `connections` fit into this number of open files.
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
