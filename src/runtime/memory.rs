//! Memory that was freed goes back to the operating system, also if the server is quiet.
//!
//! Linux may back 2 MiB at once with one huge page, and does so again for a range of which most was given
//! back. Three datacenters in one process took 134 MB with huge pages and 54 MB without them, and were not
//! faster with them (`docs/performance.md`).
//!
//! The binary's allocator, mimalloc, keeps freed pages for a second, and returns them when a later page is
//! freed. A server that was busy and is quiet then, or has recovered from a long journal, frees no page for
//! hours: 200 000 locks that were used once left 216 MiB after a restart, 60 MiB of them in use.

use std::hint::black_box;
use std::time::Duration;

/// Longer than the allocator keeps freed pages.
const EVERY: Duration = Duration::from_secs(5);
/// A block of this size has a page of its own. It is not touched, so it takes no memory.
const BLOCK: usize = 1 << 20;

/// Asks Linux for no huge pages in this process. It is no error if Linux refuses: then it takes more memory.
pub(crate) fn use_small_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::info!(%error, "Linux may use huge pages: this process may take more memory");
    }
}

/// Frees a page now and then, for ever.
pub(crate) async fn return_freed_pages() {
    let mut ticks = tokio::time::interval(EVERY);
    loop {
        ticks.tick().await;
        drop(black_box(Vec::<u8>::with_capacity(BLOCK)));
    }
}
