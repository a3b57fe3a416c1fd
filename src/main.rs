//! The `geolock` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use geolock::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::parse().and_then(cli::run).unwrap_or_else(|failure| failure.report())
}
