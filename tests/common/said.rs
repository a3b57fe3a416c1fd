//! What commands print, and how they end.

use std::process::{self, Command};

/// What a command that has ended said.
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub fn run(command: &mut Command) -> Said {
    said(command.output().expect("the binary is there"))
}

pub fn said(output: process::Output) -> Said {
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Said {
        code: output.status.code().expect("no signal kills it"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
