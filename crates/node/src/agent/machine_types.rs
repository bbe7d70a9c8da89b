//! The machine types that hosts choose for guests, and whether the control plane knows them.
//!
//! The control plane passes a machine type to the next host of the guest, so that the guest finds the same hardware there.
//! This file must never fail a document: a type that cannot be read is reported with a later one.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kilonova_ids::ServerId;
use kilonova_node_api::Outcome;

use super::work::Work;

/// The servers whose machine type this process has reported since it got all documents.
#[derive(Default)]
pub(super) struct MachineTypes {
    reported: Mutex<HashSet<ServerId>>,
}

impl MachineTypes {
    /// Reports the machine type of a guest again, because its domain has been defined or removed.
    pub(super) fn forget(&self, server: ServerId) {
        self.reported().remove(&server);
    }

    /// Reports all machine types again. The control plane may have lost them.
    pub(super) fn forget_all(&self) {
        self.reported().clear();
    }

    fn reported(&self) -> MutexGuard<'_, HashSet<ServerId>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// The machine type to report with this outcome: that of a guest which exists here, unless it has been reported.
    pub(super) async fn unreported_machine_type(
        &self,
        server: ServerId,
        outcome: &Outcome,
    ) -> Option<String> {
        let is_here = match outcome {
            Outcome::Running | Outcome::Paused | Outcome::Suspended | Outcome::Stopped => true,
            Outcome::Ready
            | Outcome::Working { .. }
            | Outcome::MigratingOut(_)
            | Outcome::MigratedOut
            | Outcome::Absent
            | Outcome::Failed { .. } => false,
        };
        if !is_here || self.machine_types.reported().contains(&server) {
            return None;
        }
        match self.hypervisor.kept_machine_type(server).await {
            Ok(machine_type) => {
                self.machine_types.reported().insert(server);
                machine_type
            }
            Err(error) => {
                tracing::debug!(host = %self.host(), %server, %error, "could not read the machine type of a guest");
                None
            }
        }
    }
}
