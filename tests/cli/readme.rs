//! Every command of the README, as it is printed there. Each section runs in a playground that has just been
//! started, so it needs no other one.

use std::path::Path;
use std::process::Command;

use crate::fixture::said::run;
use crate::fixture::{Output, Running, free_ports, geolock};

const README: &str = include_str!("../../README.md");
/// The command that starts the playground.
const START: &str = "cargo run -- dev ";

/// The first port of the playground in the README.
const PRINTED: u16 = 7400;

/// A command, and the lines that it prints.
struct Entered {
    line: String,
    printed: Vec<String>,
}

/// Returns the sections that have commands, with their headings.
fn sections() -> Vec<(&'static str, Vec<Entered>)> {
    let mut sections = Vec::new();
    let mut is_console = false;
    for line in README.lines() {
        match line {
            _ if line.starts_with("## ") => sections.push((line, Vec::<Entered>::new())),
            "```console" => is_console = true,
            "```" => is_console = false,
            _ if !is_console => {}
            _ => {
                let (_, entered) = sections.last_mut().expect("commands are in a section");
                match line.strip_prefix("$ ") {
                    Some(command) => entered.push(Entered { line: command.into(), printed: Vec::new() }),
                    None => entered.last_mut().expect("output follows a command").printed.push(line.into()),
                }
            }
        }
    }
    sections.retain(|(_, entered)| !entered.is_empty());
    sections
}

/// Returns the text with those numbers as `#` that differ from run to run: tokens, and the numbers of
/// decisions.
fn form(text: &str) -> String {
    let mut form = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, after) = rest.split_at(start);
        let (number, next) = after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len()));
        form += before;
        form += if number.len() > 6 || before.ends_with("decision ") { "#" } else { number };
        rest = next;
    }
    form + rest
}

/// Runs a command line in a shell that finds `geolock`, and the playground at these ports.
fn shell(line: &str, (home, base): (&Path, u16)) -> Vec<String> {
    let binary = Path::new(env!("CARGO_BIN_EXE_geolock")).parent().expect("it is in a folder");
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").expect("there is one"));
    let place = |base: u16, dc: u16| format!("127.0.0.1:{}", base + 10 * dc);
    let moved =
        |text: String, from, to| (0..3).fold(text, |text, dc| text.replace(&place(from, dc), &place(to, dc)));
    let line = moved(line.to_owned(), PRINTED, base);
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(home).env("PATH", path);
    for (name, value) in geolock(home).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    moved(run(&mut command).stdout, base, PRINTED).lines().map(str::to_owned).collect()
}

#[test]
fn every_command_of_the_readme_prints_what_is_printed_there() {
    let start = README.lines().find_map(|line| line.strip_prefix(START)).expect("it says how to start");
    let sections = sections();
    assert!(sections.iter().map(|(_, entered)| entered.len()).sum::<usize>() > 10, "they are found");
    for (heading, entered) in sections {
        let (home, base) = (tempfile::tempdir().expect("a temporary folder"), free_ports(3));
        let mut command = geolock(home.path());
        command.args(["dev", "--base-port", &base.to_string()]).args(start.split(' '));
        let mut playground = Running::start(&mut command, Output::Stdout);
        playground.line("ready");
        for Entered { line, printed } in entered {
            let (found, wanted) = (shell(&line, (home.path(), base)), printed);
            let forms = |lines: &[String]| lines.iter().map(|line| form(line)).collect::<Vec<_>>();
            assert_eq!(forms(&found), forms(&wanted), "{heading}: {line}: {found:#?}");
        }
    }
}

#[test]
fn numbers_that_differ_from_run_to_run_are_no_part_of_the_form() {
    assert_eq!(form("held in dc0, token 117652517553373184"), "held in dc0, token #");
    assert_eq!(form("dc2 evicted (decision 6)."), "dc2 evicted (decision #).");
    assert_eq!(form("exit code 75"), "exit code 75");
}
