//! Limits for a store's connections to PostgreSQL. SQLite ignores them.

use std::time::Duration;

/// The connection limit of a process, and its timeouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Maximum number of connections.
    pub max_pool_size: usize,
    /// How long a transaction waits for a connection, and for other writers of the same row in this
    /// process.
    pub pool_timeout: Duration,
    /// The age after which a connection is closed when its transaction ends; `None` means never.
    pub connection_recycle_time: Option<Duration>,
    /// How many times the first connection is retried at startup; `None` means no limit.
    pub max_retries: Option<u32>,
    /// The pause between these attempts.
    pub retry_interval: Duration,
    /// How long one host may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long the server may run a statement.
    pub statement_timeout: Duration,
    /// How long a statement may wait for a lock.
    pub lock_timeout: Duration,
    /// How long the server may take to answer before the connection is closed. Longer than
    /// `statement_timeout`, so that a working server cancels the statement first.
    pub answer_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            max_pool_size: 16,
            pool_timeout: Duration::from_secs(30),
            connection_recycle_time: Some(Duration::from_secs(3600)),
            max_retries: Some(10),
            retry_interval: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(15),
        }
    }
}

impl Options {
    /// The limits for an operator's command: it does not wait for a server that is down, and its
    /// statements may run for a long time.
    pub fn for_command() -> Self {
        Self {
            max_retries: Some(0),
            statement_timeout: Duration::from_secs(600),
            answer_timeout: Duration::from_secs(630),
            ..Self::default()
        }
    }
}
