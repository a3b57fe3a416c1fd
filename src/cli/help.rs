//! The command line of `geolock` with its help: the commands in groups, usage lines without what the
//! environment gives, and for a witness only its own options.

use std::fmt::Write as _;

use clap::error::Error;
use clap::{Command, CommandFactory as _, FromArgMatches as _};

use super::Cli;

/// The groups of commands in `geolock --help`.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Use locks and keys", &["lock", "once", "every", "elect", "kv"]),
    ("Look", &["status", "locks", "describe", "watch", "top"]),
    ("Operate a cluster", &["release", "audit", "member", "journal"]),
    ("Run servers", &["server", "witness", "ca", "token"]),
    ("Try and test", &["dev", "bench", "sim", "completions", "man", "help"]),
];

/// Options that a witness shares with a server: the others concern locks, data or clients.
const OF_WITNESS: [&str; 17] = [
    "help",
    "config",
    "check_config",
    "data_dir",
    "join",
    "name",
    "address",
    "dc",
    "cluster.name",
    "listen.quic",
    "tls.dc",
    "tls.check_interval",
    "journal.segment_bytes",
    "journal.min_free_bytes",
    "log.filter",
    "log.format",
    "faults",
];

/// Parses the command line.
pub(super) fn parse() -> Result<Cli, Error> {
    let mut command = command();
    let matches = command.clone().try_get_matches().or_else(|error| {
        if !error.use_stderr() {
            return Err(error);
        }
        // The usage line of an error shows all arguments that are given, also by the environment, as
        // required. With a usage line of its own, each command shows the same one as in its help.
        plain_usage(command.clone()).try_get_matches()
    })?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// Returns all commands.
pub(super) fn command() -> Command {
    let command = Cli::command();
    let groups = groups(&command);
    command
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}"
        ))
        .mut_subcommand("witness", |witness| {
            witness.mut_args(|option| {
                let is_of_witness = OF_WITNESS.contains(&option.get_id().as_str());
                option.hide(!is_of_witness)
            })
        })
}

/// Returns the lines of all groups.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or("Print the help of a command".into(), ToString::to_string);
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len() + 1);
    text
}

/// Gives each command its usage line of now.
fn plain_usage(mut command: Command) -> Command {
    command.build();
    fixed(command)
}

fn fixed(mut command: Command) -> Command {
    let usage = command.render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).to_owned();
    command.mut_subcommands(fixed).override_usage(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_stands_in_one_group() {
        let command = command();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut all: Vec<&str> = command.get_subcommands().map(Command::get_name).chain(["help"]).collect();
        grouped.sort_unstable();
        all.sort_unstable();
        assert_eq!(grouped, all);
        let help = command.clone().render_long_help().to_string();
        for (title, names) in GROUPS {
            assert!(help.contains(&format!("\n{title}:\n  {}", names[0])), "{title} is not in {help}");
        }
        assert!(
            help.contains("--version") && help.contains("Locks that several datacenters share"),
            "{help}"
        );
    }

    #[test]
    fn the_options_of_a_witness_exist_and_the_others_are_not_shown() {
        let command = command();
        let witness = command.find_subcommand("witness").expect("there is one");
        let shown = |name: &str| witness.get_arguments().any(|it| it.get_id() == name && !it.is_hide_set());
        for name in OF_WITNESS {
            assert!(matches!(name, "faults" | "help") || shown(name), "{name}");
        }
        assert!(!shown("listen.client") && !shown("api.acl") && !shown("limits.max_held"));
        let server = command.find_subcommand("server").expect("there is one");
        assert!(server.get_arguments().all(|option| !option.is_hide_set()));
    }

    #[test]
    fn usage_lines_of_errors_are_those_of_the_help() {
        let words = ["geolock", "lock", "--connect", "a:1", "--tls", "x"];
        let error = plain_usage(command()).try_get_matches_from(words).expect_err("there is no name");
        let error = error.to_string();
        assert!(error.contains("Usage: geolock lock [OPTIONS] <NAME>... -- <CMD>..."), "{error}");
        let words = ["geolock", "kv", "get", "--connect", "a:1"];
        let error = plain_usage(command()).try_get_matches_from(words).expect_err("there is no key");
        assert!(error.to_string().contains("Usage: geolock kv get [OPTIONS] <KEY>..."), "{error}");
    }
}
