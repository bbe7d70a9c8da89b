//! Shared parts of the programs: failures, configuration file, state directory, logs, stop
//! signals, and notifications to systemd.
//!
//! This crate must never depend on the purpose of a program: each program reads its specific
//! options itself.

pub mod config;
mod failure;
pub mod logs;
pub mod signals;
pub mod state;
pub mod systemd;

pub use failure::{Failure, say, say_done};

/// The machine's host name; `localhost` if the kernel reports none.
pub fn host_name() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = read.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}
