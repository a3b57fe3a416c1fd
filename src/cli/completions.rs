//! `geolock completions`: completion scripts for shells.

use std::io;

use clap_complete::Shell;

use super::help::command;

/// Print a script that lets a shell complete the words of this command.
///
/// For bash: `geolock completions bash > /etc/bash_completion.d/geolock`. For zsh: into a file `_geolock` in
/// a folder of `$fpath`. For fish: into `~/.config/fish/completions/geolock.fish`.
#[derive(clap::Args, Debug)]
pub struct CompletionsArgs {
    shell: Shell,
}

pub fn run(args: &CompletionsArgs) {
    let text = script(args.shell);
    // The reader may have closed the pipe.
    let _ = io::Write::write_all(&mut io::stdout(), &text);
}

fn script(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "geolock", &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_names_are_completed() {
        let text = String::from_utf8(script(Shell::Bash)).expect("a script is text");
        for names in [
            "zero eu world",
            "general busy-readers",
            "removals left-behind",
            "home hot",
            "fair throughput latency fixed",
            "native grpc",
            "text json",
            "error warn info",
        ] {
            assert!(text.contains(names), "{names}");
        }
    }
}
