//! Moves of a server: resize, cold and live migration, revert, evacuation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kilonova_ids::{HostName, ProviderId};
use kilonova_node_api::{Attachment, Power};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Row, Step, Unreadable};

/// The search for a place: the request, the place in use, the hosts that failed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Attempts {
    /// The requested destination.
    pub requested: Option<HostName>,
    /// True to use the requested destination regardless of its zone.
    pub force: bool,
    /// The devices of the place in use.
    pub devices: Vec<Attachment>,
    /// The scheduling decision for the place in use, for operators.
    pub chosen: Option<String>,
    /// Hosts that failed.
    pub tried: Vec<HostName>,
    /// The last failure.
    pub reason: Option<String>,
}

impl Attempts {
    /// The last failure, as text for users.
    pub fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or("The move failed.")
    }
}

/// `resize` and `migrate`.
#[derive(Debug, Clone, PartialEq)]
pub enum ColdMigration {
    /// There is no place yet.
    Begin,
    /// The source shuts off the guest.
    StopSource(ColdState),
    /// The destination creates the guest.
    MakeDest(ColdState),
    /// The destination removes the guest.
    DropDest(ColdState),
    /// The source restores the guest.
    Restore(ColdState),
}

/// The state of a cold migration.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdState {
    /// The search for a place.
    pub attempts: Attempts,
    /// The guest's power state at the destination.
    pub power: Power,
}

/// `revertResize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revert {
    /// Nothing is done yet.
    Begin,
    /// The source reports whether it still has the guest.
    AskSource(AskedSource),
    /// The destination removes the guest.
    DropDest(RevertState),
    /// The source restores the guest.
    Restore(RevertState),
}

/// The state of a revert whose source is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AskedSource {
    /// The amounts that the server had claimed for its ports by then, by provider and class.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub claimed: BTreeMap<ProviderId, BTreeMap<String, i64>>,
}

/// The state of a revert.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevertState {
    /// The destination that the server leaves.
    pub tried: Vec<HostName>,
}

/// `evacuate`.
#[derive(Debug, Clone, PartialEq)]
pub enum Evacuation {
    /// There is no place yet.
    Begin,
    /// The destination creates the guest.
    MakeDest(EvacuationState),
    /// A destination removes the guest before the next one is tried.
    DropDest(EvacuationState),
}

/// The state of an evacuation.
#[derive(Debug, Clone, PartialEq)]
pub struct EvacuationState {
    /// The search for a place.
    pub attempts: Attempts,
    /// The guest's power state at the destination.
    pub power: Power,
}

/// `live-migration`.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveMigration {
    /// There is no place yet.
    Begin,
    /// Other guests leave the source first.
    Queued(Attempts),
    /// The destination prepares.
    Receive(Attempts),
    /// The source sends the guest.
    Transfer(Transit),
    /// The source stops sending the guest and reports its state.
    Abort(Transit),
    /// The destination reports the state of the guest.
    Locate(Transit),
    /// The destination takes over the guest.
    Arrive(Transit),
    /// The destination removes its side of the guest.
    DropDest(Transit),
    /// The source starts the guest again, because it did not survive the attempt.
    Restore(Transit),
}

/// The state of a live migration once the guest may leave.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Transit {
    /// The search for a place.
    pub attempts: Attempts,
    /// True if an operator aborted the migration.
    pub cancelled: bool,
    /// True if the guest may have left the source.
    pub sent: bool,
    /// The source's last report, if one was requested and received.
    pub source: Option<GuestReport>,
    /// The time of the first request to the destination.
    pub asked: Option<Timestamp>,
    /// True if the server is in `ERROR` because the destination has not reported for too long.
    pub lost: bool,
    /// True if the guest does not run on the source, which starts it again.
    pub stopped: bool,
}

impl From<Attempts> for Transit {
    fn from(attempts: Attempts) -> Self {
        Self { attempts, ..Self::default() }
    }
}

