//! The programs that change a host's devices: program a card, clean a function.
//!
//! Owns the interface to these programs and the wording of their failures. The programs run under a
//! time limit, and the last few thousand bytes of their output are kept. They must never run on a
//! device in use by a guest: the caller checks that.

mod commands;
mod run;

use std::path::Path;
use std::pin::Pin;

use kilonova_devices::Bitstream;
use kilonova_ids::ResourceClass;

pub use commands::Commands;
pub(crate) use commands::hook;

/// A bitstream for a card.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// Address of the card.
    pub device: &'a str,
    /// `intel` or `xilinx`.
    pub driver: &'a str,
    /// The bitstream's file.
    pub file: &'a Path,
    /// The bitstream's metadata.
    pub bitstream: &'a Bitstream,
}

/// A function that a guest released.
#[derive(Debug, Clone, Copy)]
pub struct Function<'a> {
    /// Its address.
    pub address: &'a str,
    /// Its resource class.
    pub resource_class: &'a ResourceClass,
}

/// Why an operation on a device failed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolError {
    /// The reason, for the operator.
    pub message: String,
    /// The end of the tool's output.
    pub output: String,
}

impl ToolError {
    /// A failure without output.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), output: String::new() }
    }
}

/// The future of a tool's run, with the end of its output.
pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send + 'a>>;

/// The operations on a host's devices. Both may be repeated.
pub trait Tools: Send + Sync + 'static {
    /// Loads a bitstream into a card.
    fn load<'a>(&'a self, load: Load<'a>) -> ToolFuture<'a>;

    /// Removes the last guest's data from a function.
    fn clean<'a>(&'a self, function: Function<'a>) -> ToolFuture<'a>;
}
