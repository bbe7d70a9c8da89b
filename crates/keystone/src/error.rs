//! What can go wrong between us and a Keystone.

/// A failure; the sentences are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot work.
    #[error("{0}")]
    Setup(String),
    /// No answer.
    #[error("no answer from {url}: {cause}")]
    Unreachable {
        /// Who was asked.
        url: String,
        /// What the connection said.
        cause: String,
    },
    /// The login is refused.
    #[error(
        "{url} refuses the login of user {user}: {why}; check username, password, project and domains"
    )]
    Login {
        /// Who was asked.
        url: String,
        /// Whose login.
        user: String,
        /// In Keystone's words.
        why: String,
    },
    /// An answer that means nothing here.
    #[error("{url} answered {what}")]
    Odd {
        /// Who was asked.
        url: String,
        /// What was wrong with it.
        what: String,
    },
}
