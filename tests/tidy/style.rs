//! Lengths of files and functions, and the form of comments.

use std::fs;

use crate::files::files;
use crate::{Source, everything, report};

/// Longest file, in lines.
const MAX_FILE: usize = 500;
/// Longest function, in lines.
const MAX_FUNCTION: usize = 70;
/// Widest comment line, in columns: as wide as rustfmt makes code.
const MAX_WIDTH: usize = 110;
/// A sentence that begins with one of these hides its subject.
const RIDDLES: [&str; 6] = ["What", "Whether", "Who", "Whoever", "Whom", "Whose"];

#[test]
fn files_and_functions_stay_small() {
    let mut faults = Vec::new();
    for Source { path, text, .. } in everything() {
        let lines = text.lines().count();
        if lines > MAX_FILE {
            faults.push(format!("{}: {lines} lines, at most {MAX_FILE}", path.display()));
        }
        faults.extend(long_functions(&text).map(|name| format!("{}: {name}", path.display())));
    }
    report(&faults);
}

/// Returns the functions above the limit: rustfmt closes a function at the indentation at which it opens it.
fn long_functions(code: &str) -> impl Iterator<Item = String> {
    let mut open: Option<(usize, usize, String)> = None;
    let mut long = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let text = line.trim_start();
        if begins_function(text) && open.is_none() {
            open = Some((number, indent, text.to_string()));
        } else if let Some((start, at, name)) = &open
            && indent == *at
            && text == "}"
        {
            if number - start > MAX_FUNCTION {
                long.push(format!("{} lines, at most {MAX_FUNCTION}: {name}", number - start));
            }
            open = None;
        } else if open
            .as_ref()
            .is_some_and(|(_, at, _)| indent == *at && (text.ends_with(';') || text.ends_with("}")))
        {
            open = None;
        }
    }
    long.into_iter()
}

pub fn begins_function(line: &str) -> bool {
    let mut rest = line;
    if let Some(public) = rest.strip_prefix("pub") {
        rest = public
            .strip_prefix('(')
            .and_then(|scope| scope.split_once(") "))
            .map_or(public, |(_, rest)| rest);
    }
    for word in ["const ", "async "] {
        rest = rest.trim_start();
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    rest.trim_start().starts_with("fn ")
}

#[test]
fn every_file_says_what_it_is_for() {
    let missing: Vec<String> = everything()
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| format!("{}: no module documentation at its top", source.path.display()))
        .collect();
    report(&missing);
}

#[test]
fn comments_fit_beside_code_and_name_their_subject() {
    let mut faults = Vec::new();
    for source in everything() {
        for (number, line) in source.text.lines().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let text = comment.trim_start_matches(['/', '!']).trim_start();
            let first = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            if line.chars().count() > MAX_WIDTH {
                faults.push(format!("{}:{}: wider than {MAX_WIDTH}", source.path.display(), number + 1));
            }
            if RIDDLES.contains(&first) {
                faults.push(format!("{}:{}: begins with {first}", source.path.display(), number + 1));
            }
        }
    }
    report(&faults);
}

#[test]
fn comments_of_other_files_fit_too() {
    let settings = files(".", &["toml", "proto"]);
    let own = settings.iter().filter(|path| !path.components().any(|part| part.as_os_str() == "target"));
    let mut faults = Vec::new();
    for path in own {
        let text = fs::read_to_string(path).expect("a file of the repository is readable");
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with(['#', '/']);
            if is_comment && line.chars().count() > MAX_WIDTH {
                faults.push(format!("{}:{}: wider than {MAX_WIDTH}", path.display(), number + 1));
            }
        }
    }
    assert!(settings.len() >= 8, "the files are found");
    report(&faults);
}
