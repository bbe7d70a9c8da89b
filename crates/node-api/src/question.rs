//! Questions about a guest, such as its console log, that an API request waits for.
//!
//! Questions travel with the documents under the same generation counter. They change nothing, so
//! an answer may be given twice or not at all: the requester times out.

use kilonova_ids::ServerId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Its id, repeated in the reply.
    pub id: Uuid,
    /// The server.
    pub server: ServerId,
    /// The subject.
    pub topic: Topic,
}

/// The subjects of questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "topic", rename_all = "snake_case")]
pub enum Topic {
    /// The end of the console log.
    Console {
        /// Number of lines; the whole log if `None`.
        lines: Option<u32>,
    },
    /// The resource usage.
    Diagnostics,
}

/// A reply to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The question's id.
    pub id: Uuid,
    /// The answer.
    #[serde(rename = "said")]
    pub body: ReplyBody,
}

/// An answer of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "snake_case")]
pub enum ReplyBody {
    /// The console log.
    Console {
        /// Its text.
        text: String,
    },
    /// The resource usage.
    Diagnostics(Usage),
    /// The question cannot be answered.
    Unknown {
        /// The reason.
        why: String,
    },
}

/// The resource usage of a guest, as its hypervisor counts it (Nova: diagnostics).
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
    /// Seconds since the guest was started.
    pub uptime: i64,
    /// CPU time of each vCPU in nanoseconds.
    pub cpu_ns: Vec<i64>,
    /// Maximum memory, MiB.
    pub memory_mb: i64,
    /// Current memory, MiB.
    pub memory_used_mb: i64,
    /// Its disks.
    pub disks: Vec<DiskUsage>,
}

/// I/O statistics of a disk.
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
