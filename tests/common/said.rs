//! Output and exit codes of commands.

use std::process::{self, Child, Command, Stdio};

use super::ended;

/// The output of a command that has ended.
pub struct Said {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

pub fn run(command: &mut Command) -> Said {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    said(command.spawn().expect("the binary is there"))
}

/// Waits for the end of a command whose output is piped. Returns the output.
pub fn said(child: Child) -> Said {
    let id = rustix::process::Pid::from_child(&child);
    let output: process::Output = ended(id, || child.wait_with_output()).expect("it can be waited for");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Said {
        code: output.status.code().expect("no signal kills it"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}
