//! The programs of a host that change its devices: those that load bitstreams, those that clean.
//!
//! Owns what is asked of them, and the words in which their failures are told. They take their time,
//! with a limit; what they say is kept to its last few thousand bytes. They must never be let at a
//! device that a guest has: whoever calls sees to it.

mod commands;
mod run;

use std::path::Path;
use std::pin::Pin;

use kilonova_devices::Bitstream;

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
    /// What it says of itself.
    pub bitstream: &'a Bitstream,
}

/// A function that a guest gave up.
#[derive(Debug, Clone, Copy)]
pub struct Function<'a> {
    /// Its address.
    pub address: &'a str,
    /// Its resource class.
    pub resource_class: &'a str,
}

/// Why a device is not as was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unfit {
    /// For people.
    pub message: String,
    /// The last of what the tool said.
    pub output: String,
}

impl Unfit {
    /// Without a tool having said anything.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), output: String::new() }
    }
}

/// What a tool said in the end.
pub type Doing<'a> = Pin<Box<dyn Future<Output = Result<String, Unfit>> + Send + 'a>>;

/// What can be done to the devices of a host. Both are safe to repeat.
pub trait Tools: Send + Sync + 'static {
    /// Loads a bitstream into a card.
    fn load<'a>(&'a self, load: Load<'a>) -> Doing<'a>;

    /// Clears a function of what its last guest left.
    fn clean<'a>(&'a self, function: Function<'a>) -> Doing<'a>;
}
