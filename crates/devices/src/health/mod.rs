//! Whether a device is fit to be given out: what sysfs says of it now, and what has happened to it.
//!
//! Owns the memory of what has happened, a small file that lasts from one start of the agent to the
//! next and is void when the host itself was started anew. What cannot be read says nothing against
//! a device: few drivers and no simulation show all of it.

mod log;
mod now;
mod xid;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use kilonova_node_api::Health;
use serde::{Deserialize, Serialize};

use crate::Sysfs;
use log::{Cursor, KernelLog, Line};
use now::Counters;
pub(crate) use now::is_vfio;
pub use xid::XidPolicy;
use xid::{Action, Xid};

/// Devices of which something is remembered; a log can name any address.
const MOST_DEVICES: usize = 1024;

/// `[devices] kernel_log` and `xid_policy`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthOptions {
    /// `/dev/kmsg`, or a file.
    pub kernel_log: Option<PathBuf>,
    /// What Xid messages do.
    pub xid_policy: XidPolicy,
}

/// Something that has happened to a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Event {
    reason: String,
    since: i64,
}

/// The newest event of each weight, and the errors that were counted when last looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Past {
    failed: Option<Event>,
    degraded: Option<Event>,
    #[serde(default)]
    counted: Counters,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Memory {
    /// Which start of the host it is of.
    boot: String,
    /// When the host was started (microseconds since 1970), as first worked out.
    started: i64,
    cursor: Option<Cursor>,
    devices: BTreeMap<String, Past>,
}

struct State {
    memory: Memory,
    /// As it is in the file.
    kept: Memory,
    log: Option<KernelLog>,
    /// Something was heard and not yet asked for.
    news: bool,
}

/// Follows the health of a host's devices.
pub struct Watch {
    policy: XidPolicy,
    file: Option<PathBuf>,
    state: Mutex<State>,
}

impl Watch {
    /// Goes on with what the file holds, unless the host was started since: `boot` is the id of this
    /// start. Without a file nothing outlasts the value.
    pub fn open(options: &HealthOptions, file: Option<PathBuf>, boot: &str) -> Self {
        let kept = file.as_deref().map(read).unwrap_or_default();
        let mut memory = if kept.boot == boot { kept.clone() } else { Memory::default() };
        if memory.boot != boot {
            memory.boot = boot.to_owned();
            memory.started = now() - uptime();
        }
        let log = options.kernel_log.as_deref().map(KernelLog::new);
        let state = Mutex::new(State { memory, kept, log, news: false });
        Self { policy: options.xid_policy.clone(), file, state }
    }

    /// Reads what is new in the log. Whether it changed the health of anything, [`Watch::news`] says.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn listen(&self) -> io::Result<()> {
        let mut state = self.state();
        let State { memory, log, .. } = &mut *state;
        let Some(log) = log else { return Ok(()) };
        let (lines, skipped) = log.read(&mut memory.cursor)?;
        if skipped > 0 {
            tracing::warn!(skipped, "the kernel log grew too fast; some bytes of it were not read");
        }
        let mut changed = false;
        for line in &lines {
            changed |= self.hear(memory, line);
        }
        state.news |= changed;
        self.keep(&mut state);
        Ok(())
    }

    /// Whether something was heard since the last time that it was asked for.
    pub fn has_news(&self) -> bool {
        self.state().news
    }

    /// The same, and it has been asked for now.
    pub fn news(&self) -> bool {
        std::mem::take(&mut self.state().news)
    }

    /// Whether the log is surely as it was when last read. It asks for the file's length, no more.
    pub fn is_quiet(&self) -> bool {
        let state = self.state();
        state.log.as_ref().is_none_or(|log| log.is_quiet(state.memory.cursor))
    }

    fn hear(&self, memory: &mut Memory, line: &Line) -> bool {
        let when = line.uptime.map_or_else(now, |uptime| memory.started + uptime);
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

    /// The health of a device, by what is so now and what has happened.
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

    /// Writes the memory down if it has changed. What cannot be written is told and not fatal: the
    /// kernel's own log is read again. Nothing but how far the log was read is not worth a folder.
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
                tracing::warn!(file = %file.display(), %error, "the health of devices cannot be noted");
            }
        }
    }
}

impl Past {
    fn health(&self) -> Health {
        let said = |event: &Event| (event.reason.clone(), Some(event.since));
        if let Some((reason, since)) = self.failed.as_ref().map(said) {
            return Health::Failed { reason, since };
        }
        match self.degraded.as_ref().map(said) {
            Some((reason, since)) => Health::Degraded { reason, since },
            None => Health::Healthy,
        }
    }
}

/// The health of a device without a memory: errors that were ever counted are events of no known
/// time.
pub(crate) fn at_first_sight(sysfs: &dyn Sysfs, address: &str) -> Health {
    let counted = now::counters(sysfs, address).unwrap_or_default();
    worse(now::health(sysfs, address), counted.health())
}

/// The worse of two; what is so now before what has happened.
pub(crate) fn worse(one: Health, other: Health) -> Health {
    let weight = |health: &Health| match health {
        Health::Healthy => 0,
        Health::Degraded { .. } => 1,
        Health::Failed { .. } => 2,
    };
    if weight(&other) > weight(&one) { other } else { one }
}

/// Keeps the newest event of its weight; says whether that is news.
fn remember(memory: &mut Memory, address: String, fatal: bool, event: Event) -> bool {
    if memory.devices.len() >= MOST_DEVICES && !memory.devices.contains_key(&address) {
        return false;
    }
    let past = memory.devices.entry(address).or_default();
    let place = if fatal { &mut past.failed } else { &mut past.degraded };
    let news = place.as_ref().is_none_or(|before| before.since < event.since);
    if news {
        *place = Some(event);
    }
    news
}

/// Errors more than before are an event. Fewer are a device that was reset or put back.
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
            tracing::warn!(file = %file.display(), %error, "what was noted of devices means nothing");
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

/// Microseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds since the host was started.
fn uptime() -> i64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: Option<f64> = text.split_whitespace().next().and_then(|word| word.parse().ok());
    seconds.map_or(0, |seconds| (seconds * 1e6) as i64)
}

#[cfg(test)]
mod tests;
