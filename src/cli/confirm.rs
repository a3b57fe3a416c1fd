//! A question at the terminal before a command does what takes long to undo, or cannot be undone.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use anyhow::anyhow;
use tokio::task::spawn_blocking;

use super::failure::{Code, Failure};

/// Asks if the command is to go on, and returns an error if not. Asks nothing where nobody can answer: if
/// standard input or standard error is no terminal, as in a script.
pub(super) async fn confirm(question: String) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(());
    }
    let answer = spawn_blocking(move || ask(&question)).await.map_err(anyhow::Error::from)??;
    match is_yes(&answer) {
        true => Ok(()),
        false => Err(Failure::new(Code::Failed, anyhow!("not confirmed: nothing was changed"))),
    }
}

/// Returns the line that was typed; empty at the end of the input.
fn ask(question: &str) -> io::Result<String> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{question} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}

fn is_yes(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_is_yes() {
        assert!(["y\n", "Y\n", " yes \n", "YES"].into_iter().all(is_yes));
        assert!(!["", "\n", "n\n", "no\n", "yess\n", "2\n"].into_iter().any(is_yes));
    }
}
