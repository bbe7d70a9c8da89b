//! Durable operations of servers: each kind, its steps, and the data of each step.
//!
//! The journal ([`kilonova_flow`]) stores three columns, `kind`, `step` and `data`, and does not interpret them.
//! [`Operation::read`] and [`Operation::write`] are the only places that translate between these columns and the types
//! of this module. A row that matches no type is an [`Unreadable`] error; it never becomes a default.
//!
//! This module must never change a row or read a server: the flows do.

mod in_place;
mod migration;
mod names;
mod server;

use kilonova_compute_db::servers::VmState;
use serde_json::Value;

pub use in_place::{
    Backup, Before, InPlace, InPlaceChange, InPlaceStep, Offload, OffloadCause, Unshelve,
    UnshelveState,
};
pub use migration::{
    AskedSource, Attempts, ColdMigration, ColdState, Evacuation, EvacuationState, GuestReport,
    LiveMigration, Revert, RevertState, Transit,
};
pub use names::{Action, Step};
pub use server::{Create, Delete, PowerAction};

/// A durable operation at one of its steps.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// `create`.
    Create(Create),
    /// `delete`, permanently.
    Delete(Delete),
    /// `start`, `stop`, `reboot`.
    Power(PowerAction),
    /// A change of the guest on its host, a soft delete included.
    InPlace(InPlace),
    /// The host removes the guest of a shelved server (`shelve` at its end, `shelveOffload`).
    Offload(Offload),
    /// `unshelve` of a server that is on no host.
    Unshelve(Unshelve),
    /// `resize`.
    Resize(ColdMigration),
    /// `migrate`.
    Migrate(ColdMigration),
    /// `revertResize`.
    Revert(Revert),
    /// `evacuate`.
    Evacuate(Evacuation),
    /// `live-migration`.
    LiveMigration(LiveMigration),
    /// An action that was complete when it was requested.
    Recorded(Action),
}

/// Why a row of the journal is not a valid operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No operation has this kind.
    #[error("unknown kind {0:?}")]
    Kind(String),
    /// No operation has this step.
    #[error("unknown step {0:?}")]
    Step(String),
    /// Operations of this kind do not have this step.
    #[error("{0} has no step {1}")]
    NotAStep(Action, Step),
    /// The data does not match this step.
    #[error("data of {0} at step {1}: {2}")]
    Data(Action, Step, String),
}

/// The columns of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// `kind`.
    pub action: Action,
    /// `step`.
    pub step: Step,
    /// `data`.
    pub data: Value,
}

impl Operation {
    /// Reads the journal's columns.
    ///
    /// # Errors
    /// [`Unreadable`] when they describe no operation.
    pub fn read(kind: &str, step: &str, data: &Value) -> Result<Self, Unreadable> {
        let action = Action::parse(kind).ok_or_else(|| Unreadable::Kind(kind.to_owned()))?;
        let step = Step::parse(step).ok_or_else(|| Unreadable::Step(step.to_owned()))?;
        let row = Row { action, step, data };
        if step == Step::Done {
            row.nothing()?;
            return Ok(Self::Recorded(action));
        }
        match action {
            Action::Create => Create::read(row).map(Self::Create),
            Action::Delete => match step {
                Step::Destroy | Step::Release => Delete::read(row).map(Self::Delete),
                _ => InPlace::read(row).map(Self::InPlace),
            },
            Action::Start => PowerAction::read(row, PowerAction::Start).map(Self::Power),
            Action::Stop => PowerAction::read(row, PowerAction::Stop).map(Self::Power),
            Action::Reboot => PowerAction::read(row, PowerAction::Reboot).map(Self::Power),
            Action::Pause
            | Action::Unpause
            | Action::Suspend
            | Action::Resume
            | Action::Rescue
            | Action::Unrescue
            | Action::Rebuild
            | Action::CreateImage
            | Action::CreateBackup
            | Action::Guest(_)
            | Action::Restore => InPlace::read(row).map(Self::InPlace),
            Action::Shelve => match step {
                Step::Clear => Offload::read(row).map(Self::Offload),
                _ => InPlace::read(row).map(Self::InPlace),
            },
            Action::ShelveOffload => Offload::read(row).map(Self::Offload),
            Action::Unshelve => match step {
                Step::Unshelve | Step::ClearUnshelve => Unshelve::read(row).map(Self::Unshelve),
                _ => InPlace::read(row).map(Self::InPlace),
            },
            Action::Resize => ColdMigration::read(row).map(Self::Resize),
            Action::Migrate => ColdMigration::read(row).map(Self::Migrate),
            Action::RevertResize => Revert::read(row).map(Self::Revert),
            Action::Evacuate => Evacuation::read(row).map(Self::Evacuate),
            Action::LiveMigration => LiveMigration::read(row).map(Self::LiveMigration),
            Action::ConfirmResize
            | Action::LiveMigrationCancel
            | Action::LiveMigrationForceComplete
            | Action::Lock
            | Action::Unlock
            | Action::ResetState
            | Action::AttachInterface
            | Action::DetachInterface
            | Action::AttachVolume
            | Action::DetachVolume
            | Action::ExtendVolume
            | Action::ChangePassword => Err(row.not_a_step()),
        }
    }

