//! Why a page is not shown.

use thiserror::Error;

/// The reasons why a page, or a request from its form, is refused.
#[derive(Debug, Error)]
pub enum Error {
    /// No user is logged in, or the session has ended.
    #[error("the session has ended")]
    NoSession,
    /// The form is not from this session.
    #[error("the form does not belong to this session")]
    Forged,
    /// The form cannot be read.
    #[error("the form cannot be read: {0}")]
    Unreadable(&'static str),
    /// A service refused the request, with its own message.
    #[error("{status}: {message}")]
    Refused {
        /// The status of its answer.
        status: u16,
        /// Its message.
        message: String,
        /// The id of the request, for the operator.
        request: Option<String>,
        /// Seconds after which a retry may succeed.
        retry_after: Option<u64>,
    },
    /// Too many pages are open.
    #[error("too many pages are open")]
    Crowded,
    /// The user's roles have changed since a page was opened.
    #[error("the user's roles have changed")]
    Changed,
    /// There is no such page.
    #[error("there is no such page")]
    NoPage,
    /// A defect, such as an invalid answer from a service.
    #[error("{0}")]
    Defect(String),
}

impl Error {
    /// True if a service refused the request with this status.
    pub fn is(&self, wanted: u16) -> bool {
        match self {
            Self::Refused { status, .. } => *status == wanted,
            Self::NoSession
            | Self::Forged
            | Self::Unreadable(_)
            | Self::Crowded
            | Self::Changed
            | Self::NoPage
            | Self::Defect(_) => false,
        }
    }
}
