//! Errors of this crate, one sentence each, for the operator.

use kilonova_ids::HostName;
use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A topology file could not be read.
    #[error("{file}: {source}", file = .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A topology file is invalid.
    #[error("{file}: {key}: {why}", file = .file.display())]
    Topology {
        /// The file.
        file: PathBuf,
        /// The position, such as `host[2].card[0].address`, or a line.
        key: String,
        /// The reason.
        why: String,
    },
    /// The state directory cannot be used.
    #[error("state directory {folder}: {source}", folder = .folder.display())]
    State {
        /// The directory.
        folder: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The host's devices could not be read, or their configuration is invalid.
    #[error("host {host}: {source}")]
    Devices {
        /// The host.
        host: HostName,
        /// The cause.
        source: kilonova_devices::Error,
    },
    /// The hypervisor did not answer.
    #[error("host {host}: the hypervisor did not answer: {source}")]
    Hypervisor {
        /// The host.
        host: HostName,
        /// The cause.
        source: kilonova_hypervisor::Error,
    },
    /// The controller refused the host.
    #[error("host {host}: the controller refused it: {why}")]
    Rejected {
        /// The host.
        host: HostName,
        /// The reason.
        why: String,
    },
    /// Another process registered for the host, so this one has stopped.
    #[error("host {host}: another process has registered for it")]
    Fenced {
        /// The host.
        host: HostName,
    },
}
