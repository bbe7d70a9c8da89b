//! What somebody asks about a guest and waits for, such as its console log.
//!
//! Questions travel with the documents under the same counter. They change nothing, so an answer may
//! be given twice or not at all: whoever asks gives up after a while.

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its id, which goes with the answer.
    pub id: Uuid,
    /// The server.
    pub server: ServerId,
    /// What is asked.
    pub topic: Topic,
}

/// What can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "topic", rename_all = "snake_case")]
pub enum Topic {
    /// The end of its console log.
    Console {
        /// So many lines; all that is kept without.
        lines: Option<u32>,
    },
    /// What it uses.
    Diagnostics,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// Of the question.
    pub id: Uuid,
    /// What is said.
    pub said: Said,
}

/// What a node says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum Said {
    /// The console log.
    Console {
        /// Its text.
        text: String,
    },
    /// What the guest uses.
    Diagnostics(Usage),
    /// It cannot be said.
    Unknown {
        /// Why, for people.
        why: String,
    },
}

/// What a guest uses, as its hypervisor counts it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// `libvirt`, `simulated`.
    pub driver: String,
    /// `kvm`, `simulated`.
    pub hypervisor: String,
    /// `linux`.
    pub hypervisor_os: String,
    /// `running`, `paused`, `shutdown`, `suspended`.
    pub state: String,
    /// Seconds since it was started.
    pub uptime: i64,
    /// Nanoseconds that each processor has worked.
    pub cpu_ns: Vec<i64>,
    /// Memory that it may have, MiB.
    pub memory_mb: i64,
    /// Memory that it has, MiB.
    pub memory_used_mb: i64,
    /// Its disks.
    pub disks: Vec<DiskUsage>,
}

/// What a guest did with a disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// `vda`.
    pub name: String,
    /// Bytes read.
    pub read_bytes: i64,
    /// Reads.
    pub read_requests: i64,
    /// Bytes written.
    pub write_bytes: i64,
    /// Writes.
    pub write_requests: i64,
    /// Errors.
    pub errors: i64,
}
