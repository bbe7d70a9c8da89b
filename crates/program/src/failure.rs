//! How a command ends badly.

use std::process::ExitCode;

/// Why a command ends.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// What was asked cannot be done as it stands: configuration, port, directory. Nothing was
    /// changed.
    #[error("{0}")]
    Refused(String),
    /// It was tried and failed.
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
