//! `geolock completions`: what a shell needs to complete the words of this command.

use std::io;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;

/// Print what a shell needs to complete the words of this command.
///
/// For bash: `geolock completions bash > /etc/bash_completion.d/geolock`. For zsh: into a file `_geolock` in a folder of
/// `$fpath`. For fish: into `~/.config/fish/completions/geolock.fish`.
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "geolock", &mut text);
    // Whoever reads may have read enough.
    let _ = io::Write::write_all(&mut io::stdout(), &text);
}
