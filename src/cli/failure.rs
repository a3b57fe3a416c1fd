//! Failures of commands: their messages and exit codes.

use std::fmt::Write;
use std::process::ExitCode;

use super::print::tell;

/// The exit codes of geolock itself, after `sysexits.h` where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Code {
    /// Any failure without a code of its own.
    Failed = 1,
    /// The command line, or something that it names, cannot be used; nothing was tried.
    Usage = 64,
    /// No server can be reached, or it does not serve at the moment.
    Unreachable = 69,
    /// A server cannot start for a reason that passes by itself: start it again, as often as it takes.
    StartAgain = 71,
    /// The server's disk is full.
    DiskFull = 72,
    /// The transaction committed, and a majority of the datacenters did not have it on disk in time.
    NotAtMajority = 73,
    /// The lock was lost while the command ran.
    LockLost = 74,
    /// The locks were not acquired in time.
    NotAcquired = 75,
    /// The outcome of the transaction is unknown.
    OutcomeUnknown = 76,
    /// The server does not authenticate this client, or does not allow the call.
    NotAllowed = 77,
    /// A server cannot start before an operator has changed its configuration, files or data directory.
    Configuration = 78,
    /// The command was found and cannot be run.
    NotRunnable = 126,
    /// The command was not found.
    NotFound = 127,
}

/// The reason why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    /// `None` if the error was reported already.
    error: Option<anyhow::Error>,
}

impl Failure {
    pub fn new(code: Code, error: impl Into<anyhow::Error>) -> Failure {
        Failure { code: code as u8, error: Some(error.into()) }
    }

    /// Fails with that exit code and without a (further) message.
    pub fn silent(code: u8) -> Failure {
        Failure { code, error: None }
    }

    /// Adds the place of the failure.
    pub fn at(self, place: String) -> Failure {
        Failure { error: self.error.map(|error| error.context(place)), ..self }
    }

    /// Returns true if it has that exit code.
    pub fn is(&self, code: Code) -> bool {
        self.code == code as u8
    }

    pub fn code(&self) -> u8 {
        self.code
    }

    /// Prints the error on standard error. Returns the exit code.
    pub fn report(&self) -> ExitCode {
        if let Some(error) = &self.error {
            tell(text(error));
        }
        ExitCode::from(self.code)
    }
}

/// The error on one line; empty if it was reported already.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.as_ref().map_or(Ok(()), |error| write!(f, "{error:#}"))
    }
}

/// Returns the error, then each cause that the text does not contain yet.
fn text(error: &anyhow::Error) -> String {
    let mut said = format!("geolock: {error}");
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !said.contains(&cause) {
            // Writing to a string cannot fail.
            let _ = write!(said, "\n  because: {cause}");
        }
    }
    said
}

/// Errors that need no exit code of their own.
impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(Code::Failed, error)
    }
}

/// Gives an error its exit code.
pub trait OrFail<T> {
    fn or_fail(self, code: Code) -> Result<T, Failure>;
}

impl<T, E: Into<anyhow::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, code: Code) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(code, error))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let io = std::io::Error::other("no such device");
        let error = Err::<(), _>(io).context("the disk is gone: no such device").context("cannot start");
        let text = text(&error.expect_err("it is an error"));
        assert_eq!(text, "geolock: cannot start\n  because: the disk is gone: no such device");
    }
}
