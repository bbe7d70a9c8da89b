//! Create, delete, start, stop, reboot.

use jiff::Timestamp;
use kilonova_compute_scheduler::NoHost;
use kilonova_ids::HostName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Action, Row, Step, Unreadable};

/// The message for a wait that an earlier version began without storing a message.
const MOVES_FAILED: &str = "The moves that should make room failed.";

/// `create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Create {
    /// No host has room; moves that make room are in progress. The server has no claims.
    Wait {
        /// The end of the wait, by the database's clock.
        until: Timestamp,
        /// Why no host has room, for administrators.
        reason: String,
        /// The message for the owner.
        message: String,
    },
    /// The host starts the guest.
    Spawn {
        /// The scheduling decision, for operators; `None` if no host was found.
        chosen: Option<String>,
        /// Hosts that failed.
        tried: Vec<HostName>,
        /// The last failure.
        reason: Option<String>,
    },
    /// The guest runs, and its ports are not plugged yet. Only earlier versions begin this step.
    Plug {
        /// Hosts that failed before.
        tried: Vec<HostName>,
    },
    /// The host failed and removes the guest.
    Clear {
        /// Hosts that failed.
        tried: Vec<HostName>,
        /// The last failure.
        reason: String,
        /// True if no other host should be tried.
        aborted: bool,
    },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CreateData {
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tried: Vec<HostName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    aborted: bool,
    /// Microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<i64>,
}

impl Create {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        match row.step {
            Step::Wait => {
                let CreateData { chosen, tried, reason, message, aborted, until } = row.parse()?;
                row.never("chosen", chosen.is_some())?;
                row.never("tried", !tried.is_empty())?;
                row.never("aborted", aborted)?;
                let until = row.required("until", until)?;
                let until = Timestamp::from_microsecond(until).map_err(|why| row.wrong(why))?;
                let reason = row.required("reason", reason)?;
                let message = message.unwrap_or_else(|| NoHost::new(MOVES_FAILED).message());
                Ok(Self::Wait { until, reason, message })
            }
            Step::Spawn => {
                let CreateData { chosen, tried, reason, message, aborted, until } = row.parse()?;
                row.never("aborted", aborted)?;
                row.never("until", until.is_some())?;
                row.never("message", message.is_some())?;
                Ok(Self::Spawn { chosen, tried, reason })
            }
            Step::Plug => {
                let CreateData { chosen, tried, reason, message, aborted, until } = row.parse()?;
                row.never("until", until.is_some())?;
                row.never("message", message.is_some())?;
                row.never("chosen", chosen.is_some())?;
                row.never("reason", reason.is_some())?;
                row.never("aborted", aborted)?;
                Ok(Self::Plug { tried })
            }
            Step::Clear => {
                let CreateData { chosen, tried, reason, message, aborted, until } = row.parse()?;
                row.never("until", until.is_some())?;
                row.never("message", message.is_some())?;
                row.never("chosen", chosen.is_some())?;
                Ok(Self::Clear { tried, reason: row.required("reason", reason)?, aborted })
            }
            _ => Err(row.not_a_step()),
        }
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Wait { .. } => Step::Wait,
            Self::Spawn { .. } => Step::Spawn,
            Self::Plug { .. } => Step::Plug,
            Self::Clear { .. } => Step::Clear,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(match self.clone() {
            Self::Wait { until, reason, message } => CreateData {
                until: Some(until.as_microsecond()),
                reason: Some(reason),
                message: Some(message),
                ..CreateData::default()
            },
            Self::Spawn { chosen, tried, reason } => {
                CreateData { chosen, tried, reason, ..CreateData::default() }
            }
            Self::Plug { tried } => CreateData { tried, ..CreateData::default() },
            Self::Clear { tried, reason, aborted } => {
                CreateData { tried, reason: Some(reason), aborted, ..CreateData::default() }
            }
        })
    }
}

/// `delete`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delete {
    /// The hosts remove the guest.
    Destroy {
        /// Why the last attempt failed.
        reason: Option<String>,
    },
    /// The server has no guest and no claims; Neutron and Cinder release its ports and volumes.
    Release {
        /// The last host that removed the guest.
        host: HostName,
    },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct DeleteData {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostName>,
}

impl Delete {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let DeleteData { reason, host } = row.parse()?;
        if row.step == Step::Release {
            row.never("reason", reason.is_some())?;
            return Ok(Self::Release { host: row.required("host", host)? });
        }
        row.never("host", host.is_some())?;
        Ok(Self::Destroy { reason })
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Destroy { .. } => Step::Destroy,
            Self::Release { .. } => Step::Release,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        let data = match self.clone() {
            Self::Destroy { reason } => DeleteData { reason, host: None },
            Self::Release { host } => DeleteData { reason: None, host: Some(host) },
        };
        serde_json::to_value(data)
    }
}

/// A change of the power state, which the host applies to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerAction {
    /// `start`.
    Start,
    /// `stop`.
    Stop,
    /// `reboot`; the document distinguishes soft and hard.
    Reboot,
}

impl PowerAction {
    pub(super) fn read(row: Row<'_>, power: Self) -> Result<Self, Unreadable> {
        if row.step != Step::Settle {
            return Err(row.not_a_step());
        }
        row.nothing()?;
        Ok(power)
    }

    /// The instance action.
    pub fn action(self) -> Action {
        match self {
            Self::Start => Action::Start,
            Self::Stop => Action::Stop,
            Self::Reboot => Action::Reboot,
        }
    }
}
