//! What is to be done to a device that is no guest's business: a bitstream loaded, a used device
//! cleaned.
//!
//! Orders travel with the documents, under the same counter, until the node has said what came of
//! them. A node carries each out once and remembers that it has; one that broke off is begun again.

use kilonova_ids::{ImageId, OperationId, ServerId};
use serde::{Deserialize, Serialize};

/// The fact of a deployable that says who cleans what is given up of it, before anybody is given it
/// again. A deployable without it needs no cleaning.
pub const ON_RELEASE: &str = "on_release";
/// [`ON_RELEASE`]: the node cleans, by a [`Task::Clean`].
pub const THE_NODE: &str = "clean";
/// [`ON_RELEASE`]: an operator cleans, and says so.
pub const BY_OPERATOR: &str = "operator";

/// Something to be done to a device, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its id: what has been carried out under it is not carried out again.
    pub id: OperationId,
    /// Counted together with the documents of the host.
    pub generation: i64,
    /// A server that cannot begin to exist on the host before this is done, and not at all if it
    /// fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerId>,
    /// Address of the device; orders for one device are carried out one after the other.
    pub device: String,
    /// What is to be done.
    pub task: Task,
}

/// What is to be done to a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum Task {
    /// Load a bitstream into an FPGA.
    Program {
        /// Driver of the deployable, `intel` or `xilinx`: it says which tool.
        driver: String,
        /// The image whose bytes are the bitstream.
        image: ImageId,
    },
    /// Clear a function of what its last guest left.
    Clean {
        /// Address of the function.
        address: String,
        /// Resource class of its deployable: it says which command.
        resource_class: String,
    },
}

/// What came of an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Which.
    pub order: OperationId,
    /// How it ended.
    pub end: End,
}

/// How an order ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// It is done.
    Done {
        /// The last of what the tool said.
        #[serde(default)]
        output: String,
    },
    /// It could not be done, or only in part.
    Failed {
        /// Why, for people.
        message: String,
        /// The last of what the tool said.
        #[serde(default)]
        output: String,
    },
}

/// Some bytes of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Bytes of the whole image.
    pub size: u64,
    /// Format of the image: `raw`, `qcow2`, `iso`, …
    pub format: Option<String>,
    /// SHA-512 of the whole image, in hex.
    pub sha512: Option<String>,
    /// Those from where it was asked for; none at the end.
    pub bytes: Vec<u8>,
}
