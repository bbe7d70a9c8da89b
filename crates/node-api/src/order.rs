//! Device orders: operations on a device that are independent of a guest, such as loading a
//! bitstream or cleaning a used device.
//!
//! Orders travel with the documents, under the same generation counter, until the agent has
//! reported the result. An agent carries out each order once and remembers it; an interrupted order
//! starts again.

use kilonova_ids::{ImageId, OperationId, ResourceClass, ServerId};
use serde::{Deserialize, Serialize};

/// The attribute of a deployable that states whether the agent or an operator cleans a released
/// handle before its next use. A deployable without it needs no cleaning.
pub const ON_RELEASE: &str = "on_release";
/// [`ON_RELEASE`]: the agent cleans, on a [`Task::Clean`] order.
pub const CLEANED_BY_AGENT: &str = "clean";
/// [`ON_RELEASE`]: an operator cleans, and confirms it.
pub const CLEANED_BY_OPERATOR: &str = "operator";

/// A device order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its id; an order with a known id is not carried out again.
    pub id: OperationId,
    /// Its generation, from the same counter as the host's documents.
    pub generation: i64,
    /// A server that is created on the host only after this order has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerId>,
    /// Address of the device; orders for one device are carried out in sequence.
    pub device: String,
    /// The operation.
    pub task: Task,
}

/// An operation on a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum Task {
    /// Load a bitstream into an FPGA.
    Program {
        /// Driver of the deployable, `intel` or `xilinx`; it determines the tool.
        driver: String,
        /// The image whose bytes are the bitstream.
        image: ImageId,
    },
    /// Clean a function of its last guest's data.
    Clean {
        /// Address of the function.
        address: String,
        /// Resource class of its deployable, which selects the command.
        resource_class: ResourceClass,
    },
}

/// The result of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderResult {
    /// The order.
    pub order: OperationId,
    /// The outcome.
    pub end: End,
}

/// The outcome of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// It succeeded.
    Done {
        /// The end of the tool's output.
        #[serde(default)]
        output: String,
    },
    /// It failed, possibly after a partial change.
    Failed {
        /// The reason.
        message: String,
        /// The end of the tool's output.
        #[serde(default)]
        output: String,
    },
}

/// A chunk of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Size of the whole image in bytes.
    pub size: u64,
    /// Format of the image: `raw`, `qcow2`, `iso`, …
    pub format: Option<String>,
    /// SHA-512 of the whole image, in hex.
    pub sha512: Option<String>,
    /// The bytes from the requested offset; empty at the end.
    pub bytes: Vec<u8>,
}
