//! What the programs share: how they end badly, their configuration file, their state directory,
//! their logs, and what they tell systemd.
//!
//! It must never know what either program does: options that only one of them has are read there.

pub mod config;
mod failure;
pub mod logs;
pub mod state;
pub mod systemd;

pub use failure::Failure;

/// What this machine is called; `localhost` where the kernel does not say.
pub fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = read.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
