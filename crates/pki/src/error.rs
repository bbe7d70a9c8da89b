//! What can be wrong with a certificate, in a sentence.

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("{what} cannot be read: {why}")]
    Unreadable {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// It cannot be made.
    #[error("{what} cannot be made: {why}")]
    Unmade {
        /// What.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A name that no host can have here.
    #[error(
        "{0:?} is no host name for a certificate; it has letters, digits, dots and hyphens, up to 64 of them"
    )]
    Host(String),
    /// A name that no new host is given here.
    #[error("{name:?} is no name for a new host: {why}")]
    NewHost {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// A token that is none.
    #[error("this is no token of `kilonova node enroll`; copy it again, whole")]
    Token,
    /// A fingerprint that is none.
    #[error("{0:?} is no fingerprint; it has 64 hexadecimal digits")]
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