/// The state of a guest, as a host reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestReport {
    /// The guest runs on that host.
    #[serde(rename = "runs")]
    Running,
    /// The guest is on that host, paused.
    #[serde(rename = "stands_still")]
    Paused,
    /// The guest is not on that host.
    #[serde(rename = "nothing")]
    Absent,
}

/// The stored form of all moves.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Data {
    devices: Vec<Attachment>,
    power: Option<Power>,
    host: Option<HostName>,
    force: bool,
    chosen: Option<String>,
    tried: Vec<HostName>,
    reason: Option<String>,
    cancelled: bool,
    sent: bool,
    source: Option<GuestReport>,
    #[serde(
        skip_serializing_if = "Option::is_none",
        with = "jiff::fmt::serde::timestamp::microsecond::optional"
    )]
    asked: Option<Timestamp>,
    /// The stored field keeps its name from earlier builds.
    #[serde(rename = "told")]
    lost: bool,
    stopped: bool,
}

impl Data {
    fn of(attempts: &Attempts) -> Self {
        let Attempts { requested, force, devices, chosen, tried, reason } = attempts.clone();
        Self { host: requested, force, devices, chosen, tried, reason, ..Self::default() }
    }

    fn of_transit(transit: &Transit) -> Self {
        Self {
            cancelled: transit.cancelled,
            sent: transit.sent,
            source: transit.source,
            asked: transit.asked,
            lost: transit.lost,
            stopped: transit.stopped,
            ..Self::of(&transit.attempts)
        }
    }

    fn attempts(self) -> Attempts {
        let Self { devices, host, force, chosen, tried, reason, .. } = self;
        Attempts { requested: host, force, devices, chosen, tried, reason }
    }

    fn transit(self) -> Transit {
        let Self { cancelled, sent, source, asked, lost, stopped, .. } = self;
        Transit { cancelled, sent, source, asked, lost, stopped, attempts: self.attempts() }
    }

    fn no_power(&self, row: Row<'_>) -> Result<(), Unreadable> {
        row.never("power", self.power.is_some())
    }

    fn no_transit(&self, row: Row<'_>) -> Result<(), Unreadable> {
        row.never("cancelled", self.cancelled)?;
        row.never("sent", self.sent)?;
        row.never("source", self.source.is_some())?;
        row.never("asked", self.asked.is_some())?;
        row.never("told", self.lost)?;
        row.never("stopped", self.stopped)
    }
}

fn empty() -> Result<Value, serde_json::Error> {
    Ok(Value::Object(serde_json::Map::new()))
}

impl ColdMigration {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let state = || -> Result<ColdState, Unreadable> {
            let data: Data = row.parse()?;
            data.no_transit(row)?;
            let power = row.required("power", data.power)?;
            Ok(ColdState { attempts: data.attempts(), power })
        };
        match row.step {
            Step::Begin => row.nothing().map(|()| Self::Begin),
            Step::StopSource => state().map(Self::StopSource),
            Step::MakeDest => state().map(Self::MakeDest),
            Step::DropDest => state().map(Self::DropDest),
            Step::Restore => state().map(Self::Restore),
            _ => Err(row.not_a_step()),
        }
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Begin => Step::Begin,
            Self::StopSource(_) => Step::StopSource,
            Self::MakeDest(_) => Step::MakeDest,
            Self::DropDest(_) => Step::DropDest,
            Self::Restore(_) => Step::Restore,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        match self {
            Self::Begin => empty(),
            Self::StopSource(state)
            | Self::MakeDest(state)
            | Self::DropDest(state)
            | Self::Restore(state) => {
                serde_json::to_value(Data { power: Some(state.power), ..Data::of(&state.attempts) })
            }
        }
    }
}

