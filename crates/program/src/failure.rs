//! The failures of a command.

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
}

impl Failure {
    /// 2 for a refusal, 1 otherwise.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }

    /// A failure with its cause.
    pub fn failed(what: &str, cause: impl std::fmt::Display) -> Self {
        Self::Failed(format!("{what}: {cause}"))
    }
}
