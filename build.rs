//! Says which commit this is; with the feature `peers`, generates the API of etcd from its .proto.

use std::env;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "peers")]
    {
        println!("cargo::rerun-if-changed=proto/etcd");
        let files = protox::compile(["proto/etcd/lock.proto"], ["proto"])?;
        tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(files)?;
    }
    println!("cargo::rustc-env=GEOLOCK_VERSION={}", version());
    Ok(())
}

/// `0.1.0 (0123456789ab)`; without the commit where it is not known, as in a source archive.
///
/// A build without the repository gets the commit from `GEOLOCK_COMMIT`. A debug build does not look: a
/// commit would make it compile everything again.
fn version() -> String {
    println!("cargo::rerun-if-env-changed=GEOLOCK_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let named = env::var("GEOLOCK_COMMIT").ok().filter(|commit| !commit.is_empty());
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    match named.or_else(|| is_release.then(commit).flatten()) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    }
}

/// The commit that is checked out; with `+` if files differ from it.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    // Another repository around an unpacked archive says nothing of it.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // Written with every commit and every checkout.
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean { commit } else { format!("{commit}+") })
}
