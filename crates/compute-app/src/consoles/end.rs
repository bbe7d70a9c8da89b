//! The reasons why a client gets no console, or why its console ended.

use std::fmt;

use kilonova_ids::HostName;

/// The reason, with a text for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The token is unknown or has expired.
    InvalidToken,
    /// The request comes from a page on another site.
    ForeignOrigin(&'static str),
    /// The maximum number of consoles is open.
    TooMany,
    /// The guest is shut off.
    ShutOff,
    /// The host does not answer.
    NoAnswer(HostName),
    /// The host has no such console.
    Refused(String),
    /// The database is unavailable.
    Unavailable,
    /// The server was deleted.
    Deleted,
    /// The server is on another host, or is being moved there.
    Moved,
    /// The token has expired, and sessions must not outlive it.
    Expired,
    /// The controller is stopping.
    Stopping,
    /// The client did not answer for a while.
    ClientSilent,
    /// The host closed the connection.
    HostClosed,
    /// The client closed the connection.
    ClientClosed,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidToken => {
                f.write_str("The token is not valid or has expired. Request a new console.")
            }
            Self::ForeignOrigin(why) => f.write_str(why),
            Self::TooMany => f.write_str("Too many consoles are open. Close some, or try again."),
            Self::ShutOff => f.write_str("The server is shut off."),
            Self::NoAnswer(host) => write!(f, "Host {host} does not answer."),
            Self::Refused(why) => write!(f, "The host refused the console: {why}"),
            Self::Unavailable => f.write_str("The service is temporarily unavailable. Try again."),
            Self::Deleted => f.write_str("The server was deleted."),
            Self::Moved => f.write_str("The server has moved. Request a new console."),
            Self::Expired => f.write_str("The console session has expired. Request a new console."),
            Self::Stopping => f.write_str("The controller is stopping. Connect again."),
            Self::ClientSilent => f.write_str("The client does not answer."),
            Self::HostClosed => f.write_str("The guest or its host closed the console."),
            Self::ClientClosed => f.write_str("The client closed the console."),
        }
    }
}
