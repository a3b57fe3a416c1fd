//! Copies of data directories, as operators make them.

use std::fs;
use std::path::Path;

/// Configuration for a server that starts on a copy, so that its wait is short: leases unknown to it end
/// soon.
pub const SHORT_LEASES: &str = "[limits]\nmax_lease_ttl = \"10 s\"\n";

/// Copies all files of a data directory into another folder.
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder can be made");
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("it is listed");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a file is copied");
    }
}
