//! The health of devices: the present state in sysfs, and past events.
//!
//! Owns the memory of events: a small file that survives restarts of the agent and is discarded
//! when the host reboots. An unreadable attribute does not count against a device: few drivers and
//! no simulation provide all of them.

mod log;
mod now;
mod xid;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use kilonova_node_api::Health;
use serde::{Deserialize, Serialize};

use crate::Sysfs;
use log::{Cursor, KernelLog, Line};
use now::Counters;
pub(crate) use now::is_vfio;
pub use xid::XidPolicy;
use xid::{Action, Xid};

/// Maximum number of devices in memory, as a log can name any address.
const MOST_DEVICES: usize = 1024;

/// `[devices] kernel_log` and `xid_policy`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthOptions {
    /// `/dev/kmsg`, or a file.
    pub kernel_log: Option<PathBuf>,
    /// The reaction to Xid messages.
    pub xid_policy: XidPolicy,
}

/// An event of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Event {
    reason: String,
    #[serde(with = "jiff::fmt::serde::timestamp::microsecond::required")]
    since: Timestamp,
}

/// The newest event of each severity, and the error counters at the last check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Past {
    failed: Option<Event>,
    degraded: Option<Event>,
    #[serde(default)]
    counted: Counters,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    /// The boot that it belongs to.
    boot: String,
    /// The boot time, as first computed.
    #[serde(with = "jiff::fmt::serde::timestamp::microsecond::required")]
    started: Timestamp,
    cursor: Option<Cursor>,
    devices: BTreeMap<String, Past>,
}

struct State {
    memory: Memory,
    /// The form of the memory in the file.
    kept: Memory,
    log: Option<KernelLog>,
    /// True if an event arrived that has not been reported.
    unreported: bool,
}

/// Watches the health of a host's devices.
pub struct Watch {
    policy: XidPolicy,
    file: Option<PathBuf>,
    state: Mutex<State>,
}

impl Watch {
    /// Loads the file, unless the host has rebooted since: `boot` is the current boot id. Without a
    /// file, the memory ends with this watch.
    pub fn open(options: &HealthOptions, file: Option<PathBuf>, boot: &str) -> Self {
        let kept = file.as_deref().map(read).unwrap_or_default();
        let mut memory = if kept.boot == boot { kept.clone() } else { Memory::default() };
        if memory.boot != boot {
            memory.boot = boot.to_owned();
            let now = now();
            memory.started = now.checked_sub(uptime()).unwrap_or(now);
        }
        let log = options.kernel_log.as_deref().map(KernelLog::new);
        let state = Mutex::new(State { memory, kept, log, unreported: false });
        Self { policy: options.xid_policy.clone(), file, state }
    }

    /// Reads the new lines of the log. [`Watch::take_unreported_events`] tells whether they changed any health.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn listen(&self) -> io::Result<()> {
        let mut state = self.state();
        let State { memory, log, .. } = &mut *state;
        let Some(log) = log else { return Ok(()) };
        let (lines, skipped) = log.read(&mut memory.cursor)?;
        if skipped > 0 {
            tracing::warn!(skipped, "the kernel log grew too fast; skipped a part of it");
        }
        let mut changed = false;
        for line in &lines {
            changed |= self.record_line(memory, line);
        }
        state.unreported |= changed;
        self.keep(&mut state);
        Ok(())
    }

    /// True if an event arrived since [`Watch::take_unreported_events`] was called.
    pub fn has_unreported_events(&self) -> bool {
        self.state().unreported
    }

    /// Returns [`Watch::has_unreported_events`] and resets it.
    pub fn take_unreported_events(&self) -> bool {
        std::mem::take(&mut self.state().unreported)
    }

    /// True if there is a log: without one, no event ever arrives.
    pub fn has_log(&self) -> bool {
        self.state().log.is_some()
    }

    /// True if the log is unchanged since the last read. Only checks the file's length.
    pub fn is_quiet(&self) -> bool {
        let state = self.state();
        state.log.as_ref().is_none_or(|log| log.is_quiet(state.memory.cursor))
    }

    fn record_line(&self, memory: &mut Memory, line: &Line) -> bool {
        let when = line
            .uptime
            .and_then(|uptime| memory.started.checked_add(uptime).ok())
            .unwrap_or_else(now);
        if let Some((address, reason)) = now::bind_error(&line.text) {
            return remember(memory, address, true, Event { reason, since: when });
        }
        let Some(xid) = Xid::parse(&line.text) else { return false };
        let reason = xid.reason();
        match self.policy.action(xid.number) {
            Action::Ignore => false,
            Action::Report => remember(memory, xid.address, false, Event { reason, since: when }),
            Action::Quarantine => {
                remember(memory, xid.address, true, Event { reason, since: when })
            }
        }
    }

    /// The health of a device, from its present state and past events.
    pub(crate) fn health(&self, sysfs: &dyn Sysfs, address: &str) -> Health {
        let now_so = now::health(sysfs, address);
        let mut state = self.state();
        let counted = now::counters(sysfs, address);
        count(&mut state.memory, address, counted);
        let past = state.memory.devices.get(address).map_or(Health::Healthy, Past::health);
        self.keep(&mut state);
        worse(now_so, past)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the memory if it has changed. A write error is logged and not fatal, as the kernel
    /// log is read again. A change of only the log position does not create the directory.
    fn keep(&self, state: &mut State) {
        let Some(file) = &self.file else { return };
        if state.memory == state.kept {
            return;
        }
        match write(file, &state.memory) {
            Ok(()) => state.kept = state.memory.clone(),
            Err(error)
                if error.kind() == ErrorKind::NotFound && state.memory.devices.is_empty() =>
            {
                state.kept = state.memory.clone();
            }
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "could not record the health of devices");
            }
        }
    }
}

