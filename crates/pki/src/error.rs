//! Errors of certificates, one sentence each.

use kilonova_ids::InvalidName;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something could not be parsed.
    #[error("could not read {what}: {why}")]
    Unreadable {
        /// The object.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// Something could not be created.
    #[error("could not create {what}: {why}")]
    Unmade {
        /// The object.
        what: &'static str,
        /// The reason.
        why: String,
    },
    /// An invalid host name.
    #[error(
        "{0:?} is not a valid host name for a certificate: use up to 64 letters, digits, dots and hyphens"
    )]
    Host(String),
    /// A host name that new hosts may not have.
    #[error("{name:?} is not allowed for a new host: {why}")]
    NewHost {
        /// The name.
        name: String,
        /// The reason.
        why: InvalidName,
    },
    /// An invalid token.
    #[error("this is not a token of `kilonova node enroll`; copy the whole token again")]
    Token,
    /// An invalid fingerprint.
    #[error("{0:?} is not a fingerprint of 64 hexadecimal digits")]
    Fingerprint(String),
}

impl Error {
    pub(crate) fn unreadable(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Unreadable { what, why: why.to_string() }
    }

    pub(crate) fn unmade(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self::Unmade { what, why: why.to_string() }
    }
}
