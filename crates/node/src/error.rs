//! Why a topology is refused, or a node cannot go on. Each is one sentence for the operator.

use std::path::PathBuf;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A topology file cannot be read.
    #[error("{file}: {source}", file = .file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A topology file is read but wrong.
    #[error("{file}: {key}: {why}", file = .file.display())]
    Topology {
        /// Which.
        file: PathBuf,
        /// Where in it, such as `host[2].card[0].address`, or a line.
        key: String,
        /// Why.
        why: String,
    },
    /// The state folder cannot be used.
    #[error("state folder {folder}: {source}", folder = .folder.display())]
    State {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The devices of the host cannot be read or are configured wrongly.
    #[error("host {host}: {source}")]
    Devices {
        /// Which host.
        host: String,
        /// Why.
        source: kilonova_devices::Error,
    },
    /// The hypervisor does not answer.
    #[error("host {host}: the hypervisor does not answer: {source}")]
    Hypervisor {
        /// Which host.
        host: String,
        /// Why.
        source: kilonova_hypervisor::Error,
    },
    /// The control plane refuses the host.
    #[error("host {host}: the control plane refuses it: {why}")]
    Rejected {
        /// Which host.
        host: String,
        /// Why.
        why: String,
    },
    /// Another process has registered for the host; this one has stopped.
    #[error("host {host}: another process has registered for it")]
    Fenced {
        /// Which host.
        host: String,
    },
}