    /// The instance action that users see.
    pub fn action(&self) -> Action {
        match self {
            Self::Create(_) => Action::Create,
            Self::Delete(_) => Action::Delete,
            Self::Power(power) => power.action(),
            Self::InPlace(in_place) => in_place.action(),
            Self::Offload(offload) => offload.action(),
            Self::Unshelve(_) => Action::Unshelve,
            Self::Resize(_) => Action::Resize,
            Self::Migrate(_) => Action::Migrate,
            Self::Revert(_) => Action::RevertResize,
            Self::Evacuate(_) => Action::Evacuate,
            Self::LiveMigration(_) => Action::LiveMigration,
            Self::Recorded(action) => *action,
        }
    }

    /// The step as it is stored.
    pub fn step(&self) -> Step {
        match self {
            Self::Create(create) => create.step(),
            Self::Delete(delete) => delete.step(),
            Self::Power(_) => Step::Settle,
            Self::InPlace(in_place) => in_place.step(),
            Self::Offload(_) => Step::Clear,
            Self::Unshelve(unshelve) => unshelve.step(),
            Self::Resize(cold) | Self::Migrate(cold) => cold.step(),
            Self::Revert(revert) => revert.step(),
            Self::Evacuate(evacuation) => evacuation.step(),
            Self::LiveMigration(live) => live.step(),
            Self::Recorded(_) => Step::Done,
        }
    }

    /// Returns the columns that the journal stores for this operation.
    ///
    /// # Errors
    /// [`Unreadable::Data`] if the data cannot be serialized.
    pub fn write(&self) -> Result<Columns, Unreadable> {
        let (action, step) = (self.action(), self.step());
        let data = match self {
            Self::Create(create) => create.data(),
            Self::Delete(delete) => delete.data(),
            Self::Power(_) | Self::Recorded(_) => Ok(Value::Object(serde_json::Map::new())),
            Self::InPlace(in_place) => in_place.data(),
            Self::Offload(offload) => offload.data(),
            Self::Unshelve(unshelve) => unshelve.data(),
            Self::Resize(cold) | Self::Migrate(cold) => cold.data(),
            Self::Revert(revert) => revert.data(),
            Self::Evacuate(evacuation) => evacuation.data(),
            Self::LiveMigration(live) => live.data(),
        };
        let data = data.map_err(|error| Unreadable::Data(action, step, error.to_string()))?;
        Ok(Columns { action, step, data })
    }

    /// True if the operation moves the server: a resize, its revert, an evacuation or a migration.
    pub fn is_move(&self) -> bool {
        match self {
            Self::Resize(_)
            | Self::Migrate(_)
            | Self::Revert(_)
            | Self::Evacuate(_)
            | Self::LiveMigration(_) => true,
            Self::Create(_)
            | Self::Delete(_)
            | Self::Power(_)
            | Self::InPlace(_)
            | Self::Offload(_)
            | Self::Unshelve(_)
            | Self::Recorded(_) => false,
        }
    }

    /// True if the operation is a soft delete, which `restore` undoes.
    pub fn is_soft_delete(&self) -> bool {
        matches!(self, Self::InPlace(InPlace { change: InPlaceChange::SoftDelete, .. }))
    }
}

/// The columns that are being read.
#[derive(Clone, Copy)]
struct Row<'a> {
    action: Action,
    step: Step,
    data: &'a Value,
}

impl Row<'_> {
    fn not_a_step(self) -> Unreadable {
        Unreadable::NotAStep(self.action, self.step)
    }

    fn wrong(self, why: impl ToString) -> Unreadable {
        Unreadable::Data(self.action, self.step, why.to_string())
    }

    fn parse<T: serde::de::DeserializeOwned>(self) -> Result<T, Unreadable> {
        serde_json::from_value(self.data.clone()).map_err(|error| self.wrong(error))
    }

    /// Reads a field that this step always has.
    fn required<T>(self, field: &str, value: Option<T>) -> Result<T, Unreadable> {
        value.ok_or_else(|| self.wrong(format!("no {field}")))
    }

    /// Refuses a field that this step never has.
    fn never(self, field: &str, is_set: bool) -> Result<(), Unreadable> {
        if is_set { Err(self.wrong(format!("unexpected {field}"))) } else { Ok(()) }
    }

    fn nothing(self) -> Result<(), Unreadable> {
        let empty = self.data.as_object().is_some_and(serde_json::Map::is_empty);
        self.never("data", !empty)
    }

    fn vm_state(self, text: &str) -> Result<VmState, Unreadable> {
        VmState::parse(text).map_err(|error| self.wrong(error))
    }
}