impl Revert {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let state = || -> Result<RevertState, Unreadable> {
            let data: Data = row.parse()?;
            data.no_power(row)?;
            data.no_transit(row)?;
            row.never("devices", !data.devices.is_empty())?;
            row.never("host", data.host.is_some())?;
            row.never("force", data.force)?;
            row.never("chosen", data.chosen.is_some())?;
            row.never("reason", data.reason.is_some())?;
            Ok(RevertState { tried: data.tried })
        };
        match row.step {
            Step::Begin => row.nothing().map(|()| Self::Begin),
            Step::AskSource => row.parse().map(Self::AskSource),
            Step::DropDest => state().map(Self::DropDest),
            Step::Restore => state().map(Self::Restore),
            _ => Err(row.not_a_step()),
        }
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Begin => Step::Begin,
            Self::AskSource(_) => Step::AskSource,
            Self::DropDest(_) => Step::DropDest,
            Self::Restore(_) => Step::Restore,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        match self {
            Self::Begin => empty(),
            Self::AskSource(asked) => serde_json::to_value(asked),
            Self::DropDest(state) | Self::Restore(state) => {
                serde_json::to_value(Data { tried: state.tried.clone(), ..Data::default() })
            }
        }
    }
}

impl Evacuation {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let state = || -> Result<EvacuationState, Unreadable> {
            let data: Data = row.parse()?;
            data.no_transit(row)?;
            let power = row.required("power", data.power)?;
            Ok(EvacuationState { attempts: data.attempts(), power })
        };
        match row.step {
            Step::Begin => row.nothing().map(|()| Self::Begin),
            Step::MakeDest => state().map(Self::MakeDest),
            Step::DropDest => state().map(Self::DropDest),
            _ => Err(row.not_a_step()),
        }
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Begin => Step::Begin,
            Self::MakeDest(_) => Step::MakeDest,
            Self::DropDest(_) => Step::DropDest,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        match self {
            Self::Begin => empty(),
            Self::MakeDest(state) | Self::DropDest(state) => {
                serde_json::to_value(Data { power: Some(state.power), ..Data::of(&state.attempts) })
            }
        }
    }
}

impl LiveMigration {
    pub(super) fn read(row: Row<'_>) -> Result<Self, Unreadable> {
        let data = || -> Result<Data, Unreadable> {
            let data: Data = row.parse()?;
            data.no_power(row)?;
            Ok(data)
        };
        let attempts = || -> Result<Attempts, Unreadable> {
            let data = data()?;
            data.no_transit(row)?;
            Ok(data.attempts())
        };
        let transit = || data().map(Data::transit);
        match row.step {
            Step::Begin => row.nothing().map(|()| Self::Begin),
            Step::Queued => attempts().map(Self::Queued),
            Step::Receive => attempts().map(Self::Receive),
            Step::Transfer => transit().map(Self::Transfer),
            Step::Abort => transit().map(Self::Abort),
            Step::Locate => transit().map(Self::Locate),
            Step::Arrive => transit().map(Self::Arrive),
            Step::DropDest => transit().map(Self::DropDest),
            Step::Restore => transit().map(Self::Restore),
            _ => Err(row.not_a_step()),
        }
    }

    pub(super) fn step(&self) -> Step {
        match self {
            Self::Begin => Step::Begin,
            Self::Queued(_) => Step::Queued,
            Self::Receive(_) => Step::Receive,
            Self::Transfer(_) => Step::Transfer,
            Self::Abort(_) => Step::Abort,
            Self::Locate(_) => Step::Locate,
            Self::Arrive(_) => Step::Arrive,
            Self::DropDest(_) => Step::DropDest,
            Self::Restore(_) => Step::Restore,
        }
    }

    pub(super) fn data(&self) -> Result<Value, serde_json::Error> {
        match self {
            Self::Begin => empty(),
            Self::Queued(attempts) | Self::Receive(attempts) => {
                serde_json::to_value(Data::of(attempts))
            }
            Self::Transfer(transit)
            | Self::Abort(transit)
            | Self::Locate(transit)
            | Self::Arrive(transit)
            | Self::DropDest(transit)
            | Self::Restore(transit) => serde_json::to_value(Data::of_transit(transit)),
        }
    }
}