impl Past {
    fn health(&self) -> Health {
        let cause = |event: &Event| (event.reason.clone(), Some(event.since));
        if let Some((reason, since)) = self.failed.as_ref().map(cause) {
            return Health::Failed { reason, since };
        }
        match self.degraded.as_ref().map(cause) {
            Some((reason, since)) => Health::Degraded { reason, since },
            None => Health::Healthy,
        }
    }
}

/// The health of a device without a memory: all counted errors are events without a time.
pub(crate) fn health_without_memory(sysfs: &dyn Sysfs, address: &str) -> Health {
    let counted = now::counters(sysfs, address).unwrap_or_default();
    worse(now::health(sysfs, address), counted.health())
}

/// The worse of two; a present condition takes precedence over a past event.
pub(crate) fn worse(one: Health, other: Health) -> Health {
    let weight = |health: &Health| match health {
        Health::Healthy => 0,
        Health::Degraded { .. } => 1,
        Health::Failed { .. } => 2,
    };
    if weight(&other) > weight(&one) { other } else { one }
}

/// Keeps the newest event of its severity. Returns whether it changed anything.
fn remember(memory: &mut Memory, address: String, fatal: bool, event: Event) -> bool {
    if memory.devices.len() >= MOST_DEVICES && !memory.devices.contains_key(&address) {
        return false;
    }
    let past = memory.devices.entry(address).or_default();
    let place = if fatal { &mut past.failed } else { &mut past.degraded };
    let newer = place.as_ref().is_none_or(|before| before.since < event.since);
    if newer {
        *place = Some(event);
    }
    newer
}

/// An increased counter is an event. A decreased one means that the device was reset or replaced.
fn count(memory: &mut Memory, address: &str, counted: Option<Counters>) {
    let Some(counted) = counted else { return };
    let known = memory.devices.get(address).map(|past| past.counted).unwrap_or_default();
    if counted == known {
        return;
    }
    let since = now();
    for (more, fatal) in
        [(counted.fatal > known.fatal, true), (counted.nonfatal > known.nonfatal, false)]
    {
        if more {
            let reason = if fatal { counted.fatal_reason() } else { counted.nonfatal_reason() };
            remember(memory, address.to_owned(), fatal, Event { reason, since });
        }
    }
    if let Some(past) = memory.devices.get_mut(address) {
        past.counted = counted;
    }
}

fn read(file: &Path) -> Memory {
    match std::fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::warn!(file = %file.display(), %error, "ignoring an invalid record of the devices' health");
            Memory::default()
        }),
        Err(_) => Memory::default(),
    }
}

fn write(file: &Path, memory: &Memory) -> io::Result<()> {
    if let (Some(folder), false) = (file.parent(), memory.devices.is_empty()) {
        std::fs::create_dir_all(folder)?;
    }
    let whole = file.with_extension("new");
    std::fs::write(&whole, serde_json::to_vec(memory)?)?;
    std::fs::rename(&whole, file)
}

/// Now, to the microsecond that the file keeps.
fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// Time since boot.
fn uptime() -> SignedDuration {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: Option<f64> = text.split_whitespace().next().and_then(|word| word.parse().ok());
    SignedDuration::from_micros(seconds.map_or(0, |seconds| (seconds * 1e6) as i64))
}

#[cfg(test)]
mod tests;
