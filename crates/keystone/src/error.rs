//! Errors in communication with a Keystone.

/// An error; its message is for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are invalid.
    #[error("{0}")]
    Setup(String),
    /// There was no answer.
    #[error("no answer from {url}: {cause}")]
    Unreachable {
        /// The URL that was requested.
        url: String,
        /// The connection error.
        cause: String,
    },
    /// Keystone refused the login.
    #[error(
        "{url} refuses the login of user {user}: {why}; check username, password, project and domains"
    )]
    Login {
        /// The URL that was requested.
        url: String,
        /// The user.
        user: String,
        /// Keystone's message.
        why: String,
    },
    /// The answer is unexpected.
    #[error("{url} answered {what}")]
    Unexpected {
        /// The URL that was requested.
        url: String,
        /// The problem with the answer.
        what: String,
    },
}
