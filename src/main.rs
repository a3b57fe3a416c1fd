//! The `geolock` command.

use std::process::ExitCode;

use geolock::cli;
use geolock::telemetry::flush_log;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    if let Some(code) = cli::run_as_guard() {
        return code;
    }
    let code = cli::parse().and_then(cli::run).unwrap_or_else(|failure| failure.report());
    flush_log();
    code
}
