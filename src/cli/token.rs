//! `geolock token`: access tokens of clients without a certificate.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::failure::{Code, Failure, OrFail as _};
use super::print::print;
use crate::access::NewToken;

/// Make tokens for clients without a certificate.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand, Clone, Debug, PartialEq, Eq)]
enum TokenCommand {
    /// Make a token.
    ///
    /// The token is shown once, or written to a file, and kept nowhere else: the line for the server's file
    /// (api.tokens) has only its hash. With --out that line is all that is printed:
    ///
    ///   geolock token new ci --out ci.token >> /etc/geolock/tokens
    #[command(verbatim_doc_comment)]
    New(NewArgs),
}

#[derive(Args, Clone, Debug, PartialEq, Eq)]
struct NewArgs {
    /// The name of its client in rules and logs: letters, digits, '.', '_', '-'
    name: String,
    /// Write the token to this new file, which only its owner can read
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: TokenArgs) -> Result<(), Failure> {
    let TokenCommand::New(NewArgs { name, out }) = args.command;
    let made = NewToken::generate(&name).or_fail(Code::Usage)?;
    match out {
        Some(file) => {
            write(&file, made.token())?;
            print(made.line())
        }
        None => print(format_args!(
            "The token of {name}. It is shown only now: give it to the client in a file (--token-file).\n  {}\n\
             The line for the file of the server (api.tokens), which takes it on SIGHUP:\n  {}",
            made.token(),
            made.line()
        )),
    }
}

fn write(file: &Path, token: &str) -> anyhow::Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut opened| writeln!(opened, "{token}").and_then(|()| opened.sync_all()));
    written.with_context(|| format!("could not write {}", file.display()))
}
