//! The failures of a command.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// A failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request cannot be carried out: configuration, port or directory. Nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// The command was attempted and failed.
    #[error("{0}")]
    Failed(String),
    /// The reader of the output has ended, such as `head` in a pipe. No error is printed.
    #[error("the program that reads the output has exited")]
    Unread,
}

impl Failure {
    /// 2 for a refusal, 1 otherwise.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Failed(_) | Self::Unread => ExitCode::from(1),
        }
    }

    /// Prints the failure as one line to standard error, if that can be written.
    pub fn print(&self, program: &str) {
        if !matches!(self, Self::Unread) {
            drop(writeln!(std::io::stderr(), "{program}: {self}"));
        }
    }

    /// A failure with its cause.
    pub fn failed(what: &str, cause: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{what}: {cause}"))
    }
}

/// Prints the result of a command to standard output.
///
/// # Errors
/// If it cannot be written: then the command has not succeeded for its user.
pub fn say(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::failed("cannot write the output", error),
    })
}

/// Prints the result of a command that has changed something. It is not silent about an output that
/// nobody reads: its exit status alone would mean that nothing has changed.
///
/// # Errors
/// If it cannot be written.
pub fn say_done(text: &str) -> Result<(), Failure> {
    print(text)
        .map_err(|error| Failure::failed("the command is done, but cannot write its output", error))
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}
